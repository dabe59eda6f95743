//! Frames on their way out, a batch at a time.

use causeway_memory::View;
use causeway_memory::gather::Frame;
use causeway_memory::limits::FRAMES_PER_CALL_MAX;
use causeway_memory::packet::FINISH_BYTES;
use causeway_wire::mxoe::FRAME_LEN_MAX;
use rustix::io::Errno;

use super::carried::Exit;

use crate::limits::{FRAMES_WAITING_MAX, FULL_NS, STUCK_NS};

/// What is kept to put frames into, in bytes: as much as leaves in one call.
const BYTES_KEPT: usize = (FINISH_BYTES + FRAME_LEN_MAX) * FRAMES_PER_CALL_MAX;

/// One that waits to leave.
#[derive(Debug)]
struct Waiting {
    /// Where its own bytes end in [`Frames::bytes`].
    end: usize,
    /// What stands behind them, where its owner lent it.
    lent: Option<View>,
}

/// Frames that leave together.
#[derive(Debug)]
pub struct Frames {
    /// Where they leave; none while the interface is down.
    pub exit: Option<Exit>,
    /// What is their own, one behind the other; where an interface takes them, each behind what says
    /// that nothing is left to be done for it. Only the first `used` bytes mean something.
    bytes: Vec<u8>,
    used: usize,
    waiting: Vec<Waiting>,
    /// How many of them left.
    left: usize,
    /// How many were lent a part.
    lent: usize,
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
            waiting: Vec::with_capacity(FRAMES_PER_CALL_MAX),
            left: 0,
            lent: 0,
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
        if self.has_room() {
            self.put(head, data, None);
        }
    }

    /// As [`Self::push`], with a part that is sent from where it lies.
    pub fn push_lent(&mut self, head: &[u8], lent: View) {
        if self.has_room() {
            self.put(head, &[], Some(lent));
        }
    }

    fn put(&mut self, head: &[u8], data: &[u8], lent: Option<View>) {
        let before = self.before();
        let whole = before.saturating_add(head.len()).saturating_add(data.len());
        let end = self.used.saturating_add(whole);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let room = self.bytes.get_mut(self.used..end).unwrap_or(&mut []);
        let (finish, room) = room.split_at_mut_checked(before).unwrap_or_default();
        let (first, rest) = room.split_at_mut_checked(head.len()).unwrap_or_default();
        finish.fill(0);
        first.copy_from_slice(head);
        rest.copy_from_slice(data);
        self.lent = self.lent.saturating_add(usize::from(lent.is_some()));
        self.waiting.push(Waiting { end, lent });
        self.used = end;
    }

    /// Those that have not left.
    fn frames(&self) -> impl Iterator<Item = Frame<'_>> + Clone {
        let starts = std::iter::once(0).chain(self.waiting.iter().map(|frame| frame.end));
        starts.zip(&self.waiting).skip(self.left).map(|(start, Waiting { end, lent })| Frame {
            head: self.bytes.get(start..*end).unwrap_or(&[]),
            body: lent.as_ref(),
        })
    }

    /// What was lent may soon be used again: it leaves, and what cannot yet is copied.
    pub fn part_from_lent(&mut self) {
        if self.lent > 0 {
            self.send_some();
            self.keep_copies();
        }
    }

    /// Copies what was lent to those that have not left.
    fn keep_copies(&mut self) {
        if self.lent == 0 {
            return;
        }
        let (mut bytes, mut waiting) = (Vec::new(), Vec::new());
        for Frame { head, body } in self.frames() {
            bytes.extend_from_slice(head);
            let start = bytes.len();
            bytes.resize(start.saturating_add(body.map_or(0, View::len)), 0);
            if let (Some(body), Some(room)) = (body, bytes.get_mut(start..)) {
                // It is a whole view: there is nothing that could be outside of it.
                let _ = body.read_into(0, room);
            }
            waiting.push(Waiting { end: bytes.len(), lent: None });
        }
        (self.used, self.left, self.lent) = (bytes.len(), 0, 0);
        (self.bytes, self.waiting) = (bytes, waiting);
    }

    /// Whether one more finds room; it is lost else, as frames may be.
    fn has_room(&mut self) -> bool {
        let waiting = self.waiting.len().saturating_sub(self.left);
        if waiting >= FRAMES_PER_CALL_MAX || self.waiting.len() >= FRAMES_WAITING_MAX {
            self.send_some();
        }
        let room = self.waiting.len() < FRAMES_WAITING_MAX;
        if !room {
            self.no_room = self.no_room.wrapping_add(1);
        }
        room
    }

    /// Sends them all. What the host has no room for waits, until it is tried again.
    pub fn flush(&mut self, now_ns: u64) {
        self.again_ns = None;
        if self.waiting.is_empty() {
            return;
        }
        let before = self.left;
        self.send_some();
        if self.waiting.is_empty() || self.left != before {
            self.stuck_ns = None;
        } else if now_ns.saturating_sub(*self.stuck_ns.get_or_insert(now_ns)) >= STUCK_NS {
            // The host says that it has no room also of what it will never take.
            self.left = self.left.saturating_add(1);
            self.no_room = self.no_room.wrapping_add(1);
            self.stuck_ns = None;
            self.send_some();
        }
        self.keep_copies();
        self.again_ns = (!self.waiting.is_empty()).then_some(now_ns.saturating_add(FULL_NS));
    }

    /// Sends as many as the host takes.
    fn send_some(&mut self) {
        let Some(exit) = self.exit.clone() else {
            let left = self.waiting.len().saturating_sub(self.left);
            self.down = self.down.wrapping_add(left as u64);
            return self.clear();
        };
        while self.left < self.waiting.len() {
            self.calls = self.calls.wrapping_add(1);
            let sent = match &exit {
                Exit::Interface(socket) => socket.send(self.frames()),
                Exit::Udp(udp) => udp.send(self.frames()),
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
        self.waiting.clear();
        (self.used, self.left, self.lent) = (0, 0, 0);
        if self.bytes.len() > BYTES_KEPT {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use causeway_memory::{Mapping, create};
    use std::os::fd::AsFd as _;
    use std::sync::Arc;

    /// So many bytes that somebody lends, all alike.
    pub fn lent(len: usize, fill: u8) -> View {
        let file = create("test", 4096).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, 4096).unwrap());
        let view = View::new(mapping, 1000, len).unwrap();
        view.write(0, &vec![fill; len]).unwrap();
        view
    }

    fn lens(frames: &Frames) -> Vec<(usize, usize)> {
        let len = |frame: Frame<'_>| (frame.head.len(), frame.body.map_or(0, View::len));
        frames.frames().map(len).collect()
    }

    #[test]
    fn frames_without_an_exit_are_counted() {
        let mut frames = Frames::new();
        frames.push(&[1; 60], &[2; 100]);
        frames.push_lent(&[3; 16], lent(50, 4));
        assert_eq!(lens(&frames), [(FINISH_BYTES + 160, 0), (FINISH_BYTES + 16, 50)]);
        frames.flush(5);
        assert_eq!((frames.down, frames.again_ns, lens(&frames)), (2, None, vec![]));
    }

    #[test]
    fn what_was_lent_is_copied_before_it_may_be_used_again() {
        let mut frames = Frames::new();
        let (first, second) = (lent(50, 4), lent(7, 5));
        frames.push_lent(&[3; 16], first.clone());
        frames.push(&[1; 60], &[2; 3]);
        frames.push_lent(&[6; 16], second.clone());
        frames.left = 1;
        frames.keep_copies();
        second.write(0, &[9; 7]).unwrap();
        assert_eq!(lens(&frames), [(FINISH_BYTES + 63, 0), (FINISH_BYTES + 23, 0)]);
        let last = frames.frames().last().unwrap();
        assert_eq!(last.head, [&[0; FINISH_BYTES][..], &[6; 16], &[5; 7]].concat());
        // More may follow.
        frames.push_lent(&[7; 16], first);
        assert_eq!(lens(&frames).last(), Some(&(FINISH_BYTES + 16, 50)));
        frames.part_from_lent();
        assert_eq!((frames.lent, frames.down), (0, 3));
    }
}
