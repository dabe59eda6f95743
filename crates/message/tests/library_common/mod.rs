//! Endpoints of one process, joined by channels in memory.
#![allow(dead_code, reason = "each test uses some of it")]

pub mod fake;
pub mod model;

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use causeway_channel::{Layout, Side, format, open};
use causeway_memory::{Mapping, View, create};
use causeway_message::library::{
    Buffer, Channel, Channels, Completion, Library, Options, Partner, RequestId, Step,
};
use causeway_message::split::{Address, NicId, PeerId};

/// The application's memory: in segments of `cut` bytes, and seen again when the request gave it
/// back.
#[derive(Debug)]
pub struct Pad {
    bytes: Vec<u8>,
    cut: usize,
    lost: Option<usize>,
    back: Arc<Mutex<Option<Vec<u8>>>>,
}

/// Where the bytes of a request come back to.
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
    /// Its bytes are the application's again; it seems as long as before.
    pub fn lose(&mut self) {
        self.lost = Some(std::mem::take(&mut self.bytes).len());
    }
}

impl Drop for Pad {
    fn drop(&mut self) {
        *self.back.lock().unwrap() = Some(std::mem::take(&mut self.bytes));
    }
}

/// Memory with these bytes, in one segment.
pub fn pad(bytes: &[u8]) -> Pad {
    cut(bytes, usize::MAX / 2)
}

/// In segments.
pub fn cut(bytes: &[u8], cut: usize) -> Pad {
    Pad { bytes: bytes.to_vec(), cut, lost: None, back: Back::default() }
}

/// Memory to receive into.
pub fn room(len: usize) -> (Pad, Back) {
    let pad = pad(&vec![0xaa; len]);
    let back = pad.back.clone();
    (pad, back)
}

/// The same, in segments.
pub fn cut_room(len: usize, size: usize) -> (Pad, Back) {
    let pad = cut(&vec![0xaa; len], size);
    let back = pad.back.clone();
    (pad, back)
}

/// What came back.
#[track_caller]
pub fn given(back: &Back) -> Vec<u8> {
    back.lock().unwrap().take().expect("the request still has its buffer")
}

/// Bytes that differ from message to message and place to place.
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

pub fn options(endpoint: u8) -> Options {
    Options {
        address: Address { nic: NicId(0x02_00_00_00_00_01), endpoint },
        session: 100 + u32::from(endpoint),
        key: 7,
        context_bits: 0,
        context_shift: 0,
    }
}

pub type Ways = Channels<fn()>;

fn no_bell() {}

/// Shared memory with a channel in it.
pub fn memory(layout: Layout) -> View {
    let len = layout.bytes();
    let file = create("channel", len as u64).unwrap();
    let mapping = Mapping::new(file.as_fd(), 0, len as u64).unwrap();
    let view = View::new(Arc::new(mapping), 0, len).unwrap();
    format(&view, layout).unwrap();
    view
}

/// One side of a channel, to the endpoint with that number; a partner's number is its endpoint.
pub fn channel(memory: &View, side: Side, to: u8) -> Channel<fn()> {
    let (sender, receiver) = open(memory, side).unwrap();
    let Options { address, session, .. } = options(to);
    let bell = no_bell as fn();
    Channel { peer: PeerId(to.into()), address, session, sender, receiver, bell, direct: None }
}

/// An endpoint and its ways to others.
pub struct End {
    pub library: Library<Pad>,
    pub ways: Ways,
}

impl End {
    pub fn new(options: Options) -> Self {
        Self { library: Library::new(options).unwrap(), ways: Ways::default() }
    }

    /// Goes on until nothing is left to do; the handler may not be asked.
    #[track_caller]
    pub fn run(&mut self) -> bool {
        let mut worked = false;
        loop {
            match self.library.progress(&mut self.ways) {
                Step::Idle => return worked,
                Step::Worked => worked = true,
                step => panic!("the handler is asked: {step:?}"),
            }
        }
    }

    #[track_caller]
    pub fn send(&mut self, to: Partner, info: u64, bytes: &[u8]) -> RequestId {
        self.library.isend(&mut self.ways, to, info, info ^ 0xc0, pad(bytes)).unwrap()
    }

    #[track_caller]
    pub fn ssend(&mut self, to: Partner, info: u64, bytes: &[u8]) -> RequestId {
        self.library.issend(&mut self.ways, to, info, info ^ 0xc0, pad(bytes)).unwrap()
    }

    #[track_caller]
    pub fn receive(&mut self, info: u64, mask: u64, len: usize) -> (RequestId, Back) {
        let (pad, back) = room(len);
        (self.library.irecv(&mut self.ways, info, mask, info ^ 0xd0, pad).unwrap(), back)
    }

    /// The completion of a request that must have ended.
    #[track_caller]
    pub fn ended(&mut self, id: RequestId) -> Completion {
        self.library.test(id).unwrap().expect("not ended")
    }

    #[track_caller]
    pub fn is_pending(&mut self, id: RequestId) -> bool {
        self.library.test(id).unwrap().is_none()
    }
}

/// Two endpoints with a channel between them: 1 and 2.
pub struct Pair {
    pub a: End,
    pub b: End,
    pub memory: View,
}

/// The partner with that endpoint number, as it is first known.
pub fn partner(endpoint: u8) -> Partner {
    Partner { peer: PeerId(endpoint.into()), epoch: 0 }
}

pub const A: Partner = Partner { peer: PeerId(1), epoch: 0 };
pub const B: Partner = Partner { peer: PeerId(2), epoch: 0 };

impl Pair {
    pub fn new() -> Self {
        Self::with(Layout::DEFAULT, options(1), options(2))
    }

    pub fn with(layout: Layout, a: Options, b: Options) -> Self {
        let memory = memory(layout);
        let (mut a, mut b) = (End::new(a), End::new(b));
        assert!(a.ways.add(channel(&memory, Side::First, 2)));
        assert!(b.ways.add(channel(&memory, Side::Second, 1)));
        a.run();
        b.run();
        Self { a, b, memory }
    }

    /// Another endpoint, that `b` has a channel to.
    pub fn third(&mut self, number: u8) -> End {
        let memory = memory(Layout::DEFAULT);
        let mut third = End::new(options(number));
        assert!(third.ways.add(channel(&memory, Side::First, 2)));
        assert!(self.b.ways.add(channel(&memory, Side::Second, number)));
        third.run();
        self.b.run();
        third
    }

    /// Both go on until nothing is left to do.
    #[track_caller]
    pub fn run(&mut self) {
        while self.a.run() | self.b.run() {}
    }
}
