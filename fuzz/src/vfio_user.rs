//! A vfio-user frontend that sends arbitrary messages with arbitrary descriptors, compared with a
//! model of its DMA mappings. Target `vfio_user`, at most 64 steps. After each message the granted
//! epoch must equal the mappings of the model; register accesses must lie in their regions, and a
//! request that needs a reply gets one. No device is behind the registers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use causeway_attach::vfio_user::message::{
    DmaMap, DmaUnmap, Header, IrqInfo, RegionAccess, RegionInfo, SetIrqs, command,
};
use causeway_attach::vfio_user::server::{Effect, Server};
use causeway_attach::vfio_user::stream::{MessageStream, ReadOutcome};
use causeway_attach::vfio_user::{
    DeviceDescription, MappableFile, RegionDescription, Registers, Vectors,
};
use causeway_memory::Rights;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::net::{SocketFlags, SocketType, sendmsg, socketpair};

use crate::Input;

const PAGE: u64 = 4096;
const BAR_BYTES: u64 = 0x10000;
const FILE_BYTES: u64 = 16 * PAGE;
const STEPS_MAX: usize = 64;
const VECTORS: u32 = 4;

/// Registers that check the range of each access.
struct CheckedRegisters;

impl CheckedRegisters {
    fn check(region: u32, offset: u64, len: usize) {
        let size = if region == 0 { BAR_BYTES } else { 256 };
        assert!(region == 0 || region == 7, "region {region} does not exist");
        assert!(offset.checked_add(len as u64).is_some_and(|end| end <= size));
    }
}

impl Registers for CheckedRegisters {
    fn read(&self, region: u32, offset: u64, bytes: &mut [u8]) {
        Self::check(region, offset, bytes.len());
        bytes.fill(0xa5);
    }

    fn write(&self, region: u32, offset: u64, bytes: &[u8]) -> Option<usize> {
        Self::check(region, offset, bytes.len());
        (offset == 0x18).then_some(bytes.len())
    }

    fn reset(&self) {}
}

fn file(len: u64) -> OwnedFd {
    let file = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&file, len).expect("memory");
    file
}

/// One conversation, and the mappings that must be granted.
struct Play {
    server: Server,
    vectors: Arc<Vectors>,
    stream: MessageStream,
    peer: OwnedFd,
    memory: OwnedFd,
    shrinks: OwnedFd,
    event: OwnedFd,
    odd: OwnedFd,
    /// Address and length of each granted mapping.
    granted: Vec<(u64, u64)>,
    id: u16,
}

impl Play {
    fn new() -> Self {
        let bar = Arc::new(file(BAR_BYTES));
        let areas = std::iter::once(PAGE..BAR_BYTES).collect();
        let mmap = Some(MappableFile { file: bar, areas });
        let regions = vec![
            RegionDescription { index: 0, size: BAR_BYTES, flags: 3, mmap },
            RegionDescription { index: 7, size: 256, flags: 3, mmap: None },
        ];
        let interrupts = vec![(2, VECTORS)];
        let description = DeviceDescription { regions, interrupts, flags: 3, may_resume: false };
        let vectors = Arc::new(Vectors::new(&description));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, peer) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("descriptors");
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Self {
            server: Server::new(description, Arc::new(CheckedRegisters), Arc::clone(&vectors)),
            vectors,
            stream: MessageStream::new(ours),
            peer,
            memory: file(FILE_BYTES),
            shrinks: file(FILE_BYTES),
            event: eventfd(0, flags).expect("an eventfd"),
            odd: std::fs::File::open("/dev/null").expect("a file").into(),
            granted: Vec::new(),
            id: 0,
        }
    }

    /// Returns whether the conversation goes on.
    fn step(&mut self, input: &mut Input<'_>) -> bool {
        match input.below(12) {
            0 => {
                let len = input.below(64);
                let bytes = input.bytes(len).to_vec();
                self.send(&bytes, input)
            }
            1 => {
                ftruncate(&self.shrinks, u64::from(input.u16())).expect("a file that can shrink");
                true
            }
            2 => {
                // The eventfd is not blocking, so no write blocks.
                self.vectors.raise(input.below(8)).expect("an eventfd");
                self.vectors.raise_pending().expect("an eventfd");
                true
            }
            3 => {
                let epoch = self.server.epoch();
                let mut bytes = [0; 16];
                let _ = epoch.read(address(input), &mut bytes);
                let _ = epoch.write(address(input), &bytes);
                true
            }
            _ => {
                self.id = self.id.wrapping_add(1);
                let (code, payload) = message(input);
                let header = Header::command(self.id, code, payload.len());
                let is_posted = code == command::REGION_WRITE && input.bool();
                let header = if is_posted { header.without_reply() } else { header };
                self.send(&[header.emit(), payload].concat(), input)
            }
        }
    }

    /// Sends bytes with descriptors, and lets the server handle all messages.
    fn send(&mut self, bytes: &[u8], input: &mut Input<'_>) -> bool {
        let draw = input.u8();
        let count = if draw & 0xe0 == 0xe0 { input.below(10) } else { usize::from(draw & 1) };
        let pick = |draw: u8| match draw % 8 {
            0 => self.odd.as_fd(),
            1 | 2 => self.event.as_fd(),
            3 => self.shrinks.as_fd(),
            _ => self.memory.as_fd(),
        };
        let fds: Vec<BorrowedFd<'_>> = (0..count).map(|_| pick(input.u8())).collect();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)));
        let parts = [std::io::IoSlice::new(bytes)];
        let _ = sendmsg(&self.peer, &parts, &mut control, SendFlags::NOSIGNAL);
        self.receive()
    }

    /// Handles all messages in the socket.
    fn receive(&mut self) -> bool {
        loop {
            let message = match self.stream.receive() {
                Ok(ReadOutcome::Message(message)) => message,
                Ok(ReadOutcome::Nothing) => return true,
                Ok(ReadOutcome::Closed) | Err(_) => return false,
            };
            let (header, payload) = (message.header, message.payload.clone());
            let Ok((reply, effect)) = self.server.handle(message) else { return false };
            assert_eq!(reply.is_some(), header.needs_reply());
            if let Some(reply) = reply {
                let bytes = reply.bytes.first_chunk::<16>().expect("a header");
                let answer = Header::parse(*bytes).expect("a valid header");
                assert!(answer.is_reply() && answer.id == header.id);
                assert_eq!(answer.payload_bytes() + 16, reply.bytes.len());
                assert_ne!(answer.errno(), Some(0), "QEMU takes errno 0 as a success");
            }
            self.judge(header.command, &payload, effect);
        }
    }

    /// Applies an effect to the model, and compares the epoch with the model.
    fn judge(&mut self, code: u16, payload: &[u8], effect: Effect) {
        match (effect, code) {
            (Effect::Granted, command::DMA_MAP) => {
                let map = DmaMap::parse(payload).expect("an accepted mapping");
                self.granted.push((map.address, map.size));
            }
            (Effect::Revoked, command::DMA_UNMAP) => {
                let unmap = DmaUnmap::parse(payload).expect("an accepted unmap");
                let end = unmap.address.saturating_add(unmap.size);
                let is_all = unmap.flags & 2 != 0;
                self.granted.retain(|(address, size)| {
                    !is_all && (*address < unmap.address || address + size > end)
                });
            }
            (Effect::Granted | Effect::Revoked, _) => panic!("command {code} changed memory"),
            _ => {}
        }
        let epoch = self.server.epoch();
        let bytes = self.granted.iter().map(|(_, size)| size).sum::<u64>();
        assert_eq!(epoch.bytes(), bytes);
        for (address, size) in &self.granted {
            let any = [Rights::READ, Rights::WRITE];
            assert!(any.iter().any(|rights| epoch.contains(*address, *size, *rights)));
        }
    }
}

/// Draws an address, usually of a few pages that are often mapped.
fn address(input: &mut Input<'_>) -> u64 {
    if input.below(8) == 0 { input.u64() } else { u64::from(input.u8() % 32) * PAGE }
}

/// Draws a command and its payload, usually well-formed.
fn message(input: &mut Input<'_>) -> (u16, Vec<u8>) {
    let code = u16::from(input.u8() % 18);
    let small = u32::from(input.u8());
    let pages = u64::from(small % 5) * PAGE;
    let size = if small & 0xf0 == 0xf0 { input.u64() } else { pages };
    let payload = match code {
        command::VERSION => b"\0\0\0\0{}\0".to_vec(),
        command::DMA_MAP => {
            let (address, offset) = (address(input), address(input));
            DmaMap { flags: 1 + small % 4, offset, address, size }.emit()
        }
        command::DMA_UNMAP if small & 7 == 7 => DmaUnmap { flags: 2, address: 0, size: 0 }.emit(),
        command::DMA_UNMAP => DmaUnmap { flags: 0, address: address(input), size }.emit(),
        command::DEVICE_GET_REGION_INFO => RegionInfo::emit_request(small % 10, small),
        command::DEVICE_GET_INFO | command::DEVICE_GET_IRQ_INFO => {
            IrqInfo { flags: 0, index: small % 6, count: 0 }.emit()
        }
        command::DEVICE_SET_IRQS => {
            let (start, count) = (u32::from(input.u8() % 8), u32::from(input.u8() % 4));
            let flags = [36, 36, 33, 34, small][input.below(5)];
            SetIrqs { flags, index: 1 + small % 3, start, count }.emit()
        }
        command::REGION_READ | command::REGION_WRITE => {
            let offset = if small & 0x30 == 0x30 { input.u64() } else { u64::from(small) };
            let region = if input.bool() { 0 } else { 7 };
            let data = if code == command::REGION_WRITE { small % 9 } else { 0 };
            let access = RegionAccess { offset, region, count: small % 9 }.emit();
            [access, vec![1; data as usize]].concat()
        }
        command::DEVICE_RESET => Vec::new(),
        _ => input.bytes(16).to_vec(),
    };
    (code, payload)
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut play = Play::new();
    let mut input = Input::new(data);
    // Most commands are refused before the version.
    let version = [Header::command(0, command::VERSION, 4).emit(), vec![0; 4]].concat();
    let mut goes_on = play.send(&version, &mut Input::new(&[]));
    for _ in 0..STEPS_MAX {
        if input.is_empty() || !goes_on {
            break;
        }
        goes_on = play.step(&mut input);
    }
}

/// Returns conversations with mappings, interrupts and register accesses.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut scenario = Vec::new();
    // Address, file offset, and a descriptor of the memory file.
    for page in [0, 4, 8] {
        scenario.extend([5, 2, 2, 1, page, 1, page, 1, 7]);
    }
    // Code, flags or index, start, count, flags, and an eventfd.
    scenario.extend([5, 8, 1, 1, 1, 0, 1, 1, 2, 1, 3, 1, 0, 1, 4]);
    scenario.extend([5, 9, 0x18, 1, 0, 5, 10, 0x18, 1, 0, 0, 5, 5, 0, 0, 5, 7, 2, 0, 5, 13, 0, 0]);
    let mut unmaps = scenario.clone();
    unmaps.extend([5, 3, 2, 1, 4, 0, 5, 3, 7, 0, 1, 200, 5, 2, 2, 1, 0, 1, 0, 1, 3]);
    vec![scenario, unmaps]
}
