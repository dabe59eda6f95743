//! The record of a function: a process that is killed at any store of a commit is followed by one
//! that continues with the same objects, and each completion and event arrives once.
//!
//! A kill is a panic in the step function of the record, which debug builds call between any two
//! stores. The memory of both guests and the records are files, so that they keep what was stored.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use causeway_memory::{Mapping, View, create};
use causeway_mlx5::{Record, RestoreError, Restored, restore};
use causeway_verbs::Subnet;
use causeway_wire::mlx5::command::{InputHeader, Opcode, Status};
use causeway_wire::mlx5::completion_queue::Entry;
use causeway_wire::mlx5::event_queue::Event;
use causeway_wire::mlx5::queue_pair::{QueuePairContext, ReceiveQueueType, Service};
use causeway_wire::mlx5::work_queue::{ArmInput, ReceivePoolContext, WorkQueue};
use causeway_wire::mlx5::work_request::{
    AtomicSegment, NextSegment as _, RemoteAddressSegment, SendOpcode,
};

use crate::driver::{BUFFER, Completions, Guest, Pair, VIRTUAL, World, data};

thread_local! {
    /// Stores until the kill.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The message of a kill.
const KILLED: &str = "killed";

fn step() {
    LEFT.with(|left| match left.get() {
        Some(0) => {
            left.set(None);
            std::panic::panic_any(KILLED);
        }
        Some(count) => left.set(Some(count - 1)),
        None => {}
    });
}
