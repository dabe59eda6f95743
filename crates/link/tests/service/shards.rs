//! Links and groups are shards of their own: on one dispatcher, on two, and moved between them.

use crate::hosts::{Host, bare, name, receive, send, unicast, wait};
use causeway_model::LinkKind;
use causeway_model::{Command, LinkState};

#[test]
fn frames_find_their_group_wherever_its_shard_and_the_links_are_moved() {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    let at = |host: u8| format!("127.0.0.{host}:19170");
    a.link(bare("to-b", "red", LinkKind::CausewayPlain, (&at(2), &at(3), 7))).unwrap();
    b.link(bare("to-a", "red", LinkKind::CausewayPlain, (&at(3), &at(2), 7))).unwrap();
    let up = || [a.link_view("to-b"), b.link_view("to-a")].map(|view| view.state);
    wait(|| up() == [LinkState::Up; 2], || format!("{:?}", up()));
    for round in 0..40_usize {
        // Both on one dispatcher, each on its own, and every transition between these.
        let (links, frames) = (round >> 1 & 1, round & 1);
        for (service, dispatcher) in [("link", links), ("net", frames)] {
            // Each host goes through them in its own order.
            for (host, dispatcher) in [(&a, dispatcher), (&b, 1 - dispatcher)] {
                let group = name(if service == "net" { "red" } else { "host" });
                host.call(Command::ShardMove { group, service: Some(service.into()), dispatcher });
            }
            for _ in 0..3 {
                let frame = unicast(1, 2, 60 + round);
                send(&mut one, &frame);
                assert_eq!(receive(&mut two).1, frame);
                let frame = unicast(2, 1, 80 + round);
                send(&mut two, &frame);
                assert_eq!(receive(&mut one).1, frame);
            }
        }
    }
}
