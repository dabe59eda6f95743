//! Rings of daemons over links of every type, some of them to network segments: flooding
//! terminates.

use std::collections::BTreeMap;

use crate::common::links::Group;

const MS: u64 = 1_000_000;

/// The connection of two neighbours in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A link that carries flood numbers, as tunnels do.
    Numbered,
    /// A link that carries none.
    Bare,
    /// A network segment with both daemons and a station.
    Segment,
    /// A network segment on which the first daemon receives nothing.
    Deaf,
}

const KINDS: [Kind; 4] = [Kind::Numbered, Kind::Bare, Kind::Segment, Kind::Deaf];

/// A frame in flight: the daemon and link that it arrives at, its number, its bytes.
type FrameInFlight = (usize, u32, Option<u64>, Vec<u8>);

/// Link 0 of each daemon leads to a station of its own, 1 to the next daemon, 2 to the previous
/// one.
struct Ring {
    kinds: Vec<Kind>,
    groups: Vec<Group>,
    now: u64,
    /// Frames by arrival time.
    wire: BTreeMap<(u64, u64), FrameInFlight>,
    sent: u64,
    /// Number of frames that each daemon's station, and each segment's station, received.
    stations: Vec<u64>,
    segments: Vec<u64>,
}

fn is_hello(frame: &[u8]) -> bool {
    frame[..6] == causeway_wire::hello::ADDRESS
}

impl Ring {
    fn new(kinds: &[Kind]) -> Self {
        let count = kinds.len();
        let segment = |at: usize| matches!(kinds[at % count], Kind::Segment | Kind::Deaf);
        let groups = (0..count).map(|at| {
            let before = segment(at + count - 1);
            Group::with_segments(&[(true, false), (true, segment(at)), (true, before)], false)
        });
        Self {
            groups: groups.collect(),
            kinds: kinds.to_vec(),
            now: 1,
            wire: BTreeMap::new(),
            sent: 0,
            stations: vec![0; count],
            segments: vec![0; count],
        }
    }

    /// Puts the frames that left a daemon's links in flight.
    fn collect(&mut self, at: usize) {
        let count = self.groups.len();
        for (link, number, frame) in self.groups[at].frames() {
            // Each link has a delay of its own.
            let delay = (1 + at as u64 * 3 + u64::from(link) * 2) * MS;
            let (to, back, edge) = match link {
                0 => {
                    self.stations[at] += u64::from(!is_hello(&frame));
                    continue;
                }
                1 => ((at + 1) % count, 2, at),
                _ => ((at + count - 1) % count, 1, (at + count - 1) % count),
            };
            let kind = self.kinds[edge];
            if matches!(kind, Kind::Segment | Kind::Deaf) {
                self.segments[edge] += u64::from(!is_hello(&frame));
            }
            // The deaf end of an edge receives nothing from its next daemon.
            if kind == Kind::Deaf && back == 1 {
                continue;
            }
            let number = number.filter(|_| kind == Kind::Numbered);
            self.sent += 1;
            self.wire.insert((self.now + delay, self.sent), (to, back, number, frame));
        }
    }

    fn run(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            self.now += MS;
            while let Some(first) = self.wire.first_entry().filter(|e| e.key().0 <= self.now) {
                let (to, link, number, frame) = first.remove();
                self.groups[to].inject(link, number, &frame);
                self.collect(to);
            }
            for at in 0..self.groups.len() {
                self.groups[at].step(self.now);
                self.collect(at);
            }
        }
    }

    /// Broadcasts a frame from the station of a daemon, or from the station on an edge's segment.
    /// Returns the number of frames that stations and segments received, hellos excluded.
    fn broadcast(&mut self, from: Result<usize, usize>, text: &str) -> (Vec<u64>, Vec<u64>) {
        self.stations.fill(0);
        self.segments.fill(0);
        let (Ok(at) | Err(at)) = from;
        let source = [2, 0, 0, 0, u8::from(from.is_ok()), at as u8];
        let frame = [&[0xff; 6][..], &source, &[0x88, 0xb5], text.as_bytes()].concat();
        let hear = match from {
            Ok(at) => vec![(at, 0)],
            Err(edge) => {
                let next = ((edge + 1) % self.groups.len(), 2);
                let deaf = self.kinds[edge] == Kind::Deaf;
                if deaf { vec![next] } else { vec![(edge, 1), next] }
            }
        };
        for (at, link) in hear {
            self.groups[at].inject(link, None, &frame);
            self.collect(at);
        }
        self.run(400 * MS);
        if self.in_flight() > 0 {
            // The storm filter terminates the loop.
            assert!(self.deaf() > 1, "{:?}: what {from:?} said goes round and round", self.kinds);
            self.run(2_000 * MS);
            assert_eq!(self.in_flight(), 0, "{:?}: {from:?} is not braked", self.kinds);
        }
        (self.stations.clone(), self.segments.clone())
    }

    fn in_flight(&self) -> usize {
        self.wire.values().filter(|(.., frame)| !is_hello(frame)).count()
    }

    fn deaf(&self) -> usize {
        self.kinds.iter().filter(|kind| **kind == Kind::Deaf).count()
    }
}

fn rings() -> Vec<Vec<Kind>> {
    let mut all = Vec::new();
    for count in 2..=4_u32 {
        for mut code in 0..4_usize.pow(count) {
            let mut kinds = Vec::new();
            for _ in 0..count {
                kinds.push(KINDS[code % 4]);
                code /= 4;
            }
            all.push(kinds);
        }
    }
    all
}

#[test]
fn standby_broadcast_terminates_in_every_ring_of_links() {
    for kinds in rings() {
        let mut ring = Ring::new(&kinds);
        // Until the election of forwarding links has settled.
        ring.run(1_500 * MS);
        let is_segment = |edge: &usize| matches!(kinds[*edge], Kind::Segment | Kind::Deaf);
        let stations = (0..kinds.len()).map(Ok);
        let all: Vec<_> = stations.chain((0..kinds.len()).filter(is_segment).map(Err)).collect();
        for from in all {
            let (stations, segments) = ring.broadcast(from, &format!("said by {from:?}"));
            let context = format!("{kinds:?}: {from:?}: {stations:?} {segments:?}");
            if ring.deaf() > 1 {
                // With a one-way segment there may be no path back that carries hellos, so only
                // termination is guaranteed.
                continue;
            }
            for (at, count) in stations.iter().enumerate() {
                // A segment with a deaf end may leave only one direction.
                let least = u64::from(ring.deaf() == 0 && from != Ok(at));
                assert!((least..=1).contains(count), "{context}");
            }
            for (edge, count) in segments.iter().enumerate() {
                assert!(*count <= u64::from(from != Err(edge)), "{context}");
            }
        }
    }
}
