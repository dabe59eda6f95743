//! Endpoints of the message library in one process, joined by channels in memory: buffers that
//! return their bytes, endpoints, pairs of endpoints, and a fake transport. No daemon and no
//! descriptors of doorbells are involved.
//!
//! Nothing runs in the background: a test makes progress by its own calls, in one thread. Failures
//! panic. Messages to other hosts and restarts of a daemon are not modelled. Users: tests of
//! `message`, and fuzz targets.

pub mod fake;
pub mod model;

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use causeway_channel::{Layout, Side, format, open};
use causeway_memory::{Mapping, View, create};
use causeway_message::library::{
    Buffer, Channel, Channels, Completion, Library, LibraryOptions, Partner, ProgressStep,
    RequestId,
};
use causeway_wire::mx::{Address, NicId, PeerId};

/// Memory of the application, in segments of `cut` bytes. The bytes return to [`Back`] when the
/// request drops the memory.
#[derive(Debug)]
pub struct Pad {
    bytes: Vec<u8>,
    cut: usize,
    lost: Option<usize>,
    back: Arc<Mutex<Option<Vec<u8>>>>,
}

/// Place to which the bytes of a request return.
pub type Back = Arc<Mutex<Option<Vec<u8>>>>;

impl Buffer for Pad {
    fn len(&self) -> usize {
        self.lost.unwrap_or(self.bytes.len())
    }

    fn bytes(&self, at: usize) -> &[u8] {
        let end = (at / self.cut + 1) * self.cut;
        self.bytes.get(at..end.min(self.bytes.len())).unwrap_or_default()
    }

    fn bytes_mut(&mut self, at: usize) -> &mut [u8] {
        let end = ((at / self.cut + 1) * self.cut).min(self.bytes.len());
        self.bytes.get_mut(at..end).unwrap_or_default()
    }
}

impl Pad {
    /// Gives the bytes back to the application. The length stays as it was.
    pub fn lose(&mut self) {
        self.lost = Some(std::mem::take(&mut self.bytes).len());
    }
}

impl Drop for Pad {
    fn drop(&mut self) {
        *self.back.lock().unwrap() = Some(std::mem::take(&mut self.bytes));
    }
}

/// Returns memory with these bytes in one segment.
pub fn pad(bytes: &[u8]) -> Pad {
    cut(bytes, usize::MAX / 2)
}

/// Returns memory with these bytes in segments of `cut` bytes, which must not be 0.
pub fn cut(bytes: &[u8], cut: usize) -> Pad {
    Pad { bytes: bytes.to_vec(), cut, lost: None, back: Back::default() }
}

/// Returns memory to receive into.
pub fn room(len: usize) -> (Pad, Back) {
    let pad = pad(&vec![0xaa; len]);
    let back = pad.back.clone();
    (pad, back)
}

/// Returns memory to receive into, in segments of `size` bytes.
pub fn cut_room(len: usize, size: usize) -> (Pad, Back) {
    let pad = cut(&vec![0xaa; len], size);
    let back = pad.back.clone();
    (pad, back)
}

/// Returns the bytes that a request gave back.
///
/// # Panics
/// The request still has its memory.
#[track_caller]
pub fn given(back: &Back) -> Vec<u8> {
    back.lock().unwrap().take().expect("the request still has its buffer")
}

/// Returns pseudo-random bytes that depend on `seed`.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Returns the options of an endpoint.
pub fn options(endpoint: u8) -> LibraryOptions {
    LibraryOptions {
        address: Address { nic: NicId(0x02_00_00_00_00_01), endpoint },
        session: 100 + u32::from(endpoint),
        key: 7,
        context_bits: 0,
        context_shift: 0,
    }
}

/// Channels of an endpoint to peers without a doorbell.
pub type LocalChannels = Channels<fn()>;

fn ignore_doorbell() {}

/// Returns shared memory with a channel in it.
///
/// # Panics
/// The host has no memory.
pub fn memory(layout: Layout) -> View {
    let len = layout.bytes();
    let file = create("channel", len as u64).unwrap();
    let mapping = Mapping::new(file.as_fd(), 0, len as u64).unwrap();
    let view = View::new(Arc::new(mapping), 0, len).unwrap();
    format(&view, layout).unwrap();
    view
}

/// Opens one side of a channel to the endpoint `to`. The number of a peer is its endpoint.
///
/// # Panics
/// The memory holds no channel.
pub fn channel(memory: &View, side: Side, to: u8) -> Channel<fn()> {
    let (sender, receiver) = open(memory, side).unwrap();
    let LibraryOptions { address, session, .. } = options(to);
    let doorbell = ignore_doorbell as fn();
    Channel { peer: PeerId(to.into()), address, session, sender, receiver, doorbell, direct: None }
}

/// An endpoint and its channels to others.
#[derive(Debug)]
pub struct End {
    /// The library of the endpoint.
    pub library: Library<Pad>,
    /// Its channels.
    pub ways: LocalChannels,
}

impl End {
    /// Creates an endpoint without channels.
    ///
    /// # Panics
    /// The options are invalid.
    pub fn new(options: LibraryOptions) -> Self {
        Self { library: Library::new(options).unwrap(), ways: LocalChannels::default() }
    }

    /// Makes progress until nothing is left to do. Returns whether there was anything.
    ///
    /// # Panics
    /// The library asks the handler of unexpected messages.
    #[track_caller]
    pub fn run(&mut self) -> bool {
        let mut worked = false;
        loop {
            match self.library.progress(&mut self.ways) {
                ProgressStep::Idle => return worked,
                ProgressStep::Worked => worked = true,
                step => panic!("the handler is asked: {step:?}"),
            }
        }
    }

    /// Sends a message.
    ///
    /// # Panics
    /// The library refuses.
    #[track_caller]
    pub fn send(&mut self, to: Partner, info: u64, bytes: &[u8]) -> RequestId {
        self.library.isend(&mut self.ways, to, info, info ^ 0xc0, pad(bytes)).unwrap()
    }

    /// Sends a message synchronously.
    ///
    /// # Panics
    /// The library refuses.
    #[track_caller]
    pub fn ssend(&mut self, to: Partner, info: u64, bytes: &[u8]) -> RequestId {
        self.library.issend(&mut self.ways, to, info, info ^ 0xc0, pad(bytes)).unwrap()
    }

    /// Posts a receive of `len` bytes.
    ///
    /// # Panics
    /// The library refuses.
    #[track_caller]
    pub fn receive(&mut self, info: u64, mask: u64, len: usize) -> (RequestId, Back) {
        let (pad, back) = room(len);
        (self.library.irecv(&mut self.ways, info, mask, info ^ 0xd0, pad).unwrap(), back)
    }

    /// Returns the completion of a request.
    ///
    /// # Panics
    /// The request has not ended.
    #[track_caller]
    pub fn ended(&mut self, id: RequestId) -> Completion {
        self.library.test(id).unwrap().expect("not ended")
    }

    /// Returns whether a request has not ended.
    ///
    /// # Panics
    /// The request is unknown.
    #[track_caller]
    pub fn is_pending(&mut self, id: RequestId) -> bool {
        self.library.test(id).unwrap().is_none()
    }
}

/// Two endpoints joined by a channel.
#[derive(Debug)]
pub struct EndpointPair {
    /// Endpoint 1.
    pub a: End,
    /// Endpoint 2.
    pub b: End,
    /// The memory of the channel.
    pub memory: View,
}

/// Returns the first partner with this endpoint number.
pub fn partner(endpoint: u8) -> Partner {
    Partner { peer: PeerId(endpoint.into()), epoch: 0 }
}

/// Endpoint 1 as a partner.
pub const A: Partner = Partner { peer: PeerId(1), epoch: 0 };
/// Endpoint 2 as a partner.
pub const B: Partner = Partner { peer: PeerId(2), epoch: 0 };

impl Default for EndpointPair {
    fn default() -> Self {
        Self::new()
    }
}

impl EndpointPair {
    /// Creates a pair with a channel of the default layout.
    pub fn new() -> Self {
        Self::with(Layout::DEFAULT, options(1), options(2))
    }

    /// Creates a pair with these options.
    ///
    /// # Panics
    /// The layout or the options are invalid.
    pub fn with(layout: Layout, a: LibraryOptions, b: LibraryOptions) -> Self {
        let memory = memory(layout);
        let (mut a, mut b) = (End::new(a), End::new(b));
        assert!(a.ways.add(channel(&memory, Side::First, 2)));
        assert!(b.ways.add(channel(&memory, Side::Second, 1)));
        a.run();
        b.run();
        Self { a, b, memory }
    }

    /// Creates another endpoint with a channel to `b`.
    ///
    /// # Panics
    /// The number is in use.
    pub fn third(&mut self, number: u8) -> End {
        let memory = memory(Layout::DEFAULT);
        let mut third = End::new(options(number));
        assert!(third.ways.add(channel(&memory, Side::First, 2)));
        assert!(self.b.ways.add(channel(&memory, Side::Second, number)));
        third.run();
        self.b.run();
        third
    }

    /// Makes progress on both sides until nothing is left to do.
    #[track_caller]
    pub fn run(&mut self) {
        while self.a.run() | self.b.run() {}
    }
}
