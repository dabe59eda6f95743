//! The time that the caller passed last, and the earliest time limit of a request.
//!
//! Times are in ns from the caller's origin, as in [`Library::tick`](super::Library::tick); before
//! the first tick the time is 0. The clock keeps no list: `library::time` searches the requests
//! when [`Clock::advance`] returns true, and passes the earliest deadline that is left
//! ([`Clock::set_next`]). Until then [`Clock::next`] may be too early, because the end of a request
//! does not raise it. Used by `library::time`, `library::send` and `library::connect`, under the
//! lock of the endpoint.

/// Clock of an endpoint, which [`Library::tick`](super::Library::tick) advances.
#[derive(Debug)]
pub(super) struct Clock {
    /// Time of the last tick, in ns.
    now: u64,
    /// Earliest deadline of a request, in ns, or an earlier time; `u64::MAX` without any.
    next: u64,
    /// Default time limit of sends and connects, in ns.
    default: Option<u64>,
}

impl Clock {
    /// Returns a clock at time 0 without limits.
    pub(super) const fn new() -> Self {
        Self { now: 0, next: u64::MAX, default: None }
    }

    /// Sets the default time limit of sends and connects.
    pub(super) fn set_default(&mut self, timeout_ns: Option<u64>) {
        self.default = timeout_ns;
    }

    /// Returns whether sends have a time limit by default.
    #[inline]
    pub(super) fn has_default(&self) -> bool {
        self.default.is_some()
    }

    /// Returns the deadline of a new request with this limit, or else the default limit; `u64::MAX`
    /// without one.
    #[inline]
    pub(super) fn start(&mut self, timeout_ns: Option<u64>) -> u64 {
        match timeout_ns.or(self.default) {
            Some(timeout) => self.restart(Some(timeout)),
            None => u64::MAX,
        }
    }

    /// Returns the deadline of a request with this limit from now on; `u64::MAX` for `None`.
    #[inline]
    pub(super) fn restart(&mut self, timeout_ns: Option<u64>) -> u64 {
        let deadline = timeout_ns.map_or(u64::MAX, |timeout| self.now.saturating_add(timeout));
        self.next = self.next.min(deadline);
        deadline
    }

    /// Returns the time that is left until a deadline; `None` for `u64::MAX` and a time that has
    /// passed.
    #[inline]
    pub(super) fn left(&self, deadline: u64) -> Option<u64> {
        deadline.checked_sub(self.now).filter(|_| deadline != u64::MAX)
    }

    /// Returns the earliest deadline of a request, or an earlier time; `None` without any.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        (self.next != u64::MAX).then_some(self.next)
    }

    /// Advances the clock. Returns whether a deadline may have passed.
    #[inline]
    pub(super) fn advance(&mut self, now: u64) -> bool {
        self.now = self.now.max(now);
        now >= self.next
    }

    /// Sets the earliest deadline of a request; `u64::MAX` without any.
    pub(super) fn set_next(&mut self, next: u64) {
        self.next = next;
    }
}
