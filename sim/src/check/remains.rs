//! No resource remains: no buffer, connection or descriptor, no pending work, and no port has a
//! fault.
//!
//! The world counts its resources after all guests have left, and records each count
//! ([`Event::Remains`]); the tape passes it here, in the thread of the world. A count above 0 is
//! the violation. The checker has no state. The check says nothing about a resource that the world
//! does not count: memory, and threads of the product, are not counted.

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
