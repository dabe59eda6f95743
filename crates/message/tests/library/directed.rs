//! Directed receives, and unexpected messages that are probed or taken without a receive.

use causeway_channel::{Layout, Side};
use causeway_message::library::{EndpointIdentity, LibraryOptions, Partner};
use causeway_message::status::Status;
use causeway_testing::messages::*;

const ALL: (u64, u64) = (0, 0);

fn source(endpoint: u8) -> EndpointIdentity {
    let LibraryOptions { address, session, .. } = options(endpoint);
    EndpointIdentity { address, session }
}

/// Endpoints 1 and 3 with channels to 2.
struct Three {
    a: End,
    b: End,
    c: End,
}

impl Three {
    fn new() -> Self {
        let [mut a, mut b, mut c] = [1, 2, 3].map(|number| End::new(options(number)));
        for (end, number) in [(&mut a, 1), (&mut c, 3)] {
            let memory = memory(Layout::DEFAULT);
            assert!(end.ways.add(channel(&memory, Side::First, 2)));
            assert!(b.ways.add(channel(&memory, Side::Second, number)));
        }
        let mut three = Self { a, b, c };
        three.run();
        three
    }

    fn run(&mut self) {
        while self.a.run() | self.b.run() | self.c.run() {}
    }

    fn receive(
        &mut self,
        from: Option<EndpointIdentity>,
        len: usize,
    ) -> (causeway_message::library::RequestId, Back) {
        let (pad, back) = room(len);
        (self.b.library.irecv_from(&mut self.b.ways, from, ALL, 0, pad).unwrap(), back)
    }
}

#[test]
fn directed_receive_ignores_other_senders() {
    let mut three = Three::new();
    for large in [4, 20_000] {
        let (directed, back) = three.receive(Some(source(3)), large);
        let (open, open_back) = three.receive(None, large);
        three.a.send(B, 7, &content(1, large));
        three.run();
        assert_eq!(three.b.ended(open).partner, Some(partner(1)));
        assert_eq!(given(&open_back), content(1, large));
        assert!(three.b.is_pending(directed));
        three.c.send(B, 7, &content(3, large));
        three.run();
        assert_eq!(three.b.ended(directed).partner, Some(partner(3)));
        assert_eq!(given(&back), content(3, large));
    }
}

#[test]
fn directed_receive_finds_unexpected_messages() {
    let mut three = Three::new();
    three.a.send(B, 7, b"from a");
    three.c.send(B, 7, b"from c");
    three.run();
    let (directed, back) = three.receive(Some(source(3)), 6);
    three.b.ended(directed);
    assert_eq!(given(&back), b"from c");
    let (other, back) = three.receive(Some(source(1)), 6);
    three.b.ended(other);
    assert_eq!(given(&back), b"from a");
}

#[test]
fn directed_receive_ignores_other_sessions() {
    let mut three = Three::new();
    let stale = EndpointIdentity { session: source(3).session + 1, ..source(3) };
    let (directed, _) = three.receive(Some(stale), 6);
    three.c.send(B, 7, b"from c");
    three.run();
    assert!(three.b.is_pending(directed));
    let mut first = [0; 4];
    assert_eq!(three.b.library.probe(Some(stale), ALL, &mut first), Ok(None));
    let (found, copied) = three.b.library.probe(Some(source(3)), ALL, &mut first).unwrap().unwrap();
    assert_eq!((found.len, copied, &first), (6, 4, b"from"));
}

#[test]
fn directed_receives_end_with_their_peer() {
    let mut three = Three::new();
    let (directed, _) = three.receive(Some(source(3)), 6);
    let (other, _) = three.receive(Some(source(1)), 6);
    let (open, _) = three.receive(None, 6);
    three.c.library.disconnect(&mut three.c.ways, B).unwrap();
    for _ in 0..1000 {
        three.run();
    }
    let ended = three.b.ended(directed);
    assert_eq!((ended.status, ended.partner), (Status::EndpointClosed, None));
    assert!(three.b.is_pending(other) && three.b.is_pending(open));
}

#[test]
fn directed_receive_takes_messages_of_a_lost_peer() {
    let mut three = Three::new();
    let (directed, back) = three.receive(Some(source(3)), 6);
    three.c.send(B, 7, b"from c");
    three.c.library.disconnect(&mut three.c.ways, B).unwrap();
    for _ in 0..1000 {
        three.run();
    }
    assert_eq!(three.b.ended(directed).status, Status::Success);
    assert_eq!(given(&back), b"from c");
}

#[test]
fn directed_take_returns_messages_in_order() {
    let mut three = Three::new();
    let b = &mut three.b;
    b.send(Partner::SELF, 9, b"mine");
    three.a.send(B, 7, b"first");
    let offered = three.a.ssend(B, 7, b"offered");
    three.a.send(B, 7, b"second");
    three.run();
    let b = &mut three.b;
    let mut take = |from, matching| {
        let taken = b.library.take_kept(&mut b.ways, from, matching).unwrap();
        taken.map(|taken| {
            let bytes = taken.bytes.clone();
            b.library.give_back(taken.bytes);
            (taken.probed.partner, taken.probed.match_info, bytes)
        })
    };
    assert_eq!(take(None, (7, u64::MAX)), Some((A, 7, b"first".to_vec())));
    // Offered messages are refused on the way.
    assert_eq!(take(Some(source(1)), ALL), Some((A, 7, b"second".to_vec())));
    assert_eq!(take(Some(source(3)), ALL), None);
    assert_eq!(take(Some(source(2)), ALL), Some((Partner::SELF, 9, b"mine".to_vec())));
    assert_eq!(take(None, ALL), None);
    assert_eq!(three.b.library.unexpected(), 0);
    three.run();
    assert_eq!(three.a.ended(offered).status, Status::Truncated);
}
