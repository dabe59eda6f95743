//! The report of an endpoint that closes: its counters with those of the engine, as a line and as a
//! table.
//!
//! `shell::endpoint` makes the report when the application closes the endpoint; [`StatsReport`]
//! passes the texts to `log`, which writes them where `FI_LOG_LEVEL` or `FI_CAUSEWAY_COUNTERS`
//! requests them. The report counts nothing itself ([`stats`](super::stats)) and changes no counter.

use std::fmt;

use causeway_message::library::DirectCounters;

use super::{EndpointName, Rdm};
use crate::log;

/// The statistics of an endpoint that closes.
#[derive(Debug)]
pub struct StatsReport {
    /// The name of the endpoint.
    name: EndpointName,
    /// The life of the endpoint, in seconds.
    seconds: f64,
    /// Messages sent and received per second, over the endpoint's life.
    rate: f64,
    /// All counters, always in the same order.
    pub rows: Vec<(&'static str, u64)>,
    /// How large messages of this host were received.
    fetched: DirectCounters,
}

impl Rdm {
    /// Returns the statistics up to now.
    pub fn stats_report(&self) -> StatsReport {
        let stats = &self.stats;
        let staged = self.endpoint.paths.staged();
        let engine = self.endpoint.library.counters().named();
        let of_engine = |name: &str| {
            engine.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
        };
        let mut rows = stats.rows();
        rows.extend([
            ("connects", of_engine("connects")),
            ("staging_lent", staged.lent),
            ("staging_used_again", staged.taken.saturating_sub(staged.lent)),
            ("memory_registered", staged.cache.registered),
            ("memory_reused", staged.cache.reused),
            ("memory_invalidated", staged.cache.invalidated),
            ("memory_unwatched", staged.cache.unwatched),
            ("memory_copied", staged.cache.copied),
        ]);
        let seconds = stats.since().elapsed().as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "to be read, not to be reckoned with")]
        let messages = stats.messages() as f64;
        let rate = if seconds > 0.0 { messages / seconds } else { 0.0 };
        let fetched = self.endpoint.paths.channels.fetched();
        StatsReport { name: self.name(), seconds, rate, rows, fetched }
    }
}

impl StatsReport {
    /// Writes the counters of an endpoint that is closed where the user requests them
    /// ([`crate::log`]).
    pub fn write(&self) {
        log::info(&self.line());
        log::append_counters(self);
        log::info(&large_messages(&self.fetched));
    }

    /// Returns the counters that are not 0, in a line.
    fn line(&self) -> String {
        use fmt::Write as _;
        let Self { name, seconds, rate, rows, .. } = self;
        let mut line = format!("{name} was open for {seconds:.3} s, {rate:.0} messages/s:");
        for (name, value) in rows.iter().filter(|(_, value)| *value != 0) {
            let _ = write!(line, " {name} {value}");
        }
        line
    }
}

/// Formats all counters as a table, a line each.
impl fmt::Display for StatsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, seconds, rate, rows, .. } = self;
        writeln!(f, "{name}")?;
        writeln!(f, "  {:<22}{seconds:>16.3}", "seconds")?;
        writeln!(f, "  {:<22}{rate:>16.0}", "messages_per_second")?;
        for (name, value) in rows {
            writeln!(f, "  {name:<22}{value:>16}")?;
        }
        Ok(())
    }
}

/// Returns the line about large messages of this host, received by an endpoint that is closed.
fn large_messages(fetched: &DirectCounters) -> String {
    let DirectCounters { messages, helped, fell_back, refused, unknown } = *fetched;
    format!(
        "large messages from peers on this host: {messages} were read from the peer's memory \
         ({helped} by both processes), {fell_back} were copied through the channel; the kernel \
         refused reads from {refused} peers (ptrace_scope, other credentials), {unknown} peers \
         were not tried (another user or PID namespace, CAUSEWAY_DIRECT=0)"
    )
}
