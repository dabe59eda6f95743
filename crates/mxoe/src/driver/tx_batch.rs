//! Frames to send, in batches of one system call.
//!
//! Frames consist of own bytes and lent memory. Lent memory is sent in place, and copied only if
//! the kernel has no room before its owner may reuse it. Between two turns no queued frame refers
//! to lent memory.
//!
//! At most [`FRAMES_WAITING_MAX`] (1,024) frames wait; further frames are dropped and counted as
//! `no_room`. If the kernel has no room, the owner calls [`TxBatch::flush`] again after `FULL_NS`
//! (200 us); each `STUCK_NS` (10 ms) without room drops the first frame, counted as `no_room` too.
//! After any other error the first frame is dropped and counted as `down`, as all frames are
//! without an output. A frame whose lent memory was unmapped is dropped and counted as `hollow`. A
//! dropped frame is like a frame lost in the network: the engine or the peer repeats the packet.
//! Frames leave in order; nothing waits for their arrival. Filled through
//! [`TxPath`](crate::driver::TxPath), flushed by [`TxPath::commit`](crate::driver::TxPath::commit);
//! if 64 frames wait, a further frame sends them first.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use causeway_host::limits::FRAMES_PER_CALL_MAX;
use causeway_host::net::send::{FrameBody, OutgoingFrame};
use causeway_host::net::socket::PacketSocket;
use causeway_wire::mxoe::FRAME_LEN_MAX;
use rustix::io::Errno;

use crate::driver::limits::{FRAMES_WAITING_MAX, FULL_NS, STUCK_NS};

/// Size of the buffer that is kept for frames, in bytes: the frames of one system call.
const BYTES_KEPT: usize = FRAME_LEN_MAX * FRAMES_PER_CALL_MAX;

/// An output for frames.
pub trait Output: Clone {
    /// Sends the first of `frames` and returns how many were sent.
    ///
    /// # Errors
    /// The first frame was not sent. `EAGAIN` and `ENOBUFS`, like a result of 0, mean that there is
    /// no room: the frames wait. After `EINTR` the call is repeated; other errors drop the frame.
    fn send<'a>(
        &self,
        frames: impl Iterator<Item = OutgoingFrame<'a>> + Clone,
    ) -> io::Result<usize>;
}

impl Output for Arc<PacketSocket> {
    fn send<'a>(
        &self,
        frames: impl Iterator<Item = OutgoingFrame<'a>> + Clone,
    ) -> io::Result<usize> {
        PacketSocket::send(self, frames)
    }
}

/// No output.
impl Output for Infallible {
    fn send<'a>(&self, _: impl Iterator<Item = OutgoingFrame<'a>> + Clone) -> io::Result<usize> {
        match *self {}
    }
}

/// A frame to send.
#[derive(Debug)]
struct QueuedFrame {
    /// End of its own bytes in [`TxBatch::bytes`].
    end: usize,
    /// Lent bytes that follow them.
    lent: Option<FrameBody>,
}

/// Frames to send, and their counters.
#[derive(Debug)]
pub struct TxBatch<E> {
    /// Output; `None` while the interface is down.
    pub output: Option<E>,
    /// Own bytes of the frames, in order. Only the first `used` bytes are valid.
    bytes: Vec<u8>,
    /// Valid bytes of `bytes`.
    used: usize,
    /// The frames, in order.
    waiting: Vec<QueuedFrame>,
    /// Number of frames in `waiting` that were sent: at most half of them between two calls.
    sent_waiting: usize,
    /// Index of the first frame with lent memory.
    lent_from: Option<usize>,
    /// When to send again after the kernel had no room, in ns.
    pub again_ns: Option<u64>,
    /// Time of the first failed attempt to send the first waiting frame, in ns.
    stuck_ns: Option<u64>,
    /// Frames sent.
    pub sent: u64,
    /// System calls.
    pub calls: u64,
    /// Frames dropped because 1,024 waited, or because the kernel had no room for 10 ms.
    pub no_room: u64,
    /// Frames dropped because the interface was down, or sending failed with another error.
    pub down: u64,
    /// Frames dropped because their lent memory was unmapped.
    pub hollow: u64,
    /// Bytes that were copied because lent memory could not be sent at once.
    pub kept: u64,
}

impl<E: Output> TxBatch<E> {
    /// Creates an empty batch with an output.
    pub fn new(output: Option<E>) -> Self {
        Self {
            output,
            bytes: Vec::new(),
            used: 0,
            waiting: Vec::with_capacity(FRAMES_PER_CALL_MAX),
            sent_waiting: 0,
            lent_from: None,
            again_ns: None,
            stuck_ns: None,
            sent: 0,
            calls: 0,
            no_room: 0,
            down: 0,
            hollow: 0,
            kept: 0,
        }
    }

    /// Queues a frame of two parts. Drops it if [`FRAMES_WAITING_MAX`] (1,024) frames wait.
    pub fn push(&mut self, head: &[u8], data: &[u8]) {
        if self.has_room() {
            self.put(head, data, None);
        }
    }

    /// Queues a frame of two parts; the second is sent in place. Drops the frame as [`Self::push`]
    /// does.
    pub fn push_lent(&mut self, head: &[u8], lent: FrameBody) {
        if self.has_room() {
            self.put(head, &[], Some(lent));
        }
    }

    /// Appends a frame with own or lent data; the caller has checked the room.
    fn put(&mut self, head: &[u8], data: &[u8], lent: Option<FrameBody>) {
        let whole = head.len().saturating_add(data.len());
        let end = self.used.saturating_add(whole);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let room = self.bytes.get_mut(self.used..end).unwrap_or(&mut []);
        let (first, rest) = room.split_at_mut_checked(head.len()).unwrap_or_default();
        first.copy_from_slice(head);
        rest.copy_from_slice(data);
        if lent.is_some() {
            self.lent_from.get_or_insert(self.waiting.len());
        }
        self.waiting.push(QueuedFrame { end, lent });
        self.used = end;
    }

    /// Returns the unsent frames.
    fn frames(&self) -> impl Iterator<Item = OutgoingFrame<'_>> + Clone {
        let starts = std::iter::once(0).chain(self.waiting.iter().map(|frame| frame.end));
        starts.zip(&self.waiting).skip(self.sent_waiting).map(
            |(start, QueuedFrame { end, lent })| OutgoingFrame {
                head: self.bytes.get(start..*end).unwrap_or(&[]),
                body: lent.as_ref(),
            },
        )
    }

    /// Sends frames with lent memory, or copies it, because its owner may reuse it afterwards.
    pub fn part_from_lent(&mut self) {
        if self.lent_from.is_some() {
            self.send_some();
            self.keep_copies();
        }
    }

    /// Copies the lent memory of the unsent frames. Drops frames with unmapped memory. Each
    /// frame is moved at most once: frames from before the last call are not touched.
    fn keep_copies(&mut self) {
        let Some(first) = self.lent_from.take() else { return };
        let first = first.max(self.sent_waiting).min(self.waiting.len());
        let moved = self.waiting.split_off(first);
        let from = self.end();
        let heads = self.bytes.get(from..self.used).unwrap_or(&[]).to_vec();
        self.bytes.truncate(from);
        let mut start = 0;
        for QueuedFrame { end, lent } in moved {
            let end = end.saturating_sub(from);
            let whole = self.bytes.len();
            self.bytes.extend_from_slice(heads.get(start..end).unwrap_or(&[]));
            start = end;
            if let Some(body) = lent
                && !self.keep_copy(&body)
            {
                self.bytes.truncate(whole);
                self.hollow = self.hollow.wrapping_add(1);
                continue;
            }
            self.waiting.push(QueuedFrame { end: self.bytes.len(), lent: None });
        }
        self.used = self.bytes.len();
    }

    /// Appends a copy of lent memory. Returns false if it was unmapped.
    fn keep_copy(&mut self, body: &FrameBody) -> bool {
        let head_end = self.bytes.len();
        self.bytes.resize(head_end.saturating_add(body.len()), 0);
        let room = self.bytes.get_mut(head_end..).unwrap_or(&mut []);
        self.kept = self.kept.wrapping_add(room.len() as u64);
        body.read_into(room)
    }

    /// Returns the end of the last frame in `bytes`.
    fn end(&self) -> usize {
        self.waiting.last().map_or(0, |frame| frame.end)
    }

    /// Returns whether another frame fits. Otherwise it is dropped: the engine retransmits.
    fn has_room(&mut self) -> bool {
        let waiting = self.waiting.len().saturating_sub(self.sent_waiting);
        if waiting >= FRAMES_PER_CALL_MAX {
            self.send_some();
        }
        let room = self.waiting.len().saturating_sub(self.sent_waiting) < FRAMES_WAITING_MAX;
        if !room {
            self.no_room = self.no_room.wrapping_add(1);
        }
        room
    }

    /// Sends all frames. Those without room in the kernel wait for the next call.
    pub fn flush(&mut self, now_ns: u64) {
        self.again_ns = None;
        if self.waiting.is_empty() {
            return;
        }
        let before = self.completed();
        self.send_some();
        if self.waiting.is_empty() || self.completed() != before {
            self.stuck_ns = None;
        } else if now_ns.saturating_sub(*self.stuck_ns.get_or_insert(now_ns)) >= STUCK_NS {
            // The kernel also reports no room for frames that can never be sent.
            self.sent_waiting = self.sent_waiting.saturating_add(1);
            self.no_room = self.no_room.wrapping_add(1);
            self.stuck_ns = None;
            self.send_some();
        }
        self.keep_copies();
        // Between two calls nothing is lent: its owner may reuse it.
        debug_assert!(self.lent_from.is_none() && self.waiting.iter().all(|f| f.lent.is_none()));
        self.again_ns = (!self.waiting.is_empty()).then_some(now_ns.saturating_add(FULL_NS));
    }

    /// Returns the number of frames that were sent or dropped.
    fn completed(&self) -> u64 {
        self.sent.wrapping_add(self.down)
    }

    /// Sends frames until the kernel has no room.
    fn send_some(&mut self) {
        let Some(output) = self.output.clone() else {
            let left = self.waiting.len().saturating_sub(self.sent_waiting);
            self.down = self.down.wrapping_add(left as u64);
            return self.clear();
        };
        self.send_by(|frames| output.send(frames.frames()));
    }

    /// Sends frames by `output`, which sends the first ones and returns their number.
    fn send_by(&mut self, mut output: impl FnMut(&Self) -> io::Result<usize>) {
        while self.sent_waiting < self.waiting.len() {
            self.calls = self.calls.wrapping_add(1);
            let errno = match output(self) {
                Ok(sent) if sent > 0 => {
                    self.sent_waiting = self.sent_waiting.saturating_add(sent);
                    self.sent = self.sent.wrapping_add(sent as u64);
                    continue;
                }
                other => other.err().and_then(|error| Errno::from_io_error(&error)),
            };
            match errno {
                None | Some(Errno::AGAIN | Errno::NOBUFS) => return self.remove_sent(),
                Some(Errno::INTR) => {}
                // A frame has unmapped memory: copying drops it, so that the others are sent.
                Some(Errno::FAULT) if self.lent_from.is_some() => self.keep_copies(),
                Some(_) => {
                    // This frame cannot be sent.
                    self.sent_waiting = self.sent_waiting.saturating_add(1);
                    self.down = self.down.wrapping_add(1);
                }
            }
        }
        self.clear();
    }

    /// Removes the sent frames, once they are more than the unsent ones.
    fn remove_sent(&mut self) {
        let left = self.sent_waiting.min(self.waiting.len());
        if left <= self.waiting.len() / 2 {
            return;
        }
        let start = self.waiting.drain(..left).next_back().map_or(0, |frame| frame.end);
        self.bytes.copy_within(start..self.used, 0);
        self.used = self.used.saturating_sub(start);
        for frame in &mut self.waiting {
            frame.end = frame.end.saturating_sub(start);
        }
        self.lent_from = self.lent_from.map(|first| first.saturating_sub(left));
        self.sent_waiting = 0;
    }

    fn clear(&mut self) {
        self.waiting.clear();
        (self.used, self.sent_waiting, self.lent_from) = (0, 0, None);
        if self.bytes.len() > BYTES_KEPT {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Without an output.
    type TxBatch = super::TxBatch<Infallible>;

    use causeway_host::AppMemory;
    use causeway_memory::{Mapping, View, create};
    use std::os::fd::AsFd as _;
    use std::sync::Arc;

    /// Returns `len` lent bytes of the value `fill`.
    pub(crate) fn lent(len: usize, fill: u8) -> FrameBody {
        FrameBody::Shared(shared(len, fill))
    }

    fn shared(len: usize, fill: u8) -> View {
        let file = create("test", 4096).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, 4096).unwrap());
        let view = View::new(mapping, 1000, len).unwrap();
        view.write(0, &vec![fill; len]).unwrap();
        view
    }

    fn lens(frames: &TxBatch) -> Vec<(usize, usize)> {
        let len =
            |frame: OutgoingFrame<'_>| (frame.head.len(), frame.body.map_or(0, FrameBody::len));
        frames.frames().map(len).collect()
    }

    #[test]
    fn frames_without_an_output_are_counted() {
        let mut frames = TxBatch::new(None);
        frames.push(&[1; 60], &[2; 100]);
        frames.push_lent(&[3; 16], lent(50, 4));
        assert_eq!(lens(&frames), [(160, 0), (16, 50)]);
        frames.flush(5);
        assert_eq!((frames.down, frames.again_ns, lens(&frames)), (2, None, vec![]));
    }

    #[test]
    fn lent_memory_is_copied_before_reuse() {
        let mut frames = TxBatch::new(None);
        let (first, second) = (lent(50, 4), shared(7, 5));
        frames.push_lent(&[3; 16], first.clone());
        frames.push(&[1; 60], &[2; 3]);
        frames.push_lent(&[6; 16], FrameBody::Shared(second.clone()));
        frames.sent_waiting = 1;
        frames.keep_copies();
        second.write(0, &[9; 7]).unwrap();
        assert_eq!(lens(&frames), [(63, 0), (23, 0)]);
        let last = frames.frames().last().unwrap();
        assert_eq!(last.head, [&[6; 16][..], &[5; 7]].concat());
        // Further frames can follow.
        frames.push_lent(&[7; 16], first);
        assert_eq!(lens(&frames).last(), Some(&(16, 50)));
        frames.part_from_lent();
        assert_eq!((frames.lent_from, frames.down), (None, 3));
    }

    /// Returns an output that sends one frame on each call, and records it in `taken`.
    fn one_each<'a>(
        taken: &'a mut Vec<Vec<u8>>,
    ) -> impl FnMut(&TxBatch) -> io::Result<usize> + use<'a> {
        let mut asked = false;
        move |frames| {
            if std::mem::replace(&mut asked, true) {
                return Err(Errno::AGAIN.into());
            }
            let frame = frames.frames().next().unwrap();
            let mut whole = frame.head.to_vec();
            if let Some(body) = frame.body {
                let start = whole.len();
                whole.resize(start + body.len(), 0);
                assert!(body.read_into(&mut whole[start..]));
            }
            taken.push(whole);
            Ok(1)
        }
    }

    #[test]
    fn slow_output_loses_nothing_and_costs_one_copy() {
        let (mut frames, mut taken) = (TxBatch::new(None), Vec::new());
        let number = |at: u32| at.to_le_bytes();
        let body = lent(1000, 4);
        let push = |frames: &mut TxBatch, at: u32| match at % 3 {
            0 => frames.push(&number(at), &[]),
            1 => frames.push(&number(at), &[1; 30]),
            _ => frames.push_lent(&number(at), body.clone()),
        };
        for at in 0..10 {
            push(&mut frames, at);
        }
        for at in 10..5000 {
            push(&mut frames, at);
            frames.send_by(one_each(&mut taken));
            frames.keep_copies();
            assert!(frames.waiting.len() <= 20 && frames.used < 20_000, "sent frames are released");
        }
        while !frames.waiting.is_empty() {
            frames.send_by(one_each(&mut taken));
        }
        assert_eq!((frames.sent, frames.no_room, frames.hollow), (5000, 0, 0));
        for (at, frame) in (0..).zip(&taken) {
            let body = [&[][..], &[1; 30], &[4; 1000]][at as usize % 3];
            assert_eq!(*frame, [&number(at)[..], body].concat());
        }
        assert!(frames.kept <= 5000 / 3 * 1000, "{}", frames.kept);
    }

    /// Returns `len` bytes of lent memory without pages.
    fn hollow(len: usize) -> Option<View> {
        use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
        let huge = memfd_create("hollow", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB).ok()?;
        ftruncate(&huge, 1 << 30).unwrap();
        let mapping = Arc::new(Mapping::new(huge.as_fd(), 0, 1 << 30).unwrap());
        // With free huge pages the kernel would allocate the memory.
        let free =
            std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
        (free.unwrap().trim() == "0").then(|| View::new(mapping, 1000, len).unwrap())
    }

    /// Returns `len` unmapped bytes of the own process, and their address.
    fn unmapped(own: &AppMemory, len: usize) -> (u64, FrameBody) {
        // Above the address space of the process.
        let at = own.lend(std::ptr::without_provenance(1 << 62), len).unwrap();
        (at, FrameBody::Own(own.piece(at, len).unwrap()))
    }

    #[test]
    fn hostile_missing_own_memory_does_not_delay_other_frames() {
        let own = AppMemory::new().unwrap();
        let there = vec![7; 500];
        let at = own.lend(there.as_ptr(), there.len()).unwrap();
        let body = || FrameBody::Own(own.piece(at, 500).unwrap());
        let (gone, hollow) = unmapped(&own, 500);
        let mut frames = TxBatch::new(None);
        let mut taken = Vec::new();
        frames.push_lent(&[1; 16], body());
        frames.push_lent(&[2; 16], hollow.clone());
        frames.push_lent(&[3; 16], body());
        frames.push(&[4; 16], &[8; 500]);
        // The kernel reports a fault without the frame that caused it.
        let mut asked = 0;
        frames.send_by(|frames| {
            asked += 1;
            match frames.frames().next().unwrap() {
                OutgoingFrame { body: Some(_), .. } => Err(Errno::FAULT.into()),
                frame => {
                    taken.push(frame.head.to_vec());
                    Ok(1)
                }
            }
        });
        assert_eq!((frames.sent, frames.hollow, asked), (3, 1, 4));
        let whole = |number: u8, fill: u8| [&[number; 16][..], &[fill; 500]].concat();
        assert_eq!(taken, [whole(1, 7), whole(3, 7), whole(4, 8)]);
        assert!(own.piece(gone, 1).is_none() && own.piece(at, 1).is_some());
        // The same if the kernel has no room.
        frames.push_lent(&[5; 16], body());
        let (_, hollow) = unmapped(&own, 500);
        frames.push_lent(&[6; 16], hollow);
        frames.send_by(|_| Err(Errno::AGAIN.into()));
        frames.keep_copies();
        assert_eq!((lens(&frames), frames.hollow), (vec![(516, 0)], 2));
    }

    #[test]
    fn hostile_missing_memory_does_not_delay_other_frames() {
        let Some(hollow) = hollow(500) else { return };
        let bind = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (ours, theirs) = (bind(), bind());
        theirs.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let to = theirs.local_addr().unwrap();
        let mut frames = TxBatch::new(None);
        frames.push_lent(&[1; 16], lent(500, 7));
        frames.push_lent(&[2; 16], FrameBody::Shared(hollow.clone()));
        frames.push(&[3; 16], &[8; 500]);
        frames.push_lent(&[4; 16], FrameBody::Shared(hollow.clone()));
        frames.push_lent(&[5; 16], lent(500, 9));
        frames.send_by(|frames| {
            let count = frames.frames().count();
            causeway_host::net::send::send_segmented(ours.as_fd(), &to, frames.frames())?;
            Ok(count)
        });
        assert_eq!((frames.sent, frames.down, frames.hollow), (3, 0, 2));
        assert!(hollow.is_poisoned(), "the owner is informed");
        for (number, fill) in [(1, 7), (3, 8), (5, 9)] {
            let mut room = [0; 2000];
            let len = theirs.recv(&mut room).unwrap();
            let whole = [&[number; 16][..], &[fill; 500]].concat();
            assert_eq!(&room[..len], whole);
        }
    }
}
