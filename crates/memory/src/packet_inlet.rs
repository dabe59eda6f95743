//! How frames come from an interface: by a ring that the host shares, or where it gives none, by a
//! system call each.
//!
//! A ring says nothing of the interface, and the host may lose its place in it: while it is empty
//! the socket is asked now and then, and a new ring is made where frames were lost.

use std::io;

use rustix::io::Errno;
use rustix::net::sockopt;

use crate::limits::{LOOKS_PER_ASK, RENEW_NS};
use crate::packet::{Packet, PacketSocket};
use crate::packet_ring::{PacketRing, Slots};

/// See the module. It outlives the sockets that it is used with, one after the other.
#[derive(Debug, Default)]
pub struct PacketInlet {
    ring: Option<PacketRing>,
    /// Looks since the last frame.
    vain: u32,
    /// Frames that the host lost since the ring was last made anew, and when it was.
    missed: u64,
    renewed_ns: u64,
    /// Frames that were lost when rings were made anew.
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
                self.vain = self.vain.wrapping_add(1);
                if asks || self.vain.is_multiple_of(LOOKS_PER_ASK) {
                    sockopt::socket_error(socket)??;
                    self.revive(socket, now_ns)?;
                }
                Err(error)
            }
            other => other,
        }
    }

    /// Nothing is in the ring: makes a new one if that is because the host lost its place in it.
    fn revive(&mut self, socket: &PacketSocket, now_ns: u64) -> io::Result<()> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        self.missed = self.missed.saturating_add(ring.lost(socket)?.into());
        if self.missed == 0 || now_ns < self.renewed_ns.saturating_add(RENEW_NS) {
            return Ok(());
        }
        self.renewed_ns = now_ns;
        self.lost = self.lost.saturating_add(std::mem::take(&mut self.missed));
        // As if the interface had gone: it is tried again soon.
        ring.renew(socket).map_err(|_| Errno::NETDOWN.into())
    }
}
