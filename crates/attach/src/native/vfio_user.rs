//! The frontend's end of vfio-user: the calls that a VMM makes for its guest.
//!
//! [`VfioUserClient`] connects to a port, agrees on the version, grants memory by DMA mappings,
//! reads and writes regions, maps their areas, and assigns eventfds to interrupt vectors. Tests,
//! benchmarks and drivers without a VM use it; the daemon does not.
//!
//! Every call blocks until the reply arrives, at most [`REPLY_TIMEOUT_MS`] (5 s) for each request,
//! and at most 2 s for room in the socket. Posted writes have no reply: a refused posted write goes
//! unnoticed. [`VfioUserClient::map_all`] keeps up to [`UNANSWERED_MAX`] (64) requests in flight.
//! The server is not trusted: lengths and numbers of a reply are checked, and a broken rule is a
//! [`VfioUserError`], after which the client must be dropped; only [`VfioUserError::Refused`],
//! [`VfioUserError::NoArea`] and [`VfioUserError::Mapping`] leave the conversation intact. The
//! client does not reconnect, starts no thread and handles no interrupt: the caller waits for its
//! own eventfds. Not thread-safe: one request at a time. [`crate::vfio_user`] is the server.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_host::ReceivedFd;
use causeway_memory::{Mapping, MappingError, View};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::limits::{AREAS_MAX, DMA_BATCH_MAX, REPLY_TIMEOUT_MS, VFIO_DESCRIPTORS_MAX};
use crate::vfio_user::fault::Reason;
use crate::vfio_user::message::{
    DeviceInfo, DmaMap, DmaUnmap, HEADER_BYTES, Header, IrqInfo, RegionAccess, RegionInfo,
    SET_ACTION_TRIGGER, SET_DATA_EVENTFD, SET_DATA_NONE, SetIrqs, UNMAP_ALL, command,
};
use crate::vfio_user::stream::{MessageStream, RawMessage, ReadOutcome};

/// Most requests of [`VfioUserClient::map_all`] without a reply. The call waits for these before it
/// sends further requests.
pub const UNANSWERED_MAX: usize = DMA_BATCH_MAX;

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum VfioUserError {
    /// No server accepts connections at the port's socket.
    #[error("cannot connect to the vfio-user server: {0}")]
    Connect(#[source] Errno),
    /// The conversation failed.
    #[error("vfio-user: {0}")]
    Conversation(#[from] Reason),
    /// The server closed the connection.
    #[error("the vfio-user server closed the connection")]
    Gone,
    /// The server refused a command.
    #[error("the vfio-user server refused command {command} with errno {errno}")]
    Refused {
        /// The command.
        command: u16,
        /// The errno.
        errno: i32,
    },
    /// The reply belongs to another command, or has a wrong format.
    #[error("the reply to vfio-user command {0} is malformed or belongs to another command")]
    Reply(u16),
    /// No reply arrived within [`REPLY_TIMEOUT_MS`] (5 s).
    #[error("the vfio-user server did not answer command {0} in time")]
    Late(u16),
    /// An area cannot be mapped.
    #[error("an area of a region cannot be mapped: {0}")]
    Mapping(#[from] MappingError),
    /// The region has no such mappable area.
    #[error("the region has no mappable area {0}")]
    NoArea(usize),
}

/// A region of the server's device.
#[derive(Debug)]
pub struct ClientRegion {
    /// Size, flags and mappable areas.
    pub info: RegionInfo,
    /// The file of the mappable areas.
    file: Option<ReceivedFd>,
}

impl ClientRegion {
    /// Maps an area.
    ///
    /// # Errors
    /// Returns an error if the region has no such area or the kernel refuses the mapping.
    pub fn view(&self, area: usize) -> Result<View, VfioUserError> {
        let missing = VfioUserError::NoArea(area);
        let (Some(&(offset, size)), Some(file)) = (self.info.areas.get(area), &self.file) else {
            return Err(missing);
        };
        let mapping = Arc::new(Mapping::new(file.as_fd(), offset, size)?);
        let len = mapping.len();
        View::new(mapping, 0, len).map_err(|_| missing)
    }
}

/// The frontend's end of a conversation.
#[derive(Debug)]
pub struct VfioUserClient {
    stream: MessageStream,
    /// Number of the last request.
    id: u16,
}

/// A reply: its payload and descriptors.
type ReplyParts = (Vec<u8>, Vec<ReceivedFd>);

impl VfioUserClient {
    /// Connects to the server at `path` and agrees on the version.
    ///
    /// # Errors
    /// Returns an error if no server accepts the connection, or if the conversation fails.
    pub fn connect(path: &Path) -> Result<Self, VfioUserError> {
        let kind = SocketType::STREAM;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let socket = socket.map_err(VfioUserError::Connect)?;
        let address = SocketAddrUnix::new(path).map_err(VfioUserError::Connect)?;
        connect(&socket, &address).map_err(VfioUserError::Connect)?;
        Self::over(socket)
    }

    /// Agrees on the version over a connected socket.
    ///
    /// # Errors
    /// Returns an error if the conversation fails.
    pub fn over(socket: OwnedFd) -> Result<Self, VfioUserError> {
        let mut client = Self::without_version(socket);
        let mut payload = vec![0, 0, 0, 0];
        let text = format!(
            "{{\"capabilities\":{{\"max_msg_fds\":{VFIO_DESCRIPTORS_MAX},\"pgsizes\":4096}}}}"
        );
        payload.extend(text.as_bytes());
        payload.push(0);
        client.request(command::VERSION, &payload, &[])?;
        Ok(client)
    }

    /// Returns a client that has not sent VERSION.
    pub fn without_version(socket: OwnedFd) -> Self {
        Self { stream: MessageStream::new(socket), id: 0 }
    }

    /// Sends a command with any payload and waits for its reply.
    ///
    /// # Errors
    /// Returns an error if the server refuses the command or the conversation fails.
    pub fn request(
        &mut self,
        command: u16,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<ReplyParts, VfioUserError> {
        let header = self.send(command, payload, fds)?;
        self.reply(&header)
    }

    /// Sends a command, and returns its header.
    fn send(
        &mut self,
        command: u16,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Header, VfioUserError> {
        self.id = self.id.wrapping_add(1);
        let header = Header::command(self.id, command, payload.len());
        self.stream.send(&[header.emit().as_slice(), payload].concat(), fds, None)?;
        Ok(header)
    }

    /// Waits for the reply to a command.
    fn reply(&mut self, to: &Header) -> Result<ReplyParts, VfioUserError> {
        let deadline = Instant::now().checked_add(Duration::from_millis(REPLY_TIMEOUT_MS));
        loop {
            match self.stream.receive()? {
                ReadOutcome::Message(RawMessage { header, payload, fds, .. }) => {
                    let (command, id) = (header.command, header.id);
                    if !header.is_reply() || command != to.command || id != to.id {
                        return Err(VfioUserError::Reply(to.command));
                    }
                    return match header.errno() {
                        Some(errno) => Err(VfioUserError::Refused { command, errno }),
                        None => Ok((payload, fds)),
                    };
                }
                ReadOutcome::Closed => return Err(VfioUserError::Gone),
                ReadOutcome::Nothing => {}
            }
            if !self.stream.wait_readable(None, deadline)? {
                return Err(VfioUserError::Late(to.command));
            }
        }
    }

    /// Returns the numbers of regions and interrupt types.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn device_info(&mut self) -> Result<DeviceInfo, VfioUserError> {
        let empty = DeviceInfo { flags: 0, regions: 0, interrupts: 0 };
        let (payload, _) = self.request(command::DEVICE_GET_INFO, &empty.emit(), &[])?;
        DeviceInfo::parse(&payload).ok_or(VfioUserError::Reply(command::DEVICE_GET_INFO))
    }

    /// Returns a region with its mappable areas.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn region(&mut self, index: u32) -> Result<ClientRegion, VfioUserError> {
        const ROOM: usize = 48 + 16 * AREAS_MAX;
        let room = u32::try_from(ROOM).unwrap_or(u32::MAX);
        let request = RegionInfo::emit_request(index, room);
        let (payload, fds) = self.request(command::DEVICE_GET_REGION_INFO, &request, &[])?;
        let info = RegionInfo::parse(&payload).filter(|info| info.index == index);
        let info = info.ok_or(VfioUserError::Reply(command::DEVICE_GET_REGION_INFO))?;
        Ok(ClientRegion { info, file: fds.into_iter().next() })
    }

    /// Returns the number of vectors of an interrupt type.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn interrupt_info(&mut self, index: u32) -> Result<IrqInfo, VfioUserError> {
        let request = IrqInfo { flags: 0, index, count: 0 }.emit();
        let (payload, _) = self.request(command::DEVICE_GET_IRQ_INFO, &request, &[])?;
        IrqInfo::parse(&payload).ok_or(VfioUserError::Reply(command::DEVICE_GET_IRQ_INFO))
    }

    /// Grants memory of a file, or announces a range without a file.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn map(&mut self, map: &DmaMap, file: Option<BorrowedFd<'_>>) -> Result<(), VfioUserError> {
        let fds: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        self.request(command::DMA_MAP, &map.emit(), &fds).map(drop)
    }

    /// Grants many ranges of one file, without waiting for each reply.
    ///
    /// # Errors
    /// As [`Self::request`]. Ranges after a refused range may be granted.
    pub fn map_all(&mut self, maps: &[DmaMap], file: BorrowedFd<'_>) -> Result<(), VfioUserError> {
        for batch in maps.chunks(UNANSWERED_MAX) {
            let mut sent = Vec::with_capacity(batch.len());
            for map in batch {
                sent.push(self.send(command::DMA_MAP, &map.emit(), &[file])?);
            }
            let mut result = Ok(());
            for header in &sent {
                match self.reply(header) {
                    Ok(_) => {}
                    Err(error @ VfioUserError::Refused { .. }) => result = result.and(Err(error)),
                    Err(error) => return Err(error),
                }
            }
            result?;
        }
        Ok(())
    }

    /// Revokes all grants in a range. The device does not use them after the return.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn unmap(&mut self, address: u64, size: u64) -> Result<(), VfioUserError> {
        let unmap = DmaUnmap { flags: 0, address, size };
        self.request(command::DMA_UNMAP, &unmap.emit(), &[]).map(drop)
    }

    /// Revokes all grants.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn unmap_all(&mut self) -> Result<(), VfioUserError> {
        let unmap = DmaUnmap { flags: UNMAP_ALL, address: 0, size: 0 };
        self.request(command::DMA_UNMAP, &unmap.emit(), &[]).map(drop)
    }

    /// Assigns eventfds to the vectors from `start` on, 8 in a message.
    ///
    /// # Errors
    /// As [`Self::request`]. The vectors of earlier messages keep their eventfds then.
    pub fn set_interrupts(
        &mut self,
        index: u32,
        start: u32,
        eventfds: &[BorrowedFd<'_>],
    ) -> Result<(), VfioUserError> {
        // Longer lists are sent in several messages.
        for (chunk, at) in eventfds.chunks(VFIO_DESCRIPTORS_MAX).zip(0_u32..) {
            let before = at.saturating_mul(u32::try_from(VFIO_DESCRIPTORS_MAX).unwrap_or(0));
            let (start, flags) = (start.saturating_add(before), SET_DATA_EVENTFD);
            let count = u32::try_from(chunk.len()).unwrap_or(0);
            let set = SetIrqs { flags: flags | SET_ACTION_TRIGGER, index, start, count };
            self.request(command::DEVICE_SET_IRQS, &set.emit(), chunk)?;
        }
        Ok(())
    }

    /// Takes the eventfds of all vectors of an interrupt type away.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn clear_interrupts(&mut self, index: u32) -> Result<(), VfioUserError> {
        let flags = SET_DATA_NONE | SET_ACTION_TRIGGER;
        let set = SetIrqs { flags, index, start: 0, count: 0 };
        self.request(command::DEVICE_SET_IRQS, &set.emit(), &[]).map(drop)
    }

    /// Reads a region.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn read(&mut self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), VfioUserError> {
        let wrong = VfioUserError::Reply(command::REGION_READ);
        let count = u32::try_from(into.len()).unwrap_or(u32::MAX);
        let access = RegionAccess { offset, region, count };
        let (payload, _) = self.request(command::REGION_READ, &access.emit(), &[])?;
        let (answered, data) = RegionAccess::parse(&payload).ok_or(wrong)?;
        if answered != access || data.len() != into.len() {
            return Err(VfioUserError::Reply(command::REGION_READ));
        }
        into.copy_from_slice(data);
        Ok(())
    }

    /// Writes a region.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) -> Result<(), VfioUserError> {
        let payload = write_payload(region, offset, bytes);
        self.request(command::REGION_WRITE, &payload, &[]).map(drop)
    }

    /// Writes a region without a reply.
    ///
    /// # Errors
    /// Returns an error if the connection fails.
    pub fn write_posted(
        &mut self,
        region: u32,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), VfioUserError> {
        let payload = write_payload(region, offset, bytes);
        self.id = self.id.wrapping_add(1);
        let header = Header::command(self.id, command::REGION_WRITE, payload.len());
        let mut message = header.without_reply().emit();
        debug_assert_eq!(message.len(), HEADER_BYTES);
        message.extend(payload);
        Ok(self.stream.send(&message, &[], None)?)
    }

    /// Resets the device.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn reset(&mut self) -> Result<(), VfioUserError> {
        self.request(command::DEVICE_RESET, &[], &[]).map(drop)
    }
}

/// Returns the payload of REGION_WRITE.
fn write_payload(region: u32, offset: u64, bytes: &[u8]) -> Vec<u8> {
    let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [RegionAccess { offset, region, count }.emit().as_slice(), bytes].concat()
}

impl AsFd for VfioUserClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
