//! Latch for the error that broke a queue: the queue stays broken and returns the same error from
//! then on.
//!
//! Both formats of [`crate::Queue`] check the latch at the start of each call that accesses the
//! ring and can fail, and latch the first error, in the dispatcher's thread; set-up,
//! [`crate::Queue::remap`], `record` and `locate` return their errors without the latch. There is
//! no way to clear it: the attachment ends, and the next frontend's queue begins anew. Chains of a
//! broken queue that are in flight, or pushed and not published, are never published.

use crate::error::RingError;

/// The first error of a queue, if any.
#[derive(Debug, Default)]
pub(crate) struct Latch(Option<RingError>);

impl Latch {
    /// Returns the error, if any.
    pub fn get(&self) -> Option<RingError> {
        self.0
    }

    /// Returns whether an error is latched.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Checks that no error is latched.
    ///
    /// # Errors
    /// The latched error.
    #[inline]
    pub fn check(&self) -> Result<(), RingError> {
        if self.is_set() { Err(self.broke()) } else { Ok(()) }
    }

    /// Out of line, so that the error-free path does not copy an error.
    #[cold]
    #[inline(never)]
    fn broke(&self) -> RingError {
        self.0.unwrap_or(RingError::Inflight)
    }

    /// Returns `result`, and latches its error.
    ///
    /// # Errors
    /// The error of `result`.
    #[inline]
    pub fn latch<T>(&mut self, result: Result<T, RingError>) -> Result<T, RingError> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.breaks(error)),
        }
    }

    /// Latches the error. Out of line, as [`Self::broke`].
    #[cold]
    #[inline(never)]
    fn breaks(&mut self, error: RingError) -> RingError {
        *self.0.insert(error)
    }
}
