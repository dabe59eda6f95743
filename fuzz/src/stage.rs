//! Whole services under guests that say anything: a shard with two guests, driven by hand.

mod frames;
mod packets;

use causeway_fabric::PollConfig;
use causeway_model::{Name, PollPolicy};

pub use frames::{run as frames, seeds as frames_seeds};
pub use packets::{run as packets, seeds as packets_seeds};

/// Longest story.
const STEPS_MAX: usize = 128;

const PACING: PollConfig =
    PollConfig { policy: PollPolicy::GuestDriven, upper: 1, lower: 1, period_ns: 1, spin_ns: 0 };

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn map_bytes(map: &causeway_memory::Map) -> u64 {
    map.bytes()
}

/// A guest writes over its own memory, rings included.
fn scribble(input: &mut crate::Input<'_>, map: &causeway_memory::Map) {
    let at = u64::from(input.u16()) % map_bytes(map).saturating_sub(8).max(1);
    let base = map.regions().first().map_or(0, |region| region.guest);
    // Past the end there is nothing to write to.
    let _ = map.write(base.saturating_add(at), &input.array::<8>());
}
