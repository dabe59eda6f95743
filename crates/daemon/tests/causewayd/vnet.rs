//! The VNET language: over TCP with the real server, from files, and with hostile clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{model::Model, send, serve};
use causeway_daemon::fabric::ask;
use causeway_daemon::limits::{
    VNET_CONNECTIONS_MAX, VNET_HELLO_TIME_MAX, VNET_STRANGERS_PER_SOURCE_MAX,
};
use causeway_daemon::vnet::password::Password;
use causeway_daemon::vnet::server::{SessionTimeouts, VnetServer};
use causeway_daemon::vnet::session::{Session, SessionContext};
use causeway_model::commands::{links, routes};
use causeway_model::{LinkKind, RouteEnd};
use serde_json::json;

/// Returns a model with group blue, which has the ports `vm1` and `vm2`.
fn model() -> Arc<Model> {
    let model = Arc::new(Model::default());
    let control = serve(model.clone());
    for (path, body) in [
        ("groups", json!({"name": "blue"})),
        ("groups", json!({"name": "red"})),
        (
            "ports",
            json!({"name": "vm1", "group": "blue", "kind": "net", "mac": "02:00:00:00:00:01"}),
        ),
        ("ports", json!({"name": "vm2", "group": "blue", "kind": "net"})),
        ("ports", json!({"name": "vm3", "group": "red", "kind": "net"})),
        ("links", json!({"name": "red-l", "group": "red", "kind": "vnet", "remote": "10.0.0.7"})),
    ] {
        let (status, reply) =
            send(&control.socket, "POST", &format!("/v1/{path}"), &body.to_string());
        assert!(status < 300, "{reply}");
    }
    model
}

fn context(model: &Arc<Model>) -> SessionContext {
    let password = Password::new("s3cret").unwrap();
    SessionContext::new(
        model.clone(),
        "blue".parse().unwrap(),
        password,
        crate::common::resolve,
        Arc::default(),
    )
}

struct Client {
    write: TcpStream,
    read: BufReader<TcpStream>,
}

impl Client {
    fn connect(server: &VnetServer) -> Self {
        let write = TcpStream::connect(server.address().unwrap()).unwrap();
        write.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { read: BufReader::new(write.try_clone().unwrap()), write }
    }

    fn greeted(server: &VnetServer) -> Self {
        let mut client = Self::connect(server);
        assert_eq!(client.ask("HELLO s3cret 0.9"), "OK causeway 0.9, group blue\n");
        client
    }

    /// Sends a line and returns the whole answer.
    fn ask(&mut self, line: &str) -> String {
        self.write.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut answer = String::new();
        loop {
            let at = answer.len();
            self.read.read_line(&mut answer).unwrap();
            let last = &answer[at..];
            if last.is_empty() || last.starts_with("OK") || last.starts_with("ERROR") {
                return answer;
            }
        }
    }

    /// Reads until the server closes the connection.
    fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let _ = self.read.read_to_end(&mut rest);
        String::from_utf8(rest).unwrap()
    }
}

fn start(model: &Arc<Model>) -> VnetServer {
    VnetServer::start("127.0.0.1:0".parse().unwrap(), context(model), SessionTimeouts::default())
        .unwrap()
}

#[test]
fn vnet_adds_lists_and_deletes_links_and_routes_over_tcp() {
    let model = model();
    let server = start(&model);
    let mut client = Client::greeted(&server);
    let mut ok = |line: &str| {
        let answer = client.ask(line);
        assert!(answer.ends_with('\n') && answer.contains("OK"), "{line}: {answer}");
        answer
    };
    assert_eq!(ok("AddLink 10.0.0.2 9003 9000 pw udp"), "OK add link 10.0.0.2\n");
    assert_eq!(ok("ADD LINK 10.0.0.2 9001 TCP"), "OK add link 10.0.0.2-tcp\n");
    assert_eq!(ok("ADD far.example 9000"), "OK add link 10.0.0.9\n");
    assert_eq!(ok("ADD fd00::2 9000"), "OK add link v6-fd00--2\n");
    ok("AddRoute any not-02:00:00:00:00:01 EDGE far.example INTERFACE 02:00:00:00:00:01");
    ok("ADD 02:00:00:00:00:01 any INTERFACE vm2 ANY");
    ok("ADDROUTE none any EDGE 10.0.0.2-tcp EDGE fd00::2");
    let links = ok("LIST LINKS");
    assert!(
        links.starts_with(
            "4:\tfd00::2\t9000\n\t\tReceived Pkts: 6, Received Bytes 0\n\t\tSent Pkts: 5, Sent \
             Bytes: 0\n\n3:\t10.0.0.9\t9000\n"
        ),
        "{links}"
    );
    assert_eq!(
        ok("list routes"),
        "3:\t\nSrc:\tnone\nDst:\tany\nDst-Type:\tEDGE 10.0.0.2\nSrc-Type:\tEDGE fd00::2\n\
         2:\t\nSrc:\t02:00:00:00:00:01\nDst:\tany\nDst-Type:\tINTERFACE vm2\nSrc-Type:\tANY\n\
         1:\t\nSrc:\tany\nDst:\tnot-02:00:00:00:00:01\nDst-Type:\tEDGE 10.0.0.9\n\
         Src-Type:\tINTERFACE vm1\nOK\n"
    );
    assert!(ok("DEVICES?").starts_with("vm1\t02:00:00:00:00:01\nvm2\t"));
    assert_eq!(
        ok("DEL ROUTE 2"),
        "OK delete route blue: 02:00:00:00:00:01 > any, to interface vm2\n"
    );
    ok("DELETEROUTE none any EDGE 10.0.0.2-tcp EDGE v6-fd00--2");
    ok("DEL LINK 4");
    ok("DeleteLink 10.0.0.2 9003 pw TCP");
    assert!(ok("RegisterLink myself 9000 UDP").contains("add link 127.0.0.1"));
    assert!(ok("LIST LINKS").starts_with("5:\t127.0.0.1\t9000\n"), "no number is used again");
    ok("DeregisterLink myself UDP");
    assert_eq!(ok("HELLO s3cret 0.9 LIST ROUTES").lines().count(), 6);
    ok("DONE");
    assert_eq!(client.rest(), "");
    let links = ask(&*model, links::List).unwrap();
    let names: Vec<&str> = links.iter().map(|l| l.spec.name.as_str()).collect();
    assert_eq!(names, ["10.0.0.2", "10.0.0.9", "red-l"]);
    let LinkKind::Vnet(udp) = &links[0].spec.kind else { panic!("another kind") };
    assert_eq!((udp.remote, udp.local.port()), ("10.0.0.2:9000".parse().unwrap(), 9000));
    let routes = ask(&*model, routes::List).unwrap();
    assert_eq!(routes[0].spec.from, Some(RouteEnd::Interface("vm1".parse().unwrap())));
}

#[test]
fn vnet_names_adapters_as_interfaces() {
    let model = model();
    let control = serve(model.clone());
    let port = json!({"name": "hca1", "group": "blue", "kind": "hca", "mac": "02:00:00:00:00:09"});
    let (status, reply) = send(&control.socket, "POST", "/v1/ports", &port.to_string());
    assert!(status < 300, "{reply}");
    let server = start(&model);
    let mut client = Client::greeted(&server);
    let devices = client.ask("DEVICES?");
    assert!(devices.starts_with("hca1\t02:00:00:00:00:09\nvm1\t"), "{devices}");
    let added = client.ask("ADD any any INTERFACE 02:00:00:00:00:09 INTERFACE hca1");
    assert!(added.contains("OK"), "{added}");
    let routes = ask(&*model, routes::List).unwrap();
    let hca = RouteEnd::Interface("hca1".parse().unwrap());
    assert_eq!((&routes[0].spec.to, routes[0].spec.from.as_ref()), (&hca, Some(&hca)));
}

#[test]
fn vnet_names_the_local_network_by_its_interface() {
    let model = model();
    let control = serve(model.clone());
    let lan = json!({"name": "lan", "group": "blue", "kind": "raw", "interface": "eth0"});
    let (status, reply) = send(&control.socket, "POST", "/v1/links", &lan.to_string());
    assert!(status < 300, "{reply}");
    let server = start(&model);
    let mut client = Client::greeted(&server);
    let answer = client.ask("ADD any not-02:00:00:00:00:01 INTERFACE eth0 INTERFACE vm1");
    assert!(answer.starts_with("OK"), "{answer}");
    let refused = client.ask("ADD any any INTERFACE eth1 ANY");
    assert!(refused.contains("no port and no raw link"), "{refused}");
    let routes = ask(&*model, routes::List).unwrap();
    let [route] = &routes[..] else { panic!("{routes:?}") };
    assert_eq!(route.spec.to, RouteEnd::Edge("lan".parse().unwrap()));
    assert_eq!(
        client.ask("LIST ROUTES"),
        "1:\t\nSrc:\tany\nDst:\tnot-02:00:00:00:00:01\nDst-Type:\tINTERFACE eth0\n\
         Src-Type:\tINTERFACE vm1\nOK\n"
    );
    let answer = client.ask("DELETEROUTE any not-02:00:00:00:00:01 INTERFACE eth0 INTERFACE vm1");
    assert!(answer.starts_with("OK"), "{answer}");
    let routes = ask(&*model, routes::List).unwrap();
    assert!(routes.is_empty(), "{routes:?}");
}

/// Returns the links of group blue with their destinations.
fn links(model: &Model) -> Vec<(String, String)> {
    let links = ask(model, links::List).unwrap();
    let blue = links.into_iter().filter(|l| l.spec.group.as_str() == "blue");
    let end = |kind: &LinkKind| match kind {
        LinkKind::Vnet(udp) => udp.remote.to_string(),
        other => panic!("{other:?}"),
    };
    blue.map(|l| (l.spec.name.to_string(), end(&l.spec.kind))).collect()
}

#[test]
fn vnet_creates_and_deletes_both_ends_of_a_link() {
    let (near, far) = (model(), model());
    let server = |model| {
        let mut context = context(model);
        context.register = Some(causeway_daemon::vnet::registration::register);
        VnetServer::start("127.0.0.1:0".parse().unwrap(), context, SessionTimeouts::default())
            .unwrap()
    };
    let (here, there) = (server(&near), server(&far));
    let port = there.address().unwrap().port();
    let mut client = Client::greeted(&here);
    let answer = client.ask(&format!("ADDLINK 127.0.0.1 {port} 9700 s3cret UDP"));
    assert_eq!(answer, "OK add link 127.0.0.1\n");
    let link = |port: u16| vec![("127.0.0.1".to_owned(), format!("127.0.0.1:{port}"))];
    // Each end sends to the port at which the other receives; here the default port receives.
    assert_eq!((links(&near), links(&far)), (link(9700), link(9000)));
    // The same command again is refused here and not sent to the peer.
    let answer = client.ask(&format!("ADDLINK 127.0.0.1 {port} 9700 s3cret UDP"));
    assert!(answer.starts_with("ERROR ") && !answer.contains("peer"), "{answer}");
    let answer = client.ask(&format!("DELETELINK 127.0.0.1 {port} s3cret UDP"));
    assert_eq!(answer, "OK delete link 127.0.0.1\n");
    assert_eq!((links(&near), links(&far)), (vec![], vec![]));
    // A link that the peer no longer has.
    client.ask("ADDLINK 127.0.0.1 0 9700 s3cret UDP");
    assert_eq!((links(&near), links(&far)), (link(9700), vec![]));
    let answer = client.ask(&format!("DELETELINK 127.0.0.1 {port} s3cret UDP"));
    assert!(answer.starts_with("OK ") && answer.contains("the peer keeps its end"), "{answer}");
    assert!(links(&near).is_empty());
}

#[test]
fn vnet_creates_no_link_that_the_peer_refuses() {
    let (near, far) = (model(), model());
    let mut context = context(&near);
    context.register = Some(causeway_daemon::vnet::registration::register);
    let here =
        VnetServer::start("127.0.0.1:0".parse().unwrap(), context, SessionTimeouts::default())
            .unwrap();
    let there = start(&far);
    let port = there.address().unwrap().port();
    let mut client = Client::greeted(&here);
    let answer = client.ask(&format!("ADDLINK 127.0.0.1 {port} 9700 wrong UDP"));
    assert!(answer.starts_with("ERROR ") && answer.contains("wrong password"), "{answer}");
    // No server at that port.
    drop(std::net::TcpListener::bind("127.0.0.1:0").map(|free| {
        let free = free.local_addr().unwrap().port();
        let answer = client.ask(&format!("ADDLINK 127.0.0.2 {free} 9700 s3cret UDP"));
        assert!(answer.starts_with("ERROR ") && answer.contains("control port 0"), "{answer}");
    }));
    // A peer that answers without a line end.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = mute.local_addr().unwrap().port();
    let peer = std::thread::spawn(move || {
        let (mut peer, _) = mute.accept().unwrap();
        let _ = peer.write_all(&[b'\x1b'; 100_000]);
    });
    let answer = client.ask(&format!("ADDLINK 127.0.0.1 {port} 9700 s3cret UDP"));
    assert!(answer.starts_with("ERROR ") && !answer.contains('\x1b'), "{answer}");
    peer.join().unwrap();
    assert_eq!((links(&near), links(&far)), (vec![], vec![]));
}

#[test]
fn hostile_commands_are_refused_and_change_nothing() {
    let model = model();
    let server = start(&model);
    let mut client = Client::greeted(&server);
    client.ask("ADD LINK 10.0.0.2 9000");
    client.ask("ADD LINK fd00::2 9000 UDP");
    client.ask("ADD LINK fd00::2 9001 TCP");
    client.ask("ADD any any INTERFACE vm1 ANY");
    let before = model.changes();
    for (line, expected) in [
        ("\u{1}\u{2}", "byte 1 of the line"),
        ("HELP", "unknown command \"HELP\""),
        ("ADD LINK 10.0.0.2 9002", "link 10.0.0.2 goes there already"),
        ("ADD LINK nobody 9000", "cannot be resolved"),
        ("ADD LINK 0.0.0.0 9000", "expected the address of one peer"),
        ("ADD LINK 10.0.0.7 9000 UDP extra", "unexpected \"extra\""),
        ("DEL LINK 99", "link 99 does not exist"),
        ("DEL ROUTE 99", "route 99 does not exist"),
        ("ADDROUTE any any EDGE fd00::2", "expected one of their names"),
        ("ADDROUTE any any EDGE 10.0.0.7", "no link of group blue goes there"),
        ("ADDROUTE any any EDGE red-l", "resolved"),
        ("ADDROUTE any any INTERFACE vm3", "no port and no raw link of group blue"),
        ("ADDROUTE any any INTERFACE vm1", "route 1 is the same"),
        ("DELETEROUTE any any INTERFACE vm2", "does not exist"),
        ("DELETELINK 10.0.0.7 1 x UDP", "no such link"),
    ] {
        let answer = client.ask(line);
        assert!(answer.starts_with("ERROR ") && answer.contains(expected), "{line}: {answer}");
        assert_eq!(answer.lines().count(), 1, "{answer}");
    }
    assert_eq!(model.changes(), before);
    assert!(client.ask("LIST LINKS").ends_with("OK\n"), "it goes on");
}

#[test]
fn hostile_clients_without_password_learn_nothing() {
    let model = model();
    let before = model.changes();
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"LIST ROUTES\n",
        b"\0\0\0\0\n",
        b"\x16\x03\x01\x02\x00\n",
        b"HELLO\n",
        b"HELLO s3cret\n",
        b"HELLO s3cret 0.8\nADD LINK 10.0.0.2 9000\n",
        b"HELLO wrong 0.9 ADD LINK 10.0.0.2 9000\nADD LINK 10.0.0.3 9000\n",
    ] {
        let server = start(&model);
        let mut client = Client::connect(&server);
        client.write.write_all(bytes).unwrap();
        let answer = client.rest();
        assert!(answer.starts_with("ERROR "), "{answer}");
        assert_eq!(answer.lines().count(), 1, "{answer}");
        assert!(!answer.contains("s3cret") && !answer.contains("blue"), "{answer}");
    }
    assert_eq!(model.changes(), before);
}

#[test]
fn hostile_guesses_are_delayed_by_source() {
    let context = Arc::new(context(&model()));
    let far = "10.0.0.66".parse().unwrap();
    let say =
        |from, now, line: &str| Session::new(context.clone(), from).line(now, line.as_bytes());
    let mut now = Instant::now();
    for wait in [1, 2, 4, 8] {
        let said = say(far, now, "HELLO guess 0.9");
        assert!(said.end && said.text == "ERROR wrong password\n", "{}", said.text);
        let soon = now + Duration::from_secs(wait) - Duration::from_millis(1);
        let said = say(far, soon, "HELLO s3cret 0.9");
        assert!(
            said.end && said.text.contains("try again in"),
            "even the right one: {}",
            said.text
        );
        now += Duration::from_secs(wait);
    }
    assert!(!say("10.0.0.67".parse().unwrap(), now, "HELLO s3cret 0.9").end, "others do not wait");
    assert!(!say(far, now, "HELLO s3cret 0.9").end);
}

#[test]
fn hostile_long_and_incomplete_lines_end_the_session() {
    let model = model();
    let server = start(&model);
    let mut client = Client::greeted(&server);
    client.write.write_all(&[b'x'; 100_000]).unwrap();
    assert!(client.rest().contains("a line of more than 256 bytes"));
    // With its line feed, within one segment.
    let mut client = Client::greeted(&server);
    client
        .write
        .write_all(format!("{}\r\n{}\n", "#".repeat(256), "#".repeat(257)).as_bytes())
        .unwrap();
    assert!(client.rest().contains("a line of more than 256 bytes"));
    let mut client = Client::connect(&server);
    let _ = client.write.write_all(&[b'x'; 1000]);
    assert!(client.rest().contains("a line of more than"));
    let before = model.changes();
    let mut client = Client::greeted(&server);
    client.write.write_all(b"ADD LINK 10.0.0.2 9000").unwrap();
    client.write.shutdown(Shutdown::Write).unwrap();
    assert_eq!((client.rest().as_str(), model.changes()), ("", before), "half a line says nothing");
    // A line may arrive byte by byte.
    let mut client = Client::connect(&server);
    client.write.set_nodelay(true).unwrap();
    for byte in b"HELLO s3cret 0.9\n" {
        client.write.write_all(&[*byte]).unwrap();
    }
    assert!(client.answer().starts_with("OK"));
}

#[test]
fn hostile_silence_ends_the_session() {
    let timeouts =
        SessionTimeouts { hello: Duration::from_millis(300), idle: Duration::from_millis(300) };
    let model = model();
    let server =
        VnetServer::start("127.0.0.1:0".parse().unwrap(), context(&model), timeouts).unwrap();
    let mut client = Client::connect(&server);
    assert!(client.rest().contains("no line in time"));
    // A byte now and then must not restart the clock.
    let mut client = Client::connect(&server);
    let mut feeder = client.write.try_clone().unwrap();
    let feed = std::thread::spawn(move || {
        let begun = Instant::now();
        while feeder.write_all(b"H").is_ok() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(client.rest().contains("no line in time"));
    drop(client);
    feed.join().unwrap();
    let mut client = Client::greeted(&server);
    assert!(client.rest().contains("no line in time"));
}

#[test]
fn hostile_connection_floods_are_refused_and_slots_come_back() {
    let model = model();
    let mut server = start(&model);
    let crowd: Vec<_> = (0..VNET_CONNECTIONS_MAX).map(|_| Client::greeted(&server)).collect();
    assert!(Client::connect(&server).rest().contains("try again"));
    drop(crowd);
    // Silent clients without password occupy only a few of the slots, however often they connect.
    let until = Instant::now() + Duration::from_secs(20);
    let mut strangers = Vec::new();
    while strangers.len() < VNET_STRANGERS_PER_SOURCE_MAX {
        let mut one = Client::connect(&server);
        one.write.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        if one.read.read_line(&mut String::new()).is_err() {
            strangers.push(one);
        }
        assert!(Instant::now() < until, "the places did not come back");
    }
    // Then a new connection evicts a silent connection.
    let begun = Instant::now();
    while !Client::connect(&server).ask("HELLO s3cret 0.9").starts_with("OK") {
        assert!(begun.elapsed() < VNET_HELLO_TIME_MAX, "silent clients keep others out");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(strangers);
    let until = Instant::now() + Duration::from_secs(20);
    while !Client::connect(&server).ask("HELLO s3cret 0.9").starts_with("OK") {
        assert!(Instant::now() < until, "the places did not come back");
        std::thread::sleep(Duration::from_millis(10));
    }
    let address = server.address().unwrap();
    server.stop();
    assert!(TcpStream::connect(address).is_err());
}

/// Sends a file of commands to the control socket.
fn file(model: &Arc<Model>, text: &str, dry_run: bool) -> (u16, serde_json::Value) {
    let control = serve(model.clone());
    let body = json!({"group": "blue", "text": text, "file": "f.vnet", "dry_run": dry_run});
    send(&control.socket, "POST", "/v1/vnet", &body.to_string())
}

#[test]
fn vnet_file_is_checked_before_anything_changes() {
    let model = model();
    let good = "# both ends\nHELLO any 0.9\nADD LINK 10.0.0.2 9000\n\n\
                ADDROUTE any any EDGE 10.0.0.2\nADDROUTE any any INTERFACE vm1\n\
                DELETEROUTE any any INTERFACE vm1\nDONE\nnothing more is read\n";
    let before = model.changes();
    let (status, value) = file(&model, good, true);
    assert_eq!((status, value["changes"].as_array().unwrap().len()), (200, 4), "{value}");
    assert_eq!(model.changes(), before);
    let wrong = format!("ADD LINK 10.0.0.3 9000\nADD LINK nobody 1\n{good}").replace(
        "DONE",
        "LIST LINKS\nADD LINK 10.0.0.2 9000\nRegisterLink myself 1 UDP\nHELLO x 7\nDEL LINK 1",
    );
    let (status, value) = file(&model, &wrong, false);
    let text = value["error"]["message"].as_str().unwrap();
    assert_eq!((status, model.changes()), (422, before), "{text}");
    for line in [
        "f.vnet:2: host \"nobody\"",
        "f.vnet:10: LIST",
        "f.vnet:11: link 10.0.0.2 goes there already",
        "f.vnet:12: REGISTERLINK",
        "f.vnet:13: HELLO: version \"7\": expected 0.9",
        "f.vnet:14: DEL LINK 1: only a session has numbers of links",
        "f.vnet:15: unknown command",
        "nothing was changed",
    ] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
    assert_eq!(file(&model, good, false).0, 200);
    assert_eq!(model.changes(), before + 4);
    let routes = ask(&*model, routes::List).unwrap();
    assert_eq!(routes.len(), 1);
    model.fail_after(1);
    let (status, value) = file(&model, "ADD 10.0.0.8 1\nADD 10.0.0.9 1\nADD 10.0.0.10 1", false);
    let text = value["error"]["message"].as_str().unwrap();
    assert_eq!(status, 500);
    assert!(text.contains("add link 10.0.0.9") && text.contains("1 of 3 changes"), "{text}");
}

#[test]
fn hostile_clients_are_counted_by_reason() {
    let model = model();
    let context = context(&model);
    let refusals = context.refusals.clone();
    let timeouts =
        SessionTimeouts { hello: Duration::from_millis(300), idle: Duration::from_secs(20) };
    let server = VnetServer::start("127.0.0.1:0".parse().unwrap(), context, timeouts).unwrap();
    // Clients without password: noise, an incomplete line, an endless line, silence, another
    // version.
    let stranger = |bytes: &[u8]| {
        let mut client = Client::connect(&server);
        client.write.write_all(bytes).unwrap();
        client.write.shutdown(Shutdown::Write).unwrap();
        client.rest();
    };
    stranger(b"GET / HTTP/1.1\r\n\r\n");
    stranger(b"HELLO s3cr");
    stranger(&[b'x'; 5000]);
    Client::connect(&server).rest();
    stranger(b"HELLO s3cret 0.8\n");
    // Clients with password: unknown commands, missing objects, existing objects, and a full table.
    let mut friend = Client::greeted(&server);
    for line in ["HELP", "DEL LINK 99", "ADDROUTE any any INTERFACE vm2"] {
        friend.ask(line);
    }
    assert!(friend.ask("ADDROUTE any any INTERFACE vm2").contains("is the same"));
    let routes = |n: usize| {
        format!("ADDROUTE 02:00:00:01:{:02x}:{:02x} any INTERFACE vm1\n", n >> 8, n & 255)
    };
    let all: String = (1..16_384).map(routes).collect();
    assert_eq!(file(&model, &all, false).0, 200);
    assert!(friend.ask("ADDROUTE none any INTERFACE vm1").contains("16384 routes already"));
    // Last, because this address must wait from then on.
    stranger(b"HELLO wrong 0.9\n");
    stranger(b"HELLO s3cret 0.9\n");
    let counted: Vec<_> = refusals.vnet.by_name().into_iter().filter(|(_, n)| *n > 0).collect();
    let expected = [
        "conflict",
        "full",
        "garbage",
        "invalid",
        "late",
        "password",
        "too_long",
        "unfinished",
        "version",
        "waiting",
    ];
    let expected =
        expected.map(|why| (format!("refused_{why}_total"), if why == "garbage" { 2 } else { 1 }));
    assert_eq!(counted, expected);
}

#[test]
fn hostile_numbers_of_routes() {
    let model = model();
    let routes = |n: usize| -> String {
        let mac = |n: usize| format!("02:00:00:00:{:02x}:{:02x}", n >> 8, n & 255);
        (0..n).map(|n| format!("ADDROUTE {} any INTERFACE vm1\n", mac(n))).collect()
    };
    let before = model.changes();
    let (status, value) = file(&model, &routes(17_000), false);
    let text = value["error"]["message"].as_str().unwrap();
    assert_eq!((status, model.changes()), (422, before));
    assert!(text.contains("f.vnet:16385: there are 16384 routes already"), "{text}");
    assert!(text.contains("596 more problems not shown"), "{text}");
    let (status, _) = file(&model, &routes(10_000), false);
    assert_eq!((status, model.changes()), (200, before + 10_000));
    let (status, value) = file(&model, &routes(2), false);
    assert_eq!(status, 422, "{value}");
}
