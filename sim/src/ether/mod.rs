//! A stage of guests with virtio-net devices.
//!
//! [`crate::world`] creates a stage for 2 to 6 guests and plays it by [`Play`], in the thread of
//! the world: ports are added and deleted, guests join, leave, pause, send and receive at random,
//! then behave correctly. The [`Stage`] has the product's Ethernet shard, so that frames pass the
//! real switch. At the end the stage records the ports' counters for [`crate::check::tally`],
//! unless a port was deleted. A command that the shard refuses to an honest guest is a violation.

pub(crate) mod frame;
pub(crate) mod guest;

use causeway_attach::native::{Frontend, NetOptions, NetPort};
use causeway_attach::vhost_user::FrontendReq;
use causeway_ethernet::Ethernet;
use causeway_fabric::PollConfig;
use causeway_model::{PortState, PortView};
use causeway_wire::virtio::has;
use causeway_wire::virtio_net::VIRTIO_NET_F_MRG_RXBUF;

use crate::event::{Event, Place};
use crate::play::{Behaviour, Entry, Life, Play, Scene};
use crate::rng::Rng;
use crate::stage::{Stage, StageError, net_spec, plain_net};
use crate::tape::Tape;
use crate::world::{pieces, ring_features};
use guest::Guest;

const QUEUES: usize = 2;

/// A stage of net ports.
#[derive(Debug)]
pub struct Cards {
    scene: Scene,
    guests: Vec<Guest>,
    /// No port was deleted, so the counters cover all frames.
    steady: bool,
}

/// Returns the sum of a port's counters of dropped frames.
fn dropped(view: &PortView) -> u64 {
    view.counters.iter().filter(|(name, _)| name.starts_with("drop_")).map(|(_, n)| n).sum()
}

/// Returns a counter of a port; 0 if the port has none of this name.
fn counter(view: &PortView, name: &str) -> u64 {
    view.counters.get(name).copied().unwrap_or(0)
}

impl Cards {
    /// Creates a stage of `ports` guests.
    ///
    /// # Errors
    /// The stage cannot be created.
    pub fn new(
        index: u8,
        ports: u8,
        poll_config: PollConfig,
        behaviour: Behaviour,
        rng: &mut Rng,
    ) -> Result<Self, StageError> {
        let group = "group".parse().map_err(|_| StageError::Host(std::io::Error::other("name")))?;
        let stage = Stage::new(group, Box::new(Ethernet::new()), poll_config)?;
        let guests = (0..ports)
            .map(|guest| Guest::new(Place { stage: index, guest }, rng.pick(&[576, 1500, 65535])))
            .collect();
        let scene = Scene::new(stage, index, ports, behaviour, 'n');
        let mut play = Self { scene, guests, steady: true };
        for guest in 0..play.guests.len() {
            play.add(guest)?;
        }
        Ok(play)
    }

    fn leave(&mut self, guest: usize, tape: &mut Tape) -> Result<(), StageError> {
        if self.guests[guest].port.is_none() {
            return Ok(());
        }
        self.guests[guest].leave(tape);
        self.scene.stage.step(4)?;
        let view = self.scene.stage.view(&self.scene.name(guest)?)?;
        let count = counter(&view, "transmit_packets_total");
        if self.steady {
            tape.put(Event::FramesTaken { at: self.guests[guest].place, count });
        }
        Ok(())
    }
}

impl Play for Cards {
    fn scene(&self) -> &Scene {
        &self.scene
    }

    fn queues(&self) -> usize {
        QUEUES
    }

    fn device(&mut self, at: usize) -> (Option<&mut Frontend>, &mut Life) {
        let Guest { port, life, .. } = &mut self.guests[at];
        (port.as_mut().map(NetPort::frontend), life)
    }

    fn add(&mut self, at: usize) -> Result<(), StageError> {
        let Scene { stage, .. } = &self.scene;
        let net = plain_net(frame::mac(at as u8), self.guests[at].mtu);
        stage.add(net_spec(stage.group(), &self.scene.name(at)?, net))?;
        self.scene.there[at] = true;
        Ok(())
    }

    fn join(&mut self, at: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let (ring, declined) = ring_features(rng);
        let features = guest::offloads(rng) | ring;
        let merges = has(features, VIRTIO_NET_F_MRG_RXBUF);
        let ring_size = 1 << rng.within(if merges { 6 } else { 2 }, 8);
        let options = NetOptions {
            ring_size,
            receive_bytes: rng.pick(if merges { &[1526, 2048, 4096] } else { &[1526, 66_000] }),
            features,
            descriptor_bytes: pieces(rng, ring_size, &[None, Some(64), Some(1000)]),
            ..NetOptions::default()
        };
        let receive_bytes = options.receive_bytes;
        let entry = Entry { features, declined, ring_size, receive_bytes, messages: 18 };
        let over = |stage: &Stage, client| stage.net_over(client, options, declined);
        if let Some(port) = self.scene.attach(at, entry, rng, tape, over)? {
            self.guests[at].join(port, tape);
        }
        Ok(())
    }

    fn traffic(&mut self, at: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let now = self.scene.stage.now_ns();
        let guests = self.guests.len() as u8;
        let guest = &mut self.guests[at];
        if guest.life.away_until_ns > now {
            return Ok(());
        }
        if rng.chance(1) {
            guest.life.away_until_ns = now + rng.below(self.scene.behaviour.away_ns);
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
                self.scene.act(tape, at, "leave", 0);
                self.leave(at, tape)?;
            }
            2 if self.scene.behaviour.deletes => {
                self.scene.act(tape, at, "delete", 0);
                if rng.chance(50) {
                    self.leave(at, tape)?;
                }
                self.steady = false;
                self.scene.stage.delete(&self.scene.name(at)?)?;
                self.scene.there[at] = false;
                self.guests[at].leave(tape);
            }
            3 => {
                self.scene.act(tape, at, "reset", 0);
                if let (Some(frontend), _) = self.device(at) {
                    frontend.client().tell(FrontendReq::RESET_DEVICE, &[], &[])?;
                }
                self.leave(at, tape)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn attend(&mut self, at: usize, tape: &mut Tape) -> Result<bool, StageError> {
        Ok(self.guests[at].attend(tape)?)
    }

    fn finish(&mut self, tape: &mut Tape) -> Result<(), StageError> {
        let stage = self.scene.index;
        for (at, guest) in self.guests.iter_mut().enumerate() {
            let count = u64::from(!guest.is_idle()?);
            tape.put(Event::Remains { stage, what: "frames kept", count });
            if !self.scene.there[at] {
                continue;
            }
            let view = self.scene.stage.view(&self.scene.name(at)?)?;
            if view.state == PortState::Faulted {
                tape.fail(crate::check::broken("remains", format!("port fault: {:?}", view.fault)));
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
            self.scene.stage.step(4)?;
            if self.scene.there[at] {
                self.scene.stage.delete(&self.scene.name(at)?)?;
            }
        }
        Ok(())
    }
}
