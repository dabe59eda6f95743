//! The function's share of a turn: commands that were rung for, and posted work.
//!
//! `causeway-hca` calls [`run_commands`], then [`poll()`], in the dispatcher's turn of the group's
//! shard, and bounds both; rung commands and posted work beyond the bounds stay for a later call. A
//! call of [`poll()`] is a *pass*. The caller transmits Ethernet frames after it
//! (`crate::ethernet`), and raises the interrupts.
//!
//! A pass has the order: messages that a reset cut are ended at their receivers, at most
//! [`limits::ENDED_PER_PASS`] (64), for 8 messages of the budget (`crate::reset`); failed queue
//! pairs and those at the end of a waiting time are marked; posted work; completion events; events
//! of queue pairs that waited (`crate::paced_events`).
//!
//! Queue pairs are polled in turn: a pass begins where the last pass stopped for lack of budget,
//! and each queue pair gets at most a slice of the budget, [`limits::SLICE_MESSAGES`] (64) messages
//! or [`limits::SLICE_BYTES`] (1 MiB), so that a flood on a queue pair leaves the others their
//! share. A queue pair without posted work costs the load of a word of its doorbell record. A pass
//! looks at [`limits::PASS_QUEUES_MAX`] (256) queue pairs, and evaluates the events of as many
//! completion queues. Looks are paid too: each [`limits::LOOKS_PER_MESSAGE`] (8) queue pairs or
//! completion queues take a message of the budget, and so does a queue pair that only found that it
//! still has to wait.
//!
//! No call blocks or fails: errors of commands are answers to the driver, errors of work requests
//! completions.

use std::sync::Arc;

use causeway_verbs::{AdapterConfig, AdapterId, Budget, Progress, State, Subnet};
use causeway_wire::mlx5::command::DeliveryStatus;
use causeway_wire::mlx5::event_queue::{Event, EventType};

use crate::command::{self, Input, dispatch, queue};
use crate::function::Function;
use crate::function_config::FunctionConfig;
use crate::limits;
use crate::record::progress::EventSource;
use crate::reset::end_messages;

/// Returns the configuration of the adapter of a function. `causeway-hca` calls it when it adds the
/// port.
pub fn adapter_config(config: &FunctionConfig) -> AdapterConfig {
    let mut adapter = AdapterConfig::new(config.mac);
    adapter.queue_pairs = config.queue_pairs_max.clamp(1, limits::QUEUE_PAIRS_MAX);
    adapter.waiting_requests = adapter.queue_pairs;
    adapter.regions.regions = config.regions_max;
    adapter.regions.bytes = config.registered_bytes_max;
    adapter
}

/// The work of a call of [`run_commands`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandCost {
    /// Commands that were executed, or answered with a failed delivery.
    pub commands: u32,
    /// Bytes of their inputs and outputs.
    pub bytes: u64,
}

/// Executes at most `max` commands with rung doorbells, and none after
/// [`limits::COMMAND_BYTES_PER_CALL`] (65,536) bytes of input and output. Other commands stay rung,
/// unless the registers are reset meanwhile.
pub fn run_commands(subnet: &mut Subnet<Function>, adapter: AdapterId, max: u32) -> CommandCost {
    let mut cost = CommandCost::default();
    let Ok(function) = command::function(subnet, adapter) else { return cost };
    let registers = Arc::clone(&function.registers);
    let mut rung = registers.take_doorbells();
    while rung.commands != 0
        && cost.commands < max
        && cost.bytes < limits::COMMAND_BYTES_PER_CALL
        && registers.is_current(&rung)
    {
        let index = rung.commands.trailing_zeros();
        rung.commands &= rung.commands.wrapping_sub(1);
        if let Some(bytes) = run_command(subnet, adapter, index) {
            cost.commands = cost.commands.saturating_add(1);
            cost.bytes = cost.bytes.saturating_add(bytes);
        }
    }
    if rung.commands != 0 {
        registers.return_doorbells(&rung);
    }
    cost
}

/// Executes the command with number `index`. Returns the length of its input and output, in bytes;
/// `None` if there is no command.
fn run_command(subnet: &mut Subnet<Function>, adapter: AdapterId, index: u32) -> Option<u64> {
    let function = command::function(subnet, adapter).ok()?;
    let map = function.shared_map();
    let (mut found, delivery) = queue::read(&map, function.registers.command_queue(), index)?;
    // The driver polls for the end of the command that makes the event queue for commands.
    let reports = function.reports_commands();
    if let Some(record) = &mut function.record {
        record.begin_command(index);
    }
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
        let event = Event::Command { entries };
        function.report_event(EventType::Command, event, EventSource::Command);
    } else if let Some(record) = &mut function.record {
        record.end_command();
    }
    Some(found.bytes())
}

/// Executes posted work of queue pairs of a function, within the budget, and reports completion
/// events and events that waited. Returns the number of messages that began or went on; the budget
/// shrinks by more, because it pays for looks too.
pub fn poll(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    now_ns: u64,
    budget: &mut Budget,
) -> u32 {
    if let Ok(function) = command::function(subnet, adapter) {
        function.objects.pacing.begin(now_ns);
    }
    end_messages(subnet, adapter, budget);
    collect_due(subnet, adapter, now_ns);
    let objects = subnet.adapter(adapter).map(|adapter| &adapter.queues().objects);
    let (pairs, listed) = objects.map_or((0, 0), |o| (o.active.len(), o.listed.len()));
    // The completion queues are evaluated in any case. Their looks are paid first, but for a
    // message.
    let looks = listed.min(limits::PASS_QUEUES_MAX) / limits::LOOKS_PER_MESSAGE;
    let looks = u32::try_from(looks).unwrap_or(u32::MAX);
    budget.take(looks.min(budget.messages().saturating_sub(1)), 0, 0);
    let (mut messages, mut looked) = (0_u32, 0);
    for look in 1..=pairs.min(limits::PASS_QUEUES_MAX) {
        if budget.is_spent() {
            break;
        }
        if look.is_multiple_of(limits::LOOKS_PER_MESSAGE) {
            budget.take(1, 0, 0);
        }
        let Ok(function) = command::function(subnet, adapter) else { break };
        looked = look;
        let Some((number, is_due)) = function.next_active() else { continue };
        if is_due {
            messages = messages.saturating_add(serve(subnet, (adapter, number), now_ns, budget));
        }
    }
    if let Ok(function) = command::function(subnet, adapter) {
        function.evaluate_listed(now_ns);
        function.count_looks((looked, listed), messages > 0);
        function.report_delayed();
    }
    messages
}

/// Marks queue pairs that failed, and those at the end of a waiting time: at most
/// [`limits::PASS_QUEUES_MAX`] (256), the rest in later passes.
fn collect_due(subnet: &mut Subnet<Function>, adapter: AdapterId, now_ns: u64) {
    for _ in 0..limits::PASS_QUEUES_MAX {
        let Some(number) = subnet.next_due(adapter, now_ns) else { return };
        let Some(own) = subnet.adapter_mut(adapter) else { return };
        let state = own.queue_pair(number).map(|pair| pair.state());
        let function = own.queues_mut();
        function.activate(number);
        function.objects.set_pending(number, true);
        if let Some(queues) = function.objects.queue_pairs.get_mut(number) {
            queues.is_failed = state == Some(State::Error);
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
    budget.take(messages, bytes, slice.payload());
    let is_waiting = matches!(progress, Progress::Waiting { .. });
    // A message that only found that it has to wait is paid, and does not count as work.
    let worked = match messages {
        0 => u32::from(bytes > 0 && !is_waiting),
        _ => messages.saturating_sub(u32::from(is_waiting)),
    };
    if messages == 0 && worked == 0 {
        budget.take(1, 0, 0);
    }
    if let Ok(function) = command::function(subnet, adapter) {
        let is_pending = is_waiting || matches!(progress, Progress::Yielded);
        function.objects.set_pending(number, is_pending);
    }
    worked
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

#[cfg(test)]
mod tests {
    use causeway_verbs::{Attributes, Change, Kind};

    use super::*;

    #[test]
    fn mlx5_pass_marks_a_bounded_number_of_failed_queue_pairs() {
        let config = FunctionConfig {
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            vectors: 2,
            queue_pairs_max: 1024,
            completion_queues_max: 1,
            regions_max: 1,
            registered_bytes_max: 0,
            uar_bytes: 1 << 20,
        };
        let mut subnet = Subnet::new();
        let adapter = subnet.add(&adapter_config(&config), Function::new(config)).unwrap();
        for _ in 0..limits::PASS_QUEUES_MAX + 1 {
            let attributes = Attributes::default();
            let number = subnet.create_queue_pair(adapter, Kind::Rc, attributes).unwrap();
            subnet.modify(adapter, number, State::Error, &Change::default()).unwrap();
        }
        let mut pass = || {
            poll(&mut subnet, adapter, 1, &mut Budget::new(1000, 1 << 20));
            subnet.adapter(adapter).unwrap().has_failed()
        };
        assert!(pass(), "one is left for the next pass");
        assert!(!pass());
    }
}
