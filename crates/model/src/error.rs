//! The error of a value that an operator gave.
//!
//! Parsers and checks of this crate return it; the daemon adds the place (file and line, or key)
//! and shows it to the operator. It carries a text for people and no code: programs must not parse
//! it. Errors of commands are [`crate::CommandError`]. A check that returns it stops at its first
//! problem; those that collect all return [`crate::schema::Problem`]s.

/// The reason why a value is refused; the text states the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(pub String);
