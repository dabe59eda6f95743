//! A guest that can run on any host and keeps its address.
//!
//! `super` starts, stops and migrates guests, in the thread of the world. On each host a guest runs
//! on a net port of its own, which is added at the first start and may be deleted at a stop. The
//! guest sends frames with its number and records all that it sends and receives ([`Crossing`]). A
//! ring of 256 entries has room for every frame between two receive calls. An error of the frontend
//! means that the backend broke the protocol or a system call failed, and is a violation.

use std::collections::BTreeSet;

use causeway_attach::native::{NET_HEADER_BYTES, NativeError, NetOptions, NetPort};
use causeway_model::Name;
use causeway_wire::virtio::{has, mask};
use causeway_wire::virtio_net::*;

use crate::check::broken;
use crate::doorbells::Doorbells;
use crate::ether::frame;
use crate::ether::guest::offloads;
use crate::event::{Crossing, Event, Place, To};
use crate::rng::Rng;
use crate::stage::{Stage, StageError, net_spec, plain_net};
use crate::tape::Tape;
use crate::world::{pieces, ring_features};

const QUEUES: usize = 2;
/// Has room for every frame that can arrive between two receive calls.
const RING: u16 = 256;
/// Payload of the longest TCP segment.
const SEGMENT_BYTES_MAX: u64 = 40_000;

/// A migratable guest.
#[derive(Debug)]
pub struct Guest {
    /// Group and number of the guest.
    pub place: Place,
    /// The host on which the guest runs.
    pub host: Option<usize>,
    /// The hosts that have a port for the guest.
    pub ports: BTreeSet<usize>,
    /// The longest payload that the guest's ports accept, in bytes.
    pub mtu: u16,
    port: Option<NetPort>,
    doorbells: Doorbells,
    serial: u16,
    frame: Vec<u8>,
}

impl Guest {
    /// Creates a guest that is not running.
    pub fn new(place: Place, mtu: u16) -> Self {
        let (port, doorbells) = Default::default();
        let (ports, frame) = Default::default();
        Self { place, host: None, ports, mtu, port, doorbells, serial: 0, frame }
    }

    /// Returns the name of the guest's ports.
    ///
    /// # Errors
    /// None in practice: the name is valid.
    pub fn name(&self) -> Result<Name, StageError> {
        let text = format!("n{}", self.place.guest);
        text.parse().map_err(|_| StageError::Host(std::io::Error::other("a name")))
    }

    /// Starts the guest on a host, adding a port if the host has none for the guest.
    ///
    /// # Errors
    /// The host refuses the port or the frontend.
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
        (self.host, self.doorbells) = (Some(host), Doorbells::default());
        tape.put(Event::Crossing(Crossing::Came { at: self.place, host: host as u8 }));
        Ok(())
    }

    /// Stops the guest; with `delete`, deletes its port as well.
    ///
    /// # Errors
    /// The shard refuses.
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

    /// Sends a frame of random kind and length; none if the guest is stopped or the ring is full.
    ///
    /// # Errors
    /// The backend broke the protocol.
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
        self.doorbells.ring(port.frontend(), QUEUES, 0, None)
    }

    /// Receives every available frame. Returns true if any was available.
    ///
    /// # Errors
    /// The backend broke the protocol.
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
                    None => tape.fail(broken("crossing", "received a malformed frame")),
                }
            }
        }
        self.ring()?;
        Ok(any)
    }
}

/// Parses a received frame into an event.
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
