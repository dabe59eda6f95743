//! No resource remains: no buffer, connection, port or descriptor, and no pending work.
//!
//! The world counts its resources at its end, most of them after all guests have left, and records
//! each count ([`Event::Remains`]); the tape passes it here, in the thread of the world. A count
//! above 0 is the violation. The checker has no state. Memory, and threads of the product, are not
//! counted. A fault of a port is a violation that the world itself records, under the same name.

use super::{Check, Violation, broken};
use crate::event::Event;

/// The checker.
#[derive(Debug, Default)]
pub struct Remains;

impl Check for Remains {
    fn see(&mut self, event: &Event) -> Result<(), Violation> {
        match *event {
            Event::Remains { stage, what, count } if count > 0 => {
                Err(broken("remains", format!("stage {stage}: {what}: {count}")))
            }
            _ => Ok(()),
        }
    }
}
