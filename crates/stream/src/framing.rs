//! A bounded queue of frames that wait for a socket, sans-I/O.
//!
//! [`FrameQueue`] queues frames for a stream, each behind its length (`causeway_wire::vmm_socket`),
//! or for a datagram socket. At most [`OUTPUT_BYTES_MAX`] (1 MiB) wait, the lengths included; a
//! further frame is refused ([`PushError::Full`]). Its buffer holds at most 2 MiB, as sent bytes
//! are removed late. `output` sends, under its lock, in the dispatcher's thread and in that of the
//! forwarding service; fuzz targets drive the module directly. Received bytes are split by
//! `causeway_wire::deframer`.
//!
//! The queue keeps order; a refused frame leaves it as it was. It does not look at the headers of
//! frames. The caller provides the locking.

use causeway_wire::vmm_socket::emit;

use crate::limits::OUTPUT_BYTES_MAX;

/// Reason for which a frame was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushError<E> {
    /// The queue is full: the peer reads too slowly.
    Full,
    /// The frame is empty, or longer than 32 bits express.
    Length,
    /// The bytes of the frame could not be read.
    Source(E),
}

/// Frames that wait to be sent.
#[derive(Debug)]
pub struct FrameQueue {
    /// Frames, behind their lengths if `has_lengths`. The first `sent` bytes were sent.
    bytes: Vec<u8>,
    sent: usize,
    /// End of each frame in `bytes`; those before `first` were sent.
    ends: Vec<usize>,
    first: usize,
    /// The queue is for a stream.
    has_lengths: bool,
}

impl FrameQueue {
    /// Returns an empty queue for a stream, or for a datagram socket.
    pub const fn new(has_lengths: bool) -> Self {
        Self { bytes: Vec::new(), sent: 0, ends: Vec::new(), first: 0, has_lengths }
    }

    /// Queues a frame of `len` bytes, which `read` writes.
    ///
    /// # Errors
    /// [`PushError`]; the queue is unchanged.
    pub fn push<E>(
        &mut self,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), PushError<E>> {
        let header = emit(len).ok_or(PushError::Length)?;
        let header: &[u8] = if self.has_lengths { &header } else { &[] };
        let whole = header.len().saturating_add(len);
        if self.waiting().len().saturating_add(whole) > OUTPUT_BYTES_MAX {
            return Err(PushError::Full);
        }
        if self.sent >= OUTPUT_BYTES_MAX {
            self.forget_sent();
        }
        let before = self.bytes.len();
        self.bytes.extend_from_slice(header);
        let start = self.bytes.len();
        self.bytes.resize(start.saturating_add(len), 0);
        let written = read(self.bytes.get_mut(start..).unwrap_or(&mut []));
        if written.is_err() {
            self.bytes.truncate(before);
        } else {
            self.ends.push(self.bytes.len());
        }
        written.map_err(PushError::Source)
    }

    /// Returns the bytes that wait: of a stream, what is sent next.
    pub fn waiting(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or(&[])
    }

    /// Returns whether all was sent.
    pub fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    /// Returns the number of frames that were not sent, or not completely.
    pub fn frames(&self) -> usize {
        self.ends.len().saturating_sub(self.first)
    }

    /// Returns the frames that wait, for a datagram socket.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.ends.get(self.first..).unwrap_or(&[]);
        let starts = std::iter::once(self.sent).chain(ends.iter().copied());
        starts.zip(ends).map(|(start, end)| self.bytes.get(start..*end).unwrap_or(&[]))
    }

    /// Removes `len` sent bytes.
    pub fn sent_bytes(&mut self, len: usize) {
        self.sent = self.sent.saturating_add(len).min(self.bytes.len());
        let later = self.ends.get(self.first..).unwrap_or(&[]);
        let done = later.iter().take_while(|end| **end <= self.sent).count();
        self.first = self.first.saturating_add(done);
        self.tidy();
    }

    /// Removes the first `count` frames, which were sent or dropped.
    pub fn sent_frames(&mut self, count: usize) {
        self.first = self.first.saturating_add(count).min(self.ends.len());
        let last = self.first.checked_sub(1).and_then(|last| self.ends.get(last));
        self.sent = last.copied().unwrap_or(0);
        self.tidy();
    }

    /// Removes all frames. Returns the number of frames that were not sent completely.
    pub fn clear(&mut self) -> usize {
        let left = self.frames();
        *self = Self::new(self.has_lengths);
        left
    }

    /// Empties the buffers if all was sent.
    fn tidy(&mut self) {
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.ends.clear();
            (self.sent, self.first) = (0, 0);
        }
    }

    /// Moves the bytes that wait to the front.
    fn forget_sent(&mut self) {
        self.bytes.drain(..self.sent);
        self.ends.drain(..self.first);
        for end in &mut self.ends {
            *end = end.saturating_sub(self.sent);
        }
        (self.sent, self.first) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use causeway_wire::deframer::Deframer;
    use causeway_wire::vmm_socket::LengthHeader;
    use proptest::prelude::*;

    use super::*;
    use crate::limits::STREAM_BYTES;

    fn push(queue: &mut FrameQueue, frame: &[u8]) -> Result<(), PushError<Infallible>> {
        queue.push(frame.len(), |into| {
            into.copy_from_slice(frame);
            Ok(())
        })
    }

    #[test]
    fn frame_queue_is_bounded_and_refuses_whole_frames() {
        let mut queue = FrameQueue::new(true);
        let frame = vec![7; 60_000];
        let pushed = (0..1000).filter(|_| push(&mut queue, &frame).is_ok()).count();
        assert_eq!(pushed, OUTPUT_BYTES_MAX / 60_004);
        assert_eq!((queue.frames(), queue.waiting().len()), (pushed, pushed * 60_004));
        queue.sent_bytes(60_005);
        assert_eq!(queue.frames(), pushed - 1, "the second is sent in part");
        assert_eq!(push(&mut queue, &frame), Ok(()));
        assert_eq!(push(&mut queue, &frame), Err(PushError::Full));
        assert_eq!(push(&mut queue, &[]), Err(PushError::Length));
        let before = queue.waiting().to_vec();
        assert_eq!(queue.push(60, |_| Err(())), Err(PushError::Source(())));
        assert!(queue.waiting() == before);
        assert_eq!((queue.clear(), queue.frames(), queue.is_empty()), (pushed, 0, true));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// For any cuts of the stream, any reading speed and any exchanges of the buffer.
        #[test]
        fn frames_come_out_of_a_stream_as_they_went_in(
            lengths in prop::collection::vec(prop_oneof![1_usize..100, 1_usize..65_557], 1..30),
            steps in prop::collection::vec(1_usize..100_000, 1..20),
        ) {
            let mut queue = FrameQueue::new(true);
            let mut deframer = Deframer::<LengthHeader>::new(STREAM_BYTES, 65_557);
            let frames: Vec<_> =
                lengths.iter().enumerate().map(|(at, len)| vec![at as u8; *len]).collect();
            let (mut next, mut out) = (frames.iter().peekable(), Vec::new());
            let mut steps = steps.iter().cycle();
            while out.len() < frames.len() {
                while let Some(frame) = next.peek() {
                    if push(&mut queue, frame).is_err() {
                        break;
                    }
                    next.next();
                }
                let room = deframer.room();
                prop_assert!(!room.is_empty());
                let len = queue.waiting().len().min(*steps.next().unwrap()).min(room.len());
                room[..len].copy_from_slice(&queue.waiting()[..len]);
                deframer.filled(len);
                queue.sent_bytes(len);
                let mut taken = Vec::new();
                while let Some(at) = deframer.take().unwrap() {
                    taken.push(at);
                }
                if taken.len() % 2 == 1 {
                    let bytes = deframer.exchange(vec![1; 10]);
                    out.extend(taken.into_iter().map(|at| bytes[at].to_vec()));
                } else {
                    out.extend(taken.into_iter().map(|at| deframer.bytes()[at].to_vec()));
                }
            }
            prop_assert!(out == frames);
            prop_assert_eq!((deframer.held(), queue.frames()), (0, 0));
        }

        /// For any numbers of datagrams that the kernel takes.
        #[test]
        fn frames_leave_a_datagram_queue_in_order(
            lengths in prop::collection::vec(1_usize..3000, 1..400),
            takes in prop::collection::vec(0_usize..100, 1..20),
        ) {
            let mut queue = FrameQueue::new(false);
            let frames: Vec<_> =
                lengths.iter().enumerate().map(|(at, len)| vec![at as u8; *len]).collect();
            let (mut pushed, mut out, mut takes) = (0, Vec::new(), takes.iter().cycle());
            while out.len() < frames.len() {
                while pushed < frames.len() && push(&mut queue, &frames[pushed]).is_ok() {
                    pushed += 1;
                }
                let count = *takes.next().unwrap();
                let count = if out.is_empty() { count.max(1) } else { count };
                let sent: Vec<_> =
                    queue.datagrams().take(count.max(1)).map(<[u8]>::to_vec).collect();
                queue.sent_frames(sent.len());
                out.extend(sent);
                prop_assert_eq!(queue.frames(), pushed - out.len());
            }
            prop_assert!(out == frames);
        }
    }
}
