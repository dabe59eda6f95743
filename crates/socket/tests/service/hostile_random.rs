//! Guests that send random packets beside well-behaved guests.

use crate::common::*;
use causeway_attach::native::{VsockOptions, VsockPort};
use causeway_model::PortState;
use causeway_wire::vsock::{Header, Type};

/// Random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// A packet with few ports and all operations; most packets are nearly valid.
fn header(random: &mut Random, from: u32, peers: &[u32], last: Option<Header>) -> Header {
    let small = [0, 0, 0, 1, 100, 4096, 65_536, u32::MAX];
    let mut header = Header {
        src_cid: from.into(),
        dst_cid: random.one_of(peers).into(),
        src_port: random.below(4) as u32,
        dst_port: random.below(4) as u32,
        len: 0,
        kind: random.one_of(&[1, 1, 1, 1, 2, 2, 0]),
        op: random.one_of(&[1, 1, 2, 2, 3, 4, 5, 5, 5, 5, 6, 7, 8]),
        flags: random.below(4) as u32,
        buf_alloc: random.one_of(&[0, 100, 1 << 18, 1 << 18, u32::MAX]),
        fwd_cnt: random.one_of(&small),
    };
    if let Some(last) = last.filter(|_| random.below(3) > 0) {
        // Answers the last packet, as a guest would.
        (header.dst_cid, header.kind) = (last.src_cid, last.kind);
        (header.src_port, header.dst_port) = (last.dst_port, last.src_port);
        header.op = random.one_of(&[2, 2, 5, 5, 5, 6, 4]);
        header.fwd_cnt = 0;
    }
    header
}

fn drive(port: &mut VsockPort, random: &mut Random, peers: &[u32], last: &mut Option<Header>) {
    let mut room = Vec::new();
    for _ in 0..random.below(6) {
        *last = port.receive(&mut room).unwrap().or(*last);
    }
    for _ in 0..random.below(8) {
        let mut header = header(random, port.cid() as u32, peers, *last);
        let len = random.one_of(&[0, 0, 1, 10, 3000, 20_000, 65_536]);
        let data = pattern(1, len);
        header.len = if header.op == 5 { len as u32 } else { 0 };
        port.queue(&header, &data[..header.len as usize]).unwrap();
    }
    port.flush().unwrap();
}

#[test]
fn hostile_random_packets_do_not_affect_other_guests() {
    for seed in 1..=4 {
        let rig = Rig::new();
        let mut random = Random(seed);
        let (mut c, mut d) = (rig.sockets("red", 14), rig.sockets("red", 15));
        let ids = join(&mut c, &mut d, Type::Stream, 1);
        let _process = std::os::unix::net::UnixListener::bind(rig.path("red-3.host_1")).unwrap();
        let options = [16, 64].map(|ring_size| VsockOptions { ring_size, ..Default::default() });
        let mut guests =
            [3, 4].map(|cid| rig.port_with("red", cid, options[cid as usize - 3].clone()));
        let mut received = [None, None];
        for round in 0..2000 {
            for (guest, received) in guests.iter_mut().zip(&mut received) {
                drive(guest, &mut random, &[3, 4, 4, 3, 2, 99], received);
            }
            if round % 500 == 0 {
                transfer((&mut c, ids.0), (&mut d, ids.1), &pattern(round, 50_000), 7000);
            }
        }
        for cid in [3, 4] {
            assert_eq!(
                rig.view("red", cid).state,
                PortState::Running,
                "{:?}",
                rig.view("red", cid)
            );
        }
        // One guest leaves; once the other guest receives the queued packets, all its descriptors
        // return.
        let [mut a, b] = guests;
        drop(b);
        let mut room = Vec::new();
        wait(
            || {
                while a.receive(&mut room).unwrap().is_some() {}
                a.flush().unwrap();
                a.is_idle().unwrap()
            },
            || format!("descriptors are missing: {:?}", rig.view("red", 3)),
        );
        drop(a);
        for cid in [3, 4] {
            rig.wait_for("red", cid, |v| v.counters["connections"] == 0);
        }
        transfer((&mut c, ids.0), (&mut d, ids.1), &pattern(9, 100_000), 7000);
    }
}
