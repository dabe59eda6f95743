//! vsock: two guests send arbitrary packets, answer correctly or not, and may overwrite their
//! rings. Received packets name their true sender and fit the advertised credit. Target `packets`:
//! the real socket service in one shard, at most 128 steps. A guest that overwrote its rings may
//! lose its port; another may not, and gets all of its packets back.

use std::collections::HashMap;

use causeway_attach::native::{VsockOptions, VsockPort};
use causeway_model::PortState;
use causeway_sim::stage::{Stage, vsock_spec};
use causeway_socket::Socket;
use causeway_wire::vsock::{Header, Op};

use super::{PACING, STEPS_MAX, name, scribble};
use crate::Input;

const CIDS: [u32; 2] = [3, 4];

/// The advertised credit of a connection and the bytes received; `None` once the connection of a
/// packet is ambiguous.
type Room = Option<(u64, u64)>;

struct Guest {
    port: VsockPort,
    last: Option<Header>,
    /// By own port, peer's CID, peer's port, and type.
    rooms: HashMap<(u32, u64, u32, u16), Room>,
    spoiled: bool,
    /// The guest sent a packet that costs it its port: with a foreign CID, or with a length that
    /// exceeds the data.
    is_violating: bool,
}

struct Play {
    stage: Stage,
    guests: Vec<Guest>,
    data: Vec<u8>,
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let packed = u64::from(input.u8() & 1) << 34;
    let stage = Stage::new(name("g"), Box::new(Socket::new()), PACING).expect("descriptors");
    let attach = |cid: u32| {
        let port = name(&format!("v{cid}"));
        stage.add(vsock_spec(stage.group(), &port, cid)).expect("a new port");
        let features = packed;
        let options =
            VsockOptions { ring_size: 16, receive_bytes: 1024, features, ..Default::default() };
        let port = stage.vsock(&port, options, 0).expect("a valid set-up");
        Guest { port, last: None, rooms: HashMap::new(), spoiled: false, is_violating: false }
    };
    let guests = CIDS.map(attach).into();
    let mut play = Play { stage, guests, data: Vec::new() };
    input.steps(STEPS_MAX, |input| play.step(input));
    play.end();
}

/// Builds a packet with one of a few ports and any operation, usually almost valid.
fn header(input: &mut Input<'_>, from: u32, last: Option<Header>) -> Header {
    let op = input.one_of(&[1, 2, 3, 4, 5, 5, 5, 6, 7, 0]);
    let choice = input.u8();
    let mut header = Header {
        src_cid: from.into(),
        dst_cid: u64::from(input.one_of(&[3_u32, 4, 4, 3, 2, 99])),
        src_port: u32::from(choice & 3),
        dst_port: u32::from(choice >> 2 & 3),
        len: 0,
        kind: if choice & 0x70 == 0x70 { input.u16() } else { 1 + u16::from(choice >> 4 & 1) },
        op,
        flags: u32::from(choice >> 6),
        buf_alloc: input.one_of(&[0, 100, 4096, 1 << 16, 1 << 18, u32::MAX]),
        fwd_cnt: 0,
    };
    match (input.below(4), last) {
        (0 | 1, Some(last)) => {
            // Answers the last received packet.
            (header.dst_cid, header.kind) = (last.src_cid, last.kind);
            (header.src_port, header.dst_port) = (last.dst_port, last.src_port);
        }
        (3, _) => {
            header.fwd_cnt = input.u32();
            if input.bool() {
                (header.src_cid, header.dst_cid) = (input.u64(), input.u64());
            }
        }
        _ => {}
    }
    header
}

impl Play {
    fn step(&mut self, input: &mut Input<'_>) {
        let who = input.below(2);
        match input.below(10) {
            0..=4 => self.send(input, who),
            5 | 6 => self.receive(who),
            7 => self.ring(who),
            8 => {
                self.stage.advance(u64::from(input.u16()) << 20);
                self.work();
            }
            _ => {
                let guest = &mut self.guests[who];
                guest.spoiled = true;
                let (map, _) = guest.port.frontend().driver_queue(input.below(2)).expect("three");
                scribble(input, map);
                self.ring(who);
            }
        }
    }

    fn work(&self) {
        self.stage.step(16).expect("a working host");
    }

    fn ring(&mut self, who: usize) {
        for lane in 0..2 {
            if let Ok((_, lane)) = self.guests[who].port.frontend().driver_queue(lane) {
                lane.ring();
            }
        }
        self.work();
    }

    fn send(&mut self, input: &mut Input<'_>, who: usize) {
        let guest = &mut self.guests[who];
        let mut header = header(input, CIDS[who], guest.last);
        let len = input.one_of(&[0_usize, 1, 100, 1000, 5000, 65_000]);
        if header.op == Op::Data.raw() {
            header.len = len as u32;
        }
        if input.below(16) == 0 {
            header.len = input.u32();
        }
        guest.is_violating |= header.src_cid != u64::from(CIDS[who]) || header.len as usize != len;
        guest.note_sent(&header);
        self.data.resize(len, 0x5a);
        let sent = guest.port.queue(&header, &self.data);
        assert!(guest.spoiled || sent.is_ok(), "{sent:?}");
        let shown = guest.port.flush();
        assert!(guest.spoiled || shown.is_ok(), "{shown:?}");
    }

    fn receive(&mut self, who: usize) {
        let guest = &mut self.guests[who];
        let mut data = std::mem::take(&mut self.data);
        loop {
            match guest.port.receive(&mut data) {
                Ok(Some(header)) => guest.note_received(&header, data.len(), CIDS[who]),
                Ok(None) => break,
                Err(error) => {
                    assert!(guest.spoiled, "{error}");
                    break;
                }
            }
        }
        let shown = guest.port.flush();
        assert!(guest.spoiled || shown.is_ok(), "{shown:?}");
        self.data = data;
    }

    /// Declares all received data of a guest as consumed, with the largest receive buffer. Resets
    /// connections whose data the model could not count: their receiver may never have room again.
    fn consume(&mut self, who: usize) {
        let guest = &mut self.guests[who];
        let rooms: Vec<_> = guest.rooms.iter().map(|(key, room)| (*key, *room)).collect();
        for ((src_port, dst_cid, dst_port, kind), room) in rooms {
            let header = Header {
                src_cid: u64::from(CIDS[who]),
                dst_cid,
                src_port,
                dst_port,
                len: 0,
                kind,
                op: if room.is_some() { Op::CreditUpdate.raw() } else { Op::Reset.raw() },
                flags: 0,
                buf_alloc: u32::MAX,
                fwd_cnt: room.map_or(0, |(_, received)| received as u32),
            };
            guest.note_sent(&header);
            let sent = guest.port.queue(&header, &[]);
            assert!(guest.spoiled || sent.is_ok(), "{sent:?}");
        }
        let shown = guest.port.flush();
        assert!(guest.spoiled || shown.is_ok(), "{shown:?}");
    }

    /// Checks that a guest with intact rings keeps its port and gets its descriptors back: once
    /// its peer has consumed all data, and packets queued for a guest without receive buffers once
    /// that guest leaves.
    fn end(&mut self) {
        for round in 0..40 {
            for who in 0..2 {
                self.receive(who);
                if round % 10 == 0 {
                    self.consume(who);
                }
                self.ring(who);
            }
            self.stage.advance(1_000_000_000);
            self.work();
        }
        let rings = self.guests.drain(..).zip(CIDS);
        let (whole, broken): (Vec<_>, Vec<_>) =
            rings.partition(|(guest, _)| !guest.spoiled && !guest.is_violating);
        drop(broken);
        self.work();
        for (mut guest, cid) in whole {
            let view = self.stage.view(&name(&format!("v{cid}"))).expect("an existing port");
            assert_eq!(view.state, PortState::Running, "{view:?}");
            assert!(guest.port.is_idle().expect("intact rings"), "packets were not returned");
        }
    }
}

impl Guest {
    fn note_sent(&mut self, header: &Header) {
        let key = (header.src_port, header.dst_cid, header.dst_port, header.kind);
        let edge = u64::from(header.fwd_cnt) + u64::from(header.buf_alloc);
        match self.rooms.get_mut(&key) {
            // The model cannot distinguish a reset from a new connection with the same identifiers.
            Some(room) if header.op == Op::Reset.raw() => *room = None,
            Some(Some((most, _))) => *most = edge.max(*most),
            Some(None) => {}
            None => {
                self.rooms.insert(key, Some((edge, 0)));
            }
        }
    }

    fn note_received(&mut self, header: &Header, len: usize, cid: u32) {
        // A guest that overwrites its buffers reads its own bytes.
        if self.spoiled {
            return;
        }
        assert_eq!(header.dst_cid, u64::from(cid), "packet for another guest");
        let op = header.operation().expect("a valid operation");
        // A packet to an unknown CID is answered by a reset from that CID.
        assert!([3, 4].contains(&header.src_cid) || op == Op::Reset, "{header:?}");
        assert_eq!(header.len as usize, len, "length differs from the header");
        assert!(len == 0 || op == Op::Data, "{op:?} with data");
        let key = (header.dst_port, header.src_cid, header.src_port, header.kind);
        match op {
            Op::Reset => {
                self.rooms.insert(key, None);
            }
            Op::Data => {
                let room = self.rooms.get_mut(&key).expect("a known connection");
                if let Some((most, came)) = room {
                    *came += len as u64;
                    assert!(came <= most, "{came} bytes exceed the credit of {most}");
                }
            }
            _ => {}
        }
        self.last = Some(*header);
    }
}

/// Returns connections that are opened, used and shut down.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for packed in [0_u8, 1] {
        for kind in [0_u8, 0x10] {
            // Guest, send, operation, ports and type, destination, credit, kind of answer, length.
            let send = |who: u8, op: u8, to: u8, answers: u8, len: u8| {
                vec![who, 0, op, 5 | kind, to, 4, answers, len, 1, who, 7]
            };
            let take = |who: u8| vec![who, 5];
            let mut scenario = vec![packed];
            scenario.extend(send(0, 0, 1, 2, 0));
            scenario.extend(take(1));
            scenario.extend(send(1, 1, 0, 0, 0));
            scenario.extend(take(0));
            for (who, len) in [(0, 3), (1, 2), (0, 5)] {
                scenario.extend(send(who, 4, 1 - who, 0, len));
                scenario.extend(take(1 - who));
            }
            scenario.extend(send(1, 7, 0, 0, 0));
            scenario.extend(send(0, 3, 1, 0, 0));
            scenario.extend([0, 8, 255, 255]);
            scenario.extend(send(0, 2, 1, 0, 0));
            all.push(scenario);
        }
    }
    all
}
