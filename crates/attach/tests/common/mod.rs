//! A frontend that sends exactly the given messages, valid or not, and the server of the
//! conversation.
#![allow(dead_code, reason = "every test file uses another part")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::VhostUserProtocolFeatures as P;
use causeway_attach::vhost_user::message::{
    Header, RegionSpec, RingAddresses, RingEvent, RingValue, emit_region, emit_table,
};
use causeway_attach::vhost_user::server::features;
use causeway_attach::vhost_user::stream::{MessageStream, RawMessage, ReadOutcome};
use causeway_attach::{Event, Fault, Model, Server};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

pub const GUEST: u64 = 0x10_0000;
pub const USER: u64 = 0x7f00_0000_0000;
pub const LEN: u64 = 0x10_0000;
pub const QUEUES: usize = 4;
pub const SIZE: u16 = 64;
pub const CONFIG: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8];

pub fn model() -> Model {
    Model { ring_size_max: 1024, ..Model::new(QUEUES, 1 << 15, CONFIG.to_vec()) }
}

pub fn sockets() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
}

/// Sends bytes with descriptors of any type.
pub fn send_bytes(by: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let parts = [std::io::IoSlice::new(bytes)];
    sendmsg(by, &parts, &mut control, SendFlags::empty()).unwrap();
}

/// Waits until `server` has a message, or for a moment.
pub fn wait_readable(server: &Server) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(server, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 })).unwrap();
}

pub fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

pub fn memory(len: u64) -> OwnedFd {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("guest", flags).unwrap();
    rustix::fs::ftruncate(&file, len).unwrap();
    file
}

pub fn region() -> RegionSpec {
    RegionSpec { guest: GUEST, len: LEN, user: USER, offset: 0 }
}

/// Returns the number of open descriptors of this process.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Returns the frontend addresses of a test ring.
pub fn addresses(index: u32) -> RingAddresses {
    let base = USER + u64::from(index) * 0x4000;
    RingAddresses {
        index,
        flags: 0,
        descriptors: base,
        available: base + 0x1000,
        used: base + 0x2000,
        log: u64::MAX,
    }
}

/// A raw frontend, and the server of the conversation.
pub struct Bench {
    pub peer: Option<MessageStream>,
    pub server: Server,
    pub events: Vec<Event>,
    pub memory: OwnedFd,
}

impl Bench {
    pub fn new() -> Self {
        Self::of(model())
    }

    pub fn of(model: Model) -> Self {
        let (ours, theirs) = sockets();
        Self {
            peer: Some(MessageStream::new(ours)),
            server: Server::new(model, theirs),
            events: Vec::new(),
            memory: memory(LEN),
        }
    }

    /// Negotiates protocol and features and grants memory, without running queues.
    pub fn granted() -> Self {
        let mut bench = Self::new();
        bench.negotiate(P::all().bits() & model().protocol_offered().bits());
        let table = emit_table(&[region()]);
        let memory = bench.memory.try_clone().unwrap();
        bench.request(R::SET_MEM_TABLE, &table, &[memory.as_fd()]).unwrap();
        bench
    }

    /// As [`Self::granted`], with queue 0 running.
    pub fn running() -> Self {
        let mut bench = Self::granted();
        bench.run_queue(0);
        assert!(bench.server.device().is_running(0));
        bench.events.clear();
        bench
    }

    pub fn negotiate(&mut self, protocol: u64) {
        self.send_number(R::SET_PROTOCOL_FEATURES, protocol).unwrap();
        self.request(R::SET_OWNER, &[], &[]).unwrap();
        let acked = features::RING | features::PROTOCOL_FEATURES;
        self.send_number(R::SET_FEATURES, acked).unwrap();
    }

    pub fn run_queue(&mut self, index: u32) {
        self.configure_queue(index);
        self.kick(index).unwrap();
        self.ring_value(R::SET_VRING_ENABLE, index, 1).unwrap();
    }

    pub fn configure_queue(&mut self, index: u32) {
        self.ring_value(R::SET_VRING_NUM, index, u32::from(SIZE)).unwrap();
        self.ring_value(R::SET_VRING_BASE, index, 0).unwrap();
        self.request(R::SET_VRING_ADDR, &addresses(index).emit(), &[]).unwrap();
    }

    pub fn kick(&mut self, index: u32) -> Result<(), Fault> {
        self.request(R::SET_VRING_KICK, &RingEvent::emit(index, true), &[event().as_fd()])
    }

    pub fn ring_value(&mut self, request: R, index: u32, value: u32) -> Result<(), Fault> {
        self.request(request, &RingValue { index, value }.emit(), &[])
    }

    pub fn send_number(&mut self, request: R, number: u64) -> Result<(), Fault> {
        self.request(request, &number.to_ne_bytes(), &[])
    }

    pub fn add_region(&mut self, region: &RegionSpec) -> Result<(), Fault> {
        let memory = self.memory.try_clone().unwrap();
        self.request(R::ADD_MEM_REG, &emit_region(region), &[memory.as_fd()])
    }

    /// Sends a request and lets the server handle it.
    pub fn request(
        &mut self,
        request: R,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), Fault> {
        self.send_with_header(Header::request(request, payload.len() as u32), payload, fds)
    }

    pub fn send_with_header(
        &mut self,
        header: Header,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), Fault> {
        self.peer.as_ref().unwrap().send(header, payload, fds).unwrap();
        self.server.receive(&mut self.events)
    }

    /// Sends bytes unchanged, with descriptors at the first byte.
    pub fn send_raw(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Fault> {
        send_bytes(self.peer.as_ref().unwrap(), bytes, fds);
        self.server.receive(&mut self.events)
    }

    /// Returns the server's next reply.
    pub fn reply(&mut self) -> Option<RawMessage> {
        match self.peer.as_mut().unwrap().receive().unwrap() {
            ReadOutcome::Message(raw) => Some(raw),
            ReadOutcome::Nothing | ReadOutcome::Closed => None,
        }
    }

    /// Returns the number in the server's next reply.
    pub fn reply_number(&mut self) -> u64 {
        u64::from_ne_bytes(self.reply().unwrap().payload.try_into().unwrap())
    }

    /// Closes the connection.
    pub fn leave(&mut self) -> Result<(), Fault> {
        self.peer = None;
        self.server.receive(&mut self.events)
    }
}

/// Asserts that the server has released all grants.
pub fn assert_released(bench: &Bench) {
    let device = bench.server.device();
    assert!(bench.server.is_over());
    assert!(
        device.queues.iter().all(|q| !q.is_running() && !q.is_started() && q.doorbell().is_none())
    );
    assert_eq!(device.map.regions().len(), 0);
}

/// Asserts that the test ends in a fault whose text contains all of `texts`, and that all grants
/// are released.
#[track_caller]
pub fn assert_fault(bench: &mut Bench, result: Result<(), Fault>, texts: &[&str]) {
    let fault = result.expect_err("must end in a fault").to_string();
    for word in texts {
        assert!(fault.contains(word), "{fault:?} does not mention {word:?}");
    }
    assert_released(bench);
    bench.server.receive(&mut bench.events).expect("an ended server reads nothing");
}
