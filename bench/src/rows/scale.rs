//! Cost of scale: connections, rules, learnt addresses.
//!
//! The rows repeat a basic measurement with up to 10,000 connections, 4,096 rules or 4,000
//! addresses; those of addresses compare with one address. The guests are native frontends in one
//! thread, and the dispatcher is on the other core, or in a process of its own where memory is
//! measured. A packet that does not arrive ends the row with a reason; a lost frame delays the
//! figure by 300 ms ([`Pair`]). The limits of the product (`socket::limits`, `ethernet::limits`)
//! are not exceeded.

use std::time::{Duration, Instant};

use causeway_attach::native::VsockPort;
use causeway_model::{RuleAction, RuleSpec};
use causeway_wire::vsock::{Header, Op};

use super::ethernet::{Pair, frame, options as net_options};
use super::sockets::{header, next, send_packet};
use crate::effort::Effort;
use crate::inner::Daemon;
use crate::rig::{GROUP, Rig, mac, vsock_options};
use crate::row::{Against, Guest, Plan};

/// Poll time of the dispatcher.
const SPIN: Duration = Duration::from_millis(100);
const MANY: u32 = 10_000;

/// Returns a header from CID 3 to CID 4, on connection `number`.
fn forth(number: u32, op: Op, len: u32) -> Header {
    Header { src_port: number, ..header(3, 4, op, len, 0) }
}

/// Returns a header of the opposite direction.
fn back(number: u32, op: Op, consumed: u32) -> Header {
    Header { dst_port: number, ..header(4, 3, op, 0, consumed) }
}

/// Opens connections, up to 32 concurrently; `close` closes each at once.
fn connect(
    a: &mut VsockPort,
    b: &mut VsockPort,
    numbers: impl Iterator<Item = u32>,
    close: bool,
) -> Result<(), String> {
    const AT_ONCE: usize = 32;
    let mut numbers = numbers.peekable();
    let mut room = Vec::new();
    let failed = |e: causeway_attach::native::NativeError| e.to_string();
    while numbers.peek().is_some() {
        let batch: Vec<u32> = numbers.by_ref().take(AT_ONCE).collect();
        for &number in &batch {
            a.queue(&forth(number, Op::Request, 0), &[]).map_err(failed)?;
        }
        a.flush().map_err(failed)?;
        let mut asked = 0;
        while asked < batch.len() {
            let request = next(b, &mut room, false)?;
            if request.operation() == Some(Op::Request) {
                b.queue(&back(request.src_port, Op::Response, 0), &[]).map_err(failed)?;
                asked += 1;
            }
        }
        b.flush().map_err(failed)?;
        for _ in &batch {
            let response = next(a, &mut room, false)?;
            if response.operation() != Some(Op::Response) {
                return Err("a connect was refused".into());
            }
            if close {
                a.queue(&forth(response.dst_port, Op::Reset, 0), &[]).map_err(failed)?;
            }
        }
        a.flush().map_err(failed)?;
    }
    Ok(())
}

/// Connects per second through `rules` rules that do not match, in thousands.
fn connects(effort: &Effort, rules: u32) -> Result<Vec<f64>, String> {
    let rig = Rig::new(SPIN);
    for port in 0..rules {
        let rule = |from: String| -> Result<RuleSpec, String> {
            let from = from.parse().map_err(|e| format!("{e}"))?;
            let to = "*".parse().map_err(|e| format!("{e}"))?;
            Ok(RuleSpec { action: RuleAction::Reject, from, to })
        };
        rig.rule(rule(format!("{GROUP}/{}:{port}", 1_000_000 + port))?);
    }
    let (mut a, mut b) = (rig.vsock(3, vsock_options()), rig.vsock(4, vsock_options()));
    let mut first = 1;
    let count = effort.rounds(20_000) as u32;
    effort.each(|| {
        let since = Instant::now();
        connect(&mut a, &mut b, first..first + count, true)?;
        first += count;
        Ok(f64::from(count) / since.elapsed().as_secs_f64() / 1e3)
    })
}

/// Length of a packet, in bytes.
const LEN: u64 = 64;

/// Packets of 64 B from one port to another, over its connections in turn.
pub struct Packets {
    a: VsockPort,
    b: VsockPort,
    connections: u32,
    sent: u64,
    /// Received bytes; packets may be joined or split in transit.
    came: u64,
    /// Received bytes of each connection.
    consumed: Vec<u32>,
    room: Vec<u8>,
}

impl Packets {
    /// Creates `connections` connections.
    pub fn new(rig: &Rig, connections: u32) -> Result<Self, String> {
        let (mut a, mut b) = (rig.vsock(3, vsock_options()), rig.vsock(4, vsock_options()));
        connect(&mut a, &mut b, 1..connections + 1, false)?;
        let consumed = vec![0; connections as usize + 1];
        Ok(Self { a, b, connections, sent: 0, came: 0, consumed, room: Vec::new() })
    }

    /// Sends `more` packets, and returns when all have arrived; an error after 5 s without
    /// progress.
    pub fn send(&mut self, more: u64) -> Result<(), String> {
        const WINDOW: u64 = 128;
        let failed = |e: causeway_attach::native::NativeError| e.to_string();
        let until = self.sent + more;
        let mut last = Instant::now();
        while self.came < until * LEN {
            let got = self.came / LEN;
            for _ in 0..32 {
                let number = (self.sent % u64::from(self.connections)) as u32 + 1;
                let packet = forth(number, Op::Data, LEN as u32);
                let full = self.sent >= until.min(got + WINDOW);
                if full || !self.a.queue(&packet, &[7; LEN as usize]).map_err(failed)? {
                    break;
                }
                self.sent += 1;
            }
            self.a.flush().map_err(failed)?;
            let before = self.came;
            self.take()?;
            // Returned credit makes room for more; the daemon counts it.
            while self.a.receive(&mut self.room).map_err(failed)?.is_some() {}
            self.a.flush().map_err(failed)?;
            if self.came > before {
                last = Instant::now();
            } else if last.elapsed() > Duration::from_secs(5) {
                return Err(format!("the packets stall after {got}"));
            }
        }
        Ok(())
    }

    /// Takes received packets, with a credit update at intervals.
    fn take(&mut self) -> Result<(), String> {
        /// Bytes between credit updates, far below the granted credit.
        const CREDIT_UPDATE_BYTES: u32 = 128 << 10;
        let failed = |e: causeway_attach::native::NativeError| e.to_string();
        while let Some(packet) = self.b.receive(&mut self.room).map_err(failed)? {
            let Some(consumed) = self.consumed.get_mut(packet.src_port as usize) else { continue };
            self.came += u64::from(packet.len);
            *consumed = consumed.wrapping_add(packet.len);
            if *consumed / CREDIT_UPDATE_BYTES
                != (consumed.wrapping_sub(packet.len)) / CREDIT_UPDATE_BYTES
            {
                let update = back(packet.src_port, Op::CreditUpdate, *consumed);
                send_packet(&mut self.b, &update, &[])?;
            }
        }
        self.b.flush().map_err(failed)
    }
}

/// 64 B packets over `count` connections in turn, in millions per second.
fn packets(effort: &Effort, count: u32) -> Result<Vec<f64>, String> {
    let rig = Rig::new(SPIN);
    let mut packets = Packets::new(&rig, count)?;
    let total = effort.rounds(2_000_000);
    effort.each(|| {
        let since = Instant::now();
        packets.send(total)?;
        Ok(total as f64 / since.elapsed().as_secs_f64() / 1e6)
    })
}

/// Resident memory that 10,000 open connections add to the daemon, for each of them, in KiB.
fn connection_kib(effort: &Effort) -> Result<Vec<f64>, String> {
    effort.each(|| {
        let mut daemon = Daemon::start()?;
        let mut attach = |cid| {
            let path = daemon.vsock(cid)?;
            VsockPort::attach(&path, vsock_options()).map_err(|e| e.to_string())
        };
        let (mut a, mut b) = (attach(3)?, attach(4)?);
        // Touches every buffer once, so that only connections are counted.
        connect(&mut a, &mut b, 1..2000, true)?;
        let before = daemon.usage()?.resident_kib;
        connect(&mut a, &mut b, 10_001..10_001 + MANY, false)?;
        let added = daemon.usage()?.resident_kib.saturating_sub(before);
        Ok(added as f64 / f64::from(MANY))
    })
}

/// Learnt addresses behind a port.
const PER_PORT: u16 = 1000;

/// Returns address number `i` behind port `port`.
fn behind(port: u8, i: u16) -> [u8; 6] {
    let [high, low] = i.to_be_bytes();
    [2, 1, 0, port, high, low]
}

/// 64 B frames, with `count` learnt addresses in the group, to the 1,000 or fewer of them behind
/// one port in turn, in millions per second.
fn addresses(effort: &Effort, count: u16) -> Result<Vec<f64>, String> {
    let rig = Rig::new(SPIN);
    let sender = rig.net(1, net_options(64));
    let receiver = rig.net_in(GROUP, 2, true, net_options(64));
    // Each port learns up to 1,000 addresses; the frames go to those behind the receiver.
    let mut others = Vec::new();
    let teach = |port: &mut causeway_attach::native::NetPort, number: u8, count: u16| {
        for i in 0..count {
            let hello = frame(behind(number, i), mac(1), 64);
            while !port.send(&hello).map_err(|e| e.to_string())? {
                std::hint::spin_loop();
            }
        }
        Ok::<(), String>(())
    };
    let mut receiver = receiver;
    teach(&mut receiver, 2, count.min(PER_PORT))?;
    for number in 3..3 + (count.saturating_sub(1) / PER_PORT) as u8 {
        let mut port = rig.net_in(GROUP, number, true, net_options(64));
        teach(&mut port, number, PER_PORT)?;
        others.push(port);
    }
    // The sender has to empty its ring of the frames that taught the addresses.
    let (mut sender, mut room) = (sender, Vec::new());
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(300) {
        while sender.receive(0, &mut room).map_err(|e| e.to_string())?.is_some() {}
    }
    let to = |i: u16| frame(mac(1), behind(2, i), 64);
    let mut pair = Pair::new(sender, receiver, (0..count.min(PER_PORT)).map(to).collect());
    let total = effort.rounds(3_000_000);
    let mut until = 0;
    effort.each(|| {
        until += total;
        let since = Instant::now();
        while pair.got < until {
            pair.turn(32, until);
        }
        Ok(total as f64 / since.elapsed().as_secs_f64() / 1e6)
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for count in [1, 100, MANY] {
        let name = format!("socket packets, 64 B, {count} connections");
        let plan = Plan::new(name, "Mpps", Guest::Native, move |e| packets(e, count));
        plans.push(plan.at("socket-connections", count as usize));
    }
    let memory = "memory of a connection, of 10,000";
    plans.push(Plan::new(memory, "KiB", Guest::Native, connection_kib));
    for count in [0, 100, 4096] {
        let name = format!("connects, {count} rules");
        let plan = Plan::new(name, "k/s", Guest::Native, move |e| connects(e, count));
        plans.push(plan.at("connect-rules", count.max(1) as usize));
    }
    for count in [1, 100, 1000, 4000] {
        let name = format!("Ethernet frames, 64 B, {count} learnt addresses");
        let plan = Plan::new(name, "Mpps", Guest::Native, move |e| addresses(e, count));
        let plan = plan.at("ethernet-addresses", usize::from(count));
        // More learnt addresses than one port has do not get frames.
        let plan = if count > PER_PORT {
            plan.note("The frames go to 1,000 of the addresses, behind one port.")
        } else {
            plan
        };
        plans.push(if count == 1 {
            plan
        } else {
            let plan = plan.beside("ours, 1 address", |e| addresses(e, 1));
            plan.aim(Against::Peer("ours, 1 address"), 0.9)
        });
    }
    plans
}
