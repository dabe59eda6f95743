//! An honest guest with a network card.

use causeway_attach::native::{NET_HEADER_BYTES, NativeError, NetPort};
use causeway_wire::virtio::{has, mask};
use causeway_wire::virtio_net::*;

use super::frame;
use crate::bells::Bells;
use crate::event::{Event, Place, To};
use crate::play::Life;
use crate::rng::Rng;
use crate::tape::Tape;

const RECEIVE: usize = 0;

/// See the module.
#[derive(Debug)]
pub struct Guest {
    /// Which.
    pub place: Place,
    /// Its device, while it runs.
    pub port: Option<NetPort>,
    /// What it has whatever its device.
    pub life: Life,
    /// Longest payload that its port takes, in bytes.
    pub mtu: u16,
    serial: u16,
    frame: Vec<u8>,
}

impl Guest {
    /// A guest without a device.
    pub fn new(place: Place, mtu: u16) -> Self {
        Self { place, port: None, life: Life::default(), mtu, serial: 0, frame: Vec::new() }
    }

    /// A device begins its life.
    pub fn join(&mut self, port: NetPort, tape: &mut Tape) {
        self.port = Some(port);
        tape.put(Event::Joined(self.place));
    }

    /// The device is gone.
    pub fn leave(&mut self, tape: &mut Tape) {
        if self.port.take().is_some() {
            tape.put(Event::Left(self.place));
        }
        self.life.paused = None;
        self.life.bells = Bells::default();
    }

    /// Sends a random frame to one of `guests`, to all or to nobody; `false`: the ring is full.
    ///
    /// # Errors
    /// The backend broke a rule.
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
                // Longer than the port's MTU.
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

    /// Shows the backend what was queued.
    ///
    /// # Errors
    /// The backend broke a rule.
    pub fn flush(&mut self) -> Result<(), NativeError> {
        self.port.as_mut().map_or(Ok(()), |port| port.flush(0))
    }

    /// Takes at most `most` frames that came; says how many.
    ///
    /// # Errors
    /// The backend broke a rule.
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
            // A buffer that was given back unwritten when the queue stopped.
            if self.frame.is_empty() {
                continue;
            }
            match frame::read(self.place, &header, &self.frame, takes) {
                Some(event) => tape.put(event),
                None => tape.fail(crate::check::broken("frames", "a frame that nobody made")),
            }
        }
        Ok(count)
    }

    /// Everything that an attentive guest does when it is notified, and nothing when it is not.
    ///
    /// # Errors
    /// The backend broke a rule.
    pub fn attend(&mut self, tape: &mut Tape) -> Result<bool, NativeError> {
        let mut worked = false;
        loop {
            let Some(port) = &mut self.port else { return Ok(worked) };
            if !self.life.bells.wakes(port.frontend(), RECEIVE)? {
                return Ok(worked);
            }
            worked |= self.receive(usize::MAX, tape)? > 0;
            let Some(port) = &mut self.port else { return Ok(worked) };
            self.life.bells.sleep(port.frontend(), RECEIVE, false)?;
        }
    }

    /// Whether every frame sent has come back.
    ///
    /// # Errors
    /// The backend broke a rule.
    pub fn is_idle(&mut self) -> Result<bool, NativeError> {
        self.port.as_mut().map_or(Ok(true), |port| port.is_idle(0))
    }
}

/// A random choice of what a driver can do.
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
