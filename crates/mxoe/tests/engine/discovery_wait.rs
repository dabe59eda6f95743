//! Connects to NICs that discovery finds only after the connect, as after a restart of the daemon.

use crate::common;

use causeway_mxoe::{Admission, NicConfig};
use causeway_wire::mx::{Event, Request, Status, Token};
use causeway_wire::mxoe::{Connect, ConnectBody, Packet};

use common::script::{Script, packets};
use common::{MS, RecordedEvent, address, nic};

/// A NIC whose discovery ends one second after the start of the script.
fn discovering() -> Script {
    let discovery_ends_ns = 2_000 * MS;
    Script::of(NicConfig { discovery_ends_ns, ..NicConfig::new(nic(0), "host:0") })
}

/// Requests a connect to the unknown NIC 5.
fn connect(script: &mut Script, timeout_ns: Option<u64>) {
    let request = Request::Connect { token: Token(7), to: address(5, 1), key: 9, timeout_ns };
    assert_eq!(script.ask(&request), Admission::Yes);
}

/// Returns the statuses of connects that ended since the last call.
fn ended(script: &mut Script) -> Vec<Status> {
    let status = |told: &RecordedEvent| match told {
        RecordedEvent::Event(Event::Connected { token: Token(7), status, .. }) => Some(*status),
        _ => None,
    };
    script.told().iter().filter_map(status).collect()
}

#[test]
fn connect_waits_until_discovery_finds_the_nic() {
    let mut script = discovering();
    connect(&mut script, None);
    script.pass(300 * MS);
    assert!(ended(&mut script).is_empty() && script.sent().is_empty());
    script.nic.nic_add(nic(5)).unwrap();
    script.pass(5 * MS);
    let sent = script.sent();
    let is_request = |packet: &Packet<'_>| {
        matches!(packet, Packet::Connect(Connect { greeting: ConnectBody::Request { .. }, .. }))
    };
    assert_eq!(packets(&sent).iter().filter(|packet| is_request(packet)).count(), 1);
}

#[test]
fn connect_to_an_unknown_nic_fails_when_discovery_has_ended() {
    let mut script = discovering();
    connect(&mut script, None);
    script.pass(990 * MS);
    assert!(ended(&mut script).is_empty());
    script.pass(20 * MS);
    assert_eq!(ended(&mut script), [Status::EndpointUnreachable]);
    connect(&mut script, None);
    assert_eq!(ended(&mut script), [Status::EndpointUnreachable], "at once");
}

#[test]
fn connect_to_an_undiscovered_nic_ends_by_timeout_or_cancel() {
    let mut script = discovering();
    connect(&mut script, Some(100 * MS));
    script.pass(110 * MS);
    assert_eq!(ended(&mut script), [Status::EndpointUnreachable]);
    connect(&mut script, None);
    assert_eq!(script.ask(&Request::Cancel { token: Token(7) }), Admission::Yes);
    assert_eq!(ended(&mut script), [Status::Cancelled]);
    script.nic.nic_add(nic(5)).unwrap();
    script.pass(50 * MS);
    assert!(script.sent().is_empty() && ended(&mut script).is_empty());
}
