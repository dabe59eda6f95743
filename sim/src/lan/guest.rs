//! A guest that may run on any of the hosts, with the same address everywhere.

use std::collections::BTreeSet;

use causeway_attach::native::{NET_HEADER_BYTES, NativeError, NetOptions, NetPort};
use causeway_model::Name;
use causeway_wire::virtio::{has, mask};
use causeway_wire::virtio_net::*;

use crate::bells::Bells;
use crate::check::broken;
use crate::ether::frame;
use crate::ether::guest::offloads;
use crate::event::{Crossing, Event, Place, To};
use crate::rng::Rng;
use crate::stage::{Stage, StageError, net_spec, plain_net};
use crate::tape::Tape;
use crate::world::{pieces, ring_features};

const QUEUES: usize = 2;
/// Room for all that may come before a guest looks again.
const RING: u16 = 256;
/// Payload of the longest segment.
const SEGMENT_BYTES_MAX: u64 = 40_000;

/// See the module.
#[derive(Debug)]
pub struct Guest {
    /// Its group, and which of it.
    pub place: Place,
    /// Where it runs.
    pub host: Option<usize>,
    /// The hosts that have a port for it.
    pub ports: BTreeSet<usize>,
    /// Longest payload that its ports take, in bytes.
    pub mtu: u16,
    port: Option<NetPort>,
    bells: Bells,
    serial: u16,
    frame: Vec<u8>,
}

impl Guest {
    /// A guest that runs nowhere.
    pub fn new(place: Place, mtu: u16) -> Self {
        let (port, bells) = Default::default();
        let (ports, frame) = Default::default();
        Self { place, host: None, ports, mtu, port, bells, serial: 0, frame }
    }

    /// The name of its ports.
    ///
    /// # Errors
    /// Never: it is one.
    pub fn name(&self) -> Result<Name, StageError> {
        let text = format!("n{}", self.place.guest);
        text.parse().map_err(|_| StageError::Host(std::io::Error::other("a name")))
    }

    /// It begins to run on a host, which gets a port for it if it has none.
    ///
    /// # Errors
    /// It is refused.
    pub fn start(
        &mut self,
        host: usize,
        stage: &Stage,
        rng: &mut Rng,
        tape: &mut Tape,
    ) -> Result<(), StageError> {
        let name = self.name()?;
        if self.ports.insert(host) {
            let net = plain_net(frame::mac(self.place.guest), self.mtu);
            stage.add(net_spec(stage.group(), &name, net))?;
        }
        let (ring, declined) = ring_features(rng);
        let options = NetOptions {
            ring_size: RING,
            receive_bytes: rng.pick(&[1526, 4096]),
            // Frames may be longer than a buffer.
            features: offloads(rng) | mask(VIRTIO_NET_F_MRG_RXBUF) | ring,
            descriptor_bytes: pieces(rng, RING, &[None, Some(64), Some(1000)]),
            ..NetOptions::default()
        };
        self.port = Some(stage.net(&name, options, declined)?);
        (self.host, self.bells) = (Some(host), Bells::default());
        tape.put(Event::Crossing(Crossing::Came { at: self.place, host: host as u8 }));
        Ok(())
    }

    /// It stops; with `delete` its port goes too.
    ///
    /// # Errors
    /// The host fails us.
    pub fn stop(&mut self, stage: &Stage, delete: bool, tape: &mut Tape) -> Result<(), StageError> {
        let Some(host) = self.host.take() else { return Ok(()) };
        self.port = None;
        tape.put(Event::Crossing(Crossing::Went(self.place)));
        stage.step(4)?;
        if delete && self.ports.remove(&host) {
            stage.delete(&self.name()?)?;
        }
        Ok(())
    }

    /// Sends a frame of random kind and length.
    ///
    /// # Errors
    /// The backend broke a rule.
    pub fn send(&mut self, to: To, rng: &mut Rng, tape: &mut Tape) -> Result<(), NativeError> {
        let (from, serial, fits) = (self.place, self.serial, u64::from(self.mtu));
        let Some(port) = &mut self.port else { return Ok(()) };
        let features = port.frontend().features();
        let address = match to {
            To::One(guest) => frame::mac(guest),
            To::All => [0xff; 6],
            To::Nobody => frame::mac(200),
        };
        let (header, bytes, len) = if has(features, VIRTIO_NET_F_CSUM) && rng.chance(40) {
            let large = has(features, VIRTIO_NET_F_HOST_TSO4) && rng.chance(60);
            let most = if large { SEGMENT_BYTES_MAX >> rng.below(5) } else { fits - 40 };
            let len = rng.within(1, most.min(SEGMENT_BYTES_MAX)) as usize;
            let size = if large { rng.within(500, (fits - 40).min(1400)) as u16 } else { 0 };
            let (header, bytes) = frame::tcp(from, address, serial, len, size);
            (header, bytes, len)
        } else {
            let most = (fits - 4).min(60_000) >> rng.below(8);
            let len = rng.below(most) as usize;
            (Header::default(), frame::plain(from, address, serial, len), len)
        };
        if !port.queue(0, &header.emit(), &bytes)? {
            return Ok(());
        }
        self.serial = self.serial.wrapping_add(1);
        tape.put(Event::Crossing(Crossing::Sent { from, to, serial, len: len as u32 }));
        port.flush(0)?;
        self.ring()
    }

    fn ring(&mut self) -> Result<(), NativeError> {
        let Some(port) = &mut self.port else { return Ok(()) };
        self.bells.ring(port.frontend(), QUEUES, 0, None)
    }

    /// Takes all that came; says whether there was anything.
    ///
    /// # Errors
    /// The backend broke a rule.
    pub fn receive(&mut self, tape: &mut Tape) -> Result<bool, NativeError> {
        let Some(port) = &mut self.port else { return Ok(false) };
        let features = port.frontend().features();
        let takes =
            (has(features, VIRTIO_NET_F_GUEST_CSUM), has(features, VIRTIO_NET_F_GUEST_TSO4));
        let mut any = false;
        loop {
            let mut header = [0; NET_HEADER_BYTES];
            match port.receive(0, &mut self.frame)? {
                Some(bytes) => header.copy_from_slice(&bytes),
                None => break,
            }
            any = true;
            if !self.frame.is_empty() {
                match read(self.place, &header, &self.frame, takes) {
                    Some(event) => tape.put(Event::Crossing(event)),
                    None => tape.fail(broken("crossing", "a frame that nobody made")),
                }
            }
        }
        self.ring()?;
        Ok(any)
    }
}

/// What a received frame says.
fn read(
    at: Place,
    header: &[u8; NET_HEADER_BYTES],
    bytes: &[u8],
    takes: (bool, bool),
) -> Option<Crossing> {
    let event = frame::read(at, header, bytes, takes)?;
    let Event::FrameGot { at, from, serial, offset, len, sum, sound } = event else { return None };
    let (to, by) = (bytes.get(..6)?, bytes.get(6..12)?);
    let meant = to == frame::mac(at.guest) || to == [0xff; 6];
    let sound = sound && meant && by == frame::mac(from.guest);
    Some(Crossing::Got { at, from, serial, offset, len, sum, sound })
}
