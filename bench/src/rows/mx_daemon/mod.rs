//! Messages between two endpoints of one host through the daemon: the path of processes without
//! channels, such as those of guests. `hosts` has a row to another host.
//!
//! The processes are host processes, or run in guests, each with a native driver of its guest's
//! adapter in place of a guest. The host sides of all endpoints are rings in the benchmark's
//! thread, on one core; the rig's dispatcher, which polls, is on the other core. Each half round
//! trip is therefore: a request that crosses to the dispatcher, the copy into the ring of the
//! receiver, and an event that crosses back. A large message is offered, pulled by the other
//! endpoint, and copied by the dispatcher from region to region. The content is not checked. An
//! answer, an event or room for a request may take 10 s, and a stream of large messages 60 s; then
//! the row is left out with the reason.

mod end;
mod guest;
mod hosts;
mod many;

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use causeway_model::{MxSpec, PortKind};
use causeway_wire::mx::{Address, Event, NicId, PeerId, Request, Status, Token, Window};

use crate::effort::Effort;
use crate::floor::{bare_ring_us, memcpy_gbps};
use crate::pin::{CLIENT, pin};
use crate::rig::{GROUP, Rig, hca_mac, mac};
use crate::row::{Against, Guest, Plan};
use crate::rows::messages::{By, nic};

use end::End;

/// Longest wait for an answer, an event, a completion, or room for a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Large messages that are offered at the same time.
const OFFERED: usize = 4;

/// Where the processes run.
#[derive(Debug, Clone, Copy)]
enum Side {
    /// On the host.
    Host,
    /// In guests.
    Guest,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Opens the endpoint of a new NIC with this number and transport.
fn end(rig: &Rig, side: Side, number: u8, by: By) -> Result<End, String> {
    let name = format!("mx{number}");
    match side {
        Side::Host => {
            rig.add(GROUP, &name, PortKind::of(nic(number, by)));
            End::of_host(&rig.socket(&name))
        }
        Side::Guest => {
            let socket = rig.idle_hca(number);
            let adapter = format!("h{number}").parse().map_err(|_| "a name")?;
            let spec = MxSpec { adapter: Some(adapter), ..nic(number, by) };
            rig.add(GROUP, &name, PortKind::of(spec));
            End::of_guest(&socket, hca_mac(number))
        }
    }
}

/// Two connected endpoints of new NICs, each with its number for the other.
fn ends(rig: &Rig, side: Side, first: u8) -> Result<([End; 2], [PeerId; 2]), String> {
    let second = first + 1;
    let open = |number| end(rig, side, number, By::Nothing);
    let (mut one, mut two) = (open(first)?, open(second)?);
    pin(CLIENT);
    let to = Address { nic: NicId::of(mac(second)), endpoint: 0 };
    let peers = one.connect(&mut two, to)?;
    Ok(([one, two], peers))
}

/// Two connected endpoints on a rig of their own.
fn pair(side: Side) -> Result<(Rig, [End; 2], [PeerId; 2]), String> {
    let rig = Rig::new(Duration::from_millis(100));
    let (ends, peers) = ends(&rig, side, 1)?;
    Ok((rig, ends, peers))
}

/// Returns half round trips of messages of `len` bytes, in microseconds.
fn half_round_us(effort: &Effort, side: Side, len: usize) -> Result<Vec<f64>, String> {
    let (_rig, mut ends, peers) = pair(side)?;
    let (data, mut into) = (vec![1; len], vec![0; len]);
    let rounds = effort.rounds(200_000);
    effort.each(|| {
        let since = Instant::now();
        for _ in 0..rounds {
            for from in [0, 1] {
                let (peer, token) = (peers[from], Token::UNREPORTED);
                ends[from].request(&Request::Eager { peer, token, match_info: 1, data: &data })?;
                while !matches!(ends[1 - from].wait(&mut into)?, Event::Message { .. }) {}
            }
        }
        Ok(since.elapsed().as_secs_f64() * 1e6 / rounds as f64 / 2.0)
    })
}

/// Returns the rate of messages of `len` bytes that are pulled, in GB/s.
fn stream_gb_s(effort: &Effort, side: Side, len: usize) -> Result<Vec<f64>, String> {
    let (_rig, ends, [peer, _]) = pair(side)?;
    stream_between(effort, ends, peer, len, spin_loop)
}

/// As [`stream_gb_s`], between two connected endpoints; `idle` is called while none has an event.
fn stream_between(
    effort: &Effort,
    [mut one, mut two]: [End; 2],
    peer: PeerId,
    len: usize,
    idle: fn(),
) -> Result<Vec<f64>, String> {
    let (from, into) = (one.region(len)?, two.region(len)?);
    let window = |region| Window { region, offset: 0, len: len as u32 };
    let rounds = effort.rounds(4_000);
    let offer = Request::Offer { peer, token: Token(2), match_info: 2, from: window(from) };
    effort.each(|| {
        let (since, mut sent) = (Instant::now(), 0);
        for _ in 0..OFFERED {
            one.request(&offer)?;
        }
        while sent < rounds {
            if let Some(Event::Offered { handle, .. }) = two.poll(&mut [])? {
                two.request(&Request::Pull { handle, token: Token(3), into: window(into) })?;
            }
            match one.poll(&mut [])? {
                Some(Event::Sent { status: Status::Success, .. }) => {
                    sent += 1;
                    if sent + OFFERED as u64 <= rounds {
                        one.request(&offer)?;
                    }
                }
                Some(Event::Sent { status, .. }) => return Err(format!("a send: {status:?}")),
                _ if since.elapsed() > 6 * PATIENCE => return Err("the stream stands still".into()),
                _ => idle(),
            }
        }
        Ok(rounds as f64 * len as f64 / since.elapsed().as_secs_f64() / 1e9)
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for (name, len, aim) in [("8 B", 8, Some(0.6)), ("4 KiB", 4096, None), ("32 KiB", 32_768, None)]
    {
        let title = format!("MX half round trip through the daemon, {name}");
        let plan = Plan::new(title, "us", Guest::Native, move |e| half_round_us(e, Side::Host, len))
            .beside("bare ring", move |e| e.each(|| bare_ring_us(len)))
            .note("Both host sides in one thread, the dispatcher on the other core. A bare ring crosses once and has no third party.");
        plans.push(aim.into_iter().fold(plan, |plan, aim| plan.aim(Against::Figure, aim)));
    }
    plans.push(
        Plan::new("MX half round trip between guests, 8 B", "us", Guest::Native, |e| {
            half_round_us(e, Side::Guest, 8)
        })
        .beside("host processes", |e| half_round_us(e, Side::Host, 8))
        .beside("bare ring", |e| e.each(|| bare_ring_us(8)))
        .aim(Against::Figure, 0.6)
        .aim(Against::Peer("host processes"), 0.95)
        .note("Native drivers of both guests in one thread; rings in one range of guest memory."),
    );
    for (title, side) in [
        ("MX stream through the daemon, 1 MiB", Side::Host),
        ("MX stream between guests, 1 MiB", Side::Guest),
    ] {
        plans.push(
            Plan::new(title, "GB/s", Guest::Native, move |e| stream_gb_s(e, side, 1 << 20))
                .beside("memcpy", |e| e.each(|| Ok(memcpy_gbps(1 << 20))))
                .aim(Against::Peer("memcpy"), 0.85)
                .note("Four messages offered at a time, from region to region by the dispatcher."),
        );
    }
    plans.push(
        Plan::new("MX messages of 8 B between 20 pairs of guests", "M/s", Guest::Native, |e| {
            many::all_mps(e)
        })
        .beside("one pair", |e| many::aggregate_mps(e, 1))
        .aim(Against::Peer("one pair"), 1.0)
        .note("All 40 native drivers in one thread, each pair in one direction."),
    );
    plans.push(
        Plan::new("MX fairness of 20 pairs of guests", "min/max", Guest::Native, |e| {
            many::fairness(e)
        })
        .aim(Against::Figure, 0.8)
        .note("Messages of the pair with the fewest, by those of the pair with the most."),
    );
    plans.push(hosts::plan());
    plans
}
