//! The framing of stream ports, and the queue of frames of both kinds of ports on sockets.
//!
//! The stream is read in pieces, with the buffer exchanged at times: the frames must be those that
//! a simple parser finds in the whole stream, and the stream must break where that parser finds an
//! invalid length. Frames that went through the queue, in any portions, must be the bytes that were
//! pushed. Target `vmm_socket`; no socket and no service is involved.

use causeway_stream::framing::{FrameQueue, PushError};
use causeway_stream::limits::{OUTPUT_BYTES_MAX, STREAM_BYTES};
use causeway_wire::deframer::Deframer;
use causeway_wire::vmm_socket::LengthHeader;

use crate::input::Input;

/// Longest frame of the port.
const MOST: usize = 1522;

/// Returns the frames of a stream, and whether the stream is broken behind them.
fn expected(mut rest: &[u8]) -> (Vec<&[u8]>, bool) {
    let mut frames = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        if length == 0 || length > MOST {
            return (frames, true);
        }
        let Some((frame, behind)) = behind.split_at_checked(length) else { break };
        frames.push(frame);
        rest = behind;
    }
    (frames, false)
}

/// Reads a stream in pieces, and sends frames through a queue.
pub fn vmm_socket(data: &[u8]) {
    let mut input = Input::new(data);
    let cuts = input.array::<4>().map(|cut| usize::from(cut) + 1);
    let exchanges = input.u8();
    let mut whole = Vec::new();
    while !input.is_empty() {
        if input.below(4) == 0 {
            let len = input.below(30);
            whole.extend(input.bytes(len));
        } else {
            let len = usize::from(input.u16());
            let len = if input.bool() { len % 100 } else { len % (MOST + 2) };
            whole.extend((len as u32).to_be_bytes());
            whole.extend(std::iter::repeat_n(len as u8, len));
        }
    }
    let (frames, is_broken) = expected(&whole);
    deframe(&whole, (&cuts, exchanges), &frames, is_broken);
    queue(&frames, &cuts, true);
    queue(&frames, &cuts, false);
}

fn deframe(whole: &[u8], (cuts, exchanges): (&[usize], u8), frames: &[&[u8]], is_broken: bool) {
    let mut deframer = Deframer::<LengthHeader>::new(STREAM_BYTES, MOST);
    let (mut at, mut found, mut failed) = (0, 0, false);
    for (turn, cut) in cuts.iter().cycle().enumerate() {
        let room = deframer.room();
        assert!(!room.is_empty());
        let len = (cut * cut).min(whole.len() - at).min(room.len());
        room[..len].copy_from_slice(&whole[at..at + len]);
        deframer.filled(len);
        at += len;
        let mut taken = Vec::new();
        loop {
            match deframer.take() {
                Ok(Some(place)) => taken.push(place),
                Ok(None) => break,
                Err(_) => {
                    failed = true;
                    break;
                }
            }
        }
        let is_exchanged = exchanges >> (turn % 8) & 1 == 1;
        let bytes =
            if is_exchanged { deframer.exchange(Vec::new()) } else { deframer.bytes().to_vec() };
        for place in taken {
            assert_eq!(&bytes[place], frames[found]);
            found += 1;
        }
        if failed || at == whole.len() {
            break;
        }
    }
    assert_eq!((found, failed), (frames.len(), is_broken));
    assert!(!failed || deframer.take().is_err(), "a broken stream stays broken");
}

fn queue(frames: &[&[u8]], cuts: &[usize], has_lengths: bool) {
    let mut queue = FrameQueue::new(has_lengths);
    let (mut pushed, mut sent, mut waiting) = (Vec::new(), Vec::new(), 0);
    for (frame, cut) in frames.iter().zip(cuts.iter().cycle()) {
        let copy = |into: &mut [u8]| {
            into.copy_from_slice(frame);
            Ok::<(), ()>(())
        };
        match queue.push(frame.len(), copy) {
            Ok(()) => {
                if has_lengths {
                    pushed.extend((frame.len() as u32).to_be_bytes());
                }
                pushed.extend_from_slice(frame);
                waiting += 1;
            }
            Err(error) => assert_eq!(error, PushError::Full),
        }
        assert!(queue.waiting().len() <= OUTPUT_BYTES_MAX);
        if has_lengths {
            let len = queue.waiting().len().min(cut * cut);
            sent.extend_from_slice(&queue.waiting()[..len]);
            queue.sent_bytes(len);
        } else {
            let some: Vec<_> = queue.datagrams().take(cut % 3).map(<[u8]>::to_vec).collect();
            queue.sent_frames(some.len());
            waiting -= some.len();
            assert_eq!(queue.frames(), waiting);
            sent.extend(some.concat());
        }
    }
    sent.extend_from_slice(queue.waiting());
    assert!(sent == pushed);
    queue.clear();
    assert!(queue.is_empty() && queue.frames() == 0);
}

/// Returns streams of short and long frames, and one with an invalid length.
pub fn vmm_socket_seeds() -> Vec<Vec<u8>> {
    let short = [&[0, 9, 30, 255, 5][..], &[1, 60, 0, 1, 1, 90, 0, 1, 1, 20, 0, 1]].concat();
    let long =
        [&[255, 200, 90, 255, 0xaa][..], &[1, 0xf0, 5, 0, 1, 15, 5, 0, 1, 14, 0, 0]].concat();
    let wrong = [&short[..], &[0, 8, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]].concat();
    vec![short, long, wrong]
}
