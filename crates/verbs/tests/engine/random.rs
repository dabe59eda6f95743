//! Random operations against a model of both memories.

use causeway_verbs::region::RegionMemory;
use causeway_verbs::work::*;
use causeway_verbs::*;
use proptest::prelude::*;

use crate::testing::*;

/// Pages of the regions, in an order without neighbours.
const PAGES: [u64; 8] = [3, 0, 6, 1, 7, 4, 2, 5];
/// First address of the regions.
const START: u64 = 0x40_0000;

/// An operation: kind, place in the requester's and responder's region, and lengths.
type Random = (u8, u16, u16, Vec<u16>, u64);

fn any_operation() -> impl Strategy<Value = Random> {
    let lens = prop::collection::vec(0_u16..3000, 1..4);
    (0_u8..5, 0_u16..20_000, 0_u16..20_000, lens, any::<u64>())
}

/// The bytes of a region, in the order of its addresses.
struct Model(Vec<u8>);

impl Model {
    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        self.0[at as usize..][..len].to_vec()
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

fn register(world: &mut World, guest: usize) -> (u32, Model) {
    let bytes = world.fill(guest, guest as u8);
    let pages: Vec<u64> = PAGES.iter().map(|page| BASE + page * 4096).collect();
    let model = PAGES.iter().flat_map(|page| bytes[*page as usize * 4096..][..4096].to_vec());
    let model = Model(model.collect());
    let memory = RegionMemory::Pages { shift: 12, pages, capacity: 8 };
    (world.register(guest, memory, START, ALL), model)
}

proptest! {
    #[test]
    fn verbs_random_operations_equal_a_model(
        operations in prop::collection::vec(any_operation(), 1..30),
        bytes in 1_u64..5000,
    ) {
        let mut world = World::new(2);
        let (left, right) = world.connect((0, 1), Kind::Rc);
        let (own_key, mut own) = register(&mut world, 0);
        let (their_key, mut theirs) = register(&mut world, 1);
        for (kind, from, to, lens, number) in operations {
            let (from, to) = (u64::from(from), u64::from(to) & !7);
            let total: usize = lens.iter().map(|len| usize::from(*len)).sum();
            let mut at = from;
            let mut segments = Vec::new();
            for len in &lens {
                segments.push(Segment { key: own_key, address: START + at, len: u32::from(*len) });
                at += u64::from(*len);
            }
            let remote = RemoteAddress { key: their_key, address: START + to };
            let operation = match kind {
                0 => {
                    theirs.write(to, &own.read(from, total));
                    Operation::Write(remote)
                }
                1 => {
                    own.write(from, &theirs.read(to, total));
                    Operation::Read(remote)
                }
                2 | 3 => {
                    theirs.write(to, &own.read(from, total));
                    let len = total as u32 + u32::from(kind);
                    let segment = Segment { key: their_key, address: START + to, len };
                    world.post_receive(right, vec![segment]);
                    if kind == 2 { Operation::Send } else { Operation::SendImmediate(7) }
                }
                _ => {
                    segments = vec![Segment { key: own_key, address: START + from, len: 8 }];
                    let old = theirs.read(to, 8);
                    own.write(from, &old);
                    let old = u64::from_ne_bytes(old.try_into().unwrap());
                    theirs.write(to, &old.wrapping_add(number).to_ne_bytes());
                    Operation::FetchAdd { remote, add: number }
                }
            };
            world.post(left, operation, segments);
            if number % 2 == 0 {
                world.run_with(left, &mut Budget::new(2, bytes));
            } else {
                while world.run_with(left, &mut Budget::new(2, bytes)) == Progress::Yielded {}
            }
        }
        while world.run_with(left, &mut Budget::new(2, bytes)) == Progress::Yielded {}
        prop_assert!(world.statuses(0).iter().all(|status| *status == Status::Success));
        for (guest, model) in [(0, own), (1, theirs)] {
            let found = PAGES.iter().flat_map(|page| world.read(guest, page * 4096, 4096));
            prop_assert!(found.collect::<Vec<u8>>() == model.0);
        }
    }
}
