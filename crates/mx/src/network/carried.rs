//! By what a board's frames are carried: an interface, or datagrams.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_fabric::Context;
use causeway_host::net::send::Frame;
use causeway_host::net::socket::{PacketError, PacketSocket};
use causeway_mxoe::driver as backend;

use super::interface::Interface;
use super::udp::{self, Udp};
use super::{By, Wiring};

/// What a look came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// A frame: see [`Carrier::frame`].
    Frame,
    /// A frame that cannot be one of ours.
    Odd,
    /// Nothing.
    Nothing,
    /// The interface is gone.
    Down,
}

/// Where frames leave.
#[derive(Debug, Clone)]
pub enum Exit {
    /// By an interface, many in one call.
    Interface(Arc<PacketSocket>),
    /// In datagrams.
    Udp(udp::Exit),
}

impl backend::Output for Exit {
    fn send<'a>(&self, frames: impl Iterator<Item = Frame<'a>> + Clone) -> io::Result<usize> {
        match self {
            Self::Interface(socket) => socket.send(frames),
            Self::Udp(udp) => udp.send(frames),
        }
    }
}

/// See above.
#[derive(Debug)]
pub enum Carrier {
    Interface(Interface),
    Udp(Udp),
}

impl Carrier {
    /// Opens it; the processes of `elsewhere` have sockets at it already. That an interface is down
    /// is no error: it is tried again.
    ///
    /// # Errors
    /// It cannot be used, and why.
    pub fn open(
        cx: &Context<'_>,
        wiring: &Wiring,
        own: [u8; 6],
        elsewhere: impl Iterator<Item = u8>,
    ) -> Result<Self, String> {
        match &wiring.by {
            By::Interface(name) => {
                let mut interface = Interface::new(name.clone(), own, wiring.source);
                elsewhere.for_each(|endpoint| interface.has_elsewhere(endpoint));
                match interface.bind(cx) {
                    Ok(()) | Err(PacketError::Down(_)) => Ok(Self::Interface(interface)),
                    Err(error) => Err(error.to_string()),
                }
            }
            By::Udp(listen, peers) => Udp::bind(cx, *listen, peers.clone(), own, wiring.source)
                .map(Self::Udp)
                .map_err(|error| format!("udp: listen {listen}: {error}")),
        }
    }

    /// Where frames leave, if they do.
    pub fn exit(&self) -> Option<Exit> {
        match self {
            Self::Interface(interface) => interface.socket().map(Exit::Interface),
            Self::Udp(udp) => Some(Exit::Udp(udp.exit())),
        }
    }

    /// Whether two frames of what is pulled go in one: datagrams go many in one call as they are.
    pub fn is_wide(&self) -> bool {
        matches!(self, Self::Interface(interface) if interface.is_wide())
    }

    /// Looks for a frame. `asks`: whether we were woken.
    pub fn receive(&mut self, now_ns: u64, asks: bool) -> Came {
        match self {
            Self::Interface(interface) => interface.receive(now_ns, asks),
            Self::Udp(udp) => udp.receive(now_ns),
        }
    }

    /// The frame that came last, where it lies, until the next look.
    pub fn frame(&self) -> &[u8] {
        match self {
            Self::Interface(interface) => interface.frame(),
            Self::Udp(udp) => udp.frame(),
        }
    }

    /// What comes is looked for anew: what the last look found may be old.
    pub fn look(&mut self) {
        if let Self::Udp(udp) = self {
            udp.look();
        }
    }

    /// By which it is served.
    pub fn source(&self) -> u32 {
        match self {
            Self::Interface(interface) => interface.source,
            Self::Udp(udp) => udp.source,
        }
    }

    /// Nothing more is there; see [`Interface::rest`].
    pub fn rest(&mut self, polled: bool) -> bool {
        match self {
            Self::Interface(interface) => interface.rest(polled),
            Self::Udp(udp) => udp.rest(polled),
        }
    }

    /// When [`Self::again`] is to be called.
    pub fn again_ns(&self) -> Option<u64> {
        match self {
            Self::Interface(interface) => interface.again_ns(),
            Self::Udp(_) => None,
        }
    }

    /// When it is to be looked for frames, though nobody was woken.
    pub fn look_ns(&self) -> u64 {
        match self {
            Self::Interface(interface) => interface.inlet.deadline(),
            Self::Udp(_) => u64::MAX,
        }
    }

    /// Tries again what did not work: whether it does now.
    pub fn again(&mut self, cx: &mut Context<'_>) -> bool {
        let Self::Interface(interface) = self else { return false };
        let up = interface.bind(cx).is_ok();
        if up {
            log::info!(interface = interface.name.as_str(); "a board's interface is up");
            cx.wake_source(interface.source);
        }
        up
    }

    /// A socket for the process of one endpoint: see [`Interface::give`]. None: there is no
    /// interface, or it gives none now.
    pub fn give(&mut self, endpoint: u8) -> Option<OwnedFd> {
        let Self::Interface(interface) = self else { return None };
        match interface.give(endpoint) {
            Ok(socket) => Some(socket),
            Err(error) => {
                log::warn!(endpoint, error:%; "a process is served by the daemon instead");
                None
            }
        }
    }

    /// The process of that endpoint is gone: whether it had a socket.
    pub fn take_back(&mut self, endpoint: u8) -> bool {
        match self {
            Self::Interface(interface) => interface.take_back(endpoint),
            Self::Udp(_) => false,
        }
    }

    /// What was counted.
    pub fn counters(&self) -> [(&'static str, u64); 2] {
        match self {
            Self::Interface(interface) => [
                ("interface_ups_total", interface.ups),
                ("interface_lost_total", interface.inlet.lost),
            ],
            Self::Udp(udp) => [
                ("drop_unknown_address_total", udp.strangers),
                ("drop_board_elsewhere_total", udp.elsewhere),
            ],
        }
    }
}
