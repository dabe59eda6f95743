//! The commands that the function supports, for tests and documentation.
//!
//! [`support`] reads the table by which commands are dispatched, so that it cannot differ from the
//! function's answers. *Performed* commands may still refuse parameters, and *accepted* commands
//! answer zeros. Tests use the module, one of which checks the table in
//! `docs/design/mlx5-commands.md`; the daemon does not. Any thread may call it, and no call fails.

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
