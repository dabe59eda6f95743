//! The error that broke a queue: it stays broken, and is not tried again.

use crate::error::RingError;

/// The first error of a queue, if there was one.
#[derive(Debug, Default)]
pub(crate) struct Latch(Option<RingError>);

impl Latch {
    /// The error.
    pub fn get(&self) -> Option<RingError> {
        self.0
    }

    /// Whether there is one.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// The error again, if there was one.
    #[inline]
    pub fn check(&self) -> Result<(), RingError> {
        if self.is_set() { Err(self.broke()) } else { Ok(()) }
    }

    /// Apart, so that whoever finds all well copies no error.
    #[cold]
    #[inline(never)]
    fn broke(&self) -> RingError {
        self.0.unwrap_or(RingError::Inflight)
    }

    /// Passes a result on, and remembers its error.
    #[inline]
    pub fn latch<T>(&mut self, result: Result<T, RingError>) -> Result<T, RingError> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.breaks(error)),
        }
    }

    #[cold]
    #[inline(never)]
    fn breaks(&mut self, error: RingError) -> RingError {
        *self.0.insert(error)
    }
}
