//! Frames on their way out, a batch at a time.

use causeway_memory::limits::FRAMES_PER_CALL_MAX;
use causeway_memory::packet::FINISH_BYTES;
use causeway_wire::mxoe::FRAME_LEN_MAX;
use rustix::io::Errno;

use super::carried::Exit;

use crate::limits::{FRAMES_WAITING_MAX, FULL_NS, STUCK_NS};

const FRAME_ROOM: usize = FINISH_BYTES + FRAME_LEN_MAX;

/// Frames that leave together.
#[derive(Debug)]
pub struct Frames {
    /// Where they leave; none while the interface is down.
    pub exit: Option<Exit>,
    /// One behind the other, each behind what says that nothing is left to be done for it.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// How many of them left.
    left: usize,
    /// When it is tried again, if the host had no room.
    pub again_ns: Option<u64>,
    /// Since when the host has had no room for the first that waits.
    stuck_ns: Option<u64>,
    /// Frames that left, and system calls that it took.
    pub sent: u64,
    pub calls: u64,
    /// Frames that the host had no room for, and those that had nowhere to go.
    pub no_room: u64,
    pub down: u64,
}

impl Frames {
    pub fn new() -> Self {
        Self {
            exit: None,
            bytes: Vec::with_capacity(FRAME_ROOM.saturating_mul(FRAMES_PER_CALL_MAX)),
            ends: Vec::with_capacity(FRAMES_PER_CALL_MAX),
            left: 0,
            again_ns: None,
            stuck_ns: None,
            sent: 0,
            calls: 0,
            no_room: 0,
            down: 0,
        }
    }

    /// Puts a frame, in two parts, behind the others.
    pub fn push(&mut self, head: &[u8], data: &[u8]) {
        if self.has_room() {
            self.bytes.extend_from_slice(&[0; FINISH_BYTES]);
            self.bytes.extend_from_slice(head);
            self.bytes.extend_from_slice(data);
            self.ends.push(self.bytes.len());
        }
    }

    /// As [`Self::push`], with `len` bytes behind the head that are put there by `fill`, if it can.
    pub fn push_with<E>(
        &mut self,
        head: &[u8],
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.has_room() {
            return Ok(());
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; FINISH_BYTES]);
        self.bytes.extend_from_slice(head);
        let at = self.bytes.len();
        self.bytes.resize(at.saturating_add(len), 0);
        let filled = fill(self.bytes.get_mut(at..).unwrap_or(&mut []));
        match &filled {
            Ok(()) => self.ends.push(self.bytes.len()),
            Err(_) => self.bytes.truncate(start),
        }
        filled
    }

    /// Whether one more finds room; it is lost else, as frames may be.
    fn has_room(&mut self) -> bool {
        let waiting = self.ends.len().saturating_sub(self.left);
        if waiting >= FRAMES_PER_CALL_MAX || self.ends.len() >= FRAMES_WAITING_MAX {
            self.send_some();
        }
        let room = self.ends.len() < FRAMES_WAITING_MAX;
        if !room {
            self.no_room = self.no_room.wrapping_add(1);
        }
        room
    }

    /// Sends them all. What the host has no room for waits, until it is tried again.
    pub fn flush(&mut self, now_ns: u64) {
        self.again_ns = None;
        if self.ends.is_empty() {
            return;
        }
        let before = self.left;
        self.send_some();
        if self.ends.is_empty() || self.left != before {
            self.stuck_ns = None;
        } else if now_ns.saturating_sub(*self.stuck_ns.get_or_insert(now_ns)) >= STUCK_NS {
            // The host says that it has no room also of what it will never take.
            self.left = self.left.saturating_add(1);
            self.no_room = self.no_room.wrapping_add(1);
            self.stuck_ns = None;
            self.send_some();
        }
        self.again_ns = (!self.ends.is_empty()).then_some(now_ns.saturating_add(FULL_NS));
    }

    /// Sends as many as the host takes.
    fn send_some(&mut self) {
        let Some(exit) = self.exit.clone() else {
            let left = self.ends.len().saturating_sub(self.left);
            self.down = self.down.wrapping_add(left as u64);
            return self.clear();
        };
        while self.left < self.ends.len() {
            self.calls = self.calls.wrapping_add(1);
            let sent = match &exit {
                Exit::Interface(socket) => socket.send(&self.bytes, &self.ends, self.left),
                Exit::Udp(udp) => udp.send(self.frame(self.left)).map(|()| 1),
            };
            match sent {
                Ok(sent) if sent > 0 => {
                    self.left = self.left.saturating_add(sent);
                    self.sent = self.sent.wrapping_add(sent as u64);
                }
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) => {}
                other => {
                    let errno = other.err().and_then(|e| Errno::from_io_error(&e));
                    if matches!(errno, None | Some(Errno::AGAIN | Errno::NOBUFS)) {
                        return;
                    }
                    // This one is not to leave.
                    self.left = self.left.saturating_add(1);
                    self.down = self.down.wrapping_add(1);
                }
            }
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.left = 0;
    }

    /// A frame, by its number.
    fn frame(&self, number: usize) -> &[u8] {
        let before = number.checked_sub(1).and_then(|before| self.ends.get(before));
        let start = before.copied().unwrap_or(0).saturating_add(FINISH_BYTES);
        let end = self.ends.get(number).copied().unwrap_or(0);
        self.bytes.get(start..end).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_memory::packet::PacketError;

    #[test]
    fn frames_without_an_exit_are_counted_and_those_that_cannot_be_filled_are_not_sent() {
        let mut frames = Frames::new();
        frames.push(&[1; 60], &[2; 100]);
        frames
            .push_with(&[3; 16], 50, |room| {
                assert_eq!(room, [0; 50]);
                room.fill(4);
                Ok::<(), PacketError>(())
            })
            .unwrap();
        let before = frames.bytes.len();
        assert_eq!(frames.push_with(&[5; 16], 50, |_| Err(7)), Err(7));
        assert_eq!((frames.bytes.len(), frames.ends.len()), (before, 2));
        assert_eq!(frames.frame(1), [&[3; 16][..], &[4; 50]].concat());
        frames.flush(5);
        assert_eq!((frames.down, frames.again_ns, frames.ends.len()), (2, None, 0));
    }
}
