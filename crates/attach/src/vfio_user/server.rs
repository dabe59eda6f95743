//! The rules of vfio-user: one command in, a reply and an effect out.
//!
//! The control thread calls [`Server::handle`] for each received message, sends the reply, and
//! passes the effect to the dispatcher. The server reads and writes no socket, waits for nothing,
//! and never writes to an eventfd.
//!
//! A command that breaks a rule, or that this server does not know, is refused with an errno, and
//! changes nothing; the conversation goes on. Only a message that is no command ends the
//! conversation ([`Reason::Flags`]). Commands other than VERSION are refused with EINVAL until the
//! version is agreed on, and so is a second VERSION; unknown commands get EOPNOTSUPP. A register
//! access has at most [`REGION_ACCESS_BYTES_MAX`] (64 KiB), a message at most
//! [`VFIO_DESCRIPTORS_MAX`] (8) descriptors; a command other than DMA_MAP and SET_IRQS with a
//! descriptor is refused with EINVAL. A command that needs no reply is executed in silence, also if
//! it fails. The caller sends the reply to a DMA, RESET or RESUME command after its effect took
//! place ([`Effect`]). RESUME, on the holder's sockets alone, has two phases, each accepted once
//! and in order; others are EINVAL.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_host::ReceivedFd;
use causeway_host::fd::received_fd::FdKind;
use causeway_memory::Map;
use rustix::io::Errno;

use super::device::{
    DEVICE_RESET, DeviceDescription, INTERRUPT_TYPES, REGION_READ, REGION_WRITE, REGIONS,
    RegionDescription, Registers,
};
use super::dma::DmaTable;
use super::fault::Reason;
use super::interrupts::Vectors;
use super::message::{
    DeviceInfo, DmaMap, DmaUnmap, IRQ_EVENTFD, IRQ_NORESIZE, IrqInfo, PayloadReader, RegionAccess,
    RegionInfo, ResumePhase, SET_ACTION_TRIGGER, SET_DATA_EVENTFD, SET_DATA_NONE, SetIrqs, command,
};
use super::stream::RawMessage;
use crate::limits::{AREAS_MAX, REGION_ACCESS_BYTES_MAX, VERSION_BYTES_MAX, VFIO_DESCRIPTORS_MAX};

/// Major version of the protocol.
const MAJOR: u16 = 0;
/// Minor version. A frontend with a higher minor version uses this version.
const MINOR: u16 = 0;

/// A reply to the frontend.
#[derive(Debug)]
pub struct Reply {
    /// Header and payload.
    pub bytes: Vec<u8>,
    /// The file that is sent with the reply.
    pub file: Option<Arc<OwnedFd>>,
}

/// The consequence of a command, beyond its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// None.
    None,
    /// Memory was granted. The reply waits until the dispatcher uses the new epoch, at most 4 s.
    Granted,
    /// Memory was revoked. The reply must wait until the dispatcher has dropped the old epoch.
    Revoked,
    /// A register write rang this doorbell.
    Doorbell(usize),
    /// A vector with a pending interrupt got an eventfd: the dispatcher must raise the interrupt.
    Interrupts,
    /// The device was reset. The reply must wait until the dispatcher has reset its state.
    Reset,
    /// The device is set up again. The reply must wait until the dispatcher has resumed it.
    Resumed,
}

/// A command that broke no rule: the payload of its reply, and its effect.
#[derive(Debug)]
struct Success {
    payload: Vec<u8>,
    file: Option<Arc<OwnedFd>>,
    effect: Effect,
}

impl Success {
    /// Returns a success with an effect and an empty reply.
    fn of(effect: Effect) -> Self {
        Self { payload: Vec::new(), file: None, effect }
    }

    /// Returns a success with a payload.
    fn with(payload: Vec<u8>) -> Self {
        Self { payload, file: None, effect: Effect::None }
    }
}

type CommandResult = Result<Success, Errno>;

/// The server's state in one conversation.
pub struct Server {
    description: DeviceDescription,
    registers: Arc<dyn Registers>,
    vectors: Arc<Vectors>,
    dma: DmaTable,
    /// The version is agreed on.
    is_agreed: bool,
    /// The last RESUME command.
    resume: Option<ResumePhase>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("dma", &self.dma.len()).finish_non_exhaustive()
    }
}

impl Server {
    /// Returns a server of a device, before the first message.
    pub fn new(
        description: DeviceDescription,
        registers: Arc<dyn Registers>,
        vectors: Arc<Vectors>,
    ) -> Self {
        Self {
            description,
            registers,
            vectors,
            dma: DmaTable::default(),
            is_agreed: false,
            resume: None,
        }
    }

    /// Returns the present epoch of guest memory.
    pub fn epoch(&self) -> Arc<Map> {
        self.dma.epoch()
    }

    /// Returns the DMA mappings.
    pub fn dma(&self) -> &DmaTable {
        &self.dma
    }

    /// Handles one message. Returns its reply, unless the frontend expects none, and its effect.
    ///
    /// # Errors
    /// Returns an error if the message is no command; the conversation is over.
    pub fn handle(&mut self, message: RawMessage) -> Result<(Option<Reply>, Effect), Reason> {
        let header = message.header;
        if !header.is_command() {
            return Err(Reason::Flags { command: header.command, flags: header.flags });
        }
        let result = self.execute(message);
        let effect = result.as_ref().map_or(Effect::None, |success| success.effect);
        let reply = header.needs_reply().then(|| match result {
            Ok(Success { payload, file, .. }) => {
                let mut bytes = header.reply(payload.len()).emit();
                bytes.extend(payload);
                Reply { bytes, file }
            }
            Err(errno) => Reply { bytes: header.refusal(errno.raw_os_error()).emit(), file: None },
        });
        Ok((reply, effect))
    }

    /// Executes a command.
    fn execute(&mut self, message: RawMessage) -> CommandResult {
        let RawMessage { header, payload, fds, is_odd } = message;
        let takes_fds = matches!(header.command, command::DMA_MAP | command::DEVICE_SET_IRQS);
        if is_odd || (!takes_fds && !fds.is_empty()) {
            return Err(Errno::INVAL);
        }
        if !self.is_agreed && header.command != command::VERSION {
            return Err(Errno::INVAL);
        }
        match header.command {
            command::VERSION => self.agree(&payload),
            command::DMA_MAP => self.map(&payload, fds),
            command::DMA_UNMAP => self.unmap(&payload),
            command::DEVICE_GET_INFO => self.device_info(&payload),
            command::DEVICE_GET_REGION_INFO => self.region_info(&payload),
            command::DEVICE_GET_IRQ_INFO => self.interrupt_info(&payload),
            command::DEVICE_SET_IRQS => self.set_interrupts(&payload, fds),
            command::REGION_READ => self.read(&payload),
            command::REGION_WRITE => self.write(&payload),
            command::DEVICE_RESET => self.reset(&payload),
            command::RESUME if self.description.may_resume => self.resume(&payload),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// VERSION. The frontend's capabilities are optional, and none of them changes the replies.
    fn agree(&mut self, payload: &[u8]) -> CommandResult {
        let mut reader = PayloadReader(payload);
        let (major, minor) = (reader.u16(), reader.u16());
        let (Some(major), Some(_)) = (major, minor) else { return Err(Errno::INVAL) };
        if self.is_agreed || major != MAJOR || !is_capability_text(reader.rest()) {
            return Err(Errno::INVAL);
        }
        self.is_agreed = true;
        let mut reply = major.to_le_bytes().to_vec();
        reply.extend(MINOR.to_le_bytes());
        let text = format!(
            "{{\"capabilities\":{{\"max_msg_fds\":{VFIO_DESCRIPTORS_MAX},\
             \"max_data_xfer_size\":{REGION_ACCESS_BYTES_MAX}}}}}"
        );
        reply.extend(text.as_bytes());
        reply.push(0);
        Ok(Success::with(reply))
    }

    /// DMA_MAP.
    fn map(&mut self, payload: &[u8], fds: Vec<ReceivedFd>) -> CommandResult {
        let map = Some(payload).filter(|payload| payload.len() == 32).and_then(DmaMap::parse);
        let map = map.ok_or(Errno::INVAL)?;
        if fds.len() > 1 {
            return Err(Errno::INVAL);
        }
        let changed = self.dma.map(&map, fds.into_iter().next())?;
        Ok(Success::of(if changed { Effect::Granted } else { Effect::None }))
    }

    /// DMA_UNMAP. The reply repeats the command.
    fn unmap(&mut self, payload: &[u8]) -> CommandResult {
        let unmap = DmaUnmap::parse(payload).ok_or(Errno::INVAL)?;
        if payload.len() != 24 && unmap.flags & 1 == 0 {
            return Err(Errno::INVAL);
        }
        let effect = if self.dma.unmap(&unmap)? { Effect::Revoked } else { Effect::None };
        Ok(Success { effect, ..Success::with(unmap.emit()) })
    }

    /// DEVICE_GET_INFO.
    fn device_info(&self, payload: &[u8]) -> CommandResult {
        DeviceInfo::parse(payload).ok_or(Errno::INVAL)?;
        let flags = self.description.flags;
        let info = DeviceInfo { flags, regions: REGIONS, interrupts: INTERRUPT_TYPES };
        Ok(Success::with(info.emit()))
    }

    /// DEVICE_GET_REGION_INFO. The areas and their file are sent if the frontend has room for all
    /// areas; otherwise the reply states the room that is needed, and the frontend asks again.
    fn region_info(&self, payload: &[u8]) -> CommandResult {
        let request = RegionInfo::parse(payload).ok_or(Errno::INVAL)?;
        let index = request.index;
        if index >= REGIONS {
            return Err(Errno::INVAL);
        }
        let mut info = RegionInfo { index, ..RegionInfo::default() };
        let region = self.description.region(index);
        if let Some(region) = region {
            info.size = region.size;
            info.flags = region.flags & (REGION_READ | REGION_WRITE);
        }
        let mappable = region.and_then(|region| region.mmap.as_ref());
        if let Some(mappable) = mappable {
            let area = |area: &Range<u64>| (area.start, area.end.saturating_sub(area.start));
            info.areas = mappable.areas.iter().take(AREAS_MAX).map(area).collect();
        }
        let fits = usize::try_from(request.room).is_ok_and(|room| room >= info.full_bytes());
        let file = mappable.filter(|_| fits).map(|mappable| Arc::clone(&mappable.file));
        Ok(Success { file, ..Success::with(info.emit(fits)) })
    }

    /// DEVICE_GET_IRQ_INFO.
    fn interrupt_info(&self, payload: &[u8]) -> CommandResult {
        let index = IrqInfo::parse(payload).ok_or(Errno::INVAL)?.index;
        if index >= INTERRUPT_TYPES {
            return Err(Errno::INVAL);
        }
        let count = u32::try_from(self.vectors.count(index)).unwrap_or(u32::MAX);
        let flags = if count > 0 { IRQ_EVENTFD | IRQ_NORESIZE } else { 0 };
        Ok(Success::with(IrqInfo { flags, index, count }.emit()))
    }

    /// DEVICE_SET_IRQS: assigns one eventfd to each named vector, or takes eventfds away. Masks are
    /// not offered, and vectors are not raised by a message.
    fn set_interrupts(&self, payload: &[u8], fds: Vec<ReceivedFd>) -> CommandResult {
        let set = SetIrqs::parse(payload).ok_or(Errno::INVAL)?;
        let place = |number: u32| usize::try_from(number).map_err(|_| Errno::INVAL);
        let (start, count) = (place(set.start)?, place(set.count)?);
        let end = start.checked_add(count).ok_or(Errno::INVAL)?;
        let vectors = self.vectors.count(set.index);
        let is_absent = set.index >= INTERRUPT_TYPES || (vectors == 0 && count > 0);
        if is_absent || end > vectors {
            return Err(Errno::INVAL);
        }
        match set.flags {
            flags if flags == SET_DATA_NONE | SET_ACTION_TRIGGER => {
                if start != 0 || count != 0 || !fds.is_empty() {
                    return Err(Errno::OPNOTSUPP);
                }
                self.vectors.clear(set.index, 0..vectors);
            }
            flags if flags == SET_DATA_EVENTFD | SET_ACTION_TRIGGER => {
                if fds.is_empty() {
                    self.vectors.clear(set.index, start..end);
                } else if fds.len() == count {
                    self.assign(set.index, start, fds)?;
                } else {
                    return Err(Errno::INVAL);
                }
            }
            _ => return Err(Errno::OPNOTSUPP),
        }
        let is_due = self.vectors.has_pending();
        Ok(Success::of(if is_due { Effect::Interrupts } else { Effect::None }))
    }

    /// Assigns eventfds to consecutive vectors, all or none.
    fn assign(&self, index: u32, start: usize, fds: Vec<ReceivedFd>) -> Result<(), Errno> {
        if fds.iter().any(|fd| fd.kind() != FdKind::Event) {
            return Err(Errno::INVAL);
        }
        for (vector, fd) in (start..).zip(fds) {
            self.vectors.assign(index, vector, Some(fd)).map_err(|_| Errno::INVAL)?;
        }
        Ok(())
    }

    /// Returns the region of an access that lies in the region and is permitted by `flag`.
    fn accessed(&self, access: &RegionAccess, flag: u32) -> Result<&RegionDescription, Errno> {
        let region = self.description.region(access.region).ok_or(Errno::INVAL)?;
        let end = access.offset.checked_add(u64::from(access.count)).ok_or(Errno::INVAL)?;
        let is_long = usize::try_from(access.count).map_or(true, |n| n > REGION_ACCESS_BYTES_MAX);
        if region.flags & flag == 0 || end > region.size || is_long {
            return Err(Errno::INVAL);
        }
        Ok(region)
    }

    /// REGION_READ.
    fn read(&self, payload: &[u8]) -> CommandResult {
        let (access, rest) = RegionAccess::parse(payload).ok_or(Errno::INVAL)?;
        let region = self.accessed(&access, REGION_READ)?;
        if !rest.is_empty() {
            return Err(Errno::INVAL);
        }
        let mut data = vec![0; usize::try_from(access.count).map_err(|_| Errno::INVAL)?];
        self.registers.read(region.index, access.offset, &mut data);
        let mut reply = access.emit();
        reply.extend(data);
        Ok(Success::with(reply))
    }

    /// REGION_WRITE.
    fn write(&self, payload: &[u8]) -> CommandResult {
        let (access, data) = RegionAccess::parse(payload).ok_or(Errno::INVAL)?;
        let region = self.accessed(&access, REGION_WRITE)?;
        if usize::try_from(access.count) != Ok(data.len()) {
            return Err(Errno::INVAL);
        }
        let doorbell = self.registers.write(region.index, access.offset, data);
        // A recorded write restores a register, and is no new request.
        let doorbell = doorbell.filter(|_| matches!(self.resume, None | Some(ResumePhase::End)));
        let effect = doorbell.map_or(Effect::None, Effect::Doorbell);
        Ok(Success { effect, ..Success::with(access.emit()) })
    }

    /// RESUME, from the holder: once in a conversation, one command for each phase.
    fn resume(&mut self, payload: &[u8]) -> CommandResult {
        let effect = match (self.resume, ResumePhase::parse(payload)) {
            (None, Some(ResumePhase::Begin)) => {
                self.registers.begin_resume();
                Effect::None
            }
            (None, Some(ResumePhase::BeginNew)) => Effect::None,
            (Some(ResumePhase::Begin | ResumePhase::BeginNew), Some(ResumePhase::End)) => {
                Effect::Resumed
            }
            _ => return Err(Errno::INVAL),
        };
        self.resume = ResumePhase::parse(payload);
        Ok(Success::of(effect))
    }

    /// DEVICE_RESET. DMA mappings and eventfds stay, as with a function-level reset in `vfio-pci`.
    fn reset(&self, payload: &[u8]) -> CommandResult {
        if !payload.is_empty() {
            return Err(Errno::INVAL);
        }
        if self.description.flags & DEVICE_RESET == 0 {
            return Err(Errno::OPNOTSUPP);
        }
        self.registers.reset();
        self.vectors.forget_pending();
        Ok(Success::of(Effect::Reset))
    }
}

/// Returns whether bytes are the text of capabilities: nothing, or an object in JSON that ends with
/// a zero byte. The content is not parsed.
fn is_capability_text(bytes: &[u8]) -> bool {
    let Some((end, text)) = bytes.split_last() else { return true };
    let text = std::str::from_utf8(text).map(str::trim).unwrap_or_default();
    let is_object = text.starts_with('{') && text.ends_with('}') && text.len() >= 2;
    *end == 0 && bytes.len() <= VERSION_BYTES_MAX && is_object && !text.contains('\0')
}
