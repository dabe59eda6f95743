//! A stage of network cards.

mod frame;
mod guest;

use causeway_attach::native::{NativeError, NetOptions};
use causeway_attach::vhost_user::FrontendReq;
use causeway_ethernet::Ethernet;
use causeway_fabric::control::{PortState, PortView};
use causeway_fabric::{Name, Pacing};
use causeway_wire::virtio::has;
use causeway_wire::virtio_net::VIRTIO_NET_F_MRG_RXBUF;

use crate::event::{Event, Place};
use crate::rng::Rng;
use crate::stage::{Stage, StageError, net_spec, plain_net};
use crate::tape::Tape;
use crate::world::{Play, Temper, pieces, ring_features};
use guest::Guest;

const QUEUES: usize = 2;

/// See the module.
#[derive(Debug)]
pub struct Cards {
    stage: Stage,
    index: u8,
    guests: Vec<Guest>,
    there: Vec<bool>,
    /// No port was ever deleted, so that counters tell of everything.
    steady: bool,
    temper: Temper,
}

fn name(guest: usize) -> Result<Name, StageError> {
    let text = format!("n{guest}");
    text.parse().map_err(|_| StageError::Host(std::io::Error::other("a name")))
}

fn dropped(view: &PortView) -> u64 {
    view.counters.iter().filter(|(name, _)| name.starts_with("drop_")).map(|(_, n)| n).sum()
}

fn counter(view: &PortView, name: &str) -> u64 {
    view.counters.get(name).copied().unwrap_or(0)
}

impl Cards {
    /// A stage of `ports` guests.
    ///
    /// # Errors
    /// The host fails us.
    pub fn new(
        index: u8,
        ports: u8,
        pacing: Pacing,
        temper: Temper,
        rng: &mut Rng,
    ) -> Result<Self, StageError> {
        let group = "group".parse().map_err(|_| StageError::Host(std::io::Error::other("name")))?;
        let stage = Stage::new(group, Box::new(Ethernet::new()), pacing)?;
        let guests = (0..ports)
            .map(|guest| Guest::new(Place { stage: index, guest }, rng.pick(&[576, 1500, 65535])))
            .collect();
        let mut play =
            Self { stage, index, guests, there: vec![false; ports.into()], steady: true, temper };
        for guest in 0..play.guests.len() {
            play.add(guest)?;
        }
        Ok(play)
    }

    fn add(&mut self, guest: usize) -> Result<(), StageError> {
        let net = plain_net(frame::mac(guest as u8), self.guests[guest].mtu);
        self.stage.add(net_spec(self.stage.group(), &name(guest)?, net))?;
        self.there[guest] = true;
        Ok(())
    }

    fn act(&self, tape: &mut Tape, guest: usize, what: &'static str, value: u64) {
        let at = Place { stage: self.index, guest: guest as u8 };
        tape.put(Event::Act { now_ns: self.stage.now_ns(), at, what, value });
    }

    fn join(&mut self, guest: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let (ring, declined) = ring_features(rng);
        let features = guest::offloads(rng) | ring;
        let merges = has(features, VIRTIO_NET_F_MRG_RXBUF);
        let ring_size = 1 << rng.within(if merges { 6 } else { 2 }, 8);
        let options = NetOptions {
            ring_size,
            receive_bytes: rng.pick(if merges { &[1526, 2048, 4096] } else { &[1526, 66_000] }),
            features,
            piece_bytes: pieces(rng, ring_size, &[None, Some(64), Some(1000)]),
            ..NetOptions::default()
        };
        let cut = self.temper.leaves && rng.chance(15);
        let patience = cut.then(|| rng.below(18) as usize);
        self.act(tape, guest, "join", patience.map_or(0, |p| p as u64 + 1));
        self.act(tape, guest, "with features", features);
        self.act(tape, guest, "without features", declined);
        self.act(tape, guest, "ring", u64::from(ring_size));
        self.act(tape, guest, "buffers", u64::from(options.receive_bytes));
        self.stage.patience(patience);
        let reset = self.temper.leaves && rng.chance(10);
        let attached = self.stage.client(&name(guest)?).and_then(|mut client| {
            if reset {
                client.tell(FrontendReq::RESET_DEVICE, &[], &[])?;
            }
            self.stage.net_over(client, options, declined)
        });
        self.stage.patience(None);
        match attached {
            Ok(port) => self.guests[guest].join(port, tape),
            Err(error) if patience.is_none() => return Err(error),
            Err(_) => {
                self.stage.step(4)?;
            }
        }
        Ok(())
    }

    fn leave(&mut self, guest: usize, tape: &mut Tape) -> Result<(), StageError> {
        if self.guests[guest].port.is_none() {
            return Ok(());
        }
        self.guests[guest].leave(tape);
        self.stage.step(4)?;
        let view = self.stage.view(&name(guest)?)?;
        let count = counter(&view, "transmit_packets_total");
        if self.steady {
            tape.put(Event::Taken { at: self.guests[guest].place, count });
        }
        Ok(())
    }

    fn traffic(&mut self, at: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let now = self.stage.now_ns();
        let guests = self.guests.len() as u8;
        let guest = &mut self.guests[at];
        if guest.away_until_ns > now {
            return Ok(());
        }
        if rng.chance(1) {
            guest.away_until_ns = now + rng.below(self.temper.away_ns);
        }
        if rng.chance(60) {
            for _ in 0..rng.within(1, 12) {
                if !guest.send(guests, rng, tape)? {
                    break;
                }
            }
            guest.flush()?;
        }
        if rng.chance(60) {
            guest.receive(rng.within(1, 40) as usize, tape)?;
        }
        Ok(())
    }

    fn disturb(&mut self, at: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        match rng.below(5) {
            0 | 1 => {
                self.act(tape, at, "leave", 0);
                self.leave(at, tape)?;
            }
            2 if self.temper.deletes => {
                self.act(tape, at, "delete", 0);
                if rng.chance(50) {
                    self.leave(at, tape)?;
                }
                self.steady = false;
                self.stage.delete(&name(at)?)?;
                self.there[at] = false;
                self.guests[at].leave(tape);
            }
            3 => {
                self.act(tape, at, "reset", 0);
                if let Some(port) = &mut self.guests[at].port {
                    port.frontend().client().tell(FrontendReq::RESET_DEVICE, &[], &[])?;
                }
                self.leave(at, tape)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn pause(&mut self, at: usize, tape: &mut Tape) -> Result<(), StageError> {
        self.act(tape, at, "pause", 0);
        let guest = &mut self.guests[at];
        let Some(port) = &mut guest.port else { return Ok(()) };
        let mut bases = [0; QUEUES];
        for (queue, base) in bases.iter_mut().enumerate() {
            *base = port.frontend().pause(queue)?;
        }
        guest.paused = Some(bases);
        Ok(())
    }

    fn resume(&mut self, at: usize, tape: &mut Tape) -> Result<(), StageError> {
        let guest = &mut self.guests[at];
        let (Some(port), Some(bases)) = (&mut guest.port, guest.paused.take()) else {
            return Ok(());
        };
        for (queue, base) in bases.into_iter().enumerate() {
            port.frontend().resume(queue, base)?;
        }
        self.act(tape, at, "resume", 0);
        Ok(())
    }

    fn ring(&mut self, at: usize, rng: Option<&mut Rng>) -> Result<(), NativeError> {
        let now = self.stage.now_ns();
        let guest = &mut self.guests[at];
        match &mut guest.port {
            Some(port) => guest.bells.ring(port.frontend(), QUEUES, now, rng),
            None => Ok(()),
        }
    }
}

impl Play for Cards {
    fn is_heavy(&self) -> bool {
        self.temper.heavy
    }

    fn stage(&self) -> &Stage {
        &self.stage
    }

    fn turn(&mut self, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let at = rng.below(self.guests.len() as u64) as usize;
        if !self.there[at] {
            if rng.chance(20) {
                self.act(tape, at, "add", 0);
                self.add(at)?;
            }
        } else if self.guests[at].port.is_none() {
            if rng.chance(30) {
                self.join(at, rng, tape)?;
            }
        } else if self.guests[at].paused.is_some() {
            if rng.chance(20) {
                self.resume(at, tape)?;
            }
        } else if self.temper.leaves && rng.chance(2) {
            self.disturb(at, rng, tape)?;
        } else if self.temper.pauses && rng.chance(2) {
            self.pause(at, tape)?;
        } else if self.temper.pauses && rng.chance(2) {
            self.act(tape, at, "grant", 0);
            if let Some(port) = &mut self.guests[at].port {
                port.frontend().grant_again()?;
            }
        } else {
            self.traffic(at, rng, tape)?;
            self.ring(at, Some(rng))?;
        }
        Ok(())
    }

    fn settle(&mut self, tape: &mut Tape) -> Result<(), StageError> {
        for at in 0..self.guests.len() {
            self.resume(at, tape)?;
            self.guests[at].bells.wake_all();
            self.guests[at].away_until_ns = 0;
        }
        Ok(())
    }

    fn behave(&mut self, tape: &mut Tape) -> Result<bool, StageError> {
        let mut worked = false;
        for at in 0..self.guests.len() {
            worked |= self.guests[at].attend(tape)?;
            self.ring(at, None)?;
        }
        Ok(worked)
    }

    fn finish(&mut self, tape: &mut Tape) -> Result<(), StageError> {
        let stage = self.index;
        for (at, guest) in self.guests.iter_mut().enumerate() {
            let count = u64::from(!guest.is_idle()?);
            tape.put(Event::Remains { stage, what: "frames kept", count });
            if !self.there[at] {
                continue;
            }
            let view = self.stage.view(&name(at)?)?;
            if view.state == PortState::Faulted {
                tape.fail(crate::check::broken("remains", format!("a fault: {:?}", view.fault)));
            }
            if self.steady {
                let given = counter(&view, "receive_packets_total");
                tape.put(Event::Tally { at: guest.place, given, dropped: dropped(&view) });
            }
        }
        if self.steady {
            tape.put(Event::Balance { stage, ports: self.guests.len() as u8 });
        }
        Ok(())
    }

    fn part(&mut self, tape: &mut Tape) -> Result<(), StageError> {
        for at in 0..self.guests.len() {
            self.guests[at].leave(tape);
            self.stage.step(4)?;
            if self.there[at] {
                self.stage.delete(&name(at)?)?;
            }
        }
        Ok(())
    }
}
