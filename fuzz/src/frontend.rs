//! A vhost-user frontend that sends arbitrary messages with arbitrary descriptors, and a service
//! that uses the granted queues. Target `frontend`, at most 64 steps. Events must describe exactly
//! the running queues, no queue runs after a fault, only granted memory changes, and the server
//! ends with the frontend; under libFuzzer no descriptor is left open.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use causeway_attach::vhost_user::VhostUserProtocolFeatures as P;
use causeway_attach::vhost_user::message::{
    ConfigSpace, Header, InflightSpec, RegionSpec, RingAddresses, RingEvent, RingValue,
    emit_region, emit_table,
};
use causeway_attach::vhost_user::server::features;
use causeway_attach::vhost_user::stream::{MessageStream, ReadOutcome};
use causeway_attach::{Event, Model, Server};
use causeway_ring::Chain;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::net::{SocketFlags, SocketType, sendmsg, socketpair};

use crate::Input;
use crate::guest_memory::{self, GUEST, GuestMemory};

const BYTES: usize = 64 << 10;
const QUEUES: usize = 3;
const STEPS_MAX: usize = 64;
/// Codes 1 to `CODES` are drawn: all request codes, and a code without a request.
const CODES: u8 = 45;

pub(crate) fn model() -> Model {
    Model { ring_size_max: 64, ..Model::new(QUEUES, 1 << 15, vec![1, 2, 3, 4, 5, 6, 7, 8]) }
}

/// The descriptors that a frontend can pass.
pub(crate) struct DescriptorSet {
    guest_memory: OwnedFd,
    grant_offset: u64,
    shrinks: OwnedFd,
    short: OwnedFd,
    bell: OwnedFd,
    pipe: (OwnedFd, OwnedFd),
    socket: (OwnedFd, OwnedFd),
}

pub(crate) fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, kind, flags, None).expect("two descriptors")
}

fn file(len: u64) -> OwnedFd {
    let file = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&file, len).expect("memory");
    file
}

impl DescriptorSet {
    pub(crate) fn new(guest_memory: &GuestMemory) -> Self {
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (granted_file, grant_offset) = guest_memory.file();
        Self {
            guest_memory: granted_file.try_clone().expect("a descriptor"),
            grant_offset,
            shrinks: file(BYTES as u64),
            short: file(100),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd"),
            pipe: rustix::pipe::pipe_with(flags).expect("a pipe"),
            socket: pair(SocketType::STREAM),
        }
    }

    /// Returns a descriptor of any kind, usually of the expected kind.
    pub(crate) fn pick(&self, input: &mut Input<'_>, memory: bool) -> BorrowedFd<'_> {
        match input.below(16) {
            0 => self.short.as_fd(),
            1 => self.pipe.0.as_fd(),
            2 => self.pipe.1.as_fd(),
            3 => self.socket.0.as_fd(),
            4 => self.bell.as_fd(),
            5 | 6 => self.shrinks.as_fd(),
            _ if memory => self.guest_memory.as_fd(),
            _ => self.bell.as_fd(),
        }
    }

    fn region(&self, input: &mut Input<'_>, len: usize) -> RegionSpec {
        let (guest, len) = (GUEST, len as u64);
        let right = RegionSpec { guest, len, user: guest, offset: self.grant_offset };
        match input.below(6) {
            0 => RegionSpec { guest: input.u64(), ..right },
            1 => RegionSpec { len: input.u64(), ..right },
            2 => RegionSpec { user: input.u64(), offset: u64::from(input.u16()), ..right },
            _ => right,
        }
    }
}

/// Draws a message: code, payload, number of descriptors, and whether these are memory.
pub(crate) fn message(
    input: &mut Input<'_>,
    descriptor_set: &DescriptorSet,
    len: usize,
) -> (u32, Vec<u8>, usize, bool) {
    let code = 1 + input.u8() % CODES;
    let index = u32::from(input.u8() & 3);
    let small = u32::from(input.u8());
    let number = |value: u64| value.to_ne_bytes().to_vec();
    let ring = RingValue { index, value: small };
    let (payload, fds, memory) = match code {
        2 => {
            let ring = features::RING | features::PROTOCOL_FEATURES;
            let more = if small & 1 != 0 { features::RING_PACKED } else { 0 };
            let wanted = ring | more | (u64::from(small) & 2) << 14;
            (number(if small & 0x40 != 0 { input.u64() } else { wanted }), 0, true)
        }
        5 => {
            let count = 1 + small as usize % 3;
            let table: Vec<_> = (0..count).map(|_| descriptor_set.region(input, len)).collect();
            (emit_table(&table), count, true)
        }
        8 => (RingValue { index, value: 1 << (small % 8) }.emit(), 0, true),
        9 => {
            let base = GUEST + u64::from(index) * 0x1000;
            let mut at = RingAddresses {
                index,
                flags: 0,
                descriptors: base,
                available: base + 0x400,
                used: base + 0x600,
                log: 0,
            };
            if small & 7 == 0 {
                (at.descriptors, at.flags) = (input.u64(), input.u32());
            }
            (at.emit(), 0, true)
        }
        10 if small & 3 != 0 => (RingValue { index, value: 0 }.emit(), 0, true),
        12..=14 => (RingEvent::emit(index, small & 7 != 0), usize::from(small & 7 != 0), false),
        16 => {
            let offered = model().protocol_offered();
            let all = (offered - P::empty()).bits();
            (number(if small & 3 == 0 { input.u64() } else { all }), 0, true)
        }
        18 => (RingValue { index, value: 1 - (small & 1) }.emit(), 0, true),
        24 | 25 => {
            let size = small & 15;
            let bytes = vec![0; size as usize];
            (ConfigSpace { offset: index, size, flags: 0, bytes }.emit(), 0, true)
        }
        31 | 32 => {
            let ring_size = 1 << (small % 8);
            let queues = index as u16;
            let len = if small & 0x80 != 0 { input.u64() } else { len as u64 };
            let spec = InflightSpec { len, offset: 0, queues, ring_size, padded: small & 1 != 0 };
            (spec.emit(), usize::from(code == 32), true)
        }
        21 => (Vec::new(), 1, false),
        37 | 38 => (emit_region(&descriptor_set.region(input, len)), usize::from(code == 37), true),
        39 => (number(u64::from(small)), 0, true),
        10 | 11 => (ring.emit(), 0, true),
        _ => (Vec::new(), 0, true),
    };
    (code.into(), payload, fds, memory)
}

struct Play<'a> {
    guest_memory: &'a mut GuestMemory,
    descriptor_set: DescriptorSet,
    peer: Option<MessageStream>,
    server: Server,
    runs: [bool; QUEUES],
    chain: Chain,
    held: Vec<(usize, u16)>,
}

/// Runs one input.
pub fn run(data: &[u8]) {
    guest_memory::with::<BYTES>(|guest_memory| {
        let before = probe();
        let descriptor_set = DescriptorSet::new(guest_memory);
        let (ours, theirs) = pair(SocketType::STREAM);
        let mut play = Play {
            guest_memory,
            descriptor_set,
            peer: Some(MessageStream::new(ours)),
            server: Server::new(model(), theirs),
            runs: [false; QUEUES],
            chain: Chain::new(),
            held: Vec::new(),
        };
        let mut input = Input::new(data);
        for _ in 0..STEPS_MAX {
            if input.is_empty() || play.server.is_over() {
                break;
            }
            play.step(&mut input);
        }
        play.leave();
        // Another thread closes some descriptors shortly afterwards.
        let closed = (0..10_000).any(|_| {
            let closed = before == probe();
            if !closed {
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
            closed
        });
        assert!(closed, "descriptors are left open");
    });
}

/// Returns the lowest free descriptor; valid only if no other code opens descriptors.
fn probe() -> Option<i32> {
    use std::os::fd::AsRawFd as _;
    cfg!(feature = "libfuzzer").then(|| {
        let flags = EventfdFlags::CLOEXEC;
        eventfd(0, flags).expect("a descriptor").as_raw_fd()
    })
}

impl Play<'_> {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(10) {
            0 => self.bytes(input),
            1 => {
                let at = usize::from(input.u16()) % self.guest_memory.len();
                self.guest_memory.write(at, input.bytes(16));
            }
            2 => self.serve(input),
            3 => {
                // A file that shrinks while it may be granted and in use.
                ftruncate(&self.descriptor_set.shrinks, u64::from(input.u16()))
                    .expect("a file that can shrink");
                let mut events = Vec::new();
                let fine = self.server.check_memory(&mut events);
                self.judge(fine.is_err(), events);
            }
            _ => self.send_message(input),
        }
    }

    /// Sends a complete message, usually well-formed.
    fn send_message(&mut self, input: &mut Input<'_>) {
        let (code, payload, fds, memory) =
            message(input, &self.descriptor_set, self.guest_memory.len());
        let wrong = input.u8();
        let fds = if wrong & 0x38 == 0x38 { usize::from(wrong & 7) } else { fds };
        let picked: Vec<_> = (0..fds).map(|_| self.descriptor_set.pick(input, memory)).collect();
        let flags = if wrong & 0x40 != 0 { 9 } else { 1 };
        let header = Header { code, flags, size: payload.len() as u32 };
        if let Some(peer) = &self.peer {
            // The server reads every message at once, so the socket has room.
            peer.send(header, &payload, &picked).expect("room for a message");
        }
        self.receive();
    }

    /// Sends arbitrary bytes with arbitrary descriptors.
    fn bytes(&mut self, input: &mut Input<'_>) {
        let fds: Vec<_> =
            (0..input.below(10)).map(|_| self.descriptor_set.pick(input, true)).collect();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || beside.push(SendAncillaryMessage::ScmRights(&fds)));
        let len = input.below(64);
        let parts = [std::io::IoSlice::new(input.bytes(len))];
        if let Some(peer) = &self.peer {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            // No message is sent if there are no bytes.
            let _ = sendmsg(peer, &parts, &mut beside, flags);
        }
        self.receive();
    }

    fn receive(&mut self) {
        let mut events = Vec::new();
        let failed = self.server.receive(&mut events).is_err();
        self.judge(failed, events);
        // Answers are read so that they do not fill the socket.
        if let Some(peer) = &mut self.peer {
            while let Ok(ReadOutcome::Message(raw)) = peer.receive() {
                assert!(raw.header.is_reply());
            }
        }
    }

    /// Checks that the events describe exactly the running queues, and that no queue runs after a
    /// fault.
    fn judge(&mut self, failed: bool, events: Vec<Event>) {
        let mut closed = false;
        for event in events {
            match event {
                Event::QueueStarted(queue) => {
                    assert!(
                        !std::mem::replace(&mut self.runs[queue], true),
                        "queue {queue} started twice"
                    );
                }
                Event::QueueStopped(queue) => {
                    assert!(
                        std::mem::replace(&mut self.runs[queue], false),
                        "queue {queue} was not running"
                    );
                    self.held.retain(|(of, _)| *of != queue);
                }
                Event::Closed => closed = true,
                Event::MemoryChanged | Event::Reset => {}
                Event::Doorbell(_) | Event::Message | Event::Resumed => {
                    panic!("events of other attachments")
                }
            }
        }
        let device = self.server.device();
        for (queue, runs) in self.runs.iter().enumerate() {
            assert_eq!(device.is_running(queue), *runs, "queue {queue}");
        }
        assert_eq!(self.server.is_over(), failed || closed);
        if failed {
            let clean = device.queues.iter().all(|q| !q.is_running() && !q.is_started());
            assert!(
                clean && device.map.regions().is_empty(),
                "queues or regions remain after a fault"
            );
        }
    }

    /// Works on the granted queues as a service does.
    fn serve(&mut self, input: &mut Input<'_>) {
        let queue = input.below(QUEUES);
        let device = self.server.device_mut();
        let map = device.map.clone();
        let Some(ring) = device.queues[queue].ring.as_mut() else { return };
        if input.bool() && ring.pop(&map, &mut self.chain) == Ok(true) {
            let mut some = [0; 64];
            let len = self.chain.readable_bytes().min(64) as usize;
            self.chain.reader().read(&map, &mut some[..len]).expect("a checked chain");
            self.held.push((queue, self.chain.head()));
        } else if let Some(at) = self.held.iter().position(|(of, _)| *of == queue) {
            let (_, head) = self.held.remove(at);
            let _ = ring.push(head, 0);
            let _ = ring.publish();
        }
        let _ = device.queues[queue].notify();
    }

    fn leave(mut self) {
        self.peer = None;
        // Messages sent before are still handled, a limited number in each turn.
        for _ in 0..4 {
            if self.server.is_over() {
                break;
            }
            self.receive();
        }
        assert!(self.server.is_over(), "server is still open after the frontend left");
    }
}

/// Returns frontend set-ups with variations.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for packed in [0_u8, 1] {
        let mut scenario = Vec::new();
        // Code less 1, index, value, defect, and the descriptors.
        let mut add = |code: u8, rest: &[u8]| {
            scenario.extend([9, code - 1]);
            scenario.extend(rest);
        };
        add(16, &[0, 1, 0]);
        add(3, &[0, 0, 0x40]);
        add(2, &[0, packed, 0x40]);
        add(5, &[0, 0, 5, 0x40, 15]);
        add(31, &[1, 6, 0x40]);
        for queue in 0..2 {
            add(8, &[queue, 5, 0]);
            add(10, &[queue, 1, 0]);
            add(9, &[queue, 1, 0]);
            add(13, &[queue, 1, 0, 15]);
            add(12, &[queue, 1, 0, 15]);
            add(18, &[queue, 0, 0x40]);
        }
        scenario.extend([2, 0, 1, 2, 0, 0]);
        scenario.extend([9, 10, 0, 0, 0]);
        scenario.extend([9, 38, 0, 0, 0x40]);
        scenario.extend([3, 10, 0]);
        all.push(scenario);
    }
    all
}
