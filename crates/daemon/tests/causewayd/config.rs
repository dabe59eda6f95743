//! The configuration file: accepted and refused values, with positions and texts of problems.

use std::path::Path;

use causeway_daemon::config::{Config, ConfigContext};
use causeway_daemon::services::{Registered, SERVICES};
use causeway_model::draft::LinkDraft;
use causeway_model::{Dscp, PathMtu};

const HEAD: &str = "[[group]]\nname = \"blue\"\n[[group]]\nname = \"red\"\n";

fn parse(text: &str) -> Result<Config, String> {
    let around = ConfigContext {
        run_dir: Some("/run/causeway".into()),
        state_dir: Some("/var/lib/causeway".into()),
        underlay: Some(|_| None),
        kinds: &causeway_model::port::KINDS,
        sections: Registered::of(SERVICES).sections,
    };
    Config::parse(Path::new("c.toml"), text, &around).map_err(|e| e.to_string())
}

/// Asserts that `text` is refused at `place` with a text that contains `expected`.
#[track_caller]
fn refused(text: &str, place: &str, expected: &str) {
    let error = parse(text).expect_err("accepted");
    let line = format!("c.toml:{place}: ");
    assert!(
        error.lines().any(|l| l.starts_with(&line) && l.contains(expected)),
        "no line {line}…{expected}… in:\n{error}"
    );
}

/// A configuration with every table.
const EVERY_TABLE: &str = r#"
[daemon]
control = "/tmp/c.sock"
run_dir = "/tmp/ports"
log = "debug"
control_mode = "0600"
control_group = "causeway"
[dispatch]
cpus = "2,4-5"
mode = "vmm-driven"
spin_us = 20
[[group]]
name = "blue"
[[port]]
name = "n"
group = "blue"
kind = "net"
mac = "52:54:00:00:00:01"
mtu = 0xffff
[[port]]
name = "v"
group = "blue"
kind = "vsock"
cid = 3
host_socket = "/tmp/v.vsock"
[[rule]]
action = "reject"
from = "blue/3:*"
to = "blue/4:22"
[control]
vnet_listen = "127.0.0.1:9003"
vnet_password_file = "/etc/causeway/vnet-password"
vnet_group = "blue"
vnet_file = "/etc/causeway/links.vnet"
[[port]]
name = "m"
group = "blue"
kind = "mx"
hostname = "n1:0"
[[link]]
name = "l"
group = "blue"
remote = "far.example"
key = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
[[link]]
name = "x"
group = "blue"
kind = "vxlan"
remote = "[fd00::2]:4790"
vni = 7
metric = 3
transit = true
dscp = "inherit"
ecn = false
peer = "far"
[[route]]
group = "blue"
to = { edge = "l" }
[[route]]
group = "blue"
source = "not-52:54:00:00:00:01"
destination = "none"
to = { interface = "n" }
from = { edge = "x" }
"#;

#[test]
fn config_with_every_table_is_read() {
    let config = parse(EVERY_TABLE).unwrap();
    assert_eq!(config.daemon.control_mode, 0o600);
    assert_eq!(config.ports[0].socket, Path::new("/tmp/ports/n.sock"));
    assert_eq!(config.rules[0].to.to_string(), "blue/4:22");
    let links: Vec<_> =
        config.tables_of("link").map(|table| LinkDraft::read(&table).unwrap()).collect();
    let routes: Vec<_> = config.tables_of("route").collect();
    assert_eq!(links[0].remote.as_deref(), Some("far.example:51871"));
    assert_eq!(links[0].private_key.as_deref(), Some(Path::new("/etc/causeway/key")));
    assert_eq!(links[1].local.as_deref(), Some("[::]:4789"));
    assert_eq!((links[0].dscp, links[0].ecn), (Some(Dscp::Fixed(0)), Some(true)));
    assert_eq!((links[1].dscp, links[1].ecn), (Some(Dscp::Inherit), Some(false)));
    assert_eq!(routes[1]["from"]["edge"], "x");
    assert_eq!(config.control.vnet_listen, Some("127.0.0.1:9003".parse().unwrap()));
    assert_eq!(parse(&config.to_toml()).unwrap(), config, "printed and read again");
}

#[test]
fn config_may_be_empty() {
    let config = parse("").unwrap();
    assert_eq!(config.daemon.control, Path::new("/run/causeway/control.sock"));
    assert!(config.ports.is_empty());
}

#[test]
fn config_needs_control_without_a_default_directory() {
    let around = ConfigContext {
        run_dir: None,
        state_dir: None,
        underlay: Some(|_| None),
        kinds: &causeway_model::port::KINDS,
        sections: Registered::of(SERVICES).sections,
    };
    let error = Config::parse(Path::new("c"), "[daemon]\n", &around).unwrap_err().to_string();
    assert!(error.contains("key \"control\" must be given"), "{error}");
    let given = Config::parse(Path::new("c"), "[daemon]\ncontrol = \"/a/c\"\n", &around).unwrap();
    assert_eq!(given.daemon.run_dir, Path::new("/a"));
}

#[test]
fn config_syntax_types_and_ranges_are_checked() {
    refused("[daemon\n", "1:8", "unclosed table");
    refused("[daemon]\nlog = \n", "2:7", "");
    refused("[daemon]\nlog = \"lood\"", "2:7", "key \"log\": expected one of error, warn");
    refused("[daemon]\nlog = 3", "2:7", "key \"log\": expected a string, found integer");
    refused("[dispatch]\nspin_us = 100001", "2:11", "an integer from 0 to 100000, found 100001");
    refused("[dispatch]\nspin_us = -1", "2:11", "an integer from 0 to 100000, found -1");
    refused("[dispatch]\nspin_us = \"1\"", "2:11", "found string");
    refused("[dispatch]\ndispatchers = 65", "2:15", "an integer from 1 to 64, found 65");
    refused("[dispatch]\nmode = \"fast\"", "2:8", "expected one of adaptive, guest-driven");
    refused("[dispatch]\ncpus = \"4-2\"", "2:8", "expected CPU numbers and ranges");
    refused("[dispatch]\nupper = 10\nlower = 11", "3:9", "expected lower to be at most upper");
    refused("[dispatch]\nspins = 1", "2:1", "spin_us");
    refused("[daemon]\ncontrol_mode = \"660\"", "2:16", "octal permissions in quotes");
    refused("[daemon]\ncontrol_mode = \"0999\"", "2:16", "octal permissions in quotes");
    refused("[daemon]\ncontrol = \"c.sock\"", "2:11", "expected an absolute path");
    refused("[[daemon]]\nlog = \"info\"", "1:1", "expected a table [daemon], found array");
    refused("[port]\nname = \"a\"", "1:1", "expected a list of tables, written [[port]]");
    let long = format!("[daemon]\ncontrol = \"/{}\"", "x".repeat(107));
    refused(&long, "2:11", "a path of 108 bytes: expected at most 107");
    let long = format!(
        "[daemon]\nrun_dir = \"/{}\"\n{HEAD}[[port]]\nname = \"n\"\ngroup = \"blue\"\nkind = \"net\"\n",
        "x".repeat(105)
    );
    let place = "give \"socket\" or a shorter run_dir";
    refused(&long, "7:1", place);
    // A wrong key does not hide problems that depend on the other keys of its table.
    let wrong = long.replacen("run_dir", "log = 3\nrun_dir", 1);
    refused(&wrong, "2:7", "key \"log\": expected a string, found integer");
    refused(&wrong, "8:1", place);
    refused("[dispatch]\nlower = 20000", "2:9", "expected lower to be at most upper");
    refused("[dispatch]\nupper = 10", "2:9", "found 1000 and 10");
    refused("[daemon]\nsandbox_paths = [\"a\"]", "2:18", "expected an absolute path");
    refused(&format!("{HEAD}[[group]]\nname = \"host\""), "6:8", "is the host itself");
    refused(&format!("{HEAD}[[group]]\nweight = 0\nname = \"a\""), "6:10", "from 1 to 100");
}

#[test]
fn config_unknown_keys_get_a_suggestion() {
    refused("[deamon]\n", "1:2", "unknown key \"deamon\"; did you mean \"daemon\"?");
    refused("[daemon]\ncontol = \"/x\"", "2:1", "did you mean \"control\"?");
    refused(
        "[[group]]\ncolour = 1\nname = \"a\"",
        "2:1",
        "expected one of name, forwarding, weight, kind",
    );
    let text = format!(
        "{HEAD}[[port]]\nname = \"n\"\ngroup = \"blue\"\nkind = \"net\"\nqueues_pairs = 2\n"
    );
    refused(&text, "9:1", "did you mean \"queue_pairs\"?");
    let misspelt =
        parse(&format!("{HEAD}[[port]]\nnmae = \"n\"\ngroup = \"blue\"\nkind = \"net\"\n"));
    assert_eq!(misspelt.unwrap_err().matches("c.toml:").count(), 1, "not also as missing");
    refused("[[rule]]\nacton = \"accept\"", "2:1", "did you mean \"action\"?");
}

fn port(lines: &str) -> String {
    format!("{HEAD}[[port]]\n{lines}")
}

#[test]
fn ports() {
    refused(&port("group = \"blue\"\nkind = \"net\""), "5:1", "key \"name\" is missing");
    refused(&port("name = \"n\"\nkind = \"net\""), "5:1", "key \"group\" is missing");
    refused(&port("name = \"n\"\ngroup = \"blue\""), "5:1", "key \"kind\" is missing");
    refused(&port("name = \"a b\""), "6:8", "key \"name\": name \"a b\": expected 1 to 63");
    let net = "name = \"n\"\ngroup = \"blue\"\nkind = \"net\"\n";
    refused(&port(&format!("{net}mac = \"52:54\"")), "9:7", "expected six hexadecimal bytes");
    refused(&port(&format!("{net}mac = \"01:00:5e:00:00:01\"")), "9:7", "a unicast address");
    refused(&port(&format!("{net}mtu = 67")), "9:7", "an integer from 68 to 65535, found 67");
    refused(&port(&format!("{net}queue_pairs = 9")), "9:15", "an integer from 1 to 8, found 9");
    refused(&port(&format!("{net}learn = \"yes\"")), "9:9", "expected true or false");
    refused(&port(&format!("{net}offloads = \"no\"")), "9:12", "all");
    refused(&port(&format!("{net}cid = 3")), "9:1", "only a port of kind \"vsock\" has it");
    let vsock = "name = \"v\"\ngroup = \"blue\"\nkind = \"vsock\"\n";
    refused(&port(vsock), "5:1", "key \"cid\" is missing");
    refused(&port(&format!("{vsock}cid = 2")), "9:7", "an integer from 3 to 4294967294");
    refused(&port(&format!("{vsock}cid = 4294967295")), "9:7", "an integer from 3 to 4294967294");
    refused(&port(&format!("{vsock}cid = 3\nmtu = 1500")), "10:1", "only a port of kind \"net\"");
    let mx = "name = \"m\"\ngroup = \"blue\"\nkind = \"mx\"\n";
    refused(&port(&format!("{mx}mtu = 1500")), "9:1", "only a port of kind \"net\" or");
    refused(&port(&format!("{mx}hostname = \"a b\"")), "9:12", "without spaces");
    refused(&port(&format!("{net}hostname = \"n\"")), "9:1", "only a port of kind \"mx\" has it");
    refused(&port(&format!("{net}interface = \"e\"")), "9:1", "only a port of kind \"mx\" or");
    refused(&port(&format!("{mx}interface = \"a/b\"")), "9:13", "1 to 15 bytes");
    refused(&port(&format!("{mx}peers = 3")), "9:9", "an array of tables");
    let eth = "interface = \"eth0\"\npeers";
    refused(&port(&format!("{mx}{eth} = [{{ name = \"n\" }}]")), "10:10", "\"mac\" is missing");
    refused(&port(&format!("{mx}{eth} = [{{ mac = \"x\" }}]")), "10:18", "key \"mac\"");
    refused(&port(&format!("{mx}{eth} = [{{ nic = 1 }}]")), "10:12", "nic");
    let at = "listen = \"10.0.0.1:9001\"";
    refused(&port(&format!("{mx}udp = {{ {at} }}")), "9:7", "\"peers\" is missing");
    refused(&port(&format!("{mx}udp = {{ {at}, peers = [\"x\"] }}")), "9:44", "key \"peers\"");
    let udp = |peers: &str| format!("{mx}udp = {{ {at}, peers = [{peers}] }}");
    refused(&port(&udp("")), "5:1", "0 peers: expected 1 to 64");
    refused(&port(&udp("\"[::1]:9001\"")), "5:1", "of the family of listen");
    refused(&port(&udp("\"10.0.0.1:9001\"")), "5:1", "another host's address");
    let both = format!("{}\ninterface = \"eth0\"", udp("\"10.0.0.2:9001\""));
    refused(&port(&both), "5:1", "no interface beside it");
    let alone = format!("{mx}peers = [{{ mac = \"02:00:00:00:00:01\" }}]");
    refused(&port(&alone), "5:1", "expected interface or udp");
    refused(&port(&format!("{mx}bypass = true")), "9:10", "expected interface beside it");
    refused(&port(&format!("{net}bypass = true")), "9:1", "only a port of kind \"mx\" has it");
    refused(&port(&net.replace("blue", "bleu")), "7:9", "group bleu is not defined; did you mean");
    refused(&port(&net.replace("blue", "green")), "7:9", "add [[group]] name = \"green\"");
}

#[test]
fn config_of_nics_prints_as_it_is_read() {
    let text = r#"
        name = "m"
        group = "blue"
        kind = "mx"
        bypass = true
        interface = "eth0"
        peers = [
            { mac = "02:00:00:00:00:01", name = "host1:0" },
            { mac = "02:00:00:00:00:02" },
        ]
        [[port]]
        name = "n"
        group = "blue"
        kind = "mx"
        udp = { listen = "10.0.0.1:9001", peers = ["10.0.0.2:9001", "10.0.0.3:9001"] }
    "#;
    let config = parse(&port(text)).unwrap();
    let printed = config.to_toml();
    assert_eq!(parse(&printed).unwrap().ports, config.ports, "{printed}");
    let mx: causeway_model::MxSpec = config.ports[0].kind.get().unwrap();
    assert_eq!(mx.interface.as_deref(), Some("eth0"));
    assert_eq!(mx.peers[0].name.as_deref(), Some("host1:0"));
    assert_eq!((mx.peers.len(), &mx.peers[1].name), (2, &None));
}

#[test]
fn config_duplicates_name_both_lines() {
    refused(
        "[[group]]\nname = \"a\"\n[[group]]\nname = \"a\"",
        "4:8",
        "on line 4 is already defined on line 2",
    );
    let two = |a: &str, b: &str| {
        format!("[[group]]\nname=\"g\"\n[[port]]\ngroup=\"g\"\n{a}\n[[port]]\ngroup=\"g\"\n{b}\n")
    };
    let same = "name=\"n\"\nkind=\"net\"";
    refused(&two(same, same), "9:6", "port n on line 9 is already defined on line 5");
    let mac = "kind=\"net\"\nmac=\"52:54:00:00:00:01\"";
    refused(
        &two(&format!("name=\"a\"\n{mac}"), &format!("name=\"b\"\n{mac}")),
        "12:5",
        "mac 52:54:00:00:00:01 in group g on line 12 is already defined on line 7",
    );
    let cid = "kind=\"vsock\"\ncid=3";
    refused(
        &two(&format!("name=\"a\"\n{cid}"), &format!("name=\"b\"\n{cid}")),
        "12:5",
        "cid 3 in group g on line 12 is already defined on line 7",
    );
    refused(
        &two(
            "name=\"a\"\nkind=\"net\"\nsocket=\"/s\"",
            "name=\"b\"\nkind=\"vsock\"\ncid=3\nhost_socket=\"/s\"",
        ),
        "13:13",
        "socket /s on line 13 is already defined on line 7",
    );
    refused(
        &two(
            "name=\"a\"\nkind=\"net\"\nsocket=\"/run/causeway/control.sock\"",
            "name=\"b\"\nkind=\"net\"",
        ),
        "7:8",
        "is the control socket",
    );
}

#[test]
fn config_of_conflicting_links_names_both() {
    let two = |a: &str, b: &str| {
        format!(
            "[[group]]\nname=\"g\"\n[[link]]\ngroup=\"g\"\nname=\"a\"\n{a}\n[[link]]\ngroup=\"g\"\nname=\"b\"\n{b}\n"
        )
    };
    let key = format!("key=\"{}=\"", "A".repeat(43));
    let vxlan = "kind=\"vxlan\"\nremote=\"10.0.0.2\"\nvni=7";
    refused(&two(vxlan, vxlan), "13:8", "link a (kind \"vxlan\") on line 3");
    let vnet = "kind=\"vnet\"\nremote=\"10.0.0.2\"";
    refused(&two(vnet, vnet), "12:8", "expected one link to a peer");
    let causeway = format!("remote=\"10.0.0.2\"\n{key}");
    let plain = "kind=\"causeway-plain\"\nremote=\"10.0.0.3\"";
    refused(&two(&causeway, plain), "8:1", "another port than 51871");
    refused(&two(&causeway, &causeway), "11:8", "expected another vni");
    refused(
        &two(&causeway, "kind=\"vxlan\"\nremote=\"h.example\"\nvni=1\nlocal=\":51871\""),
        "14:7",
        "another port than 51871",
    );
    for (a, b) in [
        (vxlan, "kind=\"vxlan\"\nremote=\"10.0.0.2\"\nvni=8"),
        (vxlan, "kind=\"vxlan\"\nremote=\"10.0.0.3\"\nvni=7"),
        (vxlan, vnet),
        (vxlan, "kind=\"vxlan\"\nremote=\"[fd00::2]\"\nvni=7"),
        (&causeway, &format!("remote=\"10.0.0.3\"\n{key}")),
        (&causeway, &format!("vni=1\n{key}")),
        (&causeway, "kind=\"causeway-plain\"\nremote=\"10.0.0.3\"\nlocal=\":51872\""),
        ("kind=\"tcp\"\nremote=\"10.0.0.2\"", "kind=\"tcp\"\nremote=\"10.0.0.2\""),
    ] {
        assert!(parse(&two(a, b)).is_ok(), "{a}\n{b}");
    }
}

#[test]
fn config_check_host_reports_missing_files_and_accounts() {
    let text = format!(
        "{HEAD}[daemon]\ncontrol_group = \"no-such-group-here\"\n[dispatch]\ncpus = \"8000\"\n\
         [control]\nvnet_listen = \"127.0.0.1:9\"\nvnet_password_file = \"/nonexistent/password\"\n\
         vnet_group = \"blue\"\n\
         [[link]]\nname = \"l\"\ngroup = \"blue\"\nkind = \"raw\"\ninterface = \"no-such-if\"\n\
         [[link]]\nname = \"m\"\ngroup = \"blue\"\nprivate_key = \"/nonexistent/key\"\nkey = \"{}=\"\n",
        "A".repeat(43)
    );
    let found = parse(&text).unwrap().check_host();
    for expected in ["control_group", "no CPU 8000", "/nonexistent/password"] {
        assert!(found.errors.iter().any(|error| error.contains(expected)), "{found:?}");
    }
    assert_eq!(found.errors.len(), 3, "{found:?}");
    for expected in ["link l: key \"interface\"", "link m: key \"private_key\""] {
        assert!(found.warnings.iter().any(|text| text.contains(expected)), "{found:?}");
    }
}

#[test]
fn config_permits_the_same_mac_and_cid_in_two_groups() {
    let text = format!(
        "{HEAD}[[port]]\nname=\"a\"\ngroup=\"blue\"\nkind=\"vsock\"\ncid=3\n\
         [[port]]\nname=\"b\"\ngroup=\"red\"\nkind=\"vsock\"\ncid=3\n"
    );
    assert_eq!(parse(&text).unwrap().ports.len(), 2);
}

#[test]
fn rules() {
    let rule = |lines: &str| format!("{HEAD}[[rule]]\n{lines}");
    refused(&rule("from = \"*\""), "5:1", "key \"action\" is missing");
    refused(&rule("action = \"drop\""), "6:10", "expected one of accept, reject; found \"drop\"");
    refused(&rule("action = \"reject\"\nto = \"blue/4:x\""), "7:6", "expected GROUP/CID:PORT");
    refused(&rule("action = \"reject\"\nto = \"blu/4:1\""), "7:6", "did you mean \"blue\"?");
    refused(
        &rule("action = \"accept\"\nfrom = \"blue/3:*\"\nto = \"red/4:22\""),
        "8:6",
        "from group blue to group red: expected one group, as no traffic crosses groups",
    );
}

#[test]
fn links() {
    let link = |lines: &str| format!("{HEAD}[[link]]\n{lines}");
    let head = "name = \"l\"\ngroup = \"blue\"\n";
    refused(&link("group = \"blue\""), "5:1", "key \"name\" is missing");
    refused(&link(head), "5:1", "key \"key\" is missing: a link of kind \"causeway\" needs it");
    refused(&link(&format!("{head}key = \"x\"")), "8:7", "44 characters");
    refused(&link(&format!("{head}kind = \"udp\"")), "8:8", "expected one of causeway, causeway-");
    let vnet = format!("{head}kind = \"vnet\"\n");
    refused(&link(&vnet), "5:1", "key \"remote\" is missing");
    refused(&link(&format!("{vnet}remote = \"a b\"")), "9:10", "expected HOST, HOST:PORT");
    refused(&link(&format!("{vnet}remote = \"0.0.0.0\"")), "9:10", "the address of one peer");
    refused(&link(&format!("{vnet}remote = \"a\"\nvni = 3")), "10:7", "has no such key");
    refused(&link(&format!("{vnet}remote = \"a\"\nlocal = \"b\"")), "10:9", "ADDRESS");
    refused(&link(&format!("{vnet}metric = 65536")), "9:10", "an integer from 0 to 65535");
    let vnet = format!("{vnet}remote = \"a\"\n");
    refused(&link(&vnet.replace("blue", "bleu")), "7:9", "did you mean \"blue\"?");
    let two = format!("{}[[link]]\n{vnet}", link(&vnet));
    refused(&two, "11:8", "link l on line 11 is already defined on line 6");
    let vxlan = vnet.replace("vnet", "vxlan");
    refused(&link(&format!("{vxlan}vni = 16777216")), "10:7", "from 0 to 16777215");
    refused(&link(&format!("{vxlan}vni = 1\ndscp = 64")), "11:8", "\"inherit\" or 0 to 63");
    refused(&link(&format!("{vxlan}vni = 1\ndscp = \"ef\"")), "11:8", "found \"ef\"");
    refused(&link(&format!("{vxlan}vni = 1\necn = 1")), "11:7", "expected true or false");
    let tcp = vnet.replace("vnet", "tcp");
    refused(&link(&format!("{tcp}dscp = 0")), "10:8", "has no such key");
    refused(&link(&vxlan), "5:1", "key \"vni\" is missing");
    refused(&link(&format!("{vnet}speed = 1")), "10:1", "unknown key \"speed\"");
}

#[test]
fn routes() {
    let port = "[[port]]\nname=\"p\"\ngroup=\"blue\"\nkind=\"net\"\n";
    let vsock = "[[port]]\nname=\"v\"\ngroup=\"blue\"\nkind=\"vsock\"\ncid=3\n";
    let route = |lines: &str| format!("{HEAD}{port}{vsock}[[route]]\n{lines}");
    let blue = "group = \"blue\"\n";
    refused(&route(blue), "14:1", "key \"to\" is missing");
    refused(&route("to = { edge = \"l\" }"), "14:1", "key \"group\" is missing");
    refused(&route(&format!("{blue}to = \"l\"")), "16:6", "expected a table, found string");
    refused(&route(&format!("{blue}to = {{}}")), "16:6", "expected { edge = \"LINK\" } or");
    let both = "to = { edge = \"l\", interface = \"p\" }";
    refused(&route(&format!("{blue}{both}")), "16:6", "expected { edge = \"LINK\" } or");
    let odd = "to = { egde = \"l\" }";
    refused(&route(&format!("{blue}{odd}")), "16:8", "did you mean \"edge\"?");
    refused(&route(&format!("{blue}to = {{ edge = \"l\" }}")), "16:6", "link l is not defined");
    let to = "to = { interface = \"p\" }\n";
    refused(&route(&format!("{blue}{to}source = \"x\"")), "17:10", "expected any, none, a MAC");
    refused(&route(&format!("{blue}{to}from = {{ interface = \"v\" }}")), "17:8", "net port v");
    refused(&route(&format!("group = \"red\"\n{to}")), "16:6", "no traffic crosses groups");
    let twice = format!("{}[[route]]\n{blue}{to}", route(&format!("{blue}{to}")));
    refused(&twice, "17:1", "the same route on line 17 is already defined on line 14");
}

#[test]
fn config_reads_ten_thousand_routes_and_refuses_too_many() {
    let route = |n: usize| {
        let (a, b) = (n >> 8, n & 255);
        format!(
            "[[route]]\ngroup=\"blue\"\nsource=\"02:00:00:00:{a:02x}:{b:02x}\"\nto={{interface=\"p\"}}\n"
        )
    };
    let port = "[[port]]\nname=\"p\"\ngroup=\"blue\"\nkind=\"net\"\n";
    let file = |n: usize| format!("{HEAD}{port}{}", (0..n).map(route).collect::<String>());
    assert_eq!(parse(&file(10_000)).unwrap().objects.len(), 10_000);
    let error = parse(&file(16_385)).unwrap_err();
    assert!(error.contains("16385 tables [[route]]: expected at most 16384"), "{error}");
}

#[test]
fn config_of_vnet_needs_a_password_and_a_group() {
    let text = "[control]\nvnet_listen = \"127.0.0.1:9003\"\n";
    refused(text, "1:1", "key \"vnet_password_file\" is missing");
    refused(text, "1:1", "key \"vnet_group\" is missing");
    refused("[control]\nvnet_file = \"/f\"", "1:1", "key \"vnet_group\" is missing");
    refused("[control]\nvnet_listen = \"9003\"", "2:15", "socket address");
    refused("[control]\nvnet_group = \"x\"", "2:14", "group x is not defined");
    refused("[control]\nvnet_password = \"x\"", "2:1", "did you mean \"vnet_password_file\"?");
}

#[test]
fn config_problems_are_reported_at_once_in_line_order() {
    let error = parse("[daemon]\nlog = 1\nspin = 2\n[[port]]\nname = \"\"\n").unwrap_err();
    let heads: Vec<&str> = error.lines().filter(|l| l.starts_with("c.toml:")).collect();
    assert_eq!(heads.len(), 5, "{error}");
    let lines: Vec<u32> =
        heads.iter().map(|h| h.split(':').nth(1).unwrap().parse().unwrap()).collect();
    assert!(lines.is_sorted(), "{error}");
    assert!(error.contains("  2 | log = 1\n    |       ^"), "{error}");
}

#[test]
fn hostile_files_are_refused_without_harm() {
    for text in [
        "\0\0\0",
        "[[[[[[[[",
        &"[".repeat(100_000),
        &format!("a = {}", "[".repeat(100_000)),
        &format!("{}b = 1", "a.".repeat(50_000)),
        "name = \"\u{feff}\u{202e}\"",
        "x = 99999999999999999999999999",
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with("c.toml:"), "{error:.200}");
    }
    let many = "[[rule]]\nx = 1\n".repeat(1000);
    assert!(parse(&many).unwrap_err().contains("1980 more problems not shown"));
}

/// The MTU of a port follows the links of its group, unless the operator gives it.
#[test]
fn config_mtu_follows_the_links_of_the_group() {
    let mtus = |link: &str, mtu: &str| {
        let port = format!("[[port]]\nname=\"p\"\ngroup=\"blue\"\nkind=\"net\"\n{mtu}\n");
        let link = format!("[[link]]\nname=\"l\"\ngroup=\"blue\"\n{link}\n");
        let config = parse(&format!("{HEAD}{port}{link}")).unwrap();
        config.ports[0].kind.get::<causeway_model::NetSpec>().unwrap().mtu
    };
    let vxlan = "kind=\"vxlan\"\nvni=7\nremote=\"10.0.0.2\"";
    assert_eq!(mtus(vxlan, ""), 1450);
    assert_eq!(mtus(&vxlan.replace("10.0.0.2", "[fd00::2]"), ""), 1430);
    assert_eq!(mtus("kind=\"vnet\"\nremote=\"10.0.0.2\"", ""), 1458);
    assert_eq!(mtus("kind=\"causeway-plain\"\nremote=\"10.0.0.2\"", ""), 1500);
    assert_eq!(mtus(vxlan, "mtu=9000"), 9000);
}

/// If this host knows the path of a link, its MTU counts.
#[test]
fn config_mtu_follows_the_path_of_the_host() {
    let mtu = |link: &str, underlay: Option<PathMtu>| {
        let port = "[[port]]\nname=\"p\"\ngroup=\"blue\"\nkind=\"net\"\n";
        let link = format!("[[link]]\nname=\"l\"\ngroup=\"blue\"\n{link}\n");
        let around = ConfigContext {
            run_dir: Some("/run/causeway".into()),
            state_dir: Some("/var/lib/causeway".into()),
            underlay,
            kinds: &causeway_model::port::KINDS,
            sections: Registered::of(SERVICES).sections,
        };
        let text = format!("{HEAD}{port}{link}");
        let config = Config::parse(Path::new("c.toml"), &text, &around).unwrap();
        config.ports[0].kind.get::<causeway_model::NetSpec>().unwrap().mtu
    };
    let vxlan = "kind=\"vxlan\"\nvni=7\nremote=\"127.0.0.2\"";
    assert_eq!(mtu(vxlan, Some(|_| Some(1400))), 1350);
    assert_eq!(mtu("kind=\"raw\"\ninterface=\"lo\"", Some(|_| Some(1400))), 1400);
    // The loopback interface carries more than the default MTU of a port.
    assert_eq!(mtu(vxlan, None), 1500);
    assert_eq!(mtu("kind=\"raw\"\ninterface=\"lo\"", None), 1500);
}
