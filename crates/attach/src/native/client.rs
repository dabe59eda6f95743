//! The frontend side of a vhost-user conversation: sends requests and waits for replies.
//!
//! [`super::NetPort`], [`super::VsockPort`] and `reconnect` connect it, and [`super::Frontend`]
//! attaches by it; tests and benchmarks use it alone. The client encodes requests and checks
//! replies, owns no memory and no ring, and handles no requests of the backend.
//!
//! A request with a reply blocks until the reply arrives, at most [`REPLY_TIMEOUT_MS`] (5 s); a
//! call may make several requests. With a [`Pump`] the backend runs in the caller's thread instead,
//! at most [`PUMP_TURNS_MAX`] (1,024) turns for a reply. A protocol feature that the backend does
//! not offer is left out; without REPLY_ACK a request that changes state has no reply, and a
//! refusal is not noticed. After an error the conversation is out of step, and the client must be
//! dropped. Not thread-safe: one request at a time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::error::NativeError;
use crate::limits::{CONNECT_PAUSE_MS, PUMP_TURNS_MAX, REPLY_TIMEOUT_MS};
use crate::vhost_user::fault::Reason;
use crate::vhost_user::message::{
    ConfigSpace, Header, InflightSpec, Message, RegionSpec, RingAddresses, RingEvent, RingValue,
    emit_region, emit_table,
};
use crate::vhost_user::server::features;
use crate::vhost_user::stream::{MessageStream, RawMessage, ReadOutcome};
use crate::vhost_user::{FrontendReq as R, VhostUserProtocolFeatures as Protocol};

/// Runs a backend in the caller's thread while the client waits for its reply.
pub trait Pump: Send + std::fmt::Debug {
    /// Lets the backend work. Returns `false` if the conversation is over.
    fn pump(&mut self) -> bool;
}

/// The frontend's end of a conversation with a backend.
#[derive(Debug)]
pub struct Client {
    /// The connection.
    stream: MessageStream,
    /// Negotiated protocol features.
    protocol: Protocol,
    /// Virtio features that the backend offers, less declined features.
    offered: u64,
    /// The backend, if it runs in the caller's thread.
    pump: Option<Box<dyn Pump>>,
}

/// Protocol features that this frontend implements.
const KNOWN: Protocol = Protocol::MQ
    .union(Protocol::REPLY_ACK)
    .union(Protocol::CONFIG)
    .union(Protocol::CONFIGURE_MEM_SLOTS)
    .union(Protocol::RESET_DEVICE)
    .union(Protocol::INFLIGHT_SHMFD)
    .union(Protocol::STATUS);

/// Device status of a working driver (virtio 1.3, 2.1): ACKNOWLEDGE, DRIVER, FEATURES_OK,
/// DRIVER_OK.
const DRIVER_OK: u8 = 1 | 2 | 8 | 4;

impl Client {
    /// Connects to the backend at `path`, sends SET_OWNER and negotiates protocol features.
    ///
    /// # Errors
    /// Returns an error if no backend accepts the connection, or if the conversation fails.
    pub fn connect(path: &Path) -> Result<Self, NativeError> {
        let wrong = |source| NativeError::Connect { path: path.to_owned(), source };
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let address = SocketAddrUnix::new(path).map_err(wrong)?;
        connect(&socket, &address).map_err(wrong)?;
        Self::over(socket)
    }

    /// As [`Self::connect`], with a retry every [`CONNECT_PAUSE_MS`] (10 ms) until `timeout` while
    /// no backend accepts or it closes the connection: for a backend that is starting or
    /// restarting.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_within(path: &Path, timeout: Duration) -> Result<Self, NativeError> {
        let since = Instant::now();
        loop {
            match Self::connect(path) {
                Err(NativeError::Connect { .. } | NativeError::Gone)
                    if since.elapsed() < timeout =>
                {
                    std::thread::sleep(Duration::from_millis(CONNECT_PAUSE_MS));
                }
                result => return result,
            }
        }
    }

    /// As [`Self::connect`], over a connected socket.
    ///
    /// # Errors
    /// Returns an error if the conversation fails.
    pub fn over(socket: OwnedFd) -> Result<Self, NativeError> {
        Self::begin(socket, None)
    }

    /// As [`Self::over`], for a backend that works only while `pump` is called.
    ///
    /// # Errors
    /// As [`Self::over`].
    pub fn pumped(socket: OwnedFd, pump: Box<dyn Pump>) -> Result<Self, NativeError> {
        Self::begin(socket, Some(pump))
    }

    /// Sends SET_OWNER and negotiates protocol features over `socket`. SET_OWNER comes first: the
    /// backend then offers the configuration space of a network device too.
    fn begin(socket: OwnedFd, pump: Option<Box<dyn Pump>>) -> Result<Self, NativeError> {
        let stream = MessageStream::new(socket);
        let mut client = Self { stream, protocol: Protocol::empty(), offered: 0, pump };
        client.tell(R::SET_OWNER, &[], &[])?;
        client.offered = client.ask_number(R::GET_FEATURES)?;
        if client.offered & features::PROTOCOL_FEATURES != 0 {
            let all = Protocol::from_bits_truncate(client.ask_number(R::GET_PROTOCOL_FEATURES)?);
            let ours = all.intersection(KNOWN);
            client.tell(R::SET_PROTOCOL_FEATURES, &ours.bits().to_ne_bytes(), &[])?;
            client.protocol = ours;
        }
        Ok(client)
    }

    /// Returns the features that the backend offers.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Treats `features` as not offered. Call it before the port is attached.
    pub fn decline(&mut self, features: u64) {
        self.offered &= !features;
    }

    /// Returns the negotiated protocol features.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Returns the number of queues that the backend serves; some backends count queue pairs of a
    /// network device.
    ///
    /// # Errors
    /// Returns an error if the conversation fails.
    pub fn queue_count(&mut self) -> Result<u64, NativeError> {
        if self.protocol.contains(Protocol::MQ) { self.ask_number(R::GET_QUEUE_NUM) } else { Ok(1) }
    }

    /// Returns the first `size` bytes of the configuration space, or `None` if the backend has
    /// none.
    ///
    /// # Errors
    /// Returns an error if the conversation fails.
    pub fn config(&mut self, size: u32) -> Result<Option<Vec<u8>>, NativeError> {
        if !self.protocol.contains(Protocol::CONFIG) {
            return Ok(None);
        }
        let space = ConfigSpace { offset: 0, size, flags: 0, bytes: vec![0; size as usize] };
        let reply = self.ask(R::GET_CONFIG, &space.emit())?;
        Ok(Some(Message::decode_config(&reply.payload)?.bytes))
    }

    /// Acknowledges `wanted`, which the backend must have offered.
    ///
    /// # Errors
    /// Returns an error if the conversation fails.
    pub fn set_features(&mut self, wanted: u64) -> Result<(), NativeError> {
        let all = wanted | (self.offered & features::PROTOCOL_FEATURES);
        self.tell(R::SET_FEATURES, &all.to_ne_bytes(), &[])
    }

    /// Grants another region; the only region if the backend accepts no single regions.
    ///
    /// # Errors
    /// Returns an error if the backend refuses the region.
    pub fn grant(&mut self, region: &RegionSpec, file: BorrowedFd<'_>) -> Result<(), NativeError> {
        if self.protocol.contains(Protocol::CONFIGURE_MEM_SLOTS) {
            self.tell(R::ADD_MEM_REG, &emit_region(region), &[file])
        } else {
            self.tell(R::SET_MEM_TABLE, &emit_table(&[*region]), &[file])
        }
    }

    /// Configures and starts queue `addresses.index`. `base` is the ring's position: for a new
    /// ring, [`Driver::base`](causeway_ring::driver::Driver::base).
    ///
    /// # Errors
    /// Returns an error if the backend refuses the queue.
    pub fn start_queue(
        &mut self,
        size: u16,
        base: u16,
        addresses: &RingAddresses,
        kick: BorrowedFd<'_>,
        call: BorrowedFd<'_>,
    ) -> Result<(), NativeError> {
        let index = addresses.index;
        let value = |value: u32| RingValue { index, value }.emit();
        self.tell(R::SET_VRING_NUM, &value(u32::from(size)), &[])?;
        self.tell(R::SET_VRING_BASE, &value(u32::from(base)), &[])?;
        self.tell(R::SET_VRING_ADDR, &addresses.emit(), &[])?;
        self.tell(R::SET_VRING_CALL, &RingEvent::emit(index, true), &[call])?;
        self.tell(R::SET_VRING_KICK, &RingEvent::emit(index, true), &[kick])?;
        if self.offered & features::PROTOCOL_FEATURES != 0 {
            self.tell(R::SET_VRING_ENABLE, &value(1), &[])?;
        }
        Ok(())
    }

    /// Has the backend create a record of chains in flight.
    ///
    /// # Errors
    /// Returns an error if the backend supports no such record, or if the conversation fails.
    pub fn make_inflight(
        &mut self,
        spec: &InflightSpec,
    ) -> Result<(InflightSpec, OwnedFd), NativeError> {
        if !self.protocol.contains(Protocol::INFLIGHT_SHMFD) {
            return Err(NativeError::Lacking("a record of chains in flight"));
        }
        let reply = self.ask(R::GET_INFLIGHT_FD, &spec.emit())?;
        // The reply has the format of the message that hands the record back.
        match Message::decode(R::SET_INFLIGHT_FD, &reply.payload, reply.fds)? {
            Message::SetInflightFd(spec, file) => Ok((spec, file.into_fd())),
            _ => Err(Reason::Reply(R::GET_INFLIGHT_FD).into()),
        }
    }

    /// Sends the status DRIVER_OK, if the backend accepts a status. Some backends, as DPDK's, start
    /// only then.
    ///
    /// # Errors
    /// Returns an error if the conversation fails.
    pub fn driver_ok(&mut self) -> Result<(), NativeError> {
        if !self.protocol.contains(Protocol::STATUS) {
            return Ok(());
        }
        self.tell(R::SET_STATUS, &u64::from(DRIVER_OK).to_ne_bytes(), &[])
    }

    /// Sends a record of chains in flight to the backend, before any queue is started.
    ///
    /// # Errors
    /// Returns an error if the backend refuses the record.
    pub fn keep_inflight(
        &mut self,
        spec: &InflightSpec,
        file: BorrowedFd<'_>,
    ) -> Result<(), NativeError> {
        self.tell(R::SET_INFLIGHT_FD, &spec.emit(), &[file])
    }

    /// Stops queue `index`. Returns the next available index of a split ring, or the position of a
    /// packed ring.
    ///
    /// # Errors
    /// Returns an error if the conversation fails, or if the backend returns an invalid position.
    pub fn stop_queue(&mut self, index: u32) -> Result<u16, NativeError> {
        let reply = self.ask(R::GET_VRING_BASE, &RingValue { index, value: 0 }.emit())?;
        let state = Message::decode_ring_value(R::GET_VRING_BASE, &reply.payload)?;
        match state.value.to_le_bytes() {
            // A packed ring without chains in flight returns its position twice.
            [low, high, 0, 0] => Ok(u16::from_le_bytes([low, high])),
            [low, high, l, h] if [l, h] == [low, high] => Ok(u16::from_le_bytes([low, high])),
            _ => Err(Reason::Reply(R::GET_VRING_BASE).into()),
        }
    }

    /// Sends a request that changes state, and waits for its acknowledgement if REPLY_ACK is
    /// negotiated.
    ///
    /// # Errors
    /// Returns an error if the backend refuses the request or does not reply within 5 s.
    pub fn tell(
        &mut self,
        request: R,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), NativeError> {
        let size = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let header = Header::request(request, size);
        if !self.protocol.contains(Protocol::REPLY_ACK) {
            return Ok(self.stream.send(header, payload, fds)?);
        }
        self.stream.send(header.need_reply(), payload, fds)?;
        let reply = self.reply(request)?;
        match Message::decode_number(request, &reply.payload)? {
            0 => Ok(()),
            _ => Err(Reason::Refused(request).into()),
        }
    }

    /// Sends a request that has a reply, and returns the reply.
    ///
    /// # Errors
    /// Returns an error if the reply is missing or belongs to another request.
    pub fn ask(&mut self, request: R, payload: &[u8]) -> Result<RawMessage, NativeError> {
        let size = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.stream.send(Header::request(request, size), payload, &[])?;
        self.reply(request)
    }

    /// Sends a request without payload, and returns the number in its reply.
    fn ask_number(&mut self, request: R) -> Result<u64, NativeError> {
        let reply = self.ask(request, &[])?;
        Ok(Message::decode_number(request, &reply.payload)?)
    }

    /// Waits for the reply to `request`.
    fn reply(&mut self, request: R) -> Result<RawMessage, NativeError> {
        let deadline = Instant::now().checked_add(Duration::from_millis(REPLY_TIMEOUT_MS));
        let mut turns = 0..PUMP_TURNS_MAX;
        loop {
            match self.stream.receive()? {
                ReadOutcome::Message(raw)
                    if raw.header.is_reply() && raw.header.request == request =>
                {
                    return Ok(raw);
                }
                ReadOutcome::Message(_) => return Err(Reason::Reply(request).into()),
                ReadOutcome::Closed => return Err(NativeError::Gone),
                ReadOutcome::Nothing => {}
            }
            if let Some(pump) = &mut self.pump {
                turns.next().ok_or(Reason::Late(request))?;
                if !pump.pump() {
                    return Err(NativeError::Gone);
                }
                continue;
            }
            if !self.stream.wait_readable(None, deadline)? {
                return Err(Reason::Late(request).into());
            }
        }
    }

    /// Returns whether the backend has closed the connection. A backend sends nothing unasked, so
    /// readable data between two requests means the end.
    pub fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
