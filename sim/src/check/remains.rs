//! No resource remains: no buffer, connection or descriptor, no pending work, and no port has a
//! fault.

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
