//! The stream protocol of sockets between hosts: a session between two hosts, and datagrams of a
//! hostile peer with the right tags. Target `multiplex`. Time and datagrams are simulated in the
//! thread of the target. Bytes behind gaps, channels and answers keep to their limits, and a session
//! that was broken is agreed again.

use causeway_socket::limits::{CHANNELS_MAX, HELD_BYTES_MAX, MESSAGE_BYTES_MAX};
use causeway_socket::multiplex::{PeerEvent, PeerSession, Received};
use causeway_wire::multiplex::{Datagram, Hello, MESSAGE_LEN, Packet, Piece, Ranges};

use crate::Input;

const MS: u64 = 1_000_000;
const LONGEST: usize = 1200;

/// Returns the tags of sessions, one after the other.
fn tags(last: &mut u32) -> impl FnMut() -> u32 {
    move || {
        *last += 1;
        *last
    }
}

/// Checks the lengths of messages.
fn check(received: &Received, datagram: &[u8]) {
    for event in &received.events {
        if let PeerEvent::Message(_, message) = event {
            let len = received.read(message, datagram).len();
            assert!((MESSAGE_LEN..=MESSAGE_BYTES_MAX).contains(&len));
        }
    }
}

/// Two sessions; the first is under attack.
struct Stage {
    hosts: [PeerSession; 2],
    tags: [u32; 2],
    now: u64,
    random: u32,
    number: u32,
}

impl Stage {
    fn new() -> Self {
        let mut stage = Self {
            hosts: [5, 6].map(|tag| PeerSession::new(0, &mut || tag)),
            tags: [5, 6],
            now: 0,
            random: 100,
            number: 0,
        };
        stage.settle();
        assert!(stage.hosts.iter().all(PeerSession::is_up), "no session was agreed");
        stage
    }

    /// Passes a datagram to a host, and checks its state.
    fn receive(&mut self, host: usize, datagram: &[u8]) {
        let mut received = Received::default();
        let Self { hosts, now, random, .. } = self;
        let _ = hosts[host].receive(*now, datagram, &mut tags(random), &mut received);
        check(&received, datagram);
        let view = hosts[host].view();
        assert!(view.held_bytes <= HELD_BYTES_MAX && view.channels <= 3 * CHANNELS_MAX + 1);
    }

    /// Exchanges the datagrams of both hosts.
    fn settle(&mut self) {
        let mut out = Vec::new();
        for _ in 0..4 {
            self.now += 300 * MS;
            for host in [0, 1] {
                let mut sent = 0;
                while self.hosts[host].transmit(self.now, LONGEST, &mut out) {
                    assert!(!out.is_empty() && out.len() <= LONGEST);
                    if let Ok(Datagram::Hello(hello)) = Datagram::parse(&out) {
                        self.tags[host] = hello.source;
                    }
                    let datagram = std::mem::take(&mut out);
                    self.receive(1 - host, &datagram);
                    sent += 1;
                    assert!(sent < 10_000, "datagrams without end");
                }
                let (now, mut received) = (self.now, Received::default());
                let mut next = tags(&mut self.random);
                self.hosts[host].tick(now, &mut next, &mut received);
                self.hosts[host].pass_deferred(now, &mut next, &mut received);
                check(&received, &[]);
            }
        }
    }

    /// Makes a datagram of a peer that knows the session.
    fn forge(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        if input.below(16) == 0 {
            let (source, destination) = (input.u32(), input.one_of(&[0, self.tags[0], 9]));
            let version = input.one_of(&[1, 1, 1, 2]);
            return Hello { version, asks: input.bool(), source, destination }.emit().to_vec();
        }
        self.number = self.number.wrapping_add(input.below(4) as u32);
        let mut datagram = Packet::header(self.tags[0], self.number).to_vec();
        for _ in 0..input.below(4) {
            if input.below(3) == 0 {
                let ranges: Vec<_> = (0..input.below(4))
                    .map(|_| (u32::from(input.u8()), u32::from(input.u8())))
                    .collect();
                Ranges::emit(ranges.into_iter(), &mut datagram);
            } else {
                let channel = u32::from(input.u8() % 8);
                let offset = u32::from(input.u8()) * input.one_of(&[1, 1, 4096, 1 << 24]);
                let len = input.below(40);
                let bytes = input.bytes(len);
                let len = bytes.len() as u16;
                datagram.extend(Piece::header(channel, offset, input.below(5) == 0, len));
                datagram.extend(bytes);
            }
        }
        datagram
    }
}

/// Runs a scenario.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut stage = Stage::new();
    while !input.is_empty() {
        match input.below(8) {
            0 => {
                if let Some(channel) = stage.hosts[0].open(0) {
                    stage.hosts[0].send(channel, 1, [input.bytes(9), &[7; 600]]);
                    if input.bool() {
                        stage.hosts[0].end(channel);
                    }
                }
            }
            1 => {
                let len = input.below(64);
                let datagram = input.bytes(len);
                stage.receive(0, datagram);
            }
            2 => stage.settle(),
            _ => {
                let datagram = stage.forge(&mut input);
                stage.receive(0, &datagram);
            }
        }
    }
    // Whatever came, the hosts agree again.
    for _ in 0..20 {
        stage.settle();
    }
    assert!(stage.hosts.iter().all(PeerSession::is_up), "the hosts do not agree again");
}

/// Returns inputs that reach each choice.
pub fn seeds() -> Vec<Vec<u8>> {
    let step = |kind: u8| {
        (0..60).map(move |at: u8| if at.is_multiple_of(7) { kind } else { at.wrapping_mul(37) })
    };
    (0..8).map(|kind| step(kind).collect()).collect()
}
