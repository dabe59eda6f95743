//! What a measured exchange reports. All times are nanoseconds.

use serde::{Deserialize, Serialize};

/// Round-trip times of a ping-pong whose every byte came back right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingPong {
    /// Bytes sent, and awaited back, in each round.
    pub bytes: usize,
    /// Rounds measured.
    pub rounds: usize,
    /// Fastest round.
    pub min_ns: u64,
    /// Middle round.
    pub median_ns: u64,
    /// Average round.
    pub mean_ns: u64,
    /// The round that 99 in 100 stay under.
    pub p99_ns: u64,
    /// Slowest round.
    pub max_ns: u64,
}

impl PingPong {
    /// Summary of the measured rounds; all zero when there were none.
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

/// A one-way stream whose receiver compared every byte with the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Bytes in each write.
    pub write_bytes: usize,
    /// Bytes sent, received and compared.
    pub total_bytes: u64,
    /// From the first write until the receiver's word that all arrived.
    pub elapsed_ns: u64,
}

impl Stream {
    /// Mean rate in bytes a second.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn bytes_per_second(&self) -> f64 {
        self.total_bytes as f64 * 1e9 / (self.elapsed_ns.max(1) as f64)
    }
}

/// The receiver's word at the end of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Bytes that arrived before the end of the stream.
    pub bytes: u64,
    /// The first mismatch, in words; none when all bytes were right.
    pub wrong: Option<String>,
}

/// Messages that came back with their boundaries and content intact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    /// How many were exchanged.
    pub count: usize,
    /// Size of the largest, in bytes.
    pub largest_bytes: usize,
}

/// A reply that arrived whole after the asking side had closed its sending half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfClose {
    /// Bytes that arrived after the half-close.
    pub bytes: u64,
}

/// Writes or messages that were sent one way and read to their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flooded {
    /// How many were sent.
    pub writes: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Until the receiver's end, in milliseconds.
    pub elapsed_ms: u64,
}

/// What a receiver read, every byte as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sunk {
    /// How many reads gave something: messages, where the socket keeps them apart.
    pub reads: u64,
    /// Their bytes.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_orders_the_rounds() {
        let s = PingPong::from_rounds(64, vec![30, 10, 20, 1000]);
        assert_eq!((s.min_ns, s.median_ns, s.mean_ns, s.max_ns, s.rounds), (10, 30, 265, 1000, 4));
        assert_eq!(PingPong::from_rounds(64, vec![]).max_ns, 0);
    }
}
