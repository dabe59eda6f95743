//! Every form of a line, and lines that are refused.

use super::*;
use crate::vnet::print::line;

#[test]
fn vnet_every_form_is_parsed_and_printed() {
    for (said, printed) in [
        ("hello p4ss 0.9", "HELLO p4ss 0.9"),
        ("HELLO p 0.9 list links", "HELLO p 0.9 LIST LINKS"),
        ("Done\r\n", "DONE"),
        ("AddLink 10.0.0.2 9003 9000 pw udp", "ADDLINK 10.0.0.2 9003 9000 pw UDP"),
        ("DeleteLink far.example 0 pw tcp", "DELETELINK far.example 0 pw TCP"),
        ("RegisterLink myself 9000 UDP", "REGISTERLINK MYSELF 9000 UDP"),
        ("deregisterlink MYSELF UDP", "DEREGISTERLINK MYSELF UDP"),
        ("AddRoute any any EDGE 10.0.0.2", "ADDROUTE any any EDGE 10.0.0.2 ANY"),
        ("AddRoute any none edge a any any", "ADDROUTE any none EDGE a ANY"),
        (
            "DeleteRoute not-02:00:00:00:00:01 02:00:00:00:00:0A INTERFACE vm1 EDGE fd00::2",
            "DELETEROUTE not-02:00:00:00:00:01 02:00:00:00:00:0a INTERFACE vm1 EDGE fd00::2",
        ),
        (" add\t10.0.0.2 9000", "ADD LINK 10.0.0.2 9000 UDP"),
        ("ADD link 10.0.0.2 9000 TCP", "ADD LINK 10.0.0.2 9000 TCP"),
        ("ADD any any INTERFACE eth0 ANY", "ADDROUTE any any INTERFACE eth0 ANY"),
        ("ADD ROUTE any any EDGE a INTERFACE b", "ADDROUTE any any EDGE a INTERFACE b"),
        ("DEL LINK 7", "DEL LINK 7"),
        ("del route 18446744073709551615", "DEL ROUTE 18446744073709551615"),
        ("LIST routes", "LIST ROUTES"),
        ("DEVICES?", "LIST DEVICES"),
    ] {
        let command = parse(said.as_bytes()).unwrap().unwrap();
        assert_eq!(line(&command), printed, "{said}");
        assert_eq!(parse(printed.as_bytes()), Ok(Some(command)), "{printed}");
    }
    for nothing in ["", "  \t", "\r\n", "# HELLO", "#"] {
        assert_eq!(parse(nothing.as_bytes()), Ok(None));
    }
}

#[test]
fn vnet_hostile_lines_are_refused_with_the_expected_form() {
    for (said, expected) in [
        ("GET / HTTP/1.1", "unknown command \"GET\""),
        ("HELLO", "HELLO: the password is missing"),
        ("HELLO p", "the version is missing"),
        ("HELLO p 0.9 HELLO p 0.9", "one is enough"),
        ("DONE now", "DONE: unexpected \"now\""),
        ("ADDLINK", "the peer's host is missing"),
        ("ADDLINK a/b 1 2 p UDP", "expected a host or address"),
        ("ADDLINK a 65536 2 p UDP", "expected a port, 0 to 65535"),
        ("ADDLINK a 1 0 p UDP", "expected a port, 1 to 65535"),
        ("ADDLINK a 1 +2 p UDP", "expected a port, 1 to 65535"),
        ("ADDLINK a 1 2 p", "UDP or TCP is missing"),
        ("ADDLINK a 1 2 p VTP", "expected UDP or TCP"),
        ("REGISTERLINK 10.0.0.1 9000 UDP", "your own address is taken"),
        ("REGISTERLINK myself 9000 TCP", "add TCP links at both ends"),
        ("ADDROUTE any", "the destination address is missing"),
        ("ADDROUTE some any EDGE a", "expected any, none, a MAC"),
        ("ADDROUTE any any VM a", "expected INTERFACE or EDGE"),
        ("ADDROUTE any any EDGE", "the edge is missing"),
        ("ADDROUTE any any EDGE a ANY b", "expected nothing, or ANY"),
        ("ADDROUTE any any EDGE a EDGE b c", "unexpected \"c\""),
        ("ADD ROUTE any any EDGE a", "INTERFACE, EDGE or ANY is missing"),
        ("ADD", "expected LINK or ROUTE"),
        ("ADD a b c d", "expected LINK or ROUTE"),
        ("DEL 3", "expected DEL LINK 3 or DEL ROUTE 3"),
        ("DEL -3", "expected LINK or ROUTE"),
        ("DEL LINK 99999999999999999999", "expected a number"),
        ("LIST", "LINKS, ROUTES or DEVICES is missing"),
        ("LIST stats", "expected LINKS, ROUTES or DEVICES"),
        ("DONE\0", "byte 5 of the line is no printable"),
        ("D\u{e9}NE", "byte 2 of the line"),
        (&"x".repeat(257), "a line of 257 bytes"),
    ] {
        let error = parse(said.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{said}: {error}");
    }
    assert!(parse(b"\xff\xfe").is_err());
    assert!(matches!(parse(&[b'#'; 256]), Ok(None)));
}

#[test]
fn a_secret_is_not_shown() {
    let command = parse(b"HELLO Tr0ub4dor 0.9 ADDLINK a 1 2 c0rrect UDP").unwrap().unwrap();
    let shown = format!("{command:?}");
    assert!(!shown.contains("Tr0ub4dor") && !shown.contains("c0rrect"), "{shown}");
    for wrong in ["HELLO Tr0ub4dor", "HELLO Tr0ub4dor 0.9 ADDLINK a 1 2 c0rrect VTP"] {
        let error = parse(wrong.as_bytes()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("0"), "{error}");
    }
}
