//! Hostile drivers of ConnectX functions, beside an honest neighbour in the same group. Targets
//! `mlx5_commands` and `mlx5_work`: functions and drivers run in the thread of the target, without
//! a VMM, a socket or a dispatcher.

mod commands;
mod work;

use causeway_mlx5::poll;
use causeway_verbs::Budget;
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::work_request::{RemoteAddressSegment, SendOpcode};

use crate::Input;
use crate::driver::{BASE, BUFFER, Completions, Guest, MEMORY, PAGE, Pair, VIRTUAL, World};
use crate::driver::{data, success};

pub use commands::{run as commands, seeds as commands_seeds};
pub use work::{run as work, seeds as work_seeds};

/// Steps of one scenario.
const STEPS_MAX: usize = 48;

/// A guest with a queue pair that is its own peer.
struct Neighbour {
    guest: Guest,
    completions: Completions,
    pair: Pair,
    key: u32,
    buffer: u64,
}

impl Neighbour {
    fn new(world: &mut World, last: u8) -> Self {
        let mut guest = world.start(last);
        let completions = guest.create_cq(world, 4);
        let context = guest.qp_context(Service::ReliableConnection, completions.number);
        let pair = guest.create_pair(world, context);
        guest.connect(world, &pair, guest.mac, pair.number);
        let buffer = guest.allocate(BUFFER);
        let key = guest.register(world, VIRTUAL, buffer, BUFFER);
        Self { guest, completions, pair, key, buffer }
    }

    /// Asserts that a message of the neighbour arrives.
    fn assert_well(&mut self, world: &mut World) {
        self.guest.write(self.buffer, b"neighbour");
        let to = RemoteAddressSegment { address: VIRTUAL + PAGE, key: self.key };
        let from = data(self.key, VIRTUAL, 9);
        self.guest.post(&mut self.pair, (SendOpcode::Write, 0), |e| e.remote(&to).data(&from));
        let mut budget = Budget::new(16, 1 << 16);
        poll(&mut world.subnet, self.guest.adapter, world.now, &mut budget);
        success(self.guest.poll_cq(&mut self.completions));
        assert_eq!(self.guest.read(self.buffer + PAGE, 9), b"neighbour");
    }
}

/// Draws a guest address: usually the start of a page that the guest has, with any low bits.
fn address(input: &mut Input<'_>) -> u64 {
    match input.u8() {
        0 => input.u64(),
        1 => BASE + MEMORY - u64::from(input.u8()),
        draw => BASE + u64::from(input.u16()) % (MEMORY / PAGE) * PAGE + u64::from(draw & 3),
    }
}

/// Overwrites bytes of a guest's memory, rings and mailboxes included.
fn scribble(input: &mut Input<'_>, guest: &Guest) {
    let at = u64::from(input.u32()) % (MEMORY - 8);
    guest.write(BASE + at, &input.array::<8>());
}
