//! A process of a guest and a process of another host: messages cross a network, here UDP datagrams
//! of the loopback device, as MXoE frames.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use causeway_memory::{Mapping, View, create};
use causeway_model::{Mac, MxSpec, MxUdp, PortKind};
use causeway_wire::local::{ClientMessage, DaemonMessage};
use causeway_wire::mx::{Event, NicId, RegionId, Request, Status, Token, Window};

use crate::common::rings::{self, Rings};
use crate::common::{self, Process, loopback};
use crate::pattern;
use crate::rig::{Host, at, name, soon};

/// Length of a long message, which its receiver pulls in several windows.
const LONG: u32 = 3_000_001;
/// Where both messages begin in their regions.
const OFFSET: u64 = 77;

/// Returns the NIC `m1` of a guest's adapter, on the network.
fn nic_with_network() -> PortKind {
    let [_, _, mac @ ..] = at(1, 0).nic.0.to_be_bytes();
    let udp = MxUdp { listen: loopback(3, 9121), peers: vec![loopback(4, 9122)] };
    let local = MxSpec::local(Mac(mac), "m1:0".into());
    PortKind::of(MxSpec { adapter: Some(name("a1")), udp: Some(udp), ..local })
}

/// Lends memory of a process of the other host. Returns the memory and its region.
fn lend(process: &mut Process, endpoint: u8, len: u64) -> (View, RegionId) {
    let file = create("region", len).unwrap();
    let mapping = Mapping::new(file.as_fd(), 0, len).unwrap();
    let view = View::new(Arc::new(mapping), 0, len as usize).unwrap();
    let ask = ClientMessage::Region { tag: 5, endpoint, len };
    process.0.send(ask.emit(), vec![file]).unwrap();
    let DaemonMessage::Region { code: 0, region, .. } = process.hear().0 else { panic!() };
    (view, RegionId(region))
}

fn window(region: RegionId) -> Window {
    Window { region, offset: OFFSET, len: LONG }
}

/// Returns the next event of the process of the other host that introduces no peer.
fn hear(rings: &mut Rings) -> Event<'static> {
    loop {
        match rings.hear() {
            Event::PeerSeen { .. } => {}
            event => return event,
        }
    }
}

fn bytes_at(view: &View) -> Vec<u8> {
    let mut bytes = vec![0; LONG as usize];
    view.read_into(OFFSET as usize, &mut bytes).unwrap();
    bytes
}

#[test]
fn guest_process_and_process_of_another_host_exchange_messages_of_all_lengths_by_frames() {
    let host = Host::new();
    host.add_adapter(1);
    host.add("m1", nic_with_network()).unwrap();
    let mut guest = host.boot(1);
    let other = common::Host::with_udp_at("b", loopback(4, 9122), &[loopback(3, 9121)]);
    let (mut one, mut a) = guest.endpoint(1);
    let mut far = other.attach("b");
    let mut b = Rings::open(&mut far, 4);
    let knows_guest = || other.peers().iter().any(|peer| NicId::of(peer.mac.0) == at(1, 0).nic);
    soon(knows_guest, "the NICs do not find each other");
    let peer = a.connect((&guest, &mut one), rings::at("b", 4));
    let (status, back) = b.connect(at(1, 1), 7);
    assert_eq!(status, Status::Success);
    for (info, len) in [(1, 0), (2, 8), (3, 100), (4, 4096), (5, 32_768)] {
        let data = pattern(len, info as u8);
        a.send((&guest, &mut one), peer, info, &data);
        assert_eq!(b.receive(), (info, data.clone()), "{len} bytes to the other host");
        b.send(back, info, &data);
        assert_eq!(a.receive(), (info, data), "{len} bytes to the guest");
    }
    let memory = guest.scattered(u64::from(LONG) + 2 * OFFSET);
    let (code, region) = one.lend(&guest, 1, memory.offer);
    assert_eq!(code, 0);
    let region = RegionId(region);
    let (its, its_region) = lend(&mut far, 4, u64::from(LONG) + 2 * OFFSET);
    // To the other host: gathered from the guest's pages into frames.
    let data = pattern(LONG as usize, 9);
    memory.view.write(OFFSET as usize, &data).unwrap();
    let offer = Request::Offer { peer, token: Token(8), match_info: 6, from: window(region) };
    a.request((&guest, &mut one), &offer);
    let Event::Offered { match_info: 6, len: LONG, handle, .. } = hear(&mut b) else { panic!() };
    b.request(&Request::Pull { handle, token: Token(9), into: window(its_region) });
    assert_eq!(hear(&mut b), Event::Pulled { token: Token(9), status: Status::Success });
    let sent = Event::Sent { token: Token(8), status: Status::Success, taken: LONG };
    assert_eq!(a.hear().0, sent);
    assert!(bytes_at(&its) == data, "the content differs");
    assert_eq!(host.counter("m1", "bytes_taken_total"), u64::from(LONG));
    let copied = host.counter("m1", "lent_bytes_copied_total");
    assert!(copied < u64::from(LONG) / 10, "{copied} bytes were copied before they were sent");
    // To the guest.
    let data = pattern(LONG as usize, 33);
    its.write(OFFSET as usize, &data).unwrap();
    let from = window(its_region);
    b.request(&Request::Offer { peer: back, token: Token(3), match_info: 7, from });
    let (Event::Offered { match_info: 7, len: LONG, handle, .. }, _) = a.hear() else { panic!() };
    let pull = Request::Pull { handle, token: Token(4), into: window(region) };
    a.request((&guest, &mut one), &pull);
    assert_eq!(a.hear().0, Event::Pulled { token: Token(4), status: Status::Success });
    let sent = Event::Sent { token: Token(3), status: Status::Success, taken: LONG };
    assert_eq!(hear(&mut b), sent);
    assert!(bytes_at(&memory.view) == data, "the content differs");
}
