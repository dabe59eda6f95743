//! Stream sockets: TCP on the Ethernet interface, SMC-R in the kernels, and rsockets of librdmacm.
//!
//! The matrix and a test call [`streams`] and [`rsockets`] with two guests. Each program is a step
//! that fails if a stream does not arrive complete and unchanged, or if the wrong path carried it:
//! SMC-R, which falls back to TCP, must not raise the received bytes of the Ethernet interface by a
//! 16th of the stream, and rsockets must go by queue pairs, as the adapters' counters show. SMC-R
//! of the suite `backports`, which has no SMC, is recorded as unavailable. All runs in the thread
//! of the test and one more for each server; each program runs once.

use crate::error::{Error, Result};
use crate::rdma::programs::STREAM_BYTES;
use crate::rdma::steps::{LIMIT, Steps, managed};
use crate::rdma::{Exchange, Listener, Pair, RdmaGuest, Suite};
use crate::traffic;
use causeway_guest_tool::limits::STREAM_PORT;
use causeway_guest_tool::transport::Target;

/// Bytes that NetPIPE and each program of rsockets send at least.
const PIPED_BYTES: u64 = 256 << 10;
/// TCP port of NetPIPE.
const NET_PIPE_PORT: u16 = 5002;
/// The library that replaces socket calls of a program by those of rsockets.
const PRELOAD: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";

/// Runs streams over TCP and over SMC-R.
pub fn streams(steps: &mut Steps) {
    steps.step("TCP", tcp);
    steps.step("NPtcp", round_trips);
    match steps.rig.suite {
        Suite::Backports => steps.omit("SMC-R", "Debian's cloud kernel 7.3 has no module of SMC"),
        _ => steps.step("SMC-R", smc),
    }
}

/// Runs rdma-core's programs of rsockets, and a TCP program by its preload library.
pub fn rsockets(steps: &mut Steps) {
    steps.step("rstream", |pair| {
        pair.by_queue_pairs(PIPED_BYTES, |pair| {
            managed(pair, "rstream -S 16384 -C 20 -T v", "rstream -s SERVER -S 16384 -C 20 -T v")
                .map(|_| ())
        })
    });
    steps.step("riostream", |pair| {
        pair.by_queue_pairs(PIPED_BYTES, |pair| {
            managed(
                pair,
                "riostream -S 16384 -C 20 -T v",
                "riostream -s SERVER -S 16384 -C 20 -T v",
            )
            .map(|_| ())
        })
    });
    steps.step("NPtcp over librspreload", |pair| pair.by_queue_pairs(PIPED_BYTES, preloaded));
}

/// Runs NetPIPE, a TCP program that knows nothing of RDMA, with its check of the content.
fn preloaded(pair: &mut Pair) -> Result<()> {
    let library = format!("LD_PRELOAD={PRELOAD}");
    net_pipe(pair, &["env", &library, "NPtcp", "-i", "-u", "16384"], Listener::ConnectionManager)
}

/// Runs NetPIPE over the Ethernet interface, and checks that its frames carried the round trips.
fn round_trips(pair: &mut Pair) -> Result<()> {
    let server = ["NPtcp", "-i", "-u", "16384"];
    let ((), carried) =
        pair.carried(|pair| net_pipe(pair, &server, Listener::Tcp(NET_PIPE_PORT)))?;
    match pair.daemon.is_none() || carried.frame_bytes >= PIPED_BYTES {
        true => Ok(()),
        false => Err(Error::Traffic { what: format!("expected {PIPED_BYTES} bytes: {carried:?}") }),
    }
}

/// Runs NetPIPE: round trips of messages of growing length, which it compares with `-i`.
fn net_pipe(pair: &Pair, server: &[&str], listener: Listener) -> Result<()> {
    let [at, from] = &pair.guests;
    for guest in [at, from] {
        // The program asks for the number of TCP by name.
        guest.run(&["sh", "-c", "echo tcp 6 TCP >/etc/protocols"], LIMIT)?;
    }
    let ip = at.ip();
    let client = [server, &["-h", &ip]].concat();
    Exchange { server, client: &client, listener, limit: LIMIT }.run(at, from).map(|_| ())
}

/// Compares a file of a guest with a file of another guest.
///
/// # Errors
/// When they differ, or cannot be read.
pub(super) fn same_content(a: &RdmaGuest, sent: &str, b: &RdmaGuest, received: &str) -> Result<()> {
    let sums = [a.run(&["sha256sum", sent], LIMIT)?, b.run(&["sha256sum", received], LIMIT)?];
    let [first, second] = sums.each_ref().map(|sum| sum.split(' ').next());
    match first == second {
        true => Ok(()),
        false => Err(Error::Traffic { what: format!("sent {}, received {}", sums[0], sums[1]) }),
    }
}

/// Streams in both directions over the Ethernet interface, with its segmentation offload.
fn tcp(pair: &mut Pair) -> Result<()> {
    let [at, from] = &pair.guests;
    for (at, from) in [(at, from), (from, at)] {
        let target = target(&format!("tcp:{}:{STREAM_PORT}", at.ip()))?;
        traffic::ping_pong(from.guest(), &target, 4096, 20, LIMIT)?;
        traffic::stream(from.guest(), &target, 65_536, STREAM_BYTES, LIMIT)?;
        traffic::half_close(from.guest(), &target, 200_000)?;
    }
    Ok(())
}

/// Streams over sockets that the kernels carry over RDMA, and checks that the Ethernet interface
/// did not carry the content: SMC falls back to TCP where RDMA fails.
fn smc(pair: &mut Pair) -> Result<()> {
    let [at, from] = &pair.guests;
    for guest in &pair.guests {
        guest.load("smc")?;
    }
    let address = format!("smc:{}:7003", at.ip());
    let serve = format!("causeway-guest serve {address} >/tmp/smc.log 2>&1 & sleep 1");
    at.run(&["sh", "-c", &serve], LIMIT)?;
    let received = |guest: &RdmaGuest| -> Result<u64> {
        let count = guest.run(&["cat", "/sys/class/net/eth0/statistics/rx_bytes"], LIMIT)?;
        Ok(count.trim().parse().unwrap_or(u64::MAX))
    };
    let before = received(at)?;
    let target = target(&address)?;
    traffic::ping_pong(from.guest(), &target, 4096, 20, LIMIT)?;
    let streamed = traffic::stream(from.guest(), &target, 65_536, STREAM_BYTES, LIMIT)?;
    let by_tcp = received(at)?.saturating_sub(before);
    match by_tcp < streamed.total_bytes / 16 {
        true => Ok(()),
        false => Err(Error::Traffic { what: format!("the interface received {by_tcp} bytes") }),
    }
}

/// Parses the target of a stream.
///
/// # Errors
/// When the text is no target.
pub(super) fn target(text: &str) -> Result<Target> {
    text.parse().map_err(|why| Error::Traffic { what: format!("{text}: {why}") })
}
