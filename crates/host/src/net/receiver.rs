//! Receives frames from an interface: by a ring shared with the kernel, or by a system call for
//! each frame if the kernel refuses a ring. Links of kind `raw`, MX NICs on an interface, and MX
//! endpoints in direct mode poll it; it does not interpret or filter the frames.
//!
//! A ring does not report the state of the interface, and the kernel may lose its position in it.
//! Therefore a call that finds the ring empty queries the socket after a wake-up, or [`QUERY_NS`]
//! (100 ms) after the last query. The ring is replaced if frames are lost and none arrives, at most
//! once per [`RENEW_NS`] (100 ms); frames in the replaced ring are lost. The caller must call again
//! by [`PacketReceiver::deadline`], even without a wake-up: after 1 s ([`QUERY_IDLE_NS`]), or after
//! 100 ms if frames were dropped and none arrived since, because a kernel that lost its position
//! wakes no receiver.
//!
//! An error of the socket is returned (ENETDOWN if the interface is down), and ENETDOWN for a ring
//! that cannot be replaced; the caller then closes the receiver and opens it again with a new
//! socket. No call blocks; a receiver belongs to one thread.

use std::io;

use rustix::io::Errno;
use rustix::net::sockopt;

use crate::limits::{QUERY_IDLE_NS, QUERY_NS, RENEW_NS};
use crate::net::rx_ring::{PacketRing, Slots};
use crate::net::socket::{PacketSocket, ReceivedPacket};

/// The receive side of a packet socket. It outlives the sockets that it is used with in turn.
#[derive(Debug, Default)]
pub struct PacketReceiver {
    ring: Option<PacketRing>,
    /// Time of the last query of the socket.
    queried_ns: u64,
    /// Whether a frame arrived since that query.
    has_frame: bool,
    /// Frames that the kernel dropped while no frame is known to have arrived afterwards; reset
    /// when one arrives or the ring is replaced.
    recent_drops: u64,
    /// Time of the last replacement of the ring.
    renewed_ns: u64,
    /// Frames that the kernel dropped for lack of room, on all sockets since the receiver was
    /// created. Counted at queries only, and not without a ring.
    pub lost: u64,
}

impl PacketReceiver {
    /// Starts to receive from this socket, from which no frame was received before.
    ///
    /// # Errors
    /// The kernel refuses a ring. The receiver is usable all the same: each frame then takes a
    /// system call.
    pub fn open(&mut self, socket: &PacketSocket, slots: Slots) -> io::Result<()> {
        self.ring = None;
        self.ring = Some(PacketRing::new(socket, slots)?);
        Ok(())
    }

    /// Ends the use of the current socket and releases its ring.
    pub fn close(&mut self) {
        self.ring = None;
    }

    /// Receives the next frame of the current socket, as [`PacketSocket::receive`] does. `is_woken`
    /// is true after a wake-up: if no frame is there, the socket is queried for the reason.
    ///
    /// # Errors
    /// Those of [`PacketSocket::receive`] and [`PacketRing::receive`].
    pub fn receive(
        &mut self,
        socket: &PacketSocket,
        room: &mut [u8],
        now_ns: u64,
        is_woken: bool,
    ) -> io::Result<ReceivedPacket> {
        let Some(ring) = &mut self.ring else { return socket.receive(room) };
        let packet = ring.receive(socket, room);
        self.query_if_empty(socket, packet, now_ns, is_woken)
    }

    /// Receives as [`Self::receive`] does, but leaves a frame that lies in the ring there until the
    /// next call or [`Self::let_go`]; [`Self::held`] returns it. A frame that does not fit a slot,
    /// and every frame without a ring, is copied to `room`.
    ///
    /// # Errors
    /// Those of [`Self::receive`].
    pub fn look(
        &mut self,
        socket: &PacketSocket,
        room: &mut [u8],
        now_ns: u64,
        is_woken: bool,
    ) -> io::Result<ReceivedPacket> {
        let Some(ring) = &mut self.ring else { return socket.receive(room) };
        let packet = ring.look(socket, room);
        self.query_if_empty(socket, packet, now_ns, is_woken)
    }

    /// Returns whether a frame may have arrived: a call of [`Self::look`] may find it. Reads the
    /// status of the next slot alone. Always true without a ring.
    #[inline]
    pub fn comes(&self) -> bool {
        self.ring.as_ref().is_none_or(PacketRing::comes)
    }

    /// Returns the frame that the last [`Self::look`] found, if it lies in the ring; `None` if it
    /// was copied to `room` or released.
    pub fn held(&self) -> Option<&[u8]> {
        self.ring.as_ref()?.held()
    }

    /// Returns the slot of the frame that the last [`Self::look`] found to the kernel. No effect if
    /// there is none.
    #[inline]
    pub fn let_go(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.give_back();
        }
    }

    /// Returns the result of a receive from the ring; if the ring is empty and a query is due,
    /// queries the socket first.
    fn query_if_empty(
        &mut self,
        socket: &PacketSocket,
        packet: io::Result<ReceivedPacket>,
        now_ns: u64,
        is_woken: bool,
    ) -> io::Result<ReceivedPacket> {
        match packet {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if is_woken || now_ns >= self.queried_ns.saturating_add(QUERY_NS) {
                    self.queried_ns = now_ns;
                    sockopt::socket_error(socket)??;
                    self.renew_if_stalled(socket, now_ns)?;
                }
                Err(error)
            }
            other => {
                self.has_frame = true;
                other
            }
        }
    }

    /// Returns the time at which an empty ring must query the socket without a wake-up, in
    /// nanoseconds: a kernel that lost its position in the ring wakes no receiver. `u64::MAX`
    /// without a ring.
    pub fn deadline(&self) -> u64 {
        let pause = if self.recent_drops > 0 { QUERY_NS } else { QUERY_IDLE_NS };
        self.ring.as_ref().map_or(u64::MAX, |_| self.queried_ns.saturating_add(pause))
    }

    /// Replaces an empty ring if the kernel lost its position in it: frames were dropped, and none
    /// arrived since the last query.
    fn renew_if_stalled(&mut self, socket: &PacketSocket, now_ns: u64) -> io::Result<()> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        let lost = u64::from(ring.lost(socket)?);
        self.lost = self.lost.saturating_add(lost);
        let came = std::mem::take(&mut self.has_frame);
        // The frames that arrived may be older than the dropped ones; the next query decides.
        self.recent_drops =
            if came && lost == 0 { 0 } else { self.recent_drops.saturating_add(lost) };
        if came || self.recent_drops == 0 || now_ns < self.renewed_ns.saturating_add(RENEW_NS) {
            return Ok(());
        }
        (self.renewed_ns, self.recent_drops) = (now_ns, 0);
        // Reported as a lost interface, so that the caller reopens the socket soon.
        ring.renew(socket).map_err(|_| Errno::NETDOWN.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::socket::{InterfaceError, VNET_HEADER_BYTES};
    use std::time::{Duration, Instant};

    /// An EtherType for local experiments (IEEE 802).
    const PROTOCOL: u16 = 0x88b5;

    /// The address of this process, because other processes may run this test at the same time.
    fn own_address() -> [u8; 6] {
        let [a, b, c, d] = std::process::id().to_be_bytes();
        [2, 1, a, b, c, d]
    }

    /// Two sockets on the loopback interface, to receive and to send, or `None` if it may not be
    /// used.
    fn loopback() -> Option<(PacketSocket, PacketSocket)> {
        let receives = PacketSocket::open_for("lo", PROTOCOL, Some(own_address()));
        if let Err(InterfaceError::Denied(_) | InterfaceError::Down(_)) = receives {
            eprintln!("skipped: CAP_NET_RAW and a loopback interface that is up are needed");
            return None;
        }
        let sender = PacketSocket::open_for("lo", PROTOCOL, Some([2; 6]));
        Some((receives.unwrap(), sender.unwrap()))
    }

    fn send(socket: &PacketSocket, number: u8) {
        let head = [&[0; VNET_HEADER_BYTES][..], &own_address(), &[2; 6], &PROTOCOL.to_be_bytes()]
            .concat();
        rustix::io::write(socket, &[&head[..], &[number; 60]].concat()).unwrap();
    }

    /// Polls until a condition holds.
    fn soon(mut is: impl FnMut() -> bool) {
        let since = Instant::now();
        while !is() {
            assert!(since.elapsed() < Duration::from_secs(10));
        }
    }

    #[test]
    fn a_ring_in_which_the_host_lost_its_place_is_made_anew() {
        let Some((socket, peer)) = loopback() else { return };
        let mut inlet = PacketReceiver::default();
        assert_eq!(inlet.deadline(), u64::MAX, "there is nothing to be asked");
        inlet.open(&socket, Slots::SHORT).unwrap();
        let mut now = 10 * QUERY_IDLE_NS;
        let next = |inlet: &mut PacketReceiver, now| {
            let mut room = [0; 200];
            inlet.receive(&socket, &mut room, now, false).ok().map(|_| room[60])
        };
        let hear = |inlet: &mut PacketReceiver, now, number| {
            send(&peer, number);
            soon(|| next(inlet, now) == Some(number));
        };
        hear(&mut inlet, now, 1);
        assert_eq!(next(&mut inlet, now), None);
        assert_eq!(inlet.deadline(), now + QUERY_IDLE_NS);
        hear(&mut inlet, now, 2);
        // The kernel wakes no receiver from here on. The next query notices the loss; as a frame
        // arrived before, the ring may be intact, and the following query comes sooner.
        inlet.ring.as_ref().unwrap().lose_place();
        send(&peer, 5);
        now += QUERY_NS - 1;
        assert_eq!((next(&mut inlet, now), inlet.lost), (None, 0), "it is not asked yet");
        soon(|| {
            now = inlet.deadline();
            next(&mut inlet, now).is_none() && inlet.lost == 1
        });
        assert_eq!(inlet.deadline(), now + QUERY_NS);
        send(&peer, 6);
        assert_eq!(next(&mut inlet, now), None, "deaf");
        now = inlet.deadline();
        assert_eq!(next(&mut inlet, now), None, "made anew");
        hear(&mut inlet, now, 7);
    }
}
