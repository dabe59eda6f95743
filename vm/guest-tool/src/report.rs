//! Results of exchanges. Times are nanoseconds; that of [`FloodReport`] is milliseconds.
//!
//! The program prints a report as JSON, and `vm::traffic`, the demo and tests parse it; on the host
//! they also call [`client`](crate::client), which returns it. [`StreamReport`] is a line from
//! [`serve`](crate::serve) to its client, also of a stream with changed content; the other reports
//! exist only for an exchange without an error. The types measure nothing:
//! [`client`](crate::client), [`serve`](crate::serve) and [`flood`](crate::flood) do.

use serde::{Deserialize, Serialize};

/// Round-trip times of a ping-pong with all bytes verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingPong {
    /// Bytes sent, and echoed, in each round.
    pub bytes: usize,
    /// Rounds measured.
    pub rounds: usize,
    /// Fastest round.
    pub min_ns: u64,
    /// Median round.
    pub median_ns: u64,
    /// Mean round.
    pub mean_ns: u64,
    /// 99th percentile of the rounds.
    pub p99_ns: u64,
    /// Slowest round.
    pub max_ns: u64,
}

impl PingPong {
    /// Summarises the measured rounds; all fields are zero when there were none.
    #[must_use]
    pub fn from_rounds(bytes: usize, mut rounds_ns: Vec<u64>) -> Self {
        rounds_ns.sort_unstable();
        let n = rounds_ns.len();
        let at = |i: usize| rounds_ns.get(i.min(n.saturating_sub(1))).copied().unwrap_or(0);
        Self {
            bytes,
            rounds: n,
            min_ns: at(0),
            median_ns: at(n / 2),
            mean_ns: rounds_ns.iter().sum::<u64>() / (n as u64).max(1),
            p99_ns: at(n * 99 / 100),
            max_ns: at(n),
        }
    }
}

/// A one-way stream, of which the receiver compared every byte with the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Bytes in each write.
    pub write_bytes: usize,
    /// Bytes sent, received and compared.
    pub total_bytes: u64,
    /// From the first write until the receiver confirmed the last byte.
    pub elapsed_ns: u64,
}

impl Stream {
    /// Returns the mean rate in bytes per second.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn bytes_per_second(&self) -> f64 {
        self.total_bytes as f64 * 1e9 / (self.elapsed_ns.max(1) as f64)
    }
}

/// The receiver's report at the end of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Bytes that arrived before the end of the stream.
    pub bytes: u64,
    /// The first mismatch as text; `None` when all bytes matched.
    pub wrong: Option<String>,
}

/// Messages that came back with their boundaries and content intact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    /// Number of exchanged messages.
    pub count: usize,
    /// Size of the largest message, in bytes.
    pub largest_bytes: usize,
}

/// A complete reply received after the client shut down its sending direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfClose {
    /// Bytes that arrived after the half-close.
    pub bytes: u64,
}

/// Writes or messages that were sent in one direction and read to the end of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloodReport {
    /// Number of writes or messages.
    pub writes: u64,
    /// Total bytes.
    pub bytes: u64,
    /// Time until the receiver's end of stream, in milliseconds.
    pub elapsed_ms: u64,
}

/// Result of a receiver that verified every byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkReport {
    /// Number of non-empty reads; messages on a message socket.
    pub reads: u64,
    /// Total bytes.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_orders_the_rounds() {
        let s = PingPong::from_rounds(64, vec![30, 10, 20, 1000]);
        assert_eq!((s.min_ns, s.median_ns, s.mean_ns, s.max_ns, s.rounds), (10, 30, 265, 1000, 4));
        assert_eq!(PingPong::from_rounds(64, vec![]).max_ns, 0);
    }
}
