//! Path choice for a large message without other traffic: direct read or channel. The faster path
//! depends on the location of the bytes: just written by the other processor, untouched since the
//! last message, or in no cache. Both paths are measured, the faster path is used, and the slower
//! path is retried from time to time.
//!
//! A path's time is smoothed: each measurement moves the value half of the way, and counts at most
//! a quarter more than the value. After [`PATH_RETRY_MESSAGES`] (128) messages the slower path
//! serves one message. The first message goes through the channel, the second is read directly.
//!
//! The choice is made per peer and for all lengths together. It does not apply while other large
//! messages are in flight: then `channels::read_schedule` reads directly. A wrong choice costs time
//! only. [`PathTimes`] is part of a channel; `channels::read_schedule` calls [`PathTimes::reads`]
//! once for each message that it measures, because the call counts messages, and
//! [`PathTimes::took`] after its last byte, with the clock of
//! [`RemoteMemory`](super::RemoteMemory), in the thread of the application that holds the endpoint.
//! A message that does not end is not recorded: until a path has its first time, it serves again.

use causeway_wire::mx::{PeerId, Token};

use crate::limits::PATH_RETRY_MESSAGES;

/// Recent time per KiB of each path, in ns.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PathTimes {
    /// Time of a direct read; `None` before the first.
    read: Option<u64>,
    /// Time of a pull through the channel; `None` before the first.
    pulled: Option<u64>,
    /// Messages since the slower path was measured.
    count: u32,
}

/// A message that is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimedMessage {
    pub(super) peer: PeerId,
    /// The receive that it serves.
    pub(super) token: Token,
    /// Whether it is read directly, or comes through the channel.
    pub(super) read: bool,
    pub(super) len: u32,
    /// Bytes that have not come.
    pub(super) left: u32,
    /// Start time, in ns.
    pub(super) since: u64,
}

impl PathTimes {
    /// Returns whether the next message is read directly.
    pub(super) fn reads(&mut self) -> bool {
        let (Some(read), Some(pulled)) = (self.read, self.pulled) else {
            return self.pulled.is_some();
        };
        self.count = self.count.saturating_add(1);
        let faster = read <= pulled;
        if self.count >= PATH_RETRY_MESSAGES {
            self.count = 0;
            return !faster;
        }
        faster
    }

    /// Records the duration of a message. An outlier is capped at a quarter above the mean.
    pub(super) fn took(&mut self, timed: &TimedMessage, now: u64) {
        let whole = now.saturating_sub(timed.since).saturating_mul(1024);
        let Some(new) = whole.checked_div(timed.len.into()) else { return };
        let known = if timed.read { &mut self.read } else { &mut self.pulled };
        *known = Some(match *known {
            None => new,
            Some(old) => {
                let most = old.saturating_add(old >> 2).saturating_add(1);
                old.midpoint(new.min(most))
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs messages of 64 KiB, of which direct reads take `read` and others `pulled` microseconds.
    /// Returns the number of direct reads.
    fn run(path_times: &mut PathTimes, messages: u32, read: u64, pulled: u64) -> u32 {
        let reads = |_: &u32| {
            let reads = path_times.reads();
            let (peer, token, len) = (PeerId(1), Token(1), 1 << 16);
            let timed = TimedMessage { peer, token, read: reads, len, left: 0, since: 5 };
            path_times.took(&timed, 5 + 1000 * if reads { read } else { pulled });
            reads
        };
        (0..messages).filter(reads).count() as u32
    }

    #[test]
    fn path_times_faster_path_is_used_and_the_slower_retried() {
        let mut path_times = PathTimes::default();
        assert_eq!(run(&mut path_times, 2, 10, 30), 1, "both are tried");
        assert_eq!(
            run(&mut path_times, 10 * PATH_RETRY_MESSAGES, 10, 30),
            10 * PATH_RETRY_MESSAGES - 10
        );
        let slower = run(&mut path_times, 10 * PATH_RETRY_MESSAGES, 90, 30);
        assert!(slower <= 25, "{slower} were read though it had become slow");
    }

    #[test]
    fn path_times_outlier_changes_little() {
        let mut path_times = PathTimes::default();
        run(&mut path_times, 50, 10, 30);
        path_times.took(
            &TimedMessage {
                peer: PeerId(1),
                token: Token(1),
                read: true,
                len: 1 << 16,
                left: 0,
                since: 0,
            },
            50_000_000,
        );
        assert_eq!(run(&mut path_times, 20, 10, 30), 20);
    }
}
