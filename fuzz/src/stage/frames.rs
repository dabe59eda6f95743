//! Ethernet: a hostile guest sends arbitrary frames with arbitrary headers and may overwrite its
//! rings; the other guest receives valid frames, and its port keeps running. Target `frames`: the
//! real Ethernet service in one shard, at most 128 steps. A frame that arrives must have the source
//! address of its sender, and the destination of its receiver or a group address; intact rings get
//! all of their frames back.

use causeway_attach::native::{NetOptions, NetPort};
use causeway_ethernet::Ethernet;
use causeway_model::PortState;
use causeway_sim::stage::{Stage, net_spec, plain_net};
use causeway_wire::frame::{Frame, HEADERS_MAX};
use causeway_wire::virtio_net::{Header, Offload};

use super::{PACING, STEPS_MAX, name, scribble};
use crate::Input;

const HOSTILE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const GOOD: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The longest frame that fits into a ring whose frames are segmented for the receiver.
const FRAME_BYTES_MAX: usize = 65_557;

struct Play {
    stage: Stage,
    hostile: NetPort,
    good: NetPort,
    features: u64,
    /// The hostile guest overwrote its own memory, so its driver may find its rings broken.
    spoiled: bool,
    frame: Vec<u8>,
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = input.u8();
    let stage = Stage::new(name("g"), Box::new(Ethernet::new()), PACING).expect("descriptors");
    for (port, mac) in [("h", HOSTILE), ("g", GOOD)] {
        let spec = net_spec(stage.group(), &name(port), plain_net(mac, 9000));
        stage.add(spec).expect("a new port");
    }
    let packed = u64::from(choice & 1) << 34;
    let all = causeway_ethernet::features::offered(&plain_net(HOSTILE, 9000));
    let attach = |port: &str, wanted: u64, receive_bytes| {
        let options =
            NetOptions { ring_size: 8, receive_bytes, features: wanted, ..NetOptions::default() };
        stage.net(&name(port), options, 0).expect("a valid set-up")
    };
    let hostile = attach("h", all | packed, 2048);
    let theirs = if choice & 2 == 0 { all } else { input.u64() & all } | 1 << 15;
    let good = attach("g", theirs | packed, if choice & 4 == 0 { 4096 } else { 128 });
    let mut play = Play { stage, hostile, good, features: 0, spoiled: false, frame: Vec::new() };
    play.features = play.good.frontend().features();
    input.steps(STEPS_MAX, |input| play.step(input));
    play.end();
}

impl Play {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(8) {
            0..=3 => self.send(input),
            4 => {
                let lane = self.hostile.frontend().driver_queue(1);
                lane.expect("two queues").1.ring();
                self.work();
            }
            5 => self.receive(),
            6 => {
                self.stage.advance(u64::from(input.u8()) << 20);
                self.work();
            }
            _ => {
                self.spoiled = true;
                let (map, lane) =
                    self.hostile.frontend().driver_queue(input.below(2)).expect("two");
                scribble(input, map);
                lane.ring();
                self.work();
            }
        }
    }

    fn work(&self) {
        self.stage.step(16).expect("a working host");
    }

    fn send(&mut self, input: &mut Input<'_>) {
        let choice = input.u8();
        let to = match choice & 3 {
            0 => [0xff; 6],
            1 => input.array(),
            _ => GOOD,
        };
        let from = if choice & 0x1c == 0x1c { input.array() } else { HOSTILE };
        let mut bytes = crate::offload::frame(input, from, to);
        let header = match choice & 0x20 {
            0 => Header::default(),
            _ => crate::offload::header(input, &bytes),
        };
        bytes.truncate(65_553);
        let sent = self.hostile.queue(0, &header.emit(), &bytes);
        assert!(self.spoiled || sent.is_ok(), "{sent:?}");
        let shown = self.hostile.flush(0);
        assert!(self.spoiled || shown.is_ok(), "{shown:?}");
    }

    /// Receives frames and checks that each complies with the receiver's features.
    fn receive(&mut self) {
        let mut frame = std::mem::take(&mut self.frame);
        while let Some(header) = self.good.receive(0, &mut frame).expect("intact rings") {
            let header = Header::parse(&header).expect("twelve bytes");
            assert!((14..=FRAME_BYTES_MAX).contains(&frame.len()), "{} bytes", frame.len());
            assert_eq!(frame[6..12], HOSTILE, "source address differs from the sender");
            assert!(frame[..6] == GOOD || frame[0] & 1 == 1, "frame for another receiver");
            let start = &frame[..frame.len().min(HEADERS_MAX)];
            let parsed = Frame::parse(start).expect("an Ethernet header");
            let offload = Offload::check(&header, u64::MAX, &parsed, frame.len());
            let offload = offload.expect("a valid header");
            if self.features & 2 == 0 {
                assert_eq!(offload, Offload::None, "partial checksum was not negotiated");
            }
            if let Offload::Segment(_, gso) = offload {
                assert!(
                    self.features >> gso.kind.guest_feature() & 1 == 1,
                    "segmentation was not negotiated"
                );
            }
        }
        self.good.flush(0).expect("intact rings");
        self.frame = frame;
    }

    /// Checks that the good guest's port still runs, and that an intact guest gets all its buffers
    /// back.
    fn end(&mut self) {
        for _ in 0..4 {
            self.receive();
            self.good.frontend().driver_queue(0).expect("two").1.ring();
            if let Ok((_, lane)) = self.hostile.frontend().driver_queue(1) {
                lane.ring();
            }
            self.stage.advance(200_000_000);
            self.work();
        }
        let state = |port| self.stage.view(&name(port)).expect("an existing port").state;
        assert_eq!(state("g"), PortState::Running);
        if !self.spoiled {
            assert_eq!(state("h"), PortState::Running);
            assert!(self.hostile.is_idle(0).expect("intact rings"), "frames were not returned");
        }
    }
}

/// Returns frames of each kind, sent, delayed and received.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for choice in [0_u8, 1, 2, 4, 7] {
        let mut scenario = vec![choice];
        if choice & 2 != 0 {
            scenario.extend([0; 8]);
        }
        for kind in [0_u8, 2, 4, 6] {
            scenario.extend([0, 2 | 0x20, kind | 0x10]);
            scenario.extend(3000_u16.to_le_bytes());
            if kind & 4 == 0 {
                scenario.push(0x18);
            }
            scenario.extend([0, 1, 1 | 4 | 8 | 16, 100, 4, 5]);
        }
        scenario.extend([6, 255, 7, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        all.push(scenario);
    }
    all
}
