//! Well-behaved guests with mixed traffic: streams and messages in both directions, small rings,
//! readers of any speed. All data arrives in order, whole, once.

use std::collections::VecDeque;
use std::time::Instant;

use crate::common::*;
use causeway_attach::native::{ConnectionId, Sockets, VsockOptions};
use causeway_wire::vsock::Type;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}

/// One direction of a connection.
struct Flow {
    from: (usize, ConnectionId),
    to: (usize, ConnectionId),
    /// Bytes of a stream, or messages, that are still to be sent.
    left: usize,
    /// Data in flight: messages, or pieces of a stream.
    way: VecDeque<Vec<u8>>,
    /// A partly sent message: its bytes, and the number that was sent.
    part: Option<(Vec<u8>, usize)>,
    seed: u32,
}

impl Flow {
    fn stream(&self) -> bool {
        self.from.1.kind == Type::Stream
    }

    fn send(&mut self, guests: &mut [Sockets], random: &mut Random) {
        let guest = &mut guests[self.from.0];
        if self.part.is_none() && self.left > 0 {
            let most = if self.stream() { self.left.min(90_000) } else { 30_000 };
            let len = 1 + random.below(most);
            self.seed += 1;
            self.part = Some((pattern(self.seed, len), 0));
            self.left -= if self.stream() { len } else { 1 };
        }
        let Some((data, gone)) = &mut self.part else { return };
        *gone += guest.try_send(self.from.1, &data[*gone..]).unwrap();
        if *gone == data.len() {
            let (data, _) = self.part.take().unwrap();
            self.way.push_back(data);
        }
    }

    fn receive(&mut self, guests: &mut [Sockets], random: &mut Random) {
        let guest = &mut guests[self.to.0];
        if !self.stream() {
            // Waits only for messages that are wholly in flight.
            if let Some(expected) = self.way.pop_front() {
                let got = guest.receive_message(self.to.1, PATIENCE).unwrap();
                assert!(got == expected, "{} for {} bytes", got.len(), expected.len());
            }
            return;
        }
        let mut room = vec![0; 1 + random.below(50_000)];
        let mut got = guest.try_receive(self.to.1, &mut room).unwrap();
        let mut at = 0;
        while got > 0 {
            if let Some(expected) = self.way.front_mut() {
                let now = got.min(expected.len());
                assert!(room[at..at + now] == expected[..now]);
                expected.drain(..now);
                if expected.is_empty() {
                    self.way.pop_front();
                }
                (at, got) = (at + now, got - now);
            } else {
                // The part that is being sent.
                let (data, gone) = self.part.as_mut().unwrap();
                assert!(got <= *gone && room[at..at + got] == data[..got]);
                data.drain(..got);
                *gone -= got;
                got = 0;
            }
        }
    }

    fn over(&self) -> bool {
        self.left == 0 && self.part.is_none() && self.way.is_empty()
    }
}

#[test]
fn vsock_mixed_traffic_arrives() {
    for seed in 1..=3 {
        let rig = Rig::new();
        let mut random = Random(seed);
        let shapes = [(16, 4096, None), (64, 300, Some(1000)), (256, 4096, Some(44))];
        let mut guests: Vec<Sockets> = (3..)
            .zip(shapes)
            .map(|(cid, (ring_size, receive_bytes, descriptor_bytes))| {
                let features = if seed % 2 == 0 { 1 << 28 | 1 << 29 } else { 0 };
                let options = VsockOptions {
                    ring_size,
                    receive_bytes,
                    descriptor_bytes,
                    features,
                    reconnect: None,
                };
                Sockets::new(rig.port_with("red", cid, options))
            })
            .collect();
        let mut flows = Vec::new();
        for (a, b) in [(0, 1), (1, 2), (0, 2)] {
            for (n, kind) in [(0, Type::Stream), (1, Type::Stream), (2, Type::Seqpacket)] {
                let (left, right) = guests.split_at_mut(b);
                let (ca, cb) = join(&mut left[a], &mut right[0], kind, 100 + n);
                for (from, to) in [((a, ca), (b, cb)), ((b, cb), (a, ca))] {
                    let left = if kind == Type::Stream { 1 << 20 } else { 60 };
                    let seed = random.below(1 << 30) as u32;
                    let way = VecDeque::new();
                    flows.push(Flow { from, to, left, way, part: None, seed });
                }
            }
        }
        let since = Instant::now();
        while !flows.iter().all(Flow::over) {
            let n = random.below(flows.len());
            if random.below(2) == 0 {
                flows[n].send(&mut guests, &mut random);
            } else {
                flows[n].receive(&mut guests, &mut random);
            }
            assert!(
                since.elapsed() < PATIENCE * 2,
                "{} flows",
                flows.iter().filter(|f| !f.over()).count()
            );
        }
        for cid in 3..6 {
            let counters = rig.view("red", cid).counters;
            assert_eq!(counters["reset_breach_total"] + counters["reset_stalled_total"], 0);
        }
    }
}
