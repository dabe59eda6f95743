//! The commands that the function supports, for documentation.

use causeway_wire::mlx5::command::Opcode;

use crate::command::dispatch::{Handler, handler};

/// How the function answers a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandSupport {
    /// The command is performed.
    Performed,
    /// The command succeeds without an effect.
    Accepted,
    /// The command fails with the status of an unknown operation.
    Refused,
}

/// Returns how the function answers a command.
pub fn support(opcode: Opcode) -> CommandSupport {
    match handler(opcode.raw()) {
        None => CommandSupport::Refused,
        Some(Handler::Accept) => CommandSupport::Accepted,
        Some(_) => CommandSupport::Performed,
    }
}
