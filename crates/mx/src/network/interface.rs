//! The interface of a NIC. It can go down, be removed, and come back.
//!
//! An interface has one packet socket of the daemon, and one for each endpoint in direct mode.
//! Filters ([`super::endpoint_filter`]) divide the frames between them.
//!
//! An interface that is down is tried again every [`REBIND_NS`] (1 s); meanwhile frames in both
//! directions are dropped, and the engines retransmit. Then no endpoint can be opened in direct
//! mode, and the daemon serves it. If the filter cannot be restored after direct mode, frames to
//! the endpoint are dropped until a filter is attached again: at the next start or end of direct
//! mode, or when the interface was down and is up again. If the MTU is less than 4,130
//! bytes (`FRAME_LEN_NARROW` less the Ethernet header), the command that adds the port fails; an
//! interface that comes back with such an MTU counts as down. Jumbo frames need an MTU of 8,226
//! bytes. After an interface came back, socket and filter of the daemon are new; sockets of
//! processes in direct mode are not renewed: if the interface was removed, their endpoints receive
//! nothing until they are opened again. The module sets no MTU, address or promiscuous mode. At the
//! end of a pass (one service of the carrier in a turn) without frames the interface wakes the
//! dispatcher again, unless the dispatcher polls. Called by `network::carrier` on the dispatcher's
//! thread.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use causeway_fabric::socket_buffers::{set_receive_buffer, set_send_buffer};
use causeway_fabric::{Context, ServiceWatch};
use causeway_host::net::bpf::{self, BpfInstruction};
use causeway_host::net::receiver::PacketReceiver;
use causeway_host::net::socket::{InterfaceError, PacketSocket};
use causeway_mxoe::driver::limits::{FRAME_ROOM, WIDE_MTU, slots_for};
use causeway_wire::mxoe::{ETHER_TYPE, FRAME_LEN_NARROW};
use rustix::io::Errno;

use super::carrier::ReceiveResult;
use super::endpoint_filter::{self, DirectEndpoints};
use crate::limits::{REBIND_NS, SOCKET_BYTES};

/// Length of an Ethernet header in bytes.
const ETHERNET_LEN: usize = 14;

/// The daemon's packet socket of an interface that is up.
#[derive(Debug)]
struct BoundSocket {
    socket: Arc<PacketSocket>,
    watch: ServiceWatch,
    /// The interface is polled and does not wake the dispatcher.
    is_polled: bool,
}

/// Ends a pass without frames. If `polled`, the next pass comes without a wake-up. Returns false if
/// wake-ups could not be enabled, so that another pass is necessary.
pub fn end_pass(watch: &ServiceWatch, is_polled: &mut bool, polled: bool) -> bool {
    if *is_polled != polled && (if polled { watch.mute() } else { watch.unmute() }) {
        *is_polled = polled;
    }
    polled || !*is_polled
}

/// The interface of a NIC.
#[derive(Debug)]
pub struct NicInterface {
    /// Name of the interface.
    pub name: String,
    /// MAC of the NIC.
    address: [u8; 6],
    /// Number by which the interface is served.
    pub source: u32,
    /// The socket while the interface is up.
    bound: Option<BoundSocket>,
    /// Time of the next attempt to bind, in ns.
    rebind_at_ns: Option<u64>,
    /// Reason why the interface is down.
    pub reason: String,
    /// Receiver of frames, by a ring where the kernel permits.
    pub inlet: PacketReceiver,
    /// Buffer for frames that are not read from the receive ring.
    room: Vec<u8>,
    /// Length of the frame that was received last.
    len: usize,
    /// How often the interface was bound.
    pub ups: u64,
    /// Endpoints in direct mode.
    direct: DirectEndpoints,
}

impl NicInterface {
    /// Creates an interface that is not bound yet. `address` is the MAC of the NIC.
    pub fn new(name: String, address: [u8; 6], source: u32) -> Self {
        Self {
            name,
            address,
            source,
            bound: None,
            rebind_at_ns: None,
            reason: String::new(),
            inlet: PacketReceiver::default(),
            room: vec![0; FRAME_ROOM],
            len: 0,
            ups: 0,
            direct: DirectEndpoints::default(),
        }
    }

    /// Records that the process of an endpoint has a packet socket from the previous daemon.
    pub fn add_direct(&mut self, endpoint: u8) {
        self.direct.add(endpoint);
    }

    /// Opens a packet socket for the process of an endpoint. Frames to the endpoint arrive there
    /// from now on, and not at the daemon. The process can send any frame, but receives only these.
    ///
    /// # Errors
    /// The interface is down, or the kernel refuses the socket or a filter.
    pub fn open_direct(&mut self, endpoint: u8) -> Result<OwnedFd, InterfaceError> {
        let host = |error| InterfaceError::Host(self.name.clone(), error);
        let Some(bound) = &self.bound else { return Err(InterfaceError::Down(self.name.clone())) };
        let program = |index| endpoint_filter::filter_of_endpoint(index, self.address, endpoint);
        let socket = self.socket_for(program)?;
        bpf::lock(socket.as_fd()).map_err(host)?;
        let mut direct = self.direct;
        direct.add(endpoint);
        let program = endpoint_filter::filter_of_daemon(self.address, &direct);
        bpf::attach(bound.socket.as_fd(), &program).map_err(host)?;
        self.direct = direct;
        Ok(socket.into_fd())
    }

    /// Ends the direct mode of an endpoint: its frames arrive at the daemon again. A filter that
    /// cannot be restored is logged. Returns whether its process had a packet socket.
    pub fn end_direct(&mut self, endpoint: u8) -> bool {
        let had = self.direct.remove(endpoint);
        if let Some(bound) = self.bound.as_ref().filter(|_| had) {
            let program = endpoint_filter::filter_of_daemon(self.address, &self.direct);
            if let Err(error) = bpf::attach(bound.socket.as_fd(), &program) {
                let interface = self.name.as_str();
                log::error!(
                    interface, endpoint, error:%;
                    "cannot restore the packet filter: MXoE frames to this endpoint are dropped until the \
                     interface is down and up again"
                );
            }
        }
        had
    }

    /// Returns the packet socket while the interface is up.
    pub fn socket(&self) -> Option<Arc<PacketSocket>> {
        self.bound.as_ref().map(|bound| bound.socket.clone())
    }

    /// Returns whether the MTU allows jumbo frames.
    pub fn is_wide(&self) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.socket.mtu() >= WIDE_MTU)
    }

    /// Binds the interface, or schedules another attempt.
    ///
    /// # Errors
    /// The reason, and the remedy.
    pub fn bind(&mut self, cx: &Context<'_>) -> Result<(), InterfaceError> {
        let opened = self.try_bind(cx);
        match &opened {
            Ok(()) => {
                self.rebind_at_ns = None;
                self.reason.clear();
                self.ups = self.ups.saturating_add(1);
            }
            Err(error) => {
                self.reason = error.to_string();
                self.rebind_at_ns = Some(cx.now_ns.saturating_add(REBIND_NS));
            }
        }
        opened
    }

    /// Opens a packet socket with a filter.
    fn socket_for(
        &self,
        program: impl FnOnce(u32) -> Vec<BpfInstruction>,
    ) -> Result<PacketSocket, InterfaceError> {
        let socket = PacketSocket::open_bare(&self.name, ETHER_TYPE, program)?;
        set_receive_buffer(&socket, SOCKET_BYTES);
        set_send_buffer(&socket, SOCKET_BYTES);
        Ok(socket)
    }

    /// Binds the interface once. The caller schedules another attempt after an error.
    fn try_bind(&mut self, cx: &Context<'_>) -> Result<(), InterfaceError> {
        let host = |error| InterfaceError::Host(self.name.clone(), error);
        let program = endpoint_filter::filter_of_daemon(self.address, &self.direct);
        let socket = self.socket_for(|_| program)?;
        let needed = FRAME_LEN_NARROW.saturating_sub(ETHERNET_LEN);
        if socket.mtu() < needed {
            let text = format!(
                "the MTU is {}, and MXoE needs {needed}: run `ip link set {} mtu 9000`, if the network \
                 carries that",
                socket.mtu(),
                self.name
            );
            return Err(host(io::Error::other(text)));
        }
        let watch = cx.watch_source(socket.as_fd(), self.source).map_err(host)?;
        if let Err(error) = self.inlet.open(&socket, slots_for(socket.mtu())) {
            let interface = self.name.as_str();
            log::warn!(interface, error:%; "cannot create a receive ring: each frame costs a system call");
        }
        self.bound = Some(BoundSocket { socket: Arc::new(socket), watch, is_polled: false });
        Ok(())
    }

    /// Returns the time of the next call of [`Self::bind`] in ns.
    pub fn rebind_at_ns(&self) -> Option<u64> {
        self.rebind_at_ns
    }

    /// Ends a pass without frames. If `polled`, the next pass comes without a wake-up, and senders
    /// need not wake the dispatcher. Returns false if another pass is necessary.
    pub fn end_pass(&mut self, polled: bool) -> bool {
        let Some(bound) = &mut self.bound else { return true };
        end_pass(&bound.watch, &mut bound.is_polled, polled)
    }

    /// Returns the frame that was received last.
    pub fn frame(&self) -> &[u8] {
        let whole = self.inlet.held().unwrap_or(&self.room);
        whole.get(..self.len).unwrap_or(&[])
    }

    /// Receives a frame. `is_woken`: the interface was woken, and a wake-up without a frame is
    /// examined for its reason.
    pub fn receive(&mut self, now_ns: u64, is_woken: bool) -> ReceiveResult {
        let Some(BoundSocket { socket, .. }) = &self.bound else { return ReceiveResult::Empty };
        match self.inlet.look(socket, &mut self.room, now_ns, is_woken) {
            Ok(packet) => {
                self.len = packet.len;
                // Frames with a VLAN tag belong to other networks.
                let whole = packet.len <= self.room.len() && packet.tag.is_none();
                if whole { ReceiveResult::Frame } else { ReceiveResult::Invalid }
            }
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::AGAIN) => ReceiveResult::Empty,
                Some(Errno::NETDOWN | Errno::NODEV | Errno::NXIO) | None
                    if error.kind() != io::ErrorKind::InvalidData =>
                {
                    self.reason = format!("interface {}: {error}", self.name);
                    self.bound = None;
                    self.inlet.close();
                    self.rebind_at_ns = Some(now_ns.saturating_add(REBIND_NS));
                    ReceiveResult::Down
                }
                _ => ReceiveResult::Invalid,
            },
        }
    }
}
