//! The function's share of a turn: commands that were rung for, and posted work.
//!
//! The caller bounds both. Queue pairs are polled in turn: a pass begins where the last pass stopped
//! for lack of budget, and each queue pair gets at most a slice of the budget
//! ([`limits::SLICE_MESSAGES`], [`limits::SLICE_BYTES`]), so that a flood on a queue pair leaves
//! the others their share. A queue pair without posted work costs the load of a word of its
//! doorbell record; a pass looks at [`limits::PASS_QUEUES_MAX`] of them.

use std::sync::Arc;

use causeway_verbs::{AdapterConfig, AdapterId, Budget, Progress, State, Subnet};
use causeway_wire::mlx5::command::DeliveryStatus;
use causeway_wire::mlx5::event_queue::{Event, EventType};

use crate::command::{self, Input, dispatch, queue};
use crate::function::{Function, FunctionConfig};
use crate::limits;

/// Returns the configuration of the adapter of a function.
pub fn adapter_config(config: &FunctionConfig) -> AdapterConfig {
    let mut adapter = AdapterConfig::new(config.mac);
    adapter.queue_pairs = config.queue_pairs_max.clamp(1, limits::QUEUE_PAIRS_MAX);
    adapter.regions.regions = config.regions_max;
    adapter.regions.bytes = config.registered_bytes_max;
    adapter
}

/// Executes at most `max` commands with rung doorbells. Returns the number of executed
/// commands; others stay rung.
pub fn run_commands(subnet: &mut Subnet<Function>, adapter: AdapterId, max: u32) -> u32 {
    let Ok(function) = command::function(subnet, adapter) else { return 0 };
    let registers = Arc::clone(&function.registers);
    let mut rung = registers.take_doorbells();
    let mut count = 0_u32;
    while rung != 0 && count < max {
        let index = rung.trailing_zeros();
        rung &= rung.wrapping_sub(1);
        if run_command(subnet, adapter, index).is_some() {
            count = count.saturating_add(1);
        }
    }
    if rung != 0 {
        registers.ring(rung);
    }
    count
}

/// Executes the command with number `index`. Returns `None` if there is none.
fn run_command(subnet: &mut Subnet<Function>, adapter: AdapterId, index: u32) -> Option<()> {
    let function = command::function(subnet, adapter).ok()?;
    let map = function.shared_map();
    let (mut found, delivery) = queue::read(&map, function.registers.command_queue(), index)?;
    // The driver polls for the end of the command that makes the event queue for commands.
    let reports = function.reports_commands();
    if delivery == DeliveryStatus::Ok {
        dispatch::execute(subnet, adapter, Input(&found.input), &mut found.output);
    }
    let is_finished = found.finish(&map, delivery);
    let function = command::function(subnet, adapter).ok()?;
    if !is_finished || delivery != DeliveryStatus::Ok {
        let undelivered = &mut function.counters.undelivered_commands;
        *undelivered = undelivered.wrapping_add(1);
    }
    if reports && function.reports_commands() {
        let entries = 1_u32.checked_shl(index).unwrap_or(0);
        function.report_event(EventType::Command, Event::Command { entries });
    }
    Some(())
}

/// Executes posted work of all queue pairs of a function, within the budget, and reports completion
/// events. Returns the number of messages that began or went on.
pub fn poll(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    now_ns: u64,
    budget: &mut Budget,
) -> u32 {
    collect_due(subnet, adapter, now_ns);
    let count = subnet.adapter(adapter).map_or(0, |a| a.queues().objects.active.len());
    let count = count.min(limits::PASS_QUEUES_MAX);
    let mut messages = 0_u32;
    for _ in 0..count {
        if budget.is_spent() {
            break;
        }
        let Ok(function) = command::function(subnet, adapter) else { break };
        let Some((number, is_due)) = function.next_active() else { continue };
        if is_due {
            messages = messages.saturating_add(serve(subnet, (adapter, number), now_ns, budget));
        }
    }
    if let Ok(function) = command::function(subnet, adapter) {
        function.evaluate_listed();
    }
    messages
}

/// Marks the queue pairs that failed, and those at the end of a waiting time.
fn collect_due(subnet: &mut Subnet<Function>, adapter: AdapterId, now_ns: u64) {
    while let Some(number) = subnet.next_due(adapter, now_ns) {
        let Some(own) = subnet.adapter_mut(adapter) else { return };
        let state = own.queue_pair(number).map(|pair| pair.state());
        let function = own.queues_mut();
        function.activate(number);
        if let Some(queues) = function.objects.queue_pairs.get_mut(number) {
            queues.is_pending = true;
            queues.is_failed = matches!(state, Some(State::Error | State::SendQueueError));
        }
    }
}

/// Executes work of a queue pair. Returns the number of messages that began or went on.
fn serve(
    subnet: &mut Subnet<Function>,
    (adapter, number): (AdapterId, u32),
    now_ns: u64,
    budget: &mut Budget,
) -> u32 {
    let messages = budget.messages().min(limits::SLICE_MESSAGES);
    let bytes = budget.bytes().min(limits::SLICE_BYTES);
    let mut slice = Budget::new(messages, bytes);
    let progress = subnet.progress(adapter, number, &mut slice, now_ns);
    let messages = messages.saturating_sub(slice.messages());
    let bytes = bytes.saturating_sub(slice.bytes());
    *budget = Budget::new(
        budget.messages().saturating_sub(messages),
        budget.bytes().saturating_sub(bytes),
    );
    if let Ok(function) = command::function(subnet, adapter)
        && let Some(queues) = function.objects.queue_pairs.get_mut(number)
    {
        queues.is_pending = matches!(progress, Progress::Yielded | Progress::Waiting { .. });
    }
    if messages == 0 && bytes > 0 { 1 } else { messages }
}

impl Function {
    /// Moves on to the next polled queue pair. Returns its number and whether the engine has work
    /// for it; `None` if the queue pair no longer exists, and was removed from the list.
    fn next_active(&mut self) -> Option<(u32, bool)> {
        let objects = &mut self.objects;
        if objects.cursor >= objects.active.len() {
            objects.cursor = 0;
        }
        let number = *objects.active.get(objects.cursor)?;
        match objects.queue_pairs.get(number) {
            Some(queues) => {
                objects.cursor = objects.cursor.saturating_add(1);
                Some((number, queues.is_due(&self.map)))
            }
            None => {
                objects.active.swap_remove(objects.cursor);
                None
            }
        }
    }
}

/// Removes all objects of a function, as after power-on. Registers keep their values; see
/// [`crate::Registers::reset`].
pub fn reset(subnet: &mut Subnet<Function>, adapter: AdapterId) {
    subnet.clear(adapter);
    if let Ok(function) = command::function(subnet, adapter) {
        function.clear();
    }
}
