//! NICs of one daemon: the guarantees of the network hold without packets, in random worlds, and
//! agree with those of the framed engine.

use causeway_mxoe::Admission;
use causeway_wire::mx::{Event, Handle, PeerId, RegionId, Request, Status, Token, Window};
use proptest::prelude::*;

use crate::common::hosts::{HostSides, Place};
use crate::common::{MS, RecordedEvent, Rng, World, address};

const WORLDS: u64 = 400;
const EDGES: &[usize] = &[0, 1, 32, 33, 4096, 32_768, 32_769, 65_536, 65_537, 200_000];

fn places(draw: &mut Rng) -> &'static [Place] {
    match draw.below(4) {
        0 => &[(0, 0), (0, 1)],
        1 => &[(0, 0), (1, 3)],
        2 => &[(0, 0), (1, 1), (2, 2)],
        _ => &[(0, 0), (0, 1), (1, 0), (1, 1)],
    }
}

/// Gives the host sides little room, now and then.
fn squeeze(draw: &mut Rng, places: &[Place], world: &mut World) {
    for (board, endpoint) in places {
        if draw.chance(30) {
            world.room(*board, *endpoint, draw.below(6) as usize);
        }
    }
}

/// Runs a world. `disturbs`: peers disconnect, and NICs restart.
fn play(seed: u64, disturbs: bool) -> HostSides {
    let mut draw = Rng(seed ^ 0x6c6f_6361_6c00);
    let places = places(&mut draw);
    let nics = places.iter().map(|place| place.0 + 1).max().unwrap_or(0);
    let mut world = World::local(draw.number(), nics);
    let mut host_sides = HostSides::default();
    host_sides.crashes = disturbs;
    host_sides.open(&mut world, places);
    for _ in 0..1 + draw.below(4) {
        let lens: Vec<usize> = (0..1 + draw.below(12))
            .map(|_| EDGES[draw.below(EDGES.len() as u64) as usize])
            .collect();
        host_sides.plan(&lens);
        for _ in 0..draw.below(60) {
            squeeze(&mut draw, places, &mut world);
            host_sides.run_host_sides(&mut world);
            world.step(world.now + MS);
        }
        if disturbs && draw.chance(50) {
            // Reported events arrive even if the host side crashes before it reads them.
            host_sides.read_events(&mut world);
            host_sides.crash(&mut world, places[draw.below(places.len() as u64) as usize].0);
        } else if disturbs {
            let one = draw.below(places.len() as u64) as usize;
            let other = (one + 1 + draw.below(places.len() as u64 - 1) as usize) % places.len();
            host_sides.disconnect(&mut world, places[one], places[other]);
        }
    }
    for (board, endpoint) in places {
        world.room(*board, *endpoint, usize::MAX);
    }
    // No timer helps: everything ends as soon as the work is done.
    host_sides.finish(&mut world, 200 * MS);
    host_sides.check();
    host_sides.exchange_all(&mut world, 200 * MS);
    host_sides
}

#[test]
fn local_worlds_deliver_each_message_once_and_in_order_or_report_its_end() {
    let worlds = std::env::var("CAUSEWAY_SEEDS").ok().and_then(|n| n.parse().ok());
    for seed in 0..worlds.unwrap_or(WORLDS) {
        eprintln!("seed {seed}");
        play(seed, seed % 2 == 1);
    }
}

/// An action of endpoint 0 of one of two NICs. Numbers select an object, and wrap.
#[derive(Debug, Clone)]
enum Action {
    Eager {
        from: usize,
        len: usize,
    },
    /// An offer of the bytes at 5 of a region of `len` bytes more.
    Offer {
        from: usize,
        len: u32,
        beyond: bool,
    },
    Pull {
        by: usize,
        which: usize,
        len: u32,
        twice: bool,
    },
    Cancel {
        by: usize,
        which: u64,
    },
    Unregister {
        by: usize,
        which: usize,
    },
    /// Memory of a region that is unmapped.
    Unmap {
        by: usize,
        which: usize,
    },
}

fn action() -> impl Strategy<Value = Action> {
    let len = prop_oneof![Just(0_u32), 1..200_u32, 4_000..5_000_u32, 30_000..200_000_u32];
    let (from, by) = (0..2_usize, 0..2_usize);
    prop_oneof![
        (from.clone(), 0..40_000_usize).prop_map(|(from, len)| Action::Eager { from, len }),
        (from, len.clone(), prop::bool::weighted(0.1))
            .prop_map(|(from, len, beyond)| Action::Offer { from, len, beyond }),
        (by.clone(), 0..8_usize, len, prop::bool::weighted(0.1))
            .prop_map(|(by, which, len, twice)| Action::Pull { by, which, len, twice }),
        (by.clone(), 0..20_u64).prop_map(|(by, which)| Action::Cancel { by, which }),
        (by.clone(), 0..8_usize).prop_map(|(by, which)| Action::Unregister { by, which }),
        (by, 0..8_usize).prop_map(|(by, which)| Action::Unmap { by, which }),
    ]
}

/// Two connected endpoints, and the objects that actions select.
struct Actors {
    world: World,
    peers: [PeerId; 2],
    offers: [Vec<Handle>; 2],
    regions: [Vec<(RegionId, usize)>; 2],
    token: u64,
}

impl Actors {
    fn new(mut world: World) -> Self {
        for board in 0..2 {
            world.nics[board].open(0, 7, &mut world.sides[board]).unwrap();
        }
        let to = address(1, 0);
        let connect = Request::Connect { token: Token(0), to, key: 7, timeout_ns: None };
        assert_eq!(world.request(0, 0, &connect), Admission::Yes);
        world.pass(100 * MS);
        let connected = world.events(0).into_iter().find_map(|told| match told {
            RecordedEvent::Event(Event::Connected { status: Status::Success, peer, .. }) => {
                Some(peer)
            }
            _ => None,
        });
        // The first peer of an endpoint has number 0.
        let peers = [connected.expect("connected"), PeerId(0)];
        let mut actors = Self {
            world,
            peers,
            offers: Default::default(),
            regions: Default::default(),
            token: 1,
        };
        // Both host sides know each other before the first action.
        for from in 0..2 {
            if from == 0 {
                actors.act(&Action::Eager { from, len: 1 });
            }
        }
        actors
    }

    /// Performs an action, and returns the events of both host sides that follow from it.
    fn act(&mut self, action: &Action) -> [Vec<String>; 2] {
        self.token += 1;
        let token = Token(self.token);
        let match_info = self.token;
        match *action {
            Action::Eager { from, len } => {
                let (peer, data) = (self.peers[from], vec![len as u8; len.min(32_768)]);
                self.request(from, &Request::Eager { peer, token, match_info, data: &data });
            }
            Action::Offer { from, len, beyond } => {
                let bytes = (0..len + 5).map(|at| (at / 3 + at) as u8).collect();
                let Some(region) = self.region(from, bytes) else { return Default::default() };
                let len = len + u32::from(beyond) * 9;
                let (peer, from_window) = (self.peers[from], Window { region, offset: 5, len });
                self.request(from, &Request::Offer { peer, token, match_info, from: from_window });
            }
            Action::Pull { by, which, len, twice } => {
                let Some(handle) =
                    self.offers[by].get(which % self.offers[by].len().max(1)).copied()
                else {
                    return Default::default();
                };
                let Some(region) = self.region(by, vec![0xee; len as usize + 3]) else {
                    return Default::default();
                };
                let into = Window { region, offset: 3, len };
                self.request(by, &Request::Pull { handle, token, into });
                if twice {
                    self.request(
                        by,
                        &Request::Pull { handle, token: Token(1 << 40 | token.0), into },
                    );
                }
            }
            Action::Cancel { by, which } => {
                self.request(by, &Request::Cancel { token: Token(which + 1) });
            }
            Action::Unregister { by, which } => {
                if !self.regions[by].is_empty() {
                    let at = which % self.regions[by].len();
                    let (region, _) = self.regions[by].remove(at);
                    self.world.unregister(by, 0, region);
                }
            }
            Action::Unmap { by, which } => {
                if !self.regions[by].is_empty() {
                    let (region, _) = self.regions[by][which % self.regions[by].len()];
                    self.world.sides[by].broken.insert((0, region.0));
                }
            }
        }
        self.world.pass(3_000 * MS);
        [0, 1].map(|board| self.told(board))
    }

    fn request(&mut self, board: usize, request: &Request<'_>) {
        assert_eq!(self.world.request(board, 0, request), Admission::Yes);
    }

    fn region(&mut self, board: usize, bytes: Vec<u8>) -> Option<RegionId> {
        let len = bytes.len();
        let region = self.world.region(board, 0, bytes)?;
        self.world.sides[board].broken.remove(&(0, region.0));
        self.regions[board].push((region, len));
        Some(region)
    }

    /// Returns the events of a host side in text, sorted: ends of different operations have no
    /// order. Handles are numbered.
    fn told(&mut self, board: usize) -> Vec<String> {
        let mut told = Vec::new();
        for event in self.world.events(board) {
            told.push(match event {
                RecordedEvent::Event(Event::PeerSeen { .. }) => continue,
                RecordedEvent::Event(Event::Offered { match_info, len, handle, .. }) => {
                    self.offers[board].push(handle);
                    format!("offer {match_info} {len}")
                }
                event => format!("{event:?}"),
            });
        }
        told.sort();
        told
    }

    /// Returns the content of all regions.
    fn memory(&self) -> Vec<(usize, u8, Vec<u8>)> {
        let all = (0..2).flat_map(|board| {
            let of = self.world.sides[board].regions.iter();
            of.map(move |((_, region), bytes)| (board, *region, bytes.clone()))
        });
        let mut all: Vec<_> = all.collect();
        all.sort();
        all
    }
}

#[test]
fn local_pull_of_a_cancelled_message_is_aborted() {
    let mut local = Actors::new(World::local(1, 2));
    local.act(&Action::Offer { from: 0, len: 100, beyond: false });
    let which = local.token - 1;
    local.act(&Action::Cancel { by: 0, which });
    let [_, told] = local.act(&Action::Pull { by: 1, which: 0, len: 100, twice: false });
    let pulled = Event::Pulled { token: Token(local.token), status: Status::Aborted };
    assert_eq!(told, [format!("{:?}", RecordedEvent::Event(pulled))]);
    // The next message in the same place ends by its region.
    local.act(&Action::Offer { from: 0, len: 100, beyond: false });
    local.act(&Action::Unregister { by: 0, which: 1 });
    let [_, told] = local.act(&Action::Pull { by: 1, which: 1, len: 100, twice: false });
    assert!(told[0].contains("BadRdmaWindow"), "{told:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn local_engine_agrees_with_the_framed_engine(
        actions in proptest::collection::vec(action(), 1..30),
        seed in any::<u64>(),
    ) {
        let mut framed = Actors::new(World::new(seed, 2));
        let mut local = Actors::new(World::local(seed, 2));
        for action in &actions {
            // A packet cannot say that a message was cancelled.
            let told = local.act(action).map(|told| {
                let as_framed = |text: String| text.replace("Aborted", "BadRdmaWindow");
                told.into_iter().map(as_framed).collect::<Vec<_>>()
            });
            prop_assert_eq!(framed.act(action), told, "{:?}", action);
        }
        prop_assert_eq!(framed.memory(), local.memory());
    }
}
