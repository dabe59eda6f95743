//! Tests of the service through its ports: one program, because linking is most of the build.

mod clones;
#[path = "../common/mod.rs"]
mod common;
mod connections;
mod host_messages;
mod hostile;
mod hostile_connects;
mod hostile_races;
mod hostile_random;
mod hostile_volume;
mod hosts;
mod mixture;
mod private_memory;
mod reuse;
mod siblings;
mod slow;
mod stalls;
