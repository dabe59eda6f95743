//! Frames on their way out, a batch at a time.

use causeway_memory::limits::FRAMES_PER_CALL_MAX;
use causeway_memory::packet::FINISH_BYTES;
use causeway_wire::mxoe::FRAME_LEN_MAX;
use rustix::io::Errno;

use super::carried::Exit;

const FRAME_ROOM: usize = FINISH_BYTES + FRAME_LEN_MAX;

/// Frames that leave together.
#[derive(Debug)]
pub struct Frames {
    /// Where they leave; none while the interface is down.
    pub exit: Option<Exit>,
    /// One behind the other, each behind what says that nothing is left to be done for it.
    bytes: Vec<u8>,
    ends: Vec<usize>,
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
            sent: 0,
            calls: 0,
            no_room: 0,
            down: 0,
        }
    }

    /// Puts a frame, in two parts, behind the others.
    pub fn push(&mut self, head: &[u8], data: &[u8]) {
        if self.ends.len() >= FRAMES_PER_CALL_MAX {
            self.flush();
        }
        self.bytes.extend_from_slice(&[0; FINISH_BYTES]);
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(data);
        self.ends.push(self.bytes.len());
    }

    /// Sends them all. Those that the host does not take are lost, as frames may be.
    pub fn flush(&mut self) {
        if self.ends.is_empty() {
            return;
        }
        if let Some(exit) = self.exit.clone() {
            let mut at = 0_usize;
            while at < self.ends.len() {
                self.calls = self.calls.wrapping_add(1);
                let sent = match &exit {
                    Exit::Interface(socket) => socket.send(&self.bytes, &self.ends, at),
                    Exit::Udp(udp) => udp.send(self.frame(at)).map(|()| 1),
                };
                match sent {
                    Ok(sent) if sent > 0 => {
                        at = at.saturating_add(sent);
                        self.sent = self.sent.wrapping_add(sent as u64);
                    }
                    Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) => {}
                    other => {
                        at = at.saturating_add(1);
                        let errno = other.err().and_then(|e| Errno::from_io_error(&e));
                        let full = matches!(errno, None | Some(Errno::AGAIN | Errno::NOBUFS));
                        let lost = if full { &mut self.no_room } else { &mut self.down };
                        *lost = lost.wrapping_add(1);
                    }
                }
            }
        } else {
            self.down = self.down.wrapping_add(self.ends.len() as u64);
        }
        self.bytes.clear();
        self.ends.clear();
    }

    /// A frame, by its number.
    fn frame(&self, number: usize) -> &[u8] {
        let before = number.checked_sub(1).and_then(|before| self.ends.get(before));
        let start = before.copied().unwrap_or(0).saturating_add(FINISH_BYTES);
        let end = self.ends.get(number).copied().unwrap_or(0);
        self.bytes.get(start..end).unwrap_or(&[])
    }
}
