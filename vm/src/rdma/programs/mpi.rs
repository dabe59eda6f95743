//! UCX, and MPI programs over UCX and over libfabric: four ranks in two guests.
//!
//! Debian's configuration of Open MPI excludes UCX and libfabric, and MPI falls back to TCP without
//! an error. Each exchange therefore names the library, and its step fails if the adapters'
//! counters show less traffic by queue pairs than the step states, or a quarter of that or more by
//! frames. `mpirun` starts its daemon in the other guest by a script with `nc`, in place of ssh. A
//! run of the ranks takes at most 150 s, one of UCX 40 s (times `CAUSEWAY_PATIENCE`). The ranks
//! check the content. Without `mpicc` on the host the set-up of [`ranks`] fails with the reason,
//! and each later step because the program is missing. The matrix and a test call [`ucx`] and
//! [`ranks`] with two guests, and the demo [`prepare`] and [`over_ucx`]. [`prepare`] changes the
//! hosts, user and shared memory of the guests, until their reboot.

use crate::error::{Error, Result};
use crate::rdma::programs::compile;
use crate::rdma::steps::{LIMIT, Steps};
use crate::rdma::{Exchange, Listener, Pair};
use std::time::Duration;

/// The program of the ranks.
const SOURCE: &str = include_str!("ranks.c");
/// Path of the program in the guests.
const PROGRAM: &str = "/usr/bin/ranks";
/// Time limit of `mpirun`.
const MPI_LIMIT: Duration = Duration::from_secs(150);
/// TCP port on which `ucx_perftest` awaits its client.
const UCX_PORT: u16 = 13337;
/// Bytes that the ranks exchange between the guests at least.
const RANK_BYTES: u64 = 8 << 20;
/// Prepares a guest: names, a user, shared memory, and a shell that the agent reaches.
const PREPARE: &str = "\
printf '127.0.0.1 localhost\\n10.79.0.1 rdma1\\n10.79.0.2 rdma2\\n' >/etc/hosts
echo root:x:0:0:root:/root:/bin/sh >/etc/passwd
mkdir -p /root /dev/shm && mount -t tmpfs tmpfs /dev/shm
printf '#!/bin/sh\\nhost=$1; shift\\necho \"$*\" | nc $host 7777\\n' >/usr/bin/launch
chmod +x /usr/bin/launch
(nc -ll -p 7777 -e /bin/sh >/tmp/launch.log 2>&1 &)";
/// Variables of `mpirun`: root must confirm twice, and ranks share a processor.
const VARIABLES: &str = "\
HOME=/root OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
OMPI_MCA_mpi_yield_when_idle=1 \
PRTE_MCA_plm_ssh_agent=/usr/bin/launch PRTE_MCA_plm_ssh_no_tree_spawn=1 \
PRTE_MCA_prte_if_include=eth0 OMPI_MCA_plm_rsh_agent=/usr/bin/launch \
OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_oob_tcp_if_include=eth0";

/// Runs UCX by each transport.
pub fn ucx(steps: &mut Steps) {
    for transports in ["rc_mlx5,ud_mlx5", "rc_verbs,ud_verbs", "ud_verbs"] {
        steps.step(&format!("ucx_perftest over {transports}"), |pair| {
            pair.by_queue_pairs(100 * 4096, |pair| perftest(pair, transports))
        });
    }
}

/// Prepares the guests, and runs four ranks over UCX and over libfabric. Needs `mpicc` on the host.
pub fn ranks(steps: &mut Steps) {
    steps.step("MPI set-up", prepare);
    steps.step("MPI over UCX", over_ucx);
    // Open MPI has one-sided operations over UCX only. UCX's hooks, which Open MPI loads unused,
    // hide the end of the heap from the monitors of libfabric's cache of registrations: buffers in
    // heap that was given back and grew again would keep a registration of their old pages.
    let ofi = "--mca pml cm --mca mtl ofi -x FI_PROVIDER='verbs;ofi_rxm' -x UCX_MEM_EVENTS=n";
    steps.step("MPI over libfabric verbs", |pair| {
        pair.by_queue_pairs(RANK_BYTES, |pair| run(pair, ofi, "two-sided"))
    });
}

fn perftest(pair: &mut Pair, transports: &str) -> Result<()> {
    let [at, from] = &pair.guests;
    let (port, ip, variable) = (UCX_PORT.to_string(), at.ip(), format!("UCX_TLS={transports}"));
    // -P 0: without a terminal, the program would expect to be started by MPI.
    // A build without MPI, as Debian 12's, has no such option and prints its usage.
    let usage = at.run(&["ucx_perftest", "-h"], LIMIT)?;
    let mut server = vec!["env", &variable, "ucx_perftest"];
    if usage.contains(" -P ") {
        server.extend(["-P", "0"]);
    }
    let words = "-t tag_lat -s 4096 -n 100 -w 10 -p";
    server.extend(words.split(' ').chain([port.as_str()]));
    let mut client = server.clone();
    client.push(&ip);
    let listener = Listener::Tcp(UCX_PORT);
    Exchange { server: &server, client: &client, listener, limit: LIMIT }.run(at, from).map(|_| ())
}

/// Runs four ranks of the prepared guests over UCX.
///
/// # Errors
/// When a rank fails, or queue pairs did not carry the messages.
pub fn over_ucx(pair: &mut Pair) -> Result<()> {
    let ucx = "--mca pml ucx --mca osc ucx -x UCX_TLS=ib,self,sm";
    pair.by_queue_pairs(RANK_BYTES, |pair| run(pair, ucx, ""))
}

/// Compiles the program on the host, where MPI must have the binary interface of the guests' MPI,
/// copies it to the guests, and prepares them for `mpirun`.
///
/// # Errors
/// When `mpicc` is missing on the host, or a guest fails.
pub fn prepare(pair: &mut Pair) -> Result<()> {
    let content = compile("mpicc", SOURCE, &["-lm"])?;
    for guest in &pair.guests {
        guest.install(PROGRAM, &content)?;
        let name = format!("hostname {}\n{PREPARE}", guest.guest().name());
        guest.run(&["sh", "-c", &name], LIMIT)?;
    }
    Ok(())
}

/// Runs four ranks of the prepared guests with options of `mpirun` and words of the program.
///
/// # Errors
/// When a rank fails, or the time limit is exceeded.
pub(super) fn run(pair: &mut Pair, options: &str, words: &str) -> Result<()> {
    let script = format!(
        "{VARIABLES} mpirun.openmpi --host rdma1:2,rdma2:2 --map-by slot:OVERSUBSCRIBE -n 4 \
         {options} {PROGRAM} {words}"
    );
    let printed = pair.guests[0].run(&["sh", "-c", &script], MPI_LIMIT)?;
    match printed.contains("passed") {
        true => Ok(()),
        false => Err(Error::Traffic { what: format!("the ranks did not finish: {printed}") }),
    }
}
