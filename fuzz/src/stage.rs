//! Complete services under hostile guests: a shard with two guests, driven step by step. A scenario
//! has at most 128 steps, in the thread of the target. After it the honest guest still works, and a
//! hostile port may be closed with a reason. Targets `frames` and `packets`.

mod frames;
mod packets;

use causeway_fabric::PollConfig;
use causeway_model::{Name, PollPolicy};

pub use frames::{run as frames, seeds as frames_seeds};
pub use packets::{run as packets, seeds as packets_seeds};

/// The longest scenario.
const STEPS_MAX: usize = 128;

const PACING: PollConfig =
    PollConfig { policy: PollPolicy::GuestDriven, upper: 1, lower: 1, period_ns: 1, spin_ns: 0 };

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn map_bytes(map: &causeway_memory::Map) -> u64 {
    map.bytes()
}

/// Writes arbitrary values over a guest's own memory, rings included.
fn scribble(input: &mut crate::Input<'_>, map: &causeway_memory::Map) {
    let at = u64::from(input.u16()) % map_bytes(map).saturating_sub(8).max(1);
    let base = map.regions().first().map_or(0, |region| region.guest);
    // Writes past the end of the memory fail.
    let _ = map.write(base.saturating_add(at), &input.array::<8>());
}
