//! Attackers that use vsock.

use std::thread;

use causeway_attach::native::{ConnectionId, Sockets, VsockOptions, VsockPort};
use causeway_wire::vsock::{Header, Op, Type};

use crate::PATIENCE;
use crate::attacker::{Attacker, wait};
use crate::daemon::{Daemon, RED_CIDS};

/// The host's CID (virtio 1.3, 5.10.4).
const HOST: u64 = 2;
/// A port without listener, and the port of the bulk stream.
const PORT: u32 = 7777;
/// Requests queued in one step, and in flight at most.
const REQUESTS: u16 = 1024;
/// Data of one packet of the bulk stream, in bytes.
const PACKET_BYTES: usize = 65_536;
/// Packets queued in one step: as many as the receiver's buffer holds.
const PACKETS: usize = 4;

fn attach(daemon: &Daemon, cid: u64, options: &VsockOptions) -> VsockPort {
    let path = daemon.socket(&format!("red-vsock-{cid}"));
    let mut port = None;
    let attached = || {
        port = VsockPort::attach(&path, options.clone()).ok();
        port.is_some()
    };
    wait(attached, "the port accepts no frontend");
    port.unwrap()
}

/// Connects to the host, each time from another port.
struct Connects {
    port: VsockPort,
    from: u32,
    data: Vec<u8>,
    resets: u64,
}

impl Connects {
    fn receive(&mut self) {
        while let Some(header) = self.port.receive(&mut self.data).unwrap() {
            self.resets += u64::from(header.operation() == Some(Op::Reset));
        }
    }
}

impl Attacker for Connects {
    fn step(&mut self) {
        self.receive();
        for _ in 0..REQUESTS {
            let header = Header {
                src_cid: RED_CIDS[0],
                dst_cid: HOST,
                src_port: self.from,
                dst_port: PORT,
                len: 0,
                kind: Type::Stream.raw(),
                op: Op::Request.raw(),
                flags: 0,
                buf_alloc: 1 << 20,
                fwd_cnt: 0,
            };
            if !self.port.queue(&header, &[]).unwrap() {
                break;
            }
            self.from = self.from.wrapping_add(1);
        }
        self.port.flush().unwrap();
    }

    fn drain(&mut self) -> bool {
        self.receive();
        self.port.is_idle().unwrap()
    }

    fn arrived(&self) -> u64 {
        self.resets
    }
}

/// Connects to a host on which no process listens.
pub fn refused_connects(daemon: &Daemon) -> Box<dyn Attacker> {
    let options = VsockOptions { ring_size: REQUESTS, ..VsockOptions::default() };
    let port = attach(daemon, RED_CIDS[0], &options);
    Box::new(Connects { port, from: 1024, data: Vec::new(), resets: 0 })
}

/// A connection between two guests, used one way.
struct Stream {
    ends: [(Sockets, ConnectionId); 2],
    packet: Vec<u8>,
    arrived: u64,
}

impl Stream {
    /// Returns whether nothing had arrived.
    fn receive(&mut self) -> bool {
        let (to, id) = &mut self.ends[1];
        let mut taken = 0;
        loop {
            let more = to.try_receive(*id, &mut self.packet).unwrap() as u64;
            taken += more;
            if more == 0 {
                break;
            }
        }
        self.arrived += taken;
        taken == 0
    }
}

impl Attacker for Stream {
    fn step(&mut self) {
        for _ in 0..PACKETS {
            self.receive();
            let (from, id) = &mut self.ends[0];
            from.try_send(*id, &self.packet).unwrap();
        }
    }

    fn drain(&mut self) -> bool {
        let is_empty = self.receive();
        let (from, _) = &mut self.ends[0];
        from.turn().unwrap();
        from.port().is_idle().unwrap() && is_empty
    }

    fn arrived(&self) -> u64 {
        self.arrived
    }
}

/// A bulk stream between two guests.
pub fn bulk_stream(daemon: &Daemon) -> Box<dyn Attacker> {
    let [mut from, mut to] =
        RED_CIDS.map(|cid| Sockets::new(attach(daemon, cid, &VsockOptions::default())));
    to.listen(Type::Stream, PORT);
    let (sending, receiving) = thread::scope(|scope| {
        let accepted = scope.spawn(|| to.accept(PATIENCE).unwrap());
        let connected = from.connect(Type::Stream, RED_CIDS[1], PORT, PATIENCE).unwrap();
        (connected, accepted.join().unwrap())
    });
    let ends = [(from, sending), (to, receiving)];
    Box::new(Stream { ends, packet: vec![0; PACKET_BYTES], arrived: 0 })
}
