//! The clocks of an endpoint: the monotonic time of the timers, and the processor's counter, by which
//! polls measure short intervals. The functions keep no state, never fail and may be called from any
//! thread.

/// Returns the monotonic time, in ns.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, rest) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Returns the processor's time stamp counter: cheap, and precise enough for polling intervals.
#[inline]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every 64-bit processor has the counter, and reading it changes nothing.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        now()
    }
}
