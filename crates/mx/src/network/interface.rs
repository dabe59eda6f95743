//! The interface of a board, which may go and come back.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use causeway_fabric::room::{hold_received, hold_sent};
use causeway_fabric::{Context, ServiceWatch};
use causeway_host::net::bpf::{self, Step};
use causeway_host::net::receiver::PacketInlet;
use causeway_host::net::socket::{PacketError, PacketSocket};
use causeway_mxoe::driver::limits::{FRAME_ROOM, WIDE_MTU, slots_for};
use causeway_wire::mxoe::{ETHER_TYPE, FRAME_LEN_NARROW};
use rustix::io::Errno;

use super::carried::Came;
use super::sieve::{self, Elsewhere};
use crate::limits::{AGAIN_NS, SOCKET_BYTES};

/// What the Ethernet header takes of a frame, in bytes.
const ETHERNET_LEN: usize = 14;

#[derive(Debug)]
struct Open {
    socket: Arc<PacketSocket>,
    watch: ServiceWatch,
    /// It is looked at anyway, and is not to wake us.
    hushed: bool,
}

/// Nothing more is there: whoever sends wakes us, or not where it is `polled`. False: it does not
/// yet.
pub fn rest(watch: &ServiceWatch, hushed: &mut bool, polled: bool) -> bool {
    if *hushed != polled && (if polled { watch.hush() } else { watch.listen() }) {
        *hushed = polled;
    }
    polled || !*hushed
}

/// See above.
#[derive(Debug)]
pub struct Interface {
    pub name: String,
    address: [u8; 6],
    pub source: u32,
    open: Option<Open>,
    again_ns: Option<u64>,
    /// Why it carries nothing.
    pub reason: String,
    pub inlet: PacketInlet,
    /// For frames that are not read in the ring.
    room: Vec<u8>,
    /// Length of the last frame.
    len: usize,
    pub ups: u64,
    /// Endpoints whose processes have sockets of their own here.
    elsewhere: Elsewhere,
}

impl Interface {
    /// Of that name, for frames to that address.
    pub fn new(name: String, address: [u8; 6], source: u32) -> Self {
        Self {
            name,
            address,
            source,
            open: None,
            again_ns: None,
            reason: String::new(),
            inlet: PacketInlet::default(),
            room: vec![0; FRAME_ROOM],
            len: 0,
            ups: 0,
            elsewhere: Elsewhere::default(),
        }
    }

    /// The process of that endpoint has a socket here, of a daemon before us.
    pub fn has_elsewhere(&mut self, endpoint: u8) {
        self.elsewhere.add(endpoint);
    }

    /// A socket for one endpoint, for its process: what is for it comes there from now on, and not
    /// here. The process can send what it likes by it, and hears nothing else.
    ///
    /// # Errors
    /// The interface is down, or the host has no room.
    pub fn give(&mut self, endpoint: u8) -> Result<OwnedFd, PacketError> {
        let host = |error| PacketError::Host(self.name.clone(), error);
        let Some(open) = &self.open else { return Err(PacketError::Down(self.name.clone())) };
        let program = |index| sieve::of_endpoint_at(index, self.address, endpoint);
        let socket = self.socket_for(program)?;
        bpf::lock(socket.as_fd()).map_err(host)?;
        let mut elsewhere = self.elsewhere;
        elsewhere.add(endpoint);
        let program = sieve::of_board(self.address, &elsewhere);
        bpf::attach(open.socket.as_fd(), &program).map_err(host)?;
        self.elsewhere = elsewhere;
        Ok(socket.into_fd())
    }

    /// The process has it no more: what is for that endpoint comes here again. Whether it had one.
    pub fn take_back(&mut self, endpoint: u8) -> bool {
        let had = self.elsewhere.remove(endpoint);
        if let Some(open) = self.open.as_ref().filter(|_| had) {
            let program = sieve::of_board(self.address, &self.elsewhere);
            if let Err(error) = bpf::attach(open.socket.as_fd(), &program) {
                let interface = self.name.as_str();
                log::error!(interface, endpoint, error:%; "an endpoint stays deaf until it is up anew");
            }
        }
        had
    }

    /// Where frames leave, while it is up.
    pub fn socket(&self) -> Option<Arc<PacketSocket>> {
        self.open.as_ref().map(|open| open.socket.clone())
    }

    /// Whether two frames of what is pulled go by it in one.
    pub fn is_wide(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.socket.mtu() >= WIDE_MTU)
    }

    /// Opens it; tries again later if it does not work.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn bind(&mut self, cx: &Context<'_>) -> Result<(), PacketError> {
        let opened = self.try_bind(cx);
        match &opened {
            Ok(()) => {
                self.again_ns = None;
                self.reason.clear();
                self.ups = self.ups.saturating_add(1);
            }
            Err(error) => {
                self.reason = error.to_string();
                self.again_ns = Some(cx.now_ns.saturating_add(AGAIN_NS));
            }
        }
        opened
    }

    /// A socket here, for what the program takes.
    fn socket_for(
        &self,
        program: impl FnOnce(u32) -> Vec<Step>,
    ) -> Result<PacketSocket, PacketError> {
        let socket = PacketSocket::open_bare(&self.name, ETHER_TYPE, program)?;
        hold_received(&socket, SOCKET_BYTES);
        hold_sent(&socket, SOCKET_BYTES);
        Ok(socket)
    }

    fn try_bind(&mut self, cx: &Context<'_>) -> Result<(), PacketError> {
        let host = |error| PacketError::Host(self.name.clone(), error);
        let program = sieve::of_board(self.address, &self.elsewhere);
        let socket = self.socket_for(|_| program)?;
        let needed = FRAME_LEN_NARROW.saturating_sub(ETHERNET_LEN);
        if socket.mtu() < needed {
            let text = format!(
                "its MTU is {}, MXoE needs {needed}: `ip link set {} mtu 9000`, if the network \
                 carries that",
                socket.mtu(),
                self.name
            );
            return Err(host(io::Error::other(text)));
        }
        let watch = cx.watch_source(socket.as_fd(), self.source).map_err(host)?;
        if let Err(error) = self.inlet.open(&socket, slots_for(socket.mtu())) {
            let interface = self.name.as_str();
            log::warn!(interface, error:%; "no ring: a system call for each frame");
        }
        self.open = Some(Open { socket: Arc::new(socket), watch, hushed: false });
        Ok(())
    }

    /// When [`Self::bind`] is to be called again.
    pub fn again_ns(&self) -> Option<u64> {
        self.again_ns
    }

    /// Nothing more is there. `polled`: it is looked at again anyway, so that whoever sends need
    /// not wake us for each frame. False: it is to be looked at again.
    pub fn rest(&mut self, polled: bool) -> bool {
        let Some(open) = &mut self.open else { return true };
        rest(&open.watch, &mut open.hushed, polled)
    }

    /// The frame that came last.
    pub fn frame(&self) -> &[u8] {
        let whole = self.inlet.held().unwrap_or(&self.room);
        whole.get(..self.len).unwrap_or(&[])
    }

    /// Looks for a frame. `asks`: whether we were woken, so that it is looked why if it was for
    /// no frame.
    pub fn receive(&mut self, now_ns: u64, asks: bool) -> Came {
        let Some(Open { socket, .. }) = &self.open else { return Came::Nothing };
        match self.inlet.look(socket, &mut self.room, now_ns, asks) {
            Ok(packet) => {
                self.len = packet.len;
                // What has a tag is another network's.
                let whole = packet.len <= self.room.len() && packet.tag.is_none();
                if whole { Came::Frame } else { Came::Odd }
            }
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::AGAIN) => Came::Nothing,
                Some(Errno::NETDOWN | Errno::NODEV | Errno::NXIO) | None
                    if error.kind() != io::ErrorKind::InvalidData =>
                {
                    self.reason = format!("interface {}: {error}", self.name);
                    self.open = None;
                    self.inlet.close();
                    self.again_ns = Some(now_ns.saturating_add(AGAIN_NS));
                    Came::Down
                }
                _ => Came::Odd,
            },
        }
    }
}
