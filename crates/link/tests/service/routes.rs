//! VNET's routes across hosts, traffic statistics, and captures.

use crate::hosts::{Host, bare, frame, is_silent, mac, name, receive, send, unicast, wait};
use causeway_model::CaptureSpec;
use causeway_model::Mac;
use causeway_model::commands::trace;
use causeway_model::commands::{captures, links, routes, traffic};
use causeway_model::{Answer, Command, TraceQuery};
use causeway_model::{Forwarding, GroupSpec};
use causeway_model::{LinkKind, MacMatch, RouteEnd, RouteSpec, UdpSpec};

const VNET: fn(UdpSpec) -> LinkKind = LinkKind::Vnet;

/// Three hosts; A has links to B and C.
fn star(port: u16) -> [Host; 3] {
    let all = [Host::new(), Host::new(), Host::new()];
    let at = |host: u8| format!("127.0.0.{}:{port}", 30 + host);
    for (host, peer, link) in [(0, 1, "to-b"), (0, 2, "to-c"), (1, 0, "to-a"), (2, 0, "to-a")] {
        let ends = (&*at(host as u8), &*at(peer as u8), 0);
        all[host].link(bare(link, "red", VNET, ends)).unwrap();
    }
    all
}

fn route(
    host: &Host,
    source: &str,
    destination: &str,
    to: RouteEnd,
    from: Option<RouteEnd>,
) -> u64 {
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    let spec = RouteSpec { group: name("red"), source, destination, to, from };
    host.ask(routes::Add(spec)).index
}

fn edge(link: &str) -> RouteEnd {
    RouteEnd::Edge(name(link))
}

fn hits(host: &Host, index: u64) -> u64 {
    let all = host.ask(routes::List);
    all.iter().find(|view| view.index == index).unwrap().hits_total
}

#[test]
fn routes_go_before_the_switch_and_copy_where_several_are_best() {
    let [a, b, c] = star(22001);
    let mut one = a.port(1, "red");
    let (mut two, mut three) = (b.port(2, "red"), c.port(3, "red"));
    // Frames to B's address go to C as well.
    let first = route(&a, "any", &Mac(mac(2)).to_string(), edge("to-b"), None);
    let second = route(&a, "any", &Mac(mac(2)).to_string(), edge("to-c"), None);
    // C sends frames for unknown addresses to its only port.
    route(&c, "any", "any", RouteEnd::Interface(name("p3")), Some(edge("to-a")));
    let sent = unicast(1, 2, 100);
    send(&mut one, &sent);
    assert_eq!(receive(&mut two).1, sent);
    assert_eq!(receive(&mut three).1, sent, "a copy, though it is not C's address");
    assert_eq!((hits(&a, first), hits(&a, second)), (1, 1));
    a.ask(routes::Delete(second));
    let sent = unicast(1, 2, 200);
    send(&mut one, &sent);
    assert_eq!(receive(&mut two).1, sent);
    assert!(is_silent(&mut three), "no copy any more");
    let query =
        TraceQuery::new(&trace::Frame { from: name("p1"), source: None, destination: Mac(mac(2)) });
    match a.call(Command::Trace(query)) {
        Answer::Trace(view) => {
            assert_eq!((view.verdict.as_str(), view.to), ("forward", vec!["to-b".into()]))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_group_that_forwards_by_routes_only_drops_the_rest() {
    let a = Host::new();
    let b = Host::new();
    let strict = GroupSpec { forwarding: Forwarding::Routes, ..name("strict").into() };
    a.call(Command::GroupAdd(strict));
    let (mut one, mut two) = (a.port(1, "strict"), a.port(2, "strict"));
    let (x, y) = ("127.0.0.34:22002", "127.0.0.35:22002");
    a.link(bare("to-b", "strict", VNET, (x, y, 0))).unwrap();
    b.link(bare("to-a", "red", VNET, (y, x, 0))).unwrap();
    let mut far = b.port(3, "red");
    send(&mut one, &unicast(1, 2, 60));
    let dropped = || a.view("p1").counters["drop_no_route_total"];
    wait(|| dropped() == 1, || format!("{:?}", a.view("p1").counters));
    assert!(is_silent(&mut two));
    let spec = RouteSpec {
        group: name("strict"),
        source: MacMatch::Any,
        destination: MacMatch::Not(Mac(mac(1))),
        to: edge("to-b"),
        from: None,
    };
    a.ask(routes::Add(spec));
    let sent = frame([0xff; 6], mac(1), 90);
    send(&mut one, &sent);
    assert_eq!(receive(&mut far).1, sent);
    assert!(is_silent(&mut two), "not even a broadcast");
}

#[test]
fn prepared_routes_end_with_their_group() {
    let host = Host::new();
    let add = || host.call(Command::GroupAdd(name("brief").into()));
    add();
    let spec = RouteSpec {
        group: name("brief"),
        source: MacMatch::Any,
        destination: MacMatch::Any,
        to: RouteEnd::Interface(name("p1")),
        from: None,
    };
    host.ask(routes::Prepare(spec.clone()));
    host.call(Command::GroupDel(name("brief")));
    add();
    let _port = host.port(1, "brief");
    let left: Vec<RouteSpec> = host.ask(routes::List).into_iter().map(|view| view.spec).collect();
    assert_eq!(left, [], "another group has the name");
    host.ask(routes::Add(spec));
}

/// Returns the number of threads that call the controllers' ticks, which end idle captures.
fn watchers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
    names.filter(|name| name.as_ref().is_ok_and(|name| name.trim() == "control-tick")).count()
}

#[test]
fn traffic_is_seen_and_frames_are_captured() {
    let [a, b, _c] = star(22003);
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    let capture = |at: RouteEnd| {
        let spec = CaptureSpec { at, filter: Default::default(), snap: 0, count: 0 };
        a.ask(captures::Begin(spec)).capture
    };
    let at_port = capture(RouteEnd::Interface(name("p1")));
    let at_link = capture(edge("to-b"));
    // A thread sets its name shortly after it starts.
    wait(|| watchers() > 0, || "nobody ends captures".into());
    for n in 0..5 {
        let there = unicast(1, 2, 100 + n);
        send(&mut one, &there);
        assert_eq!(receive(&mut two).1, there);
        let back = unicast(2, 1, 200 + n);
        send(&mut two, &back);
        assert_eq!(receive(&mut one).1, back);
    }
    assert_eq!(watchers(), 1, "one for all captures");
    for number in [at_port, at_link] {
        let fetched = a.ask(captures::Fetch(number));
        assert_eq!((fetched.frames, fetched.dropped, fetched.closed), (10, 0, false));
        // One section, one interface, ten frames; each of their bytes is in the file.
        let holds = |wanted: &[u8]| fetched.bytes.windows(wanted.len()).any(|w| w == wanted);
        assert!(holds(&unicast(1, 2, 104)) && holds(&unicast(2, 1, 204)));
    }
    a.ask(captures::End(at_port));
    a.ask(links::Delete(name("to-b")));
    let fetched = a.ask(captures::Fetch(at_link));
    assert!(fetched.closed, "its link is gone");
    // A frame with a forged source.
    send(&mut one, &unicast(9, 2, 100));
    let refused = || a.view("p1").counters["drop_spoofed_source_total"] == 1;
    wait(refused, || format!("{:?}", a.view("p1")));
    let view = a.ask(traffic::Show(name("red")));
    assert_eq!(view.pairs.len(), 2, "{view:?}");
    let pair = |from: u8, to: u8| {
        let pair =
            view.pairs.iter().find(|p| (p.source.0, p.destination.0) == (mac(from), mac(to)));
        let pair = pair.unwrap_or_else(|| panic!("{view:?}"));
        (pair.from.clone(), pair.frames_total, pair.bytes_total)
    };
    assert_eq!(pair(1, 2), ("p1".into(), 5, 510));
    assert_eq!((pair(2, 1).1, pair(2, 1).2), (5, 1010));
}
