//! Frames on their way out, a batch at a time.

use causeway_memory::limits::FRAMES_PER_CALL_MAX;
use causeway_memory::packet::FINISH_BYTES;
use causeway_wire::mxoe::FRAME_LEN_MAX;
use rustix::io::Errno;

use super::carried::Exit;

use crate::limits::{FRAMES_WAITING_MAX, FULL_NS, STUCK_NS};

/// What is kept to put frames into, in bytes: as much as leaves in one call.
const BYTES_KEPT: usize = (FINISH_BYTES + FRAME_LEN_MAX) * FRAMES_PER_CALL_MAX;

/// Frames that leave together.
#[derive(Debug)]
pub struct Frames {
    /// Where they leave; none while the interface is down.
    pub exit: Option<Exit>,
    /// One behind the other; where an interface takes them, each behind what says that nothing is
    /// left to be done for it. Only the first `used` bytes mean something.
    bytes: Vec<u8>,
    used: usize,
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
            bytes: Vec::new(),
            used: 0,
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

    /// What stands before each frame.
    fn before(&self) -> usize {
        if matches!(self.exit, Some(Exit::Udp(_))) { 0 } else { FINISH_BYTES }
    }

    /// Puts a frame, in two parts, behind the others.
    pub fn push(&mut self, head: &[u8], data: &[u8]) {
        let put = |room: &mut [u8]| {
            room.copy_from_slice(data);
            Ok::<(), ()>(())
        };
        let _ = self.push_with(head, data.len(), put);
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
        let before = self.before();
        let whole = before.saturating_add(head.len()).saturating_add(len);
        let end = self.used.saturating_add(whole);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let room = self.bytes.get_mut(self.used..end).unwrap_or(&mut []);
        let (finish, room) = room.split_at_mut_checked(before).unwrap_or_default();
        let (first, rest) = room.split_at_mut_checked(head.len()).unwrap_or_default();
        finish.fill(0);
        first.copy_from_slice(head);
        fill(rest)?;
        self.ends.push(end);
        self.used = end;
        Ok(())
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
                Exit::Udp(udp) => udp.send(&self.bytes, &self.ends, self.left),
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
        self.used = 0;
        self.ends.clear();
        self.left = 0;
        if self.bytes.len() > BYTES_KEPT {
            self.bytes = Vec::new();
        }
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
                room.fill(4);
                Ok::<(), PacketError>(())
            })
            .unwrap();
        let before = frames.used;
        assert_eq!(frames.push_with(&[5; 16], 50, |_| Err(7)), Err(7));
        assert_eq!((frames.used, frames.ends.len()), (before, 2));
        let second = [&[0; FINISH_BYTES][..], &[3; 16], &[4; 50]].concat();
        assert_eq!(frames.bytes[frames.ends[0]..frames.ends[1]], second);
        frames.flush(5);
        assert_eq!((frames.down, frames.again_ns, frames.ends.len()), (2, None, 0));
    }
}
