//! A guest with sockets records the packets that it sends only.

use causeway_sim::event::{Event, Place};
use causeway_sim::sock::guest::{BACKLOG_MAX, Guest};
use causeway_sim::tape::Tape;

#[test]
fn guest_advertises_credit_in_queued_packets_only() {
    let mut guest = Guest::new(Place { stage: 0, guest: 0 });
    let mut tape = Tape::new(false, true);
    for port in 0..=BACKLOG_MAX as u32 {
        guest.connect(1, port, false, 4096, &mut tape);
    }
    let (_, _, events, _) = tape.close();
    let is_credit = |event: &&Event| matches!(event, Event::CreditAdvertised { .. });
    assert_eq!(events.iter().filter(is_credit).count(), BACKLOG_MAX);
}
