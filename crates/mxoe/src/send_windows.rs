//! Send windows: large messages that this endpoint offers. Each window belongs to one peer and one
//! message.
//!
//! A window is the number under which a peer pulls a message. Rendezvous packets (offers) name a
//! window by number and sequence; pulls and notifications must name both.
//!
//! An endpoint has 256 windows for all its peers. Without a free window an offer waits in its
//! peer's queue ([`transmit`](crate::transmit)). The sequence changes with each use, so that a late
//! pull of an earlier message is refused with a nack, and a late notification ignored; it wraps
//! after 256 uses. A window reads no memory and sends nothing: [`pull_reply`](crate::pull_reply)
//! does. [`transmit`](crate::transmit) opens windows; a notification, a cancel, a fault or the
//! removal of region or peer closes them. A local peer pulls from the same windows
//! ([`local`](crate::local)). There is no lock: the thread of the NIC.

use causeway_wire::mx::{PeerId, Token, Window};

use crate::limits::{PULLED_AGAIN_BYTES, PULLED_AGAIN_NS};

/// An open window: the peer that may pull, the token of the send, and the bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendWindow {
    /// The peer that may pull.
    pub(crate) peer: PeerId,
    /// Token of the event at the end of the send.
    pub(crate) token: Token,
    /// The bytes of the message.
    pub(crate) from: Window,
}

/// Bytes that the peer of a window pulled.
#[derive(Debug, Clone, Copy, Default)]
struct WindowUsage {
    /// Bytes sent, repetitions included.
    bytes: u64,
    /// Time from which the peer may pull another block beyond its quota.
    more_at: u64,
}

/// The 256 windows of an endpoint.
#[derive(Debug)]
pub(crate) struct SendWindows {
    /// Open windows, by number.
    list: Vec<Option<SendWindow>>,
    /// Pulled bytes, by number.
    usage: Vec<WindowUsage>,
    /// How often each window was used, modulo 256.
    sequences: Vec<u8>,
    /// The last message of the window was cancelled by its sender, by number.
    cancelled: Vec<bool>,
    /// Number at which the search for a free window starts, so that windows are not reused soon.
    at: u8,
    /// Number of free windows.
    free: usize,
}

/// Number of windows: a window number has 8 bits.
const COUNT: usize = 256;

impl SendWindows {
    /// Creates closed windows with an unpredictable first sequence.
    pub(crate) fn new(random: u32) -> Self {
        let [start, ..] = random.to_le_bytes();
        Self {
            list: vec![None; COUNT],
            usage: vec![WindowUsage::default(); COUNT],
            sequences: vec![start; COUNT],
            cancelled: vec![false; COUNT],
            at: 0,
            free: COUNT,
        }
    }

    /// Opens a window. Returns its number and sequence, or `None` if all are open.
    pub(crate) fn open(&mut self, open: SendWindow) -> Option<(u8, u8)> {
        if self.free == 0 {
            return None;
        }
        for _ in 0..COUNT {
            let number = self.at;
            self.at = number.wrapping_add(1);
            let place = self.list.get_mut(usize::from(number))?;
            if place.is_none() {
                *place = Some(open);
                *self.usage.get_mut(usize::from(number))? = WindowUsage::default();
                *self.cancelled.get_mut(usize::from(number))? = false;
                self.free = self.free.saturating_sub(1);
                let sequence = self.sequences.get_mut(usize::from(number))?;
                *sequence = sequence.wrapping_add(1);
                return Some((number, *sequence));
            }
        }
        None
    }

    /// Returns an open window, if it was opened for this peer with this sequence.
    pub(crate) fn get(&self, number: u8, sequence: u8, peer: PeerId) -> Option<SendWindow> {
        let open = (*self.list.get(usize::from(number))?)?;
        let same = self.sequences.get(usize::from(number)) == Some(&sequence);
        (same && open.peer == peer).then_some(open)
    }

    /// Records that the sender cancels the message of a window.
    pub(crate) fn mark_cancelled(&mut self, number: u8) {
        self.cancelled.get_mut(usize::from(number)).into_iter().for_each(|flag| *flag = true);
    }

    /// Returns whether the sender cancelled the message that was offered with this sequence.
    /// Another message may use the window since: then the answer is `false`.
    pub(crate) fn is_cancelled(&self, number: u8, sequence: u8) -> bool {
        let at = usize::from(number);
        self.sequences.get(at) == Some(&sequence) && self.cancelled.get(at) == Some(&true)
    }

    /// Charges `bytes` to a window, and returns whether to send them. The quota is twice the length
    /// plus [`PULLED_AGAIN_BYTES`] (256 KiB) for losses; beyond it a block is sent at intervals of
    /// [`PULLED_AGAIN_NS`] (4 ms).
    pub(crate) fn charge(&mut self, now: u64, number: u8, bytes: u64) -> bool {
        let at = usize::from(number);
        let (Some(Some(open)), Some(usage)) = (self.list.get(at), self.usage.get_mut(at)) else {
            return false;
        };
        let most = u64::from(open.from.len).saturating_mul(2).saturating_add(PULLED_AGAIN_BYTES);
        usage.bytes = usage.bytes.saturating_add(bytes);
        if usage.bytes <= most {
            return true;
        }
        let again = now >= usage.more_at;
        if again {
            usage.more_at = now.saturating_add(PULLED_AGAIN_NS);
        }
        again
    }

    /// Closes a window and returns it.
    pub(crate) fn close(&mut self, number: u8) -> Option<SendWindow> {
        let open = self.list.get_mut(usize::from(number))?.take()?;
        self.free = self.free.saturating_add(1);
        Some(open)
    }

    /// Returns whether a window is free.
    pub(crate) fn has_free(&self) -> bool {
        self.free > 0
    }

    /// Returns the open windows.
    fn open_windows(&self) -> impl Iterator<Item = (u8, SendWindow)> {
        (0..=u8::MAX).zip(&self.list).filter_map(|(n, open)| Some((n, (*open)?)))
    }

    /// Returns the first open window that matches.
    pub(crate) fn find(&self, so: impl Fn(&SendWindow) -> bool) -> Option<(u8, SendWindow)> {
        self.open_windows().find(|(_, open)| so(open))
    }

    /// Returns all open windows that match.
    pub(crate) fn all(&self, so: impl Fn(&SendWindow) -> bool) -> Vec<(u8, SendWindow)> {
        self.open_windows().filter(|(_, open)| so(open)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_wire::mx::RegionId;

    #[test]
    fn hostile_peers_pull_a_window_twice_and_then_slowly() {
        let mut windows = SendWindows::new(5);
        let len = 1 << 20;
        let from = Window { region: RegionId(1), offset: 0, len };
        let open = SendWindow { peer: PeerId(1), token: Token(7), from };
        let (number, _) = windows.open(open).unwrap();
        let asked = |now: u64, windows: &mut SendWindows| {
            (0..1000).filter(|_| windows.charge(now, number, 32_768)).count() as u64
        };
        let at_once = (2 * u64::from(len) + PULLED_AGAIN_BYTES) / 32_768;
        assert_eq!(asked(0, &mut windows), at_once + 1);
        assert_eq!(asked(PULLED_AGAIN_NS - 1, &mut windows), 0);
        assert_eq!(asked(PULLED_AGAIN_NS, &mut windows), 1);
        windows.close(number);
        assert_eq!(asked(10 * PULLED_AGAIN_NS, &mut windows), 0, "the window is closed");
    }

    #[test]
    fn window_belongs_to_one_peer_and_one_use() {
        let mut windows = SendWindows::new(5);
        let from = Window { region: RegionId(1), offset: 0, len: 9 };
        let open = |peer| SendWindow { peer: PeerId(peer), token: Token(7), from };
        let (number, sequence) = windows.open(open(1)).unwrap();
        assert!(windows.get(number, sequence, PeerId(1)).is_some());
        assert!(windows.get(number, sequence, PeerId(2)).is_none());
        assert!(windows.get(number, sequence.wrapping_sub(1), PeerId(1)).is_none());
        assert_eq!(windows.find(|open| open.peer == PeerId(1)).map(|found| found.0), Some(number));
        windows.mark_cancelled(number);
        windows.close(number);
        assert!(windows.get(number, sequence, PeerId(1)).is_none());
        assert!(windows.is_cancelled(number, sequence));
        assert!(!windows.is_cancelled(number, sequence.wrapping_sub(1)));
        for _ in 0..COUNT {
            windows.open(open(1)).unwrap();
        }
        assert!(windows.open(open(1)).is_none());
        windows.close(number);
        windows.close(number);
        assert_eq!(windows.open(open(1)), Some((number, sequence.wrapping_add(2))));
        assert!(!windows.is_cancelled(number, sequence.wrapping_add(2)));
        assert!(windows.open(open(1)).is_none());
    }
}
