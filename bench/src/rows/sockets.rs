//! Socket rows: a stream by write size, and round trips.
//!
//! Two native vsock frontends in one thread are the guests, with a connection from CID 3 to CID 4;
//! the rig's dispatcher, or vhost-device-vsock as the peer, forwards on the other core. Round trips
//! are measured while both poll, and while both sleep. Receive buffers have 4 KiB; the credit is
//! 1 MiB, and across a link the daemon's grant, if that is less. A run without progress for 5 s
//! fails. The content is not checked. Unix sockets and TCP of the host, `memcpy`, a cache line and an
//! eventfd are further peers.
//!
//! Rows across a link ([`crate::hosts`]) have two dispatchers, one on each core, and are compared with
//! Ethernet through the same link, so their guests behave as those of its rows do. In a stream both
//! guests are one thread on the core of the first dispatcher: the thread copies nothing, and yields
//! the core without progress. In a round trip each guest is a thread on the core of its host.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use causeway_attach::native::VsockPort;
use causeway_wire::vsock::{Header, Op, Type};

use crate::effort::Effort;
use crate::floor;
use crate::hosts::{self, Kind};
use crate::peers::streams;
use crate::peers::underlay::Ends;
use crate::peers::vsock::{self, VhostDevice};
use crate::pin::pin;
use crate::rig::{Rig, vsock_options};
use crate::row::{Against, Guest, Plan};
use crate::rows::links;

/// Receive space that both sides grant, in bytes.
const WINDOW: u32 = 1 << 20;
/// Time without progress after which a run has failed.
const STUCK: Duration = Duration::from_secs(5);

/// Returns the header of a packet with the CIDs as port numbers.
pub fn header(from: u32, to: u32, op: Op, len: u32, consumed: u32) -> Header {
    Header {
        src_cid: from.into(),
        dst_cid: to.into(),
        src_port: from,
        dst_port: to,
        len,
        kind: Type::Stream.raw(),
        op: op.raw(),
        flags: 0,
        buf_alloc: WINDOW,
        fwd_cnt: consumed,
    }
}

/// Sends one packet at once; waits at most 5 s for room.
pub fn send_packet(port: &mut VsockPort, header: &Header, data: &[u8]) -> Result<(), String> {
    let since = Instant::now();
    while !port.queue(header, data).map_err(|e| e.to_string())? {
        spin_loop();
        if since.elapsed() > STUCK {
            return Err("no packet can be sent: the ring stays full".into());
        }
    }
    port.flush().map_err(|e| e.to_string())
}

/// Returns the next packet, by polling, or by sleeping on the notification; an error after 5 s.
pub fn next(port: &mut VsockPort, room: &mut Vec<u8>, sleep: bool) -> Result<Header, String> {
    let mut looks = 0_u32;
    let mut since = None;
    loop {
        if let Some(header) = port.receive(room).map_err(|e| e.to_string())? {
            port.flush().map_err(|e| e.to_string())?;
            return Ok(header);
        }
        if sleep {
            port.wait(false, Some(STUCK)).map_err(|e| e.to_string())?;
        } else {
            spin_loop();
        }
        looks = looks.wrapping_add(1);
        // A clock read costs more than a poll.
        if (sleep || looks.is_multiple_of(65_536))
            && since.get_or_insert_with(Instant::now).elapsed() > STUCK
        {
            return Err("no packet arrives within the time limit".into());
        }
    }
}

/// Two ports, the connection from CID 3 to CID 4, and the daemon of both.
struct Connected<D> {
    a: VsockPort,
    b: VsockPort,
    /// Receive space that the daemon grants for CID 4, in bytes, at most [`WINDOW`]: less across a
    /// link.
    window: usize,
    _daemon: D,
}

fn connected<D>(daemon: D, mut a: VsockPort, mut b: VsockPort) -> Result<Connected<D>, String> {
    let mut room = Vec::new();
    send_packet(&mut a, &header(3, 4, Op::Request, 0, 0), &[])?;
    if next(&mut b, &mut room, true)?.operation() != Some(Op::Request) {
        return Err("the request did not arrive".into());
    }
    send_packet(&mut b, &header(4, 3, Op::Response, 0, 0), &[])?;
    let answer = next(&mut a, &mut room, true)?;
    if answer.operation() != Some(Op::Response) {
        return Err("the connect was refused".into());
    }
    Ok(Connected { a, b, window: answer.buf_alloc.min(WINDOW) as usize, _daemon: daemon })
}

fn ours(spin: Duration) -> Result<Connected<Rig>, String> {
    let rig = Rig::new(spin);
    let (a, b) = (rig.vsock(3, vsock_options()), rig.vsock(4, vsock_options()));
    connected(rig, a, b)
}

/// Two hosts in namespaces, joined by a link, with a port each.
fn linked(kind: Kind, ends: Ends) -> Result<Connected<hosts::Linked>, String> {
    let (hosts, [a, b]) = hosts::sockets(kind, [ends.core(0), ends.core(1)])?;
    connected(hosts, a, b)
}

fn theirs() -> Result<Connected<VhostDevice>, String> {
    let daemon = VhostDevice::start()?;
    let (a, b) = (daemon.attach(3, vsock_options())?, daemon.attach(4, vsock_options())?);
    // The daemon accepts packets only after it has detected both guests' rings.
    std::thread::sleep(Duration::from_millis(200));
    connected(daemon, a, b)
}

/// Rate of one connection, written `write` bytes at a time into receive buffers of 4 KiB, in GB/s.
/// One thread writes and reads; the daemon has the other core.
fn stream<D>(two: &mut Connected<D>, write: usize, total: usize) -> Result<f64, String> {
    let data = vec![7_u8; write];
    let (mut sent, mut got, mut confirmed, mut credit) = (0_usize, 0_usize, 0_usize, 0_u32);
    let mut room = Vec::new();
    let (a, b, window) = (&mut two.a, &mut two.b, two.window);
    let since = Instant::now();
    let mut last = since;
    let failed = |e: causeway_attach::native::NativeError| e.to_string();
    while got < total {
        let mut queued = 0;
        while queued < 32 && sent < total {
            let outstanding = (sent as u32).wrapping_sub(credit) as usize;
            let packet = header(3, 4, Op::Data, write as u32, 0);
            if outstanding + write > window || !a.queue(&packet, &data).map_err(failed)? {
                break;
            }
            sent += write;
            queued += 1;
        }
        if queued > 0 {
            a.flush().map_err(failed)?;
        }
        let mut taken = 0;
        while taken < 256
            && let Some(packet) = b.receive(&mut room).map_err(failed)?
        {
            got += packet.len as usize;
            taken += 1;
        }
        if taken > 0 {
            b.flush().map_err(failed)?;
            last = Instant::now();
        } else if last.elapsed() > STUCK {
            return Err(format!("the stream stalls after {got} bytes"));
        }
        if got - confirmed >= window / 4 {
            confirmed = got;
            send_packet(b, &header(4, 3, Op::CreditUpdate, 0, got as u32), &[])?;
        }
        while let Some(packet) = a.receive(&mut room).map_err(failed)? {
            if packet.operation() == Some(Op::Reset) {
                return Err("the connection was reset".into());
            }
            credit = packet.fwd_cnt;
        }
    }
    Ok(total as f64 / since.elapsed().as_secs_f64() / 1e9)
}

/// Receives a message of `len` bytes, in as many packets as the receiver's buffers require.
fn whole(port: &mut VsockPort, room: &mut Vec<u8>, sleep: bool, len: u32) -> Result<(), String> {
    let mut came = 0;
    while came < len {
        came += next(port, room, sleep)?.len;
    }
    Ok(())
}

/// Half a round trip of `bytes` between two ports, in microseconds. `sleep`: both sides sleep while
/// no packet is available; otherwise they poll.
fn half_trip<D>(
    two: &mut Connected<D>,
    bytes: usize,
    rounds: u64,
    sleep: bool,
) -> Result<f64, String> {
    let data = vec![1_u8; bytes];
    let (len, mut room) = (bytes as u32, Vec::new());
    let (a, b) = (&mut two.a, &mut two.b);
    let since = Instant::now();
    for i in 0..rounds {
        let consumed = (i as u32).wrapping_mul(len);
        send_packet(a, &header(3, 4, Op::Data, len, consumed), &data)?;
        whole(b, &mut room, sleep, len)?;
        send_packet(b, &header(4, 3, Op::Data, len, consumed.wrapping_add(len)), &data)?;
        whole(a, &mut room, sleep, len)?;
    }
    Ok(since.elapsed().as_secs_f64() * 1e6 / rounds as f64 / 2.0)
}

/// As [`stream`], across a link, in Gbit/s: the guests copy no data, and leave the core to the
/// dispatcher while nothing can be sent or received.
fn linked_gbits(kind: Kind, write: usize, total: usize) -> Result<f64, String> {
    let mut two = linked(kind, Ends::Apart)?;
    let (mut sent, mut got, mut confirmed, mut credit) = (0_usize, 0_usize, 0_usize, 0_u32);
    let mut room = Vec::new();
    let (a, b, window) = (&mut two.a, &mut two.b, two.window);
    let packet = header(3, 4, Op::Data, write as u32, 0);
    let failed = |e: causeway_attach::native::NativeError| e.to_string();
    let since = Instant::now();
    let mut last = since;
    while got < total {
        let mut is_idle = true;
        let outstanding = |sent: usize, credit| (sent as u32).wrapping_sub(credit) as usize;
        while sent < total && outstanding(sent, credit) + write <= window {
            if !a.queue_as_is(&packet).map_err(failed)? {
                break;
            }
            sent += write;
            is_idle = false;
        }
        if !is_idle {
            a.flush().map_err(failed)?;
        }
        while let Some(packet) = b.discard().map_err(failed)? {
            got += packet.len as usize;
            is_idle = false;
        }
        if got - confirmed >= window / 4 {
            confirmed = got;
            send_packet(b, &header(4, 3, Op::CreditUpdate, 0, got as u32), &[])?;
        }
        while let Some(packet) = a.receive(&mut room).map_err(failed)? {
            if packet.operation() == Some(Op::Reset) {
                return Err("the connection was reset".into());
            }
            credit = packet.fwd_cnt;
            is_idle = false;
        }
        if !is_idle {
            b.flush().map_err(failed)?;
            last = Instant::now();
        } else if last.elapsed() > STUCK {
            return Err(format!("the stream stalls after {got} bytes"));
        } else {
            std::thread::yield_now();
        }
    }
    Ok(total as f64 * 8.0 / since.elapsed().as_secs_f64() / 1e9)
}

/// Round trips of 64 B across a link, asleep, with each guest on the core of its host, in
/// microseconds.
fn linked_round_us(kind: Kind, ends: Ends, rounds: u64) -> Result<f64, String> {
    const LEN: u32 = 64;
    let mut two = linked(kind, ends)?;
    let (a, b, data) = (&mut two.a, &mut two.b, [1_u8; LEN as usize]);
    let consumed = |round: u64| (round as u32).wrapping_mul(LEN);
    std::thread::scope(|scope| {
        let answers = scope.spawn(move || {
            pin(ends.core(1));
            let mut room = Vec::new();
            for round in 0..rounds {
                whole(b, &mut room, true, LEN)?;
                send_packet(b, &header(4, 3, Op::Data, LEN, consumed(round + 1)), &data)?;
            }
            Ok::<_, String>(())
        });
        pin(ends.core(0));
        let (mut room, since) = (Vec::new(), Instant::now());
        let asked = (0..rounds).try_for_each(|round| {
            send_packet(a, &header(3, 4, Op::Data, LEN, consumed(round)), &data)?;
            whole(a, &mut room, true, LEN)
        });
        let took = since.elapsed();
        answers.join().map_err(|_| "a guest's thread panicked".to_owned())??;
        asked.map(|()| took.as_secs_f64() * 1e6 / rounds as f64)
    })
}

const POLLED: Duration = Duration::from_millis(100);
const VHOST_DEVICE: &str = "vhost-device-vsock";

fn stream_plan(write: usize) -> Plan {
    let total = move |e: &Effort, full: usize| e.rounds(full as u64) as usize / write * write;
    let full = if write < 1024 { 16 << 20 } else { 1 << 30 };
    let name = format!("socket stream, {write} B writes");
    let plan = Plan::new(name, "GB/s", Guest::Native, move |e| {
        e.each(|| stream(&mut ours(POLLED)?, write, total(e, full)))
    });
    let plan = plan
        .beside("AF_UNIX", move |e| streams::unix_stream_gbps(e, write))
        .beside("TCP loopback", move |e| streams::tcp_stream_gbps(e, write))
        .beside("memcpy", move |e| e.each(|| Ok(floor::memcpy_gbps(write))))
        .at("socket-stream", write);
    let plan = if write <= vsock::WRITE_MAX {
        let plan = plan.beside(VHOST_DEVICE, move |e| {
            e.each(|| stream(&mut theirs()?, write, total(e, full / 16)))
        });
        plan.aim(Against::Peer(VHOST_DEVICE), 10.0)
    } else {
        plan
    };
    if write == 64 << 10 {
        plan.aim(Against::Figure, 4.0).aim(Against::Peer("memcpy"), 0.6)
    } else {
        plan
    }
}

fn polled_plan(bytes: usize) -> Plan {
    let name = format!("socket half round trip, {bytes} B, polling");
    let plan = Plan::new(name, "us", Guest::Native, move |e| {
        e.each(|| half_trip(&mut ours(POLLED)?, bytes, e.rounds(100_000), false))
    });
    let plan = plan
        .beside("cache line", |e| e.each(|| Ok(floor::cache_line_us())))
        .at("socket-latency", bytes);
    let plan = if bytes <= vsock::WRITE_MAX {
        let plan = plan.beside(VHOST_DEVICE, move |e| {
            e.each(|| half_trip(&mut theirs()?, bytes, e.rounds(10_000), false))
        });
        plan.aim(Against::Peer(VHOST_DEVICE), 10.0)
    } else {
        plan
    };
    if bytes == 64 {
        // 20 times a cache line, and no more than 1.5 us.
        plan.aim(Against::Figure, 1.5).aim(Against::Peer("cache line"), 0.05)
    } else {
        plan
    }
}

/// Rows of sockets between hosts, beside Ethernet through the same link.
fn link_plans() -> Vec<Plan> {
    const SEGMENTS: &str = "TCP segments of 64 KiB through the same link";
    const FRAMES: &str = "frames through the same link";
    let mut plans = Vec::new();
    for (name, kind) in [("causeway (encrypted)", Kind::Causeway), ("causeway-plain", Kind::Plain)]
    {
        let title = format!("Link {name}, socket stream, 64 KiB writes");
        let plan = Plan::new(title, "Gbit/s", Guest::Native, move |e| {
            let total = e.rounds(1 << 31) as usize >> 16 << 16;
            e.each(|| linked_gbits(kind, 64 << 10, total))
        });
        plans.push(
            plan.beside(SEGMENTS, move |e| links::gbits(e, kind))
                .aim(Against::Peer(SEGMENTS), 0.8)
                .note("Neither has a copy or a TCP stack in the guests."),
        );
        let title = format!("Link {name}, socket round trip of 64 B, parked");
        let plan = Plan::new(title, "us", Guest::Native, move |e| {
            e.each(|| linked_round_us(kind, Ends::Apart, e.rounds(30_000)))
        });
        plans.push(
            plan.beside(FRAMES, move |e| hosts::parked_round_us(e, kind, Ends::Apart))
                .aim(Against::Peer(FRAMES), 1.0 / 1.3),
        );
    }
    plans
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let mut plans: Vec<Plan> =
        [64, 256, 1 << 10, 3072, 4 << 10, 16 << 10, 64 << 10].map(stream_plan).into();
    plans.extend([64, 1 << 10, 3072, 16 << 10].map(polled_plan));
    let parked = Plan::new("socket half round trip, 64 B, parked", "us", Guest::Native, |e| {
        e.each(|| half_trip(&mut ours(Duration::ZERO)?, 64, e.rounds(5_000), true))
    });
    plans.push(
        parked
            .beside("eventfd", |e| e.each(|| Ok(floor::eventfd_us())))
            // Two wake-ups: the minimum to reach the dispatcher, and then the other port.
            .beside("eventfd round trip", |e| e.each(|| Ok(2.0 * floor::eventfd_us())))
            .beside("AF_UNIX", |e| streams::unix_half_trip_us(e, 64))
            .beside("TCP loopback", |e| streams::tcp_half_trip_us(e, 64))
            .beside(VHOST_DEVICE, |e| {
                e.each(|| half_trip(&mut theirs()?, 64, e.rounds(5_000), true))
            })
            // At most two of them.
            .aim(Against::Peer("eventfd round trip"), 0.5)
            .note(
                "No aim relative to vhost-device-vsock: both daemons need two wake-ups, which alone \
                 take more than a tenth of its round trip.",
            ),
    );
    plans.extend(link_plans());
    plans
}
