//! The list of connections: sides, states, queued bytes, filters and pages.

use crate::common::*;
use causeway_model::commands::connections::List;
use causeway_model::{Command, CommandError, ConnectionPage, ConnectionState};
use causeway_wire::vsock::{Op, Type};

/// Returns a page of the list.
fn page(rig: &Rig, list: List) -> Result<ConnectionPage, CommandError> {
    rig.handle.call(Command::service(list))?.to_service::<List>()
}

#[test]
fn connections_show_both_sides_state_and_queued_bytes() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.port("red", 3), rig.port("red", 4));
    open(&mut a, &mut b, 1000, 22);
    let (mut c, _d) = (rig.port("blue", 3), rig.port("blue", 5));
    send(&mut c, &packet((3, 7), (5, 8), Op::Request, 0), &[]);
    let all = || page(&rig, List::default()).unwrap().connections;
    wait(|| all().len() == 2, || format!("{:?}", all()));
    let list = all();
    let (blue, red) = (&list[0], &list[1]);
    assert_eq!((blue.group.as_str(), red.group.as_str()), ("blue", "red"));
    assert_eq!((blue.state, red.state), (ConnectionState::Requested, ConnectionState::Open));
    let end = |end: &causeway_model::ConnectionEnd| {
        (end.port.as_ref().unwrap().to_string(), end.cid, end.number)
    };
    assert_eq!(end(&red.caller), ("red-3".into(), 3, 1000));
    assert_eq!(end(&red.callee), ("red-4".into(), 4, 22));
    assert!(red.age_seconds > 0.0 && red.age_seconds < 60.0, "{}", red.age_seconds);
    let before = red.callee.credit_bytes;
    send(&mut a, &packet((3, 1000), (4, 22), Op::Data, 100), &[7; 100]);
    let callee = || page(&rig, List { cid: Some(4), ..List::default() }).unwrap().connections;
    wait(|| callee()[0].callee.credit_bytes == before - 100, || format!("{:?}", callee()));
    let now = &callee()[0].callee;
    assert_eq!(u64::from(now.unread_bytes) + now.queued_bytes, 100);
    send(&mut a, &packet((3, 1000), (4, 22), Op::Shutdown, 0), &[]);
    let closing = List { state: Some(ConnectionState::Closing), ..List::default() };
    assert!(page(&rig, closing).unwrap().connections.len() <= 1);
}

#[test]
fn connections_come_in_pages_and_by_filter() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.sockets("red", 3), rig.sockets("red", 4));
    let mut kept = Vec::new();
    for number in 0..50 {
        kept.push(join(&mut a, &mut b, Type::Stream, 5000 + number));
    }
    let mut list = List { limit: Some(7), ..List::default() };
    let mut seen = std::collections::BTreeSet::new();
    for pages in 1.. {
        let page = page(&rig, list.clone()).unwrap();
        assert!(page.connections.len() <= 7);
        seen.extend(page.connections.iter().map(|connection| connection.callee.number));
        list.after = page.next;
        if list.after.is_none() {
            assert!(pages >= 8, "{pages}");
            break;
        }
    }
    assert_eq!(seen.len(), 50, "{seen:?}");
    let count = |list| page(&rig, list).unwrap().connections.len();
    let of = |port: &str| List { port: Some(port.parse().unwrap()), ..List::default() };
    assert_eq!((count(of("red-3")), count(of("red-4"))), (50, 50));
    assert_eq!(count(List { number: Some(5003), ..List::default() }), 1);
    assert_eq!(count(List { cid: Some(9), ..List::default() }), 0);
    let blue = Some("blue".parse().unwrap());
    assert_eq!(count(List { group: blue, ..List::default() }), 0);
    assert!(matches!(page(&rig, of("missing")), Err(CommandError::NotFound { .. })));
    let wrong = page(&rig, List { limit: Some(0), ..List::default() });
    assert!(matches!(wrong, Err(CommandError::Invalid(_))));
}
