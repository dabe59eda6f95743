//! Addresses beyond a peer's quota are announced once there is room.

use std::sync::Arc;

use causeway_fabric::carrier::{BufferPool, LinkId};
use causeway_fabric::mailbox::mailbox;
use causeway_fabric::udp::{Fragmentation, Udp};
use causeway_link::Clock;
use causeway_link::io::inbox::LinkInbox;
use causeway_link::io::tunnels::TunnelSocket;
use causeway_link::limits::ADDRESSES_MAX;

fn at<R>(now: u64, act: impl FnOnce(&mut Clock<'_>) -> R) -> R {
    let mut entropy = |bytes: &mut [u8]| bytes.fill(7);
    act(&mut Clock { now, wall: now, random: &mut entropy })
}

#[test]
fn addresses_beyond_the_quota_are_announced_once_there_is_room() {
    let udp = Udp::bind("127.0.0.1:0".parse().unwrap(), Fragmentation::Refused).unwrap();
    let mut socket = at(0, |clock| TunnelSocket::new(udp, None, BufferPool::default(), clock));
    let (to, _mailbox) = mailbox(1).unwrap();
    let (id, name, stats) = (LinkId(1), "l".parse().unwrap(), Arc::default());
    let inbox = LinkInbox { id, name, to, segments: None, stats, pool: BufferPool::default() };
    let remote = Some("127.0.0.1:9".parse().unwrap());
    let tunnel = at(0, |clock| socket.add(None, (remote, None), (7, None), inbox, clock)).unwrap();
    let mac = |number: usize| {
        let [.., a, b, c] = number.to_be_bytes();
        [2, 0, 0, a, b, c]
    };
    for number in 0..=ADDRESSES_MAX {
        socket.announce(id, mac(number), Some(5), 1);
    }
    let announced = |socket: &TunnelSocket| socket.state(tunnel, 1).unwrap().0.addresses.0;
    assert_eq!((announced(&socket), socket.over_quota()), (ADDRESSES_MAX, vec![]));
    socket.announce(id, mac(3), None, 2);
    assert_eq!((announced(&socket), socket.over_quota()), (ADDRESSES_MAX - 1, vec![id]));
    assert_eq!(socket.over_quota(), [], "once");
    // As the service does, which knows all addresses.
    for number in (0..=ADDRESSES_MAX).filter(|number| *number != 3) {
        socket.announce(id, mac(number), Some(5), 3);
    }
    assert_eq!((announced(&socket), socket.over_quota()), (ADDRESSES_MAX, vec![]));
}
