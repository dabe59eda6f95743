//! Nothing is left over: no buffer kept, no connection, no descriptor, no work, no fault.

use super::{Check, Violation, broken};
use crate::event::Event;

/// See the module.
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
