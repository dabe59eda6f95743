//! An honest guest with a virtio-net device.
//!
//! `super` lets the guest send, receive and attend to notifications, in the thread of the world.
//! The guest drives the product's native frontend ([`causeway_attach::native`]) as a driver would,
//! by random frames and random features, and records all frames that it sends and receives on the
//! tape. A frame is not sent while the ring is full. An error of the frontend means that the
//! backend broke the protocol or a system call failed, and is a violation.

use causeway_attach::native::{NET_HEADER_BYTES, NativeError, NetPort};
use causeway_wire::virtio::{has, mask};
use causeway_wire::virtio_net::*;

use super::frame;
use crate::doorbells::Doorbells;
use crate::event::{Event, Place, To};
use crate::play::Life;
use crate::rng::Rng;
use crate::tape::Tape;

const RECEIVE: usize = 0;

/// A guest with a virtio-net device.
#[derive(Debug)]
pub struct Guest {
    /// Stage and number of the guest.
    pub place: Place,
    /// The device, while the guest runs.
    pub port: Option<NetPort>,
    /// The state that does not depend on the device type.
    pub life: Life,
    /// The longest payload that the guest's port accepts, in bytes.
    pub mtu: u16,
    /// Number of the next frame.
    serial: u16,
    /// Memory for a received frame.
    frame: Vec<u8>,
}

impl Guest {
    /// Creates a guest without a device.
    pub fn new(place: Place, mtu: u16) -> Self {
        Self { place, port: None, life: Life::default(), mtu, serial: 0, frame: Vec::new() }
    }

    /// Attaches a device.
    pub fn join(&mut self, port: NetPort, tape: &mut Tape) {
        self.port = Some(port);
        tape.put(Event::Joined(self.place));
    }

    /// Removes the device.
    pub fn leave(&mut self, tape: &mut Tape) {
        if self.port.take().is_some() {
            tape.put(Event::Left(self.place));
        }
        self.life.paused = None;
        self.life.doorbells = Doorbells::default();
    }

    /// Sends a random frame to one of `guests`, to all or to an unused address. Returns false if
    /// the ring is full.
    ///
    /// # Errors
    /// The backend broke the protocol.
    pub fn send(
        &mut self,
        guests: u8,
        rng: &mut Rng,
        tape: &mut Tape,
    ) -> Result<bool, NativeError> {
        let from = self.place;
        let Some(port) = &mut self.port else { return Ok(true) };
        let features = port.frontend().features();
        let (mut to, mut address) = match rng.below(20) {
            0 => (To::Nobody, frame::mac(200)),
            1 | 2 => (To::All, [0xff; 6]),
            _ => {
                let guest = rng.below(u64::from(guests)) as u8;
                (To::One(guest), frame::mac(guest))
            }
        };
        if to == To::One(from.guest) {
            to = To::Nobody;
        }
        let serial = self.serial;
        let fits = usize::from(self.mtu);
        let (header, bytes, len) = if has(features, VIRTIO_NET_F_CSUM) && rng.chance(40) {
            let large = has(features, VIRTIO_NET_F_HOST_TSO4) && rng.chance(60);
            let most = if large { 40_000 >> rng.below(5) } else { fits - 40 };
            let len = rng.within(1, most.min(40_000) as u64) as usize;
            let size = if large { rng.within(200, (fits as u64 - 40).min(1400)) as u16 } else { 0 };
            let (header, bytes) = frame::tcp(from, address, serial, len, size);
            (header, bytes, len)
        } else {
            let most = fits.min(9000) as u64 >> rng.below(6);
            let mut len = rng.below(most) as usize;
            if rng.chance(2) && fits < 20_000 {
                // Longer than the MTU of the port, which must drop the frame.
                (to, address, len) = (To::Nobody, frame::mac(0), fits + 1);
            }
            let len = len.min(if to == To::Nobody { usize::MAX } else { fits - 4 });
            (Header::default(), frame::plain(from, address, serial, len), len)
        };
        if !port.queue(0, &header.emit(), &bytes)? {
            return Ok(false);
        }
        self.serial += 1;
        let large = header.gso_size > 0;
        tape.put(Event::FrameSent { from, to, serial, len: len as u32, large });
        Ok(true)
    }

    /// Makes the queued frames available to the backend.
    ///
    /// # Errors
    /// The backend broke the protocol.
    pub fn flush(&mut self) -> Result<(), NativeError> {
        self.port.as_mut().map_or(Ok(()), |port| port.flush(0))
    }

    /// Receives at most `most` frames and returns their number.
    ///
    /// # Errors
    /// The backend broke the protocol.
    pub fn receive(&mut self, most: usize, tape: &mut Tape) -> Result<usize, NativeError> {
        let Some(port) = &mut self.port else { return Ok(0) };
        let features = port.frontend().features();
        let takes =
            (has(features, VIRTIO_NET_F_GUEST_CSUM), has(features, VIRTIO_NET_F_GUEST_TSO4));
        let mut count = 0;
        while count < most {
            let mut header = [0; NET_HEADER_BYTES];
            match port.receive(0, &mut self.frame)? {
                Some(bytes) => header.copy_from_slice(&bytes),
                None => break,
            }
            count += 1;
            // The buffer was returned empty when the queue stopped.
            if self.frame.is_empty() {
                continue;
            }
            match frame::read(self.place, &header, &self.frame, takes) {
                Some(event) => tape.put(event),
                None => tape.fail(crate::check::broken("frames", "received a malformed frame")),
            }
        }
        Ok(count)
    }

    /// Does all work of a guest that was notified, and no work without a notification.
    ///
    /// # Errors
    /// The backend broke the protocol.
    pub fn attend(&mut self, tape: &mut Tape) -> Result<bool, NativeError> {
        let mut worked = false;
        loop {
            let Some(port) = &mut self.port else { return Ok(worked) };
            if !self.life.doorbells.wakes(port.frontend(), RECEIVE)? {
                return Ok(worked);
            }
            worked |= self.receive(usize::MAX, tape)? > 0;
            let Some(port) = &mut self.port else { return Ok(worked) };
            self.life.doorbells.sleep(port.frontend(), RECEIVE, false)?;
        }
    }

    /// Returns true if the backend has returned every sent buffer.
    ///
    /// # Errors
    /// The backend broke the protocol.
    pub fn is_idle(&mut self) -> Result<bool, NativeError> {
        self.port.as_mut().map_or(Ok(true), |port| port.is_idle(0))
    }
}

/// Draws a random set of driver features.
pub fn offloads(rng: &mut Rng) -> u64 {
    let mut features = mask(VIRTIO_NET_F_MAC);
    if rng.chance(70) {
        features |= mask(VIRTIO_NET_F_MRG_RXBUF);
    }
    if rng.chance(60) {
        features |= mask(VIRTIO_NET_F_CSUM);
        if rng.chance(60) {
            features |= mask(VIRTIO_NET_F_HOST_TSO4);
        }
    }
    if rng.chance(60) {
        features |= mask(VIRTIO_NET_F_GUEST_CSUM);
        if rng.chance(60) {
            features |= mask(VIRTIO_NET_F_GUEST_TSO4);
        }
    }
    features
}
