//! A native vsock port: single virtio-vsock packets (virtio 1.3, 5.10).
//!
//! A process attaches a [`VsockPort`] to the socket of a port and sends and receives packets with
//! their headers; the backend of the port is the `socket` service. [`super::Sockets`] builds
//! connections on it. Tests, benchmarks, simulations and examples use it; causewayd does not.
//!
//! It neither tracks connections nor counts credit: packets beyond the peer's credit are sent as
//! given. A packet to send has at most 65,536 bytes behind its header of 44 bytes
//! ([`PACKET_BYTES_MAX`]), or [`NativeError::Long`] is returned. A full send ring returns `false`.
//! Received buffers go back to the backend together: a quarter of the ring at once, the others when
//! [`VsockPort::receive`] finds no packet. A port is owned by one thread at a time, and only
//! [`VsockPort::attach`], [`VsockPort::over`] and [`VsockPort::wait`] block.
//!
//! Only [`VsockPort::wait`] notices that the backend is gone: it reconnects if
//! [`VsockOptions::reconnect`] is set, which may block beyond its time-out, and else returns an
//! error. A caller that spins calls [`Frontend::reconnect`]. After a reconnection packets in flight
//! may be sent twice, and the event queue reports a reset of the transport. A port that can
//! reconnect has split rings, also if [`VsockOptions::features`] requests packed rings.

use std::path::Path;
use std::time::Duration;

use causeway_wire::vsock::{CONFIG_LEN, HEADER_LEN, Header, VIRTIO_VSOCK_F_SEQPACKET};

use super::client::Client;
use super::error::NativeError;
use super::frontend::{DevicePlan, Frontend, QueuePlan, Role};
use super::reconnect::Reconnect;

/// Queue numbers of the device (virtio 1.3, 5.10.2).
const RECEIVE: usize = 0;
const SEND: usize = 1;
const EVENT: usize = 2;
/// Longest packet that is sent, in bytes: Linux's limit and a header.
const PACKET_BYTES_MAX: u32 = 65_536 + HEADER_LEN as u32;
/// Size of the event ring, in descriptors.
const EVENTS: u16 = 8;

/// Options of a vsock port.
#[derive(Debug, Clone)]
pub struct VsockOptions {
    /// Size of the two packet rings, in descriptors; a power of two.
    pub ring_size: u16,
    /// Bytes of a receive buffer, header included. Linux posts about 4 KiB.
    pub receive_bytes: u32,
    /// Requested feature bits besides SEQPACKET: VIRTIO_F_RING_PACKED for packed rings.
    pub features: u64,
    /// Cuts sent packets into descriptors of this many bytes; the length of the header gives it a
    /// descriptor of its own.
    pub descriptor_bytes: Option<u32>,
    /// Time for which the port searches for a new backend after a disconnect; `None`: not at all.
    /// Only a port that was attached by path can reconnect.
    pub reconnect: Option<Duration>,
}

impl Default for VsockOptions {
    fn default() -> Self {
        Self {
            ring_size: 256,
            receive_bytes: 4096,
            features: 0,
            descriptor_bytes: None,
            reconnect: None,
        }
    }
}

/// An attached vsock port.
#[derive(Debug)]
pub struct VsockPort {
    frontend: Frontend,
    options: VsockOptions,
    cid: u64,
}

impl VsockPort {
    /// Attaches to the port whose socket is at `path`.
    ///
    /// # Errors
    /// Returns an error if the connection or the conversation fails, if the backend lacks
    /// VIRTIO_F_VERSION_1 or a CID, or with [`VsockOptions::reconnect`] a record of chains in
    /// flight, if the ring size is invalid, or if receive buffers have no room behind a header (44
    /// bytes). Other features that the backend lacks are left out.
    pub fn attach(path: &Path, options: VsockOptions) -> Result<Self, NativeError> {
        let reconnect = options.reconnect.map(|within| Reconnect::new(path, within));
        Self::over_for(Client::connect(path)?, options, reconnect.as_ref())
    }

    /// Attaches over an established conversation.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn over(client: Client, options: VsockOptions) -> Result<Self, NativeError> {
        Self::over_for(client, options, None)
    }

    /// Attaches over an established conversation; `reconnect` has the path for reconnections.
    fn over_for(
        client: Client,
        options: VsockOptions,
        reconnect: Option<&Reconnect>,
    ) -> Result<Self, NativeError> {
        if (options.receive_bytes as usize) <= HEADER_LEN {
            return Err(NativeError::Options("receive buffers must hold more than a header"));
        }
        let size = options.ring_size;
        let plan = DevicePlan {
            features: options.features | 1 << VIRTIO_VSOCK_F_SEQPACKET,
            queues: vec![
                QueuePlan { role: Role::Receive, size, slot_bytes: options.receive_bytes },
                QueuePlan { role: Role::Send, size, slot_bytes: PACKET_BYTES_MAX },
                QueuePlan { role: Role::Receive, size: EVENTS, slot_bytes: 64 },
            ],
            config_bytes: CONFIG_LEN as u32,
        };
        let frontend = Frontend::attach_for(client, &plan, reconnect)?;
        let cid = frontend.config().first_chunk().map(|cid| u64::from_le_bytes(*cid));
        let cid = cid.ok_or(NativeError::Lacking("a configuration space with the CID"))?;
        Ok(Self { frontend, options, cid })
    }

    /// Returns the device of the port.
    pub fn frontend(&mut self) -> &mut Frontend {
        &mut self.frontend
    }

    /// Returns the CID that the backend assigned.
    pub fn cid(&self) -> u64 {
        self.cid
    }

    /// Returns the most payload bytes of a sent packet: always 65,536.
    pub fn data_bytes_max(&self) -> usize {
        (PACKET_BYTES_MAX as usize).saturating_sub(HEADER_LEN)
    }

    /// Queues a packet for the next [`Self::flush`]; returns `false` if the ring is full. `header`
    /// is sent unchanged.
    ///
    /// # Errors
    /// Returns an error if the packet is too long or the ring is broken.
    #[inline]
    pub fn queue(&mut self, header: &Header, data: &[u8]) -> Result<bool, NativeError> {
        let piece = self.options.descriptor_bytes;
        let (map, lane) = self.frontend.driver_queue(SEND)?;
        lane.send(map, &[&header.emit(), data], piece)
    }

    /// As [`Self::queue`], with the bytes that its buffers have already as the `header.len` bytes of
    /// payload. For sources that are not to spend time on the copy.
    ///
    /// # Errors
    /// Returns an error if the packet is too long or the ring is broken.
    #[inline]
    pub fn queue_as_is(&mut self, header: &Header) -> Result<bool, NativeError> {
        let piece = self.options.descriptor_bytes;
        let (map, lane) = self.frontend.driver_queue(SEND)?;
        lane.send_headed_as_is(map, &header.emit(), header.len, piece)
    }

    /// Publishes all queued packets to the backend.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    #[inline]
    pub fn flush(&mut self) -> Result<(), NativeError> {
        Ok(self.frontend.driver_queue(SEND)?.1.flush()?)
    }

    /// Returns whether the backend has used everything that was sent.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    pub fn is_idle(&mut self) -> Result<bool, NativeError> {
        Ok(self.frontend.driver_queue(SEND)?.1.is_idle()?)
    }

    /// Receives the next packet: returns its header and writes its payload to `data`; `None` if
    /// there is no packet. A packet that is shorter than a header is skipped. An invalid header
    /// returns `None` as well, although packets may follow; [`Self::wait`] then returns at once.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    #[inline]
    pub fn receive(&mut self, data: &mut Vec<u8>) -> Result<Option<Header>, NativeError> {
        let (map, lane) = self.frontend.driver_queue(RECEIVE)?;
        while let Some((head, written)) = lane.next_written()? {
            let mut bytes = [0; HEADER_LEN];
            let payload = (written as usize).checked_sub(HEADER_LEN);
            // Not cleared first: the bytes are overwritten anyway.
            data.resize(payload.unwrap_or(0), 0);
            if payload.is_some() {
                lane.read(map, head, 0, &mut bytes)?;
                lane.read(map, head, HEADER_LEN as u32, data)?;
            }
            lane.give_back(head)?;
            if payload.is_some() {
                return Ok(Header::parse(&bytes).ok());
            }
        }
        data.clear();
        Ok(None)
    }

    /// As [`Self::receive`], without the payload. For sinks.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    #[inline]
    pub fn discard(&mut self) -> Result<Option<Header>, NativeError> {
        let (map, lane) = self.frontend.driver_queue(RECEIVE)?;
        while let Some((head, written)) = lane.next_written()? {
            let mut bytes = [0; HEADER_LEN];
            let is_whole = written as usize >= HEADER_LEN;
            if is_whole {
                lane.read(map, head, 0, &mut bytes)?;
            }
            lane.give_back(head)?;
            if is_whole {
                return Ok(Header::parse(&bytes).ok());
            }
        }
        Ok(None)
    }

    /// Returns the next event of the event queue, if there is one. A buffer of fewer than 4 bytes
    /// is no event and returns `None`, although events may follow.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    pub fn receive_event(&mut self) -> Result<Option<u32>, NativeError> {
        let (map, lane) = self.frontend.driver_queue(EVENT)?;
        let Some((head, written)) = lane.next_written()? else { return Ok(None) };
        let mut bytes = [0; 4];
        if written >= 4 {
            lane.read(map, head, 0, &mut bytes)?;
        }
        lane.give_back(head)?;
        lane.flush()?;
        Ok((written >= 4).then(|| u32::from_le_bytes(bytes)))
    }

    /// Waits for a packet or an event, with `room` also until packets can be sent. Returns `false`
    /// after `timeout`.
    ///
    /// # Errors
    /// Returns an error if the backend is gone and the port cannot reconnect, or a ring is broken.
    pub fn wait(&mut self, room: bool, timeout: Option<Duration>) -> Result<bool, NativeError> {
        let senders: &[usize] = if room { &[SEND] } else { &[] };
        self.frontend.wait(&[RECEIVE, EVENT], senders, timeout)
    }
}
