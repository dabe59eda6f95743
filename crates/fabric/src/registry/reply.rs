//! Outcomes of commands, and errors that several parts of the registry return.

use std::fmt;

use causeway_model::{Answer, CommandError};

/// The outcome of a command.
pub(super) type Reply = Result<Answer, CommandError>;

/// Returns the error of a shard that the registry knows and its dispatcher does not, or the
/// reverse.
pub(super) fn inconsistent() -> CommandError {
    CommandError::Host(
        "the registry and the dispatchers disagree about a shard: restart the daemon".into(),
    )
}

/// Returns the error of a request that no service answers.
pub(super) fn no_service(which: fmt::Arguments<'_>) -> CommandError {
    CommandError::Invalid(format!("this daemon has no service {which}"))
}
