//! Failed requests are reported before they can be collected; hidden requests are not.

use causeway_message::library::Partner;
use causeway_message::split::{Address, NicId};
use causeway_message::status::Status;
use causeway_testing::messages::*;

#[test]
fn failed_request_is_reported_once_before_it_is_collected() {
    let mut pair = EndpointPair::new();
    pair.b.library.set_raises(true);
    let (cut, back) = pair.b.receive(1, u64::MAX, 3);
    let (whole, _) = pair.b.receive(2, u64::MAX, 8);
    pair.a.send(B, 1, b"too long");
    pair.a.send(B, 2, b"fits");
    pair.run();
    // Successful requests are not delayed.
    assert_eq!(pair.b.library.ipeek(), Some(whole));
    assert!(pair.b.is_pending(cut) && pair.b.library.has_failed());
    assert_eq!(pair.b.library.next_failed(), Some((cut, Status::Truncated)));
    assert_eq!(pair.b.library.next_failed(), None);
    assert!(pair.b.is_pending(cut) && !pair.b.library.has_failed());
    pair.b.library.set_failure_code(cut, 77);
    pair.b.library.set_failure_code(cut, 78);
    assert_eq!(given(&back), b"too");
    let ended = pair.b.ended(cut);
    assert_eq!((ended.status, ended.code), (Status::Truncated, 77));
    assert_eq!((ended.msg_length, ended.xfer_length), (8, 3));
    assert_eq!(pair.b.ended(whole).code, 0);
    assert_eq!(pair.b.library.requests(), 0);
}

#[test]
fn failed_request_hidden_while_it_is_reported_stays_collectable_by_its_name() {
    let mut pair = EndpointPair::new();
    pair.b.library.set_raises(true);
    let (reported, _) = pair.b.receive(1, u64::MAX, 3);
    let (unreported, _) = pair.b.receive(2, u64::MAX, 3);
    pair.a.send(B, 1, b"too long");
    pair.a.send(B, 2, b"too long");
    pair.run();
    let library = &mut pair.b.library;
    assert_eq!(library.next_failed(), Some((reported, Status::Truncated)));
    library.hide(reported).unwrap();
    // A request that was not reported yet has no other code.
    library.set_failure_code(unreported, 6);
    assert_eq!(library.ipeek(), None);
    assert_eq!(library.next_failed(), Some((unreported, Status::Truncated)));
    assert_eq!((library.next_failed(), library.has_failed()), (None, false));
    library.set_failure_code(reported, 5);
    assert_eq!(library.ipeek(), None, "a hidden request is found by its name only");
    library.set_failure_code(unreported, 7);
    assert_eq!(library.ipeek(), Some(unreported));
    assert_eq!((pair.b.ended(reported).code, pair.b.ended(unreported).code), (5, 7));
    assert_eq!(pair.b.library.requests(), 0);
}

#[test]
fn failed_forgotten_request_is_reported_and_removed() {
    let mut pair = EndpointPair::new();
    pair.a.library.set_raises(true);
    // To itself: both sides are truncated. The first is forgotten before its failure, the second
    // after it.
    let send = pair.a.send(Partner::SELF, 1, b"too long");
    pair.a.library.forget(send).unwrap();
    let (receive, _) = pair.a.receive(1, u64::MAX, 3);
    pair.a.library.forget(receive).unwrap();
    for id in [send, receive] {
        assert_eq!(pair.a.library.next_failed(), Some((id, Status::Truncated)));
        pair.a.library.set_failure_code(id, 5);
    }
    assert_eq!(pair.a.library.next_failed(), None);
    assert_eq!((pair.a.library.requests(), pair.a.library.ipeek()), (0, None));
}

#[test]
fn failed_hidden_request_is_seen_by_its_name_only() {
    let mut pair = EndpointPair::new();
    pair.a.library.set_raises(true);
    let own = options(1).address;
    let other = Address { nic: NicId(9), endpoint: 1 };
    for (to, key, status) in
        [(own, 7, Status::Success), (own, 8, Status::BadKey), (other, 7, Status::EndpointUnknown)]
    {
        let End { library, ways } = &mut pair.a;
        let id = library.iconnect(ways, to, key, 0, 0, None).unwrap();
        library.hide(id).unwrap();
        assert_eq!(library.ipeek(), None);
        assert_eq!(library.test_any(0, 0), Ok(None));
        assert!(!library.has_failed());
        assert_eq!(pair.a.ended(id).status, status);
    }
    assert_eq!(pair.a.library.requests(), 0);
}
