//! Resets of a function.
//!
//! `causeway-hca` calls, in the dispatcher's thread, [`reset`] when the VMM resets the device or
//! the port is deleted, and [`disconnect`] when the frontend is gone; `command::capability` calls
//! [`reset`] for commands of the driver, `record::restore` after a failed restoration. A reset
//! empties all tables at once, in a time that does not depend on the number of objects: the
//! dispatcher serves other ports in the same turn. Work in flight ends without completions. A
//! repeated reset finds no objects and has no further effect.
//!
//! The objects are dropped in a background thread, which all functions of the process share. At
//! most [`limits::RECLAIMS_WAITING_MAX`] (8) sets of objects wait for the thread, up to two of a
//! reset; beyond it, and if the host refuses the thread, the caller drops the objects.
//!
//! A message that a peer receives in part must end at the peer. [`reset`] leaves these messages to
//! [`end_messages`], which `poll` calls, and which ends at most [`limits::ENDED_PER_PASS`] (64) in
//! a pass.

use std::sync::Arc;

use causeway_memory::Background;
use causeway_verbs::{AdapterId, Budget, Subnet};

use crate::command;
use crate::function::Function;
use crate::limits;
use crate::registers::Registers;

/// Objects that a reset took out of a function.
type Reclaimed = Box<dyn Send>;

/// Resets whose objects are not dropped yet.
static RECLAIM: Background<Reclaimed> = Background::new("causeway-reclaim", 1, drop);

/// Drops objects in the background.
fn reclaim(objects: impl Send + 'static) {
    if RECLAIM.waiting() < limits::RECLAIMS_WAITING_MAX && !RECLAIM.hand_over(Box::new(objects)) {
        // No thread runs.
        drop(RECLAIM.take_back());
    }
}

/// Removes all objects of a function, as after power-on. Registers keep their values; see
/// [`crate::Registers::reset`] and [`disconnect`].
pub fn reset(subnet: &mut Subnet<Function>, adapter: AdapterId) {
    if let Some(retired) = subnet.clear(adapter) {
        reclaim(retired);
    }
    let has_unfinished = subnet.adapter(adapter).is_some_and(|own| own.has_unfinished());
    if let Ok(function) = command::function(subnet, adapter) {
        function.has_unfinished = has_unfinished;
        reclaim(function.clear());
        if has_unfinished {
            function.request_poll();
        }
    }
}

/// Removes all objects of a function whose frontend is gone, and gives it registers of its own for
/// the next frontend: a write of the old frontend that is still under way reaches the old ones.
/// Returns the new registers; `None` if there is no function.
pub fn disconnect(subnet: &mut Subnet<Function>, adapter: AdapterId) -> Option<Arc<Registers>> {
    reset(subnet, adapter);
    let function = command::function(subnet, adapter).ok()?;
    function.log_commands();
    Some(function.renew_registers())
}

/// Ends messages of queue pairs that a reset removed, within a pass.
pub(crate) fn end_messages(subnet: &mut Subnet<Function>, adapter: AdapterId, budget: &mut Budget) {
    if !command::function(subnet, adapter).is_ok_and(|function| function.has_unfinished) {
        return;
    }
    if let Some(retired) = subnet.cut_retired(adapter, limits::ENDED_PER_PASS) {
        reclaim(retired);
    }
    let price = limits::ENDED_PER_PASS / limits::LOOKS_PER_MESSAGE;
    budget.take(u32::try_from(price).unwrap_or(u32::MAX), 0, 0);
    let has_unfinished = subnet.adapter(adapter).is_some_and(|own| own.has_unfinished());
    if let Ok(function) = command::function(subnet, adapter) {
        function.has_unfinished = has_unfinished;
    }
}
