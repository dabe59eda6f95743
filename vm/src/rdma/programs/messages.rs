//! libfabric and MPI over the provider of Causeway: messages of MX between processes of two guests.
//!
//! The provider is a file in the image of guests with
//! [`Programs::Mpi`](crate::rdma::Programs::Mpi); no other part of Causeway but the agent is in
//! them. The steps of `fi_pingpong -m` and of MPI check by the counters of the guests' NICs that
//! messages carried the traffic: Open MPI falls back to TCP without an error. A test calls
//! [`libfabric`] and [`ranks`], and the demo [`over_messages`]; the matrix calls none.
//! [`mpi::ranks`] or [`mpi::prepare`] must run before [`ranks`] and [`over_messages`].

use crate::build;
use crate::error::{Error, Result};
use crate::rdma::pair::NICS;
use crate::rdma::programs::{compile, mpi};
use crate::rdma::steps::{LIMIT, Steps};
use crate::rdma::{Exchange, Listener, Pair};

/// Folder of the provider in the guests.
const FOLDER: &str = "/usr/lib/causeway";
/// The provider in the guests.
const PROVIDER: &str = "/usr/lib/causeway/libcauseway-fi.so";
/// TCP port on which the server of `fi_pingpong` awaits its client.
const PINGPONG_PORT: u16 = 47592;
/// The program that calls `fi_getinfo` ten times.
const GETINFO_SOURCE: &str = include_str!("getinfo.c");
/// Path of this program in the guests.
const GETINFO: &str = "/usr/bin/getinfo";
/// Lengths of messages of `fi_pingpong`: eager, and by regions.
const LENGTHS: [&str; 3] = ["64", "4096", "262144"];
/// Bytes that the NICs carry in an MPI program at least.
const RANK_BYTES: u64 = 8 << 20;
/// Options of `mpirun`: Debian's configuration excludes libfabric.
const MPI_OPTIONS: &str = "--mca opal_common_ofi_provider_include causeway \
                           -x FI_PROVIDER_PATH=/usr/lib/causeway -x UCX_MEM_EVENTS=n";
/// Matching by libfabric.
const BY_TAGS: &str = "--mca pml cm --mca mtl ofi";
/// Messages and one-sided operations by Open MPI's transport over libfabric. Open MPI 5.0.7 sets up
/// no transport for one-sided operations beside [`BY_TAGS`].
const BY_TRANSPORT: &str = "--mca pml ob1 --mca btl self,ofi --mca btl_ofi_mode 2 --mca osc rdma";

/// Returns the files that [`libfabric`] and [`ranks`] need in the guests.
///
/// # Errors
/// When the provider is missing or cannot be built.
pub(in crate::rdma) fn files() -> Result<[(&'static str, Vec<u8>); 1]> {
    Ok([(PROVIDER, build::stripped(&build::provider()?)?)])
}

/// Runs libfabric's own programs over the provider.
pub fn libfabric(steps: &mut Steps) {
    steps.step("fi_info finds the NIC", finds_nic);
    steps.step("ten calls of fi_getinfo open one session at most", asks_again);
    for mode in ["msg", "tagged"] {
        steps.step(&format!("fi_pingpong -m {mode}"), |pair| {
            pair.by_nics(1 << 20, |pair| {
                let exchange = |length: &&str| pingpong(pair, mode, length, "").map(drop);
                LENGTHS.iter().try_for_each(exchange)
            })
        });
    }
    steps.step("registrations of buffers are kept, or not", registrations);
}

/// Runs four ranks over the provider, with collective and one-sided operations.
pub fn ranks(steps: &mut Steps) {
    steps.step("MPI over messages", over_messages);
    steps.step("MPI one-sided over messages", |pair| run(pair, BY_TRANSPORT, "one-sided"));
}

/// Runs four ranks of the guests that [`mpi::prepare`] prepared: messages, also from memory that
/// changes between them, and collectives.
///
/// # Errors
/// When a rank fails, or the guests' NICs did not carry the messages.
pub fn over_messages(pair: &mut Pair) -> Result<()> {
    run(pair, BY_TAGS, "remapped")
}

fn run(pair: &mut Pair, options: &str, words: &str) -> Result<()> {
    let options = format!("{options} {MPI_OPTIONS}");
    pair.by_nics(RANK_BYTES, |pair| mpi::run(pair, &options, words))
}

/// Checks that each guest finds its own NIC without a hint, and by the name of its adapter.
fn finds_nic(pair: &mut Pair) -> Result<()> {
    for (guest, nic) in pair.guests.iter().zip(NICS) {
        for variable in ["", "CAUSEWAY_MX=adapter:mlx5_0:1"] {
            let script = format!("{variable} FI_PROVIDER_PATH={FOLDER} fi_info -p causeway");
            let printed = guest.run(&["sh", "-c", &script], LIMIT)?;
            if !(printed.contains("provider: causeway") && printed.contains(nic)) {
                let what = format!("{script}: expected the NIC {nic}, not: {printed}");
                return Err(Error::Traffic { what });
            }
        }
    }
    Ok(())
}

/// Calls `fi_getinfo` ten times in one process: at most one session began, and none is left while
/// the process lives.
fn asks_again(pair: &mut Pair) -> Result<()> {
    let program = compile("cc", GETINFO_SOURCE, &["-ldl"])?;
    let before = pair.nic_counters(1)?;
    let guest = &pair.guests[1];
    guest.install(GETINFO, &program)?;
    let script = format!(
        "FI_PROVIDER=causeway FI_PROVIDER_PATH={FOLDER} {GETINFO} >/tmp/getinfo.log 2>&1 & \
         for i in $(seq 150); do grep -qE 'answered|failed' /tmp/getinfo.log && break; sleep 0.2; \
         done; grep -q answered /tmp/getinfo.log || {{ cat /tmp/getinfo.log; exit 1; }}"
    );
    guest.run(&["sh", "-c", &script], LIMIT)?;
    let after = pair.nic_counters(1)?;
    pair.guests[1].run(&["killall", "getinfo"], LIMIT)?;
    let (begun, left) =
        (after.since(&before, "guest_sessions_begun_total"), after.get("guest_sessions"));
    println!("  {begun} sessions began, {left} are left");
    // Without a daemon of ours, the counters are 0.
    match (begun, left) {
        (0..=1, 0) => Ok(()),
        _ => Err(Error::Traffic {
            what: format!("ten calls of fi_getinfo: {begun} sessions began, {left} are left"),
        }),
    }
}

/// Exchanges long messages with registrations that are kept, and with one for each message; checks
/// the client's counters of registrations.
fn registrations(pair: &mut Pair) -> Result<()> {
    for (variable, keeps) in [("MX_RCACHE=1", true), ("MX_RCACHE=0", false)] {
        pair.guests[1].run(&["sh", "-c", "rm -f /tmp/counters.*"], LIMIT)?;
        let printed = pingpong(pair, "tagged", LENGTHS[2], variable)?;
        println!("  {variable}: {}", printed.lines().last().unwrap_or_default().trim());
        let table = pair.guests[1].run(&["sh", "-c", "cat /tmp/counters.*"], LIMIT)?;
        let count = |name: &str| {
            let rows = table.lines().filter_map(|line| line.trim().split_once(' '));
            let values = rows.filter(|(row, _)| *row == name);
            values.filter_map(|(_, value)| value.trim().parse::<u64>().ok()).sum::<u64>()
        };
        let [made, used_again, copied] =
            ["memory_registered", "memory_reused", "memory_copied"].map(count);
        // At least ten messages in each direction.
        let holds = match keeps {
            true => made <= 4 && used_again >= 16,
            false => made >= 20 && used_again == 0,
        };
        if !holds || copied > 0 {
            return Err(Error::Traffic {
                what: format!("{variable}: unexpected counters: {table}"),
            });
        }
    }
    Ok(())
}

/// Exchanges messages of a length, with checked content and a variable for both programs. Returns
/// the client's output.
fn pingpong(pair: &Pair, mode: &str, length: &str, variable: &str) -> Result<String> {
    let [at, from] = &pair.guests;
    let (path, ip) = (format!("FI_PROVIDER_PATH={FOLDER}"), at.ip());
    let mut server = vec!["env", &path, "FI_CAUSEWAY_COUNTERS=/tmp/counters"];
    server.extend(Some(variable).filter(|variable| !variable.is_empty()));
    server.extend(["fi_pingpong", "-p", "causeway", "-e", "rdm", "-c", "-I", "10"]);
    server.extend(["-m", mode, "-S", length]);
    let client = [server.as_slice(), &[&ip]].concat();
    let listener = Listener::Tcp(PINGPONG_PORT);
    let (_, printed) =
        Exchange { server: &server, client: &client, listener, limit: LIMIT }.run(at, from)?;
    match printed.lines().any(|line| line.contains("=10")) {
        true => Ok(printed),
        false => Err(Error::Traffic { what: format!("no row of a length: {printed}") }),
    }
}
