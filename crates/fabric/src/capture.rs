//! Captures: the frame filter, and the bounded buffer (pcapng) in which copies wait for a client.
//!
//! The service that forwards frames adds copies to a [`Recording`] in the thread of the shard; its
//! controller fetches from it on another thread. Ports of other services add traffic of their own
//! ([`JoinCapture`]): adapters, the messages of queue pairs; vsock ports, socket packets. A mutex
//! protects the buffer. Copies lie in chunks of [`CAPTURE_CHUNK_BYTES`] (64 KiB), and a fetch takes
//! whole chunks out, so that no thread holds the mutex for longer than the copy of a frame.
//!
//! A recording holds at most [`CAPTURE_BYTES_MAX`] bytes (8 MiB) of unfetched copies, in at most
//! twice as much memory. A full buffer drops copies, which are counted; the frames are forwarded
//! all the same. The filter matches header fields of a frame only, not its payload, and sees no
//! fields inside tunnels. A recording does not end by time: the controller ends captures that were
//! not fetched from for 30 s.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_wire::frame::{Frame, Version};
use causeway_wire::pcapng::{self, Direction, LinkType};

use crate::limits::{CAPTURE_BYTES_MAX, CAPTURE_CHUNK_BYTES, CAPTURE_FETCH_BYTES};
use causeway_model::{CaptureChunk, CaptureFormat, CaptureSpec, Filter, Mac, TypedRequest};

/// Asks the shard of a port to add the port's traffic to a recording. The shard stops when the
/// recording is over ([`Recording::is_over`]), and closes it when the port is deleted.
#[derive(Debug)]
pub struct JoinCapture {
    /// The capture, at an interface.
    pub spec: CaptureSpec,
    /// Its recording.
    pub recording: Recording,
}

impl TypedRequest for JoinCapture {
    type Answer = ();
}

/// Returns the `N` bytes from offset `at` on, if `bytes` has them.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

/// Returns source and destination address and the protocol of the IP packet at `at`.
fn hosts(bytes: &[u8], version: Version, at: usize) -> Option<([IpAddr; 2], u8)> {
    let field = |offset: usize| at.saturating_add(offset);
    Some(match version {
        Version::V4 => {
            let [protocol] = array(bytes, field(9))?;
            let source = array::<4>(bytes, field(12))?;
            ([source.into(), array::<4>(bytes, field(16))?.into()], protocol)
        }
        Version::V6 => {
            let [protocol] = array(bytes, field(6))?;
            let source = array::<16>(bytes, field(8))?;
            ([source.into(), array::<16>(bytes, field(24))?.into()], protocol)
        }
    })
}

/// Returns whether a frame passes a filter. `head` holds its first bytes: a condition on a header
/// that is not in `head` does not match. A frame that cannot be parsed passes only a filter without
/// conditions.
pub fn matches(filter: &Filter, head: &[u8]) -> bool {
    let Ok(frame) = Frame::parse(head) else { return *filter == Filter::default() };
    let mac = |mac: Mac| mac.0 == frame.source || mac.0 == frame.destination;
    let ethertype = |wanted: u16| {
        let at = frame.header_len.saturating_sub(2);
        array(head, at).map(u16::from_be_bytes) == Some(wanted)
    };
    let network = frame.network;
    let ip = network.and_then(|n| hosts(head, n.version, n.offset));
    let host = |wanted: IpAddr| ip.is_some_and(|(hosts, _)| hosts.contains(&wanted));
    let transport = network.and_then(|n| n.transport);
    let protocol = |wanted: u8| {
        let deep = transport.map(|t| t.protocol.number());
        deep.or(ip.map(|(_, protocol)| protocol)) == Some(wanted)
    };
    let port = |wanted: u16| {
        transport.is_some_and(|t| {
            let ports = [t.offset, t.offset.saturating_add(2)];
            ports.iter().any(|at| array(head, *at).map(u16::from_be_bytes) == Some(wanted))
        })
    };
    filter.mac.is_none_or(mac)
        && filter.ethertype.is_none_or(ethertype)
        && filter.host.is_none_or(host)
        && filter.protocol.is_none_or(protocol)
        && filter.port.is_none_or(port)
}

/// Bytes of a pcapng block beside those of its frame, at most.
const BLOCK_OVERHEAD: usize = 64;

/// Recorded pcapng blocks in order, in chunks of whole blocks.
#[derive(Debug, Default)]
struct Chunks {
    chunks: VecDeque<Vec<u8>>,
    /// Bytes in all chunks.
    len: usize,
}

impl Chunks {
    /// Calls `write` with a chunk that has room for `most` bytes.
    fn append(&mut self, most: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let has_room = |chunk: &&mut Vec<u8>| chunk.capacity().saturating_sub(chunk.len()) >= most;
        if self.chunks.back_mut().filter(has_room).is_none() {
            self.chunks.push_back(Vec::with_capacity(most.max(CAPTURE_CHUNK_BYTES)));
        }
        if let Some(chunk) = self.chunks.back_mut() {
            let before = chunk.len();
            write(chunk);
            self.len = self.len.saturating_add(chunk.len().saturating_sub(before));
        }
    }

    /// Takes the first chunks of at most `most` bytes together, at least one.
    fn take(&mut self, most: usize) -> Vec<Vec<u8>> {
        let (mut taken, mut sum) = (Vec::new(), 0_usize);
        while let Some(chunk) = self.chunks.front() {
            sum = sum.saturating_add(chunk.len());
            if sum > most && !taken.is_empty() {
                break;
            }
            self.len = self.len.saturating_sub(chunk.len());
            taken.extend(self.chunks.pop_front());
        }
        taken
    }
}

#[derive(Debug, Default)]
struct RecordingState {
    /// Recorded pcapng blocks that were not fetched.
    recorded: Chunks,
    /// Frames that passed the filter, dropped copies included.
    frames: u64,
    /// Copies that found no room.
    dropped: u64,
    /// Frames that may still be recorded, if the number is limited.
    left: Option<u64>,
    /// Whether no frame is added any more.
    closed: bool,
}

/// Copies of frames in pcapng: written by a shard, or by two ([`JoinCapture`]), and fetched by the
/// controller.
#[derive(Debug, Clone)]
pub struct Recording(Arc<Mutex<RecordingState>>);

impl Recording {
    /// Returns a recording of the frames of interface `name` that ends after `count` recorded
    /// frames; 0 means no limit.
    pub fn new(name: &str, snap: u32, count: u64) -> Self {
        Self::of(CaptureFormat::Ethernet, name, snap, count)
    }

    /// Returns a recording of packets of a format, as [`Self::new`] does for frames.
    pub fn of(format: CaptureFormat, name: &str, snap: u32, count: u64) -> Self {
        let link_type = match format {
            CaptureFormat::Ethernet => LinkType::Ethernet,
            CaptureFormat::Vsock => LinkType::Vsock,
        };
        let mut state =
            RecordingState { left: Some(count).filter(|n| *n > 0), ..RecordingState::default() };
        state.recorded.append(CAPTURE_CHUNK_BYTES, |out| {
            pcapng::section(out, concat!("causeway ", env!("CARGO_PKG_VERSION")));
            pcapng::interface(out, link_type, name, snap);
        });
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, RecordingState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no frame will be added: the recording is closed, which the controller does
    /// when the capture is idle or ended, or no other handle exists.
    pub fn is_over(&self) -> bool {
        Arc::strong_count(&self.0) == 1 || self.state().closed
    }

    /// Adds a frame of `len` bytes, of which `kept` are recorded. No effect after the end of the
    /// recording. A copy beyond [`CAPTURE_BYTES_MAX`] (8 MiB) is counted as dropped, and does not
    /// count towards the limit of [`Self::new`].
    pub fn add(&self, wall_ns: u64, direction: Direction, kept: &[u8], len: usize) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        state.frames = state.frames.saturating_add(1);
        if state.recorded.len.saturating_add(kept.len()) > CAPTURE_BYTES_MAX {
            state.dropped = state.dropped.saturating_add(1);
            return;
        }
        let most = kept.len().saturating_add(BLOCK_OVERHEAD);
        state.recorded.append(most, |out| pcapng::frame(out, 0, wall_ns, direction, kept, len));
        state.left = state.left.map(|left| left.saturating_sub(1));
        state.closed = state.left == Some(0);
    }

    /// Counts frames that were not copied, without a look at the filter.
    pub fn miss(&self, count: u64) {
        if count > 0 {
            let mut state = self.state();
            state.frames = state.frames.saturating_add(count);
            state.dropped = state.dropped.saturating_add(count);
        }
    }

    /// Takes the recorded bytes, at most [`CAPTURE_FETCH_BYTES`] (1 MiB) a call, possibly none.
    pub fn fetch(&self) -> CaptureChunk {
        let mut state = self.state();
        let chunks = state.recorded.take(CAPTURE_FETCH_BYTES);
        let RecordingState { frames, dropped, closed, .. } = *state;
        drop(state);
        CaptureChunk { bytes: chunks.concat(), frames, dropped, closed }
    }

    /// Ends the recording; recorded bytes can still be fetched.
    pub fn close(&self) {
        self.state().closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a TCP segment from 10.0.0.1:1000 to 10.0.0.2:2000, optionally VLAN-tagged.
    fn segment(tagged: bool) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        if tagged {
            frame.extend([0x81, 0, 0, 5]);
        }
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([3, 0xe8, 7, 0xd0, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        frame
    }

    fn filter(json: &str) -> Filter {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn capture_filter_passes_frames_that_match_every_field() {
        for tagged in [false, true] {
            let frame = segment(tagged);
            for (json, fits) in [
                ("{}", true),
                (r#"{"mac":"02:00:00:00:00:01"}"#, true),
                (r#"{"mac":"02:00:00:00:00:02"}"#, true),
                (r#"{"mac":"02:00:00:00:00:03"}"#, false),
                (r#"{"ethertype":2048}"#, true),
                (r#"{"ethertype":2054}"#, false),
                (r#"{"host":"10.0.0.2"}"#, true),
                (r#"{"host":"10.0.0.3"}"#, false),
                (r#"{"protocol":6,"port":2000}"#, true),
                (r#"{"protocol":17}"#, false),
                (r#"{"protocol":6,"port":2001}"#, false),
            ] {
                assert_eq!(matches(&filter(json), &frame), fits, "{json} {tagged}");
            }
        }
        assert!(matches(&filter("{}"), &[]), "also bytes that are no frame");
        assert!(!matches(&filter(r#"{"protocol":6}"#), &[0; 3]));
    }

    #[test]
    fn capture_is_bounded_and_counts_drops() {
        let recording = Recording::new("vm1", 0, 0);
        let frame = [7; 60_000];
        for _ in 0..200 {
            recording.add(1, Direction::In, &frame, frame.len());
        }
        let fetched = recording.fetch();
        let full = CAPTURE_FETCH_BYTES - CAPTURE_CHUNK_BYTES..=CAPTURE_FETCH_BYTES;
        assert!(full.contains(&fetched.bytes.len()), "{}", fetched.bytes.len());
        let mut all = fetched.bytes.len();
        loop {
            match recording.fetch().bytes.len() {
                0 => break,
                more => all += more,
            }
        }
        assert!(all <= CAPTURE_BYTES_MAX + 200);
        assert_eq!(fetched.frames, 200);
        assert!(fetched.dropped > 0 && fetched.dropped < 200, "{}", fetched.dropped);
        recording.add(1, Direction::Out, &frame, frame.len());
        assert!(recording.fetch().bytes.len() > 60_000, "there is room again");
        assert!(recording.is_over(), "no client is left");
        let other = recording.clone();
        assert!(!recording.is_over());
        other.close();
        assert!(recording.is_over() && recording.fetch().closed);
    }

    #[test]
    fn capture_is_fetched_in_chunks_of_whole_blocks() {
        let recording = Recording::new("vm1", 0, 0);
        recording.fetch();
        let mut expected = Vec::new();
        for len in (0..1500).map(|n: usize| n * 37 % 9000) {
            let frame = vec![len as u8; len];
            recording.add(9, Direction::In, &frame, len);
            pcapng::frame(&mut expected, 0, 9, Direction::In, &frame, len);
        }
        let chunks = recording.state().recorded.chunks.iter().map(Vec::capacity).max();
        assert!(chunks.unwrap() <= CAPTURE_CHUNK_BYTES, "no chunk grows under the lock");
        let mut got = Vec::new();
        while got.len() < expected.len() {
            let bytes = recording.fetch().bytes;
            assert!(!bytes.is_empty(), "{} of {}", got.len(), expected.len());
            got.extend(bytes);
        }
        assert!(got == expected);
    }

    #[test]
    fn capture_ends_after_its_frame_count() {
        let recording = Recording::new("vm1", 0, 3);
        let other = recording.clone();
        let header = recording.fetch().bytes.len();
        assert!(header > 0);
        for n in 0..5 {
            assert_eq!(other.is_over(), n >= 3);
            recording.add(1, Direction::In, &[7; 60], 60);
        }
        let fetched = recording.fetch();
        assert!(fetched.closed);
        assert_eq!((fetched.frames, fetched.dropped), (3, 0));
    }
}
