//! Both forms of a view have the same JSON, and readers tolerate other releases.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::{MacMatch, RouteEnd, VsockSpec};

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn port() -> PortView {
    let spec = PortSpec {
        name: "a".parse().unwrap(),
        group: "g".parse().unwrap(),
        socket: "/run/a.sock".into(),
        memory_max: None,
        access: crate::SocketAccess::default(),
        kind: crate::PortKind::of(VsockSpec {
            cid: 3,
            guest_cid: None,
            host_socket: None,
            processes: false,
        }),
    };
    let queue = QueueView {
        index: 0,
        size: 256,
        format: "split".into(),
        running: true,
        mode: PollMode::VmmDriven,
        mode_reason: "rate".into(),
        mode_changes_total: 2,
        rate: 9,
    };
    PortView {
        spec,
        state: PortState::Running,
        dispatcher: 1,
        fault: Some("bad".into()),
        fault_age_seconds: Some(7),
        fault_of: Some(EventFrontend::Former),
        notice: None,
        notice_age_seconds: None,
        notice_of: None,
        faults_total: 1,
        host_fault: None,
        host_faults_total: 0,
        connects_total: 2,
        connect_error: None,
        refused_users_total: 0,
        refused_user: None,
        warnings: vec!["slow".into()],
        held: true,
        cut_off: None,
        features: "0x0".into(),
        memory_bytes: 4096,
        queues: vec![queue],
        counters: [("drop_runt_total".to_owned(), 4)].into(),
    }
}

#[test]
fn views_of_both_forms_have_the_same_json() {
    let port = json!(port());
    assert_eq!(json!(read::<PortView<Textual>>(port.clone())), port);
    let spec = RouteSpec {
        group: "g".parse().unwrap(),
        source: MacMatch::Any,
        destination: MacMatch::None,
        to: RouteEnd::Edge("l".parse().unwrap()),
        from: None,
    };
    let route: RouteView = RouteView { index: 1, spec, priority: 6, hits_total: 9 };
    let route = json!(route);
    assert_eq!(json!(read::<RouteView<Textual>>(route.clone())), route);
    assert_eq!(json!(read::<RouteView>(route.clone())), route);
    let group = json!(GroupView::new(&GroupSpec::from("g".parse::<Name>().unwrap()), Vec::new()));
    assert_eq!(json!(read::<GroupView<Textual>>(group.clone())), group);
}

fn hca() -> HcaView {
    let queue_pair = HcaQueuePairView {
        number: 5,
        kind: "RC".into(),
        state: "ready to send".into(),
        peer: Some("b".into()),
        peer_queue_pair: Some(9),
        send_completion_queue: 2,
        receive_completion_queue: 3,
        refusal: None,
        refusals: 0,
        waits_for: None,
    };
    HcaView {
        port: "a".parse().unwrap(),
        group: "g".parse().unwrap(),
        mac: Mac([2, 0, 0, 0, 0, 1]),
        state: HcaState::NoDriver,
        queue_pairs: 2,
        queue_pairs_max: 4096,
        completion_queues: 2,
        completion_queues_max: 4096,
        regions: 1,
        regions_max: 65_536,
        registered_bytes: 4096,
        registered_bytes_max: 1 << 40,
        counters: [("requests_total".to_owned(), 4)].into(),
        activity: HcaActivity { byte_rate_max: Some(5), ..HcaActivity::default() },
        queue_pair_list: vec![queue_pair],
        queue_pairs_omitted: 1,
    }
}

#[test]
fn views_of_adapters_have_the_same_json_in_both_forms() {
    let hca = json!(hca());
    assert_eq!(hca["state"], "no driver");
    assert_eq!(hca["queue_pair_list"][0]["type"], "RC");
    assert!(hca["queue_pair_list"][0].get("refusal").is_none());
    assert_eq!(json!(read::<HcaView<Textual>>(hca.clone())), hca);
    assert_eq!(json!(read::<HcaView>(hca.clone())), hca);
    let mut newer = hca;
    newer["state"] = json!("resting");
    newer["queue_pair_list"][0]["type"] = json!("XRC");
    newer.as_object_mut().unwrap().remove("queue_pairs_omitted");
    let newer: HcaView<Textual> = read(newer);
    assert_eq!((newer.state.as_str(), newer.queue_pairs_omitted), ("resting", 0));
    assert_eq!(newer.queue_pair_list[0].kind, "XRC");
}

#[test]
fn views_of_nics_have_the_same_json_in_both_forms() {
    let endpoint = NicEndpointView {
        number: 3,
        state: "parked".into(),
        unread_seconds: None,
        peers: 1,
        counters: [("messages_sent_total".to_owned(), 4)].into(),
    };
    let process = NicProcessView {
        place: "guest".into(),
        session: Some(7),
        user: None,
        state: "active".into(),
        unread_messages: 0,
        regions: 2,
        region_bytes: 4096,
        endpoint_list: vec![endpoint],
    };
    let nic: NicView = NicView {
        port: "a".parse().unwrap(),
        group: "g".parse().unwrap(),
        mac: Mac([2, 0, 0, 0, 0, 1]),
        hostname: "h:0".into(),
        adapter: Some("b".parse().unwrap()),
        guest: "served".into(),
        processes: 1,
        sessions: 1,
        endpoints: 1,
        warnings: Vec::new(),
        refusal: None,
        refusal_age_seconds: None,
        notice: None,
        notice_age_seconds: None,
        counters: BTreeMap::new(),
        process_list: vec![process],
    };
    let nic = json!(nic);
    assert!(nic["process_list"][0].get("user").is_none());
    assert_eq!(json!(read::<NicView<Textual>>(nic.clone())), nic);
    assert_eq!(json!(read::<NicView>(nic.clone())), nic);
    let mut newer = nic;
    newer["guest"] = json!("cloned");
    newer["process_list"][0]["endpoint_list"][0]["state"] = json!("offloaded");
    newer.as_object_mut().unwrap().remove("warnings");
    let newer: NicView<Textual> = read(newer);
    assert_eq!((newer.guest.as_str(), newer.warnings.len()), ("cloned", 0));
    assert_eq!(newer.process_list[0].endpoint_list[0].state, "offloaded");
}

#[test]
fn views_of_a_newer_daemon_are_read() {
    let port: PortView<Textual> = read(json!({
        "name": "a", "group": "g", "kind": "later", "socket": "/s", "state": "resting",
        "fault_of": "neighbour", "colour": "blue", "delay_us": 5,
        "queues": [{"index": 0, "size": 8, "format": "round", "running": true, "mode": "napping",
                    "mode_reason": "late", "depth": 3}],
    }));
    assert_eq!((port.spec.text("kind"), port.state.as_str()), (Some("later"), "resting"));
    assert_eq!((port.spec.number("delay_us"), port.spec.text("colour")), (Some(5), Some("blue")));
    assert_eq!(port.fault_of.as_deref(), Some("neighbour"));
    assert_eq!((&*port.queues[0].format, &*port.queues[0].mode), ("round", "napping"));
    let link: LinkView<Textual> = read(json!({
        "name": "l", "group": "g", "kind": "pigeon", "metric": 100, "state": "flying",
        "mtu": 9000, "feathers": 7,
    }));
    assert_eq!((link.spec.text("kind"), link.state.as_str()), (Some("pigeon"), "flying"));
    let group: GroupView<Textual> =
        read(json!({"name": "g", "kind": "ring", "forwarding": "ask", "ports": [], "x": 1}));
    assert_eq!((group.kind.as_str(), group.forwarding.as_str()), ("ring", "ask"));
    let rule: RuleView<Textual> = read(json!({
        "index": 0, "action": "log", "from": "*", "to": "net/x", "hits_total": 0, "x": 1,
    }));
    assert_eq!((rule.rule.text("action"), rule.rule.text("to")), (Some("log"), Some("net/x")));
    let stats: StatsView<Textual> = read(json!({
        "uptime_seconds": 1.5, "doors": [{"name": "d", "counters": {}, "x": 1}], "x": 1,
        "ports": [{"name": "a", "group": "g", "kind": "later", "state": "resting", "x": 1}],
    }));
    assert_eq!(stats.ports[0].state, "resting");
}

#[test]
fn views_of_an_older_daemon_are_read() {
    let port: PortView<Textual> = read(json!({
        "name": "a", "group": "g", "kind": "net", "socket": "/s", "state": "running",
        "queues": [{"index": 0, "size": 8, "format": "split", "running": true}],
    }));
    assert_eq!((port.dispatcher, port.faults_total, port.memory_bytes), (0, 0, 0));
    assert!(!port.held && port.fault.is_none() && port.counters.is_empty());
    assert_eq!((port.queues[0].mode.as_str(), port.queues[0].rate), ("", 0));
    let link: LinkView<Textual> = read(json!({
        "name": "l", "group": "g", "kind": "vxlan", "metric": 1, "state": "up", "mtu": 1450,
    }));
    assert_eq!((link.reason.as_str(), link.ups_total), ("", 0));
    let group: GroupView<Textual> = read(json!({"name": "g", "ports": ["a"]}));
    assert_eq!((group.weight, group.forwarding.as_str(), group.links.len()), (1, "", 0));
    let stats: StatsView<Textual> = read(json!({
        "uptime_seconds": 1.5,
        "ports": [{"name": "a", "group": "g", "kind": "net", "state": "running"}],
    }));
    assert!(stats.links.is_empty() && stats.doors.is_empty());
    assert_eq!((stats.ports[0].faults_total, stats.log.dropped_lines_total), (0, 0));
    let info: InfoView = read(json!({
        "version": "1", "pid": 1, "uptime_seconds": 1.5, "control": "/c", "run_dir": "/r",
    }));
    assert_eq!((info.name.as_str(), info.holder_pid), ("", None));
}

#[test]
fn views_without_their_state_are_refused() {
    for wrong in [json!({}), json!({"name": "a"}), json!({"state": 1}), json!([])] {
        assert!(serde_json::from_value::<PortView<Textual>>(wrong.clone()).is_err(), "{wrong}");
    }
}
