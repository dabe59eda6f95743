//! The carrier of a NIC's frames: an interface of this host, datagrams (UDP), or none, if only NICs
//! of the same daemon are reached.
//!
//! [`NicCarrier`] gives `mx::network` one interface to both: receive a frame, send frames in
//! batches, bind again, poll modes. A NIC has one carrier for its lifetime; a change of
//! configuration makes a new NIC. A carrier that is down receives nothing and has no output, so the
//! engine's frames are dropped. Only an interface can go down, carry jumbo frames, or have
//! endpoints in direct mode; for datagrams such calls return `None` or false.
//!
//! The carrier checks neither destination nor content of MXoE packets (the engine does), and
//! neither encrypts nor authenticates. `network::interface` and `network::udp` implement it. Called
//! by `mx::network` on the dispatcher's thread, which it never blocks.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_fabric::Context;
use causeway_host::net::send::OutgoingFrame;
use causeway_host::net::socket::{InterfaceError, PacketSocket};
use causeway_mxoe::driver;

use super::interface::NicInterface;
use super::udp::{self, UdpCarrier};
use super::{CarrierSpec, NetworkConfig};

/// Result of receiving a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveResult {
    /// A frame: see [`NicCarrier::frame`].
    Frame,
    /// A frame was dropped (it is too short or too long, has a VLAN tag, or its source is not
    /// accepted), or the receive failed.
    Invalid,
    /// No frame is there, the interface is down already, or the NIC has no carrier.
    Empty,
    /// The interface was removed or went down.
    Down,
}

/// The output of a carrier.
#[derive(Debug, Clone)]
pub enum CarrierOutput {
    /// An interface: many frames in one call.
    Interface(Arc<PacketSocket>),
    /// Datagrams.
    Udp(udp::UdpOutput),
}

impl driver::Output for CarrierOutput {
    fn send<'a>(
        &self,
        frames: impl Iterator<Item = OutgoingFrame<'a>> + Clone,
    ) -> io::Result<usize> {
        match self {
            Self::Interface(socket) => socket.send(frames),
            Self::Udp(udp) => udp.send(frames),
        }
    }
}

/// The carrier of a NIC's frames.
#[derive(Debug)]
pub enum NicCarrier {
    /// An interface of this host.
    Interface(NicInterface),
    /// A UDP socket.
    Udp(UdpCarrier),
    /// None: only NICs of the same daemon are reached. The number by which the NIC is served.
    Local(u32),
}

impl NicCarrier {
    /// Opens a carrier. The processes of the endpoints `direct` have packet sockets from the
    /// previous daemon. An interface that is down is no error: the network tries again every
    /// second ([`Self::rebind_at_ns`]).
    ///
    /// # Errors
    /// The reason why the interface or address cannot be used, for example no such interface, or
    /// an MTU below 4,130 bytes.
    pub fn open(
        cx: &Context<'_>,
        config: &NetworkConfig,
        own: [u8; 6],
        direct: impl Iterator<Item = u8>,
    ) -> Result<Self, String> {
        match &config.carrier {
            CarrierSpec::Interface(name) => {
                let mut interface = NicInterface::new(name.clone(), own, config.source);
                direct.for_each(|endpoint| interface.add_direct(endpoint));
                match interface.bind(cx) {
                    Ok(()) | Err(InterfaceError::Down(_)) => Ok(Self::Interface(interface)),
                    Err(error) => Err(error.to_string()),
                }
            }
            CarrierSpec::Udp(listen, peers) => {
                UdpCarrier::bind(cx, *listen, peers.clone(), own, config.source)
                    .map(Self::Udp)
                    .map_err(|error| format!("udp: listen {listen}: {error}"))
            }
            CarrierSpec::Local => Ok(Self::Local(config.source)),
        }
    }

    /// Returns the output, or `None` while the interface is down.
    pub fn output(&self) -> Option<CarrierOutput> {
        match self {
            Self::Interface(interface) => interface.socket().map(CarrierOutput::Interface),
            Self::Udp(udp) => Some(CarrierOutput::Udp(udp.output())),
            Self::Local(_) => None,
        }
    }

    /// Returns whether frames leave for other hosts.
    pub fn is_external(&self) -> bool {
        !matches!(self, Self::Local(_))
    }

    /// Returns whether pulls use jumbo frames. Datagrams do not: they are sent in batches anyway.
    pub fn is_wide(&self) -> bool {
        matches!(self, Self::Interface(interface) if interface.is_wide())
    }

    /// Receives a frame. `is_woken`: the carrier was woken.
    pub fn receive(&mut self, now_ns: u64, is_woken: bool) -> ReceiveResult {
        match self {
            Self::Interface(interface) => interface.receive(now_ns, is_woken),
            Self::Udp(udp) => udp.receive(now_ns),
            Self::Local(_) => ReceiveResult::Empty,
        }
    }

    /// Returns the frame that was received last, until the next call of [`Self::receive`].
    pub fn frame(&self) -> &[u8] {
        match self {
            Self::Interface(interface) => interface.frame(),
            Self::Udp(udp) => udp.frame(),
            Self::Local(_) => &[],
        }
    }

    /// Starts a pass: results of the previous pass may be outdated.
    pub fn begin_pass(&mut self) {
        if let Self::Udp(udp) = self {
            udp.begin_pass();
        }
    }

    /// Returns the number by which the carrier is served.
    pub fn source(&self) -> u32 {
        match self {
            Self::Interface(interface) => interface.source,
            Self::Udp(udp) => udp.source,
            Self::Local(source) => *source,
        }
    }

    /// Ends a pass without frames: see [`NicInterface::end_pass`].
    pub fn end_pass(&mut self, polled: bool) -> bool {
        match self {
            Self::Interface(interface) => interface.end_pass(polled),
            Self::Udp(udp) => udp.end_pass(polled),
            Self::Local(_) => true,
        }
    }

    /// Returns the time of the next call of [`Self::rebind`] in ns.
    pub fn rebind_at_ns(&self) -> Option<u64> {
        match self {
            Self::Interface(interface) => interface.rebind_at_ns(),
            Self::Udp(_) | Self::Local(_) => None,
        }
    }

    /// Returns the time of the next pass without a wake-up in ns.
    pub fn poll_at_ns(&self) -> u64 {
        match self {
            Self::Interface(interface) => interface.inlet.deadline(),
            Self::Udp(_) | Self::Local(_) => u64::MAX,
        }
    }

    /// Binds an interface that was down. Returns whether it is up now.
    pub fn rebind(&mut self, cx: &mut Context<'_>) -> bool {
        let Self::Interface(interface) = self else { return false };
        let up = interface.bind(cx).is_ok();
        if up {
            log::info!(interface = interface.name.as_str(); "the interface is up: the NIC sends and receives frames");
            cx.wake_source(interface.source);
        }
        up
    }

    /// Opens a packet socket for the process of an endpoint: see [`NicInterface::open_direct`].
    /// Returns `None` without an interface, and after any error, which is logged.
    pub fn open_direct(&mut self, endpoint: u8) -> Option<OwnedFd> {
        let Self::Interface(interface) = self else { return None };
        match interface.open_direct(endpoint) {
            Ok(socket) => Some(socket),
            Err(error) => {
                log::warn!(endpoint, error:%; "cannot open a packet socket for a process: the daemon carries its frames instead");
                None
            }
        }
    }

    /// Ends the direct mode of an endpoint. Returns whether its process had a packet socket.
    pub fn end_direct(&mut self, endpoint: u8) -> bool {
        match self {
            Self::Interface(interface) => interface.end_direct(endpoint),
            Self::Udp(_) | Self::Local(_) => false,
        }
    }

    /// Returns the counters with their names.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Interface(interface) => vec![
                ("interface_ups_total", interface.ups),
                ("interface_lost_total", interface.inlet.lost),
            ],
            Self::Local(_) => Vec::new(),
            Self::Udp(udp) => vec![
                ("drop_unknown_address_total", udp.unknown_addresses),
                ("drop_board_elsewhere_total", udp.foreign_frames),
            ],
        }
    }
}
