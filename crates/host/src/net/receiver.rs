//! Receives frames from an interface: by a ring shared with the kernel, or by a system call for each
//! frame where the kernel refuses a ring.
//!
//! A ring does not report the state of the interface, and the kernel may lose its place in it.
//! Therefore an empty ring asks the socket at intervals, and is replaced where frames are lost and
//! none arrives.

use std::io;

use rustix::io::Errno;
use rustix::net::sockopt;

use crate::limits::{ASK_IDLE_NS, ASK_NS, RENEW_NS};
use crate::net::rx_ring::{PacketRing, Slots};
use crate::net::socket::{Packet, PacketSocket};

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
        let packet = ring.receive(socket, room);
        self.heard(socket, packet, now_ns, asks)
    }

    /// As [`Self::receive`], but a frame that is in the ring stays there, until the next look or
    /// [`Self::let_go`]: see [`Self::held`].
    ///
    /// # Errors
    /// As for [`Self::receive`].
    pub fn look(
        &mut self,
        socket: &PacketSocket,
        room: &mut [u8],
        now_ns: u64,
        asks: bool,
    ) -> io::Result<Packet> {
        let Some(ring) = &mut self.ring else { return socket.receive(room) };
        let packet = ring.look(socket, room);
        self.heard(socket, packet, now_ns, asks)
    }

    /// Whether a look may find something, as a glance shows; without a ring that is not known.
    #[inline]
    pub fn comes(&self) -> bool {
        self.ring.as_ref().is_none_or(PacketRing::comes)
    }

    /// The frame that the last look found, if it is read in the ring.
    pub fn held(&self) -> Option<&[u8]> {
        self.ring.as_ref()?.held()
    }

    /// The frame that the last look found is not read any more.
    #[inline]
    pub fn let_go(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.give_back();
        }
    }

    /// What a look at the ring came to. Where that is nothing, the socket is asked now and then.
    fn heard(
        &mut self,
        socket: &PacketSocket,
        packet: io::Result<Packet>,
        now_ns: u64,
        asks: bool,
    ) -> io::Result<Packet> {
        match packet {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::socket::{FINISH_BYTES, PacketError};
    use std::time::{Duration, Instant};

    /// Of nobody else: kept for experiments.
    const PROTOCOL: u16 = 0x88b5;

    /// Others may run this test beside us.
    fn ours() -> [u8; 6] {
        let [a, b, c, d] = std::process::id().to_be_bytes();
        [2, 1, a, b, c, d]
    }

    /// The loopback interface, if it may be used: to hear by, and to send by.
    fn loopback() -> Option<(PacketSocket, PacketSocket)> {
        let hears = PacketSocket::open_for("lo", PROTOCOL, Some(ours()));
        if let Err(PacketError::Denied(_) | PacketError::Down(_)) = hears {
            eprintln!("skipped: it takes the right to open packet sockets, and loopback");
            return None;
        }
        let sends = PacketSocket::open_for("lo", PROTOCOL, Some([2; 6]));
        Some((hears.unwrap(), sends.unwrap()))
    }

    fn send(socket: &PacketSocket, number: u8) {
        let head = [&[0; FINISH_BYTES][..], &ours(), &[2; 6], &PROTOCOL.to_be_bytes()].concat();
        rustix::io::write(socket, &[&head[..], &[number; 60]].concat()).unwrap();
    }

    /// Looks until something is so.
    fn soon(mut is: impl FnMut() -> bool) {
        let since = Instant::now();
        while !is() {
            assert!(since.elapsed() < Duration::from_secs(10));
        }
    }

    #[test]
    fn a_ring_in_which_the_host_lost_its_place_is_made_anew() {
        let Some((socket, peer)) = loopback() else { return };
        let mut inlet = PacketInlet::default();
        assert_eq!(inlet.deadline(), u64::MAX, "there is nothing to be asked");
        inlet.open(&socket, Slots::SHORT).unwrap();
        let mut now = 10 * ASK_IDLE_NS;
        let next = |inlet: &mut PacketInlet, now| {
            let mut room = [0; 200];
            inlet.receive(&socket, &mut room, now, false).ok().map(|_| room[60])
        };
        let hear = |inlet: &mut PacketInlet, now, number| {
            send(&peer, number);
            soon(|| next(inlet, now) == Some(number));
        };
        hear(&mut inlet, now, 1);
        assert_eq!(next(&mut inlet, now), None);
        assert_eq!(inlet.deadline(), now + ASK_IDLE_NS);
        hear(&mut inlet, now, 2);
        // The host wakes nobody any more. What it loses is noticed when that is due, and as some
        // came before, it may not be deaf; it is asked again sooner.
        inlet.ring.as_ref().unwrap().lose_place();
        send(&peer, 5);
        now += ASK_NS - 1;
        assert_eq!((next(&mut inlet, now), inlet.lost), (None, 0), "it is not asked yet");
        soon(|| {
            now = inlet.deadline();
            next(&mut inlet, now).is_none() && inlet.lost == 1
        });
        assert_eq!(inlet.deadline(), now + ASK_NS);
        send(&peer, 6);
        assert_eq!(next(&mut inlet, now), None, "deaf");
        now = inlet.deadline();
        assert_eq!(next(&mut inlet, now), None, "made anew");
        hear(&mut inlet, now, 7);
    }
}
