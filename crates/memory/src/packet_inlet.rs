//! How frames come from an interface: by a ring that the host shares, or where it gives none, by a
//! system call each.
//!
//! A ring says nothing of the interface, and the host may lose its place in it: while it is empty
//! the socket is asked now and then, and a new ring is made where frames are lost and none comes.

use std::io;

use rustix::io::Errno;
use rustix::net::sockopt;

use crate::limits::{ASK_IDLE_NS, ASK_NS, RENEW_NS};
use crate::packet::{Packet, PacketSocket};
use crate::packet_ring::{PacketRing, Slots};

/// See the module. It outlives the sockets that it is used with, one after the other.
#[derive(Debug, Default)]
pub struct PacketInlet {
    ring: Option<PacketRing>,
    /// When the socket was last asked, and whether a frame came since.
    asked_ns: u64,
    came: bool,
    /// Frames that the host lost, if none is known to have come since, and when the ring was made
    /// anew.
    missed: u64,
    renewed_ns: u64,
    /// Frames that the host had no room for.
    pub lost: u64,
}

impl PacketInlet {
    /// Receives from this socket from now on, which was not received from before.
    ///
    /// # Errors
    /// The host gives no ring; then each frame takes a system call.
    pub fn open(&mut self, socket: &PacketSocket, slots: Slots) -> io::Result<()> {
        self.ring = None;
        self.ring = Some(PacketRing::new(socket, slots)?);
        Ok(())
    }

    /// The socket is no more.
    pub fn close(&mut self) {
        self.ring = None;
    }

    /// The next frame of the socket that it was opened for, as [`PacketSocket::receive`] gives it.
    /// `asks`: whether we were woken, so that it is looked why if it was for no frame.
    ///
    /// # Errors
    /// As for [`PacketSocket::receive`] and [`PacketRing::receive`].
    pub fn receive(
        &mut self,
        socket: &PacketSocket,
        room: &mut [u8],
        now_ns: u64,
        asks: bool,
    ) -> io::Result<Packet> {
        let Some(ring) = &mut self.ring else { return socket.receive(room) };
        match ring.receive(socket, room) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if asks || now_ns >= self.asked_ns.saturating_add(ASK_NS) {
                    self.asked_ns = now_ns;
                    sockopt::socket_error(socket)??;
                    self.revive(socket, now_ns)?;
                }
                Err(error)
            }
            other => {
                self.came = true;
                other
            }
        }
    }

    /// When it is to be looked whether frames are lost, though nobody was woken: where the host has
    /// lost its place it wakes nobody.
    pub fn deadline(&self) -> u64 {
        let pause = if self.missed > 0 { ASK_NS } else { ASK_IDLE_NS };
        self.ring.as_ref().map_or(u64::MAX, |_| self.asked_ns.saturating_add(pause))
    }

    /// Nothing is in the ring: makes a new one if that is because the host lost its place in it:
    /// it loses frames, and none came since it was last asked.
    fn revive(&mut self, socket: &PacketSocket, now_ns: u64) -> io::Result<()> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        let lost = u64::from(ring.lost(socket)?);
        self.lost = self.lost.saturating_add(lost);
        let came = std::mem::take(&mut self.came);
        // Those that came may have come before those that were lost: that is known the next time.
        self.missed = if came && lost == 0 { 0 } else { self.missed.saturating_add(lost) };
        if came || self.missed == 0 || now_ns < self.renewed_ns.saturating_add(RENEW_NS) {
            return Ok(());
        }
        (self.renewed_ns, self.missed) = (now_ns, 0);
        // As if the interface had gone: it is tried again soon.
        ring.renew(socket).map_err(|_| Errno::NETDOWN.into())
    }
}
