//! The error of a value that an operator gave.

/// The reason why a value is refused; the text states the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(pub String);
