//! MPI programs, by Debian's Open MPI, over each available transport.
//!
//! `rows::mpi` measures with it Causeway's provider and its peers, by the same two ranks on two
//! cores: a ping-pong program that is compiled on the machine, and HPCC. `rows::messages` compares
//! with Open MPI's shared memory. `mpirun` and the ranks are child processes; a run may take 120 s
//! (`--timeout`). A failed or unparsable run is the reason for which the row or the peer is left
//! out. Parameters (MCA) select the transport by name, because Open MPI falls back to another
//! without an error. Two hosts are namespaces, for which root is needed. The benchmark waits in the
//! thread of the row; a failed run is not repeated.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::{Folder, command, run};
use super::underlay::{PeerNetwork, Underlay};
use crate::effort::Effort;
use crate::pin::{CLIENT, SERVER};

const PINGPONG: &str = include_str!("mpi_pingpong.c");
/// Parameters of HPCC, with placeholders for the problem size.
const HPCC_ASKED: &str = include_str!("hpccinf.txt");

/// Open MPI's own shared memory.
pub const SHARED_MEMORY: &[&str] = &["pml=ob1", "btl=self,vader"];
/// Open MPI's own TCP.
pub const TCP: &[&str] = &["pml=ob1", "btl=self,tcp"];
/// libfabric over TCP.
pub const LIBFABRIC_TCP: &[&str] = &["pml=cm", "mtl=ofi", "mtl_ofi_provider_include=tcp;ofi_rxm"];
/// UCX.
pub const UCX: &[&str] = &["pml=ucx", "osc=ucx", "pml_ucx_tls=any", "pml_ucx_devices=any"];
/// libfabric over Causeway.
pub const CAUSEWAY: &[&str] = &["pml=cm", "mtl=ofi", "mtl_ofi_provider_include=causeway"];

/// Exchange of two ranks.
#[derive(Debug, Clone, Copy)]
pub enum Exchange {
    /// Half round trips: microseconds.
    HalfRound,
    /// One-way stream: GB/s.
    Stream,
}

/// Transport of the messages.
#[derive(Debug, Clone)]
pub struct Transport<'a> {
    /// Parameters of Open MPI.
    pub mca: &'static [&'static str],
    /// Each rank's NIC, and the folder of the provider.
    pub causeway: Option<([&'a Path; 2], PathBuf)>,
}

/// Compiles the test program into `folder`. Any failure counts as Open MPI not being installed.
fn compiled(folder: &Folder) -> Result<PathBuf, String> {
    let (source, program) = (folder.file("pingpong.c"), folder.file("pingpong"));
    std::fs::write(&source, PINGPONG).map_err(|e| e.to_string())?;
    let mut compiler = command("mpicc");
    run(compiler.args(["-O2", "-o"]).args([&program, &source]))
        .map_err(|_| "Open MPI is not installed".to_owned())?;
    Ok(program)
}

/// Half round trips of `len` bytes by Open MPI's own TCP between two hosts, each with a core:
/// microseconds.
pub fn tcp_between_hosts_us(effort: &Effort, len: usize, rounds: u64) -> Result<Vec<f64>, String> {
    let underlay = Underlay::new()?;
    let folder = Folder::new("mpi-tcp")?;
    let program = compiled(&folder)?;
    // The remote shell of `mpirun`: it enters the other host's namespace.
    let agent = folder.file("agent");
    let text = format!("#!/bin/sh\nshift\nexec ip netns exec {} sh -c \"$*\"\n", underlay.name(1)?);
    std::fs::write(&agent, text).map_err(|e| e.to_string())?;
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&agent, executable).map_err(|e| e.to_string())?;
    let (len, rounds) = (len.to_string(), effort.rounds(rounds).to_string());
    effort.each(|| {
        let mut mpirun = command("ip");
        mpirun.args(["netns", "exec", underlay.name(0)?, "mpirun", "--allow-run-as-root"]);
        mpirun.args(["--oversubscribe", "--timeout", "120", "--bind-to", "none"]);
        mpirun.args(["--mca", "plm_rsh_agent"]).arg(&agent);
        parameters(&mut mpirun, TCP);
        parameters(&mut mpirun, &["btl_tcp_if_include=eth0", "oob_tcp_if_include=eth0"]);
        for (host, core) in [CLIENT, SERVER].into_iter().enumerate() {
            if host > 0 {
                mpirun.arg(":");
            }
            mpirun.args(["-n", "1", "--host", PeerNetwork::Veth.address(host)]);
            mpirun.args(["taskset", "-c", &core.to_string()]).arg(&program).args([&len, &rounds]);
        }
        let said = run(&mut mpirun)?;
        said.trim().parse().map_err(|_| format!("mpirun: {said}"))
    })
}

/// Runs `exchange` with `len` bytes between two ranks on two cores.
pub fn mpi(
    effort: &Effort,
    over: &Transport<'_>,
    exchange: Exchange,
    len: usize,
    rounds: u64,
) -> Result<Vec<f64>, String> {
    let folder = Folder::new("mpi")?;
    let program = compiled(&folder)?;
    let (len, rounds) = (len.to_string(), effort.rounds(rounds).to_string());
    let mut words = vec![&*len, &*rounds];
    if matches!(exchange, Exchange::Stream) {
        words.push("stream");
    }
    effort.each(|| {
        let said = run(&mut two_ranks(over, &program, &words))?;
        said.trim().parse().map_err(|_| format!("mpirun: {said}"))
    })
}

fn parameters(mpirun: &mut Command, all: &[&str]) {
    for parameter in all {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        mpirun.args(["--mca", name, value]);
    }
}

/// Returns the command that starts a program, with these arguments, as two ranks on two cores.
fn two_ranks(over: &Transport<'_>, program: &Path, words: &[&str]) -> Command {
    let cores = format!("{CLIENT},{SERVER}");
    let mut mpirun = command("mpirun");
    mpirun.args(["--allow-run-as-root", "--oversubscribe", "--timeout", "120"]);
    mpirun.args(["--cpu-set", &cores, "--bind-to", "core"]);
    parameters(&mut mpirun, over.mca);
    for rank in 0..2 {
        // Colons separate programs, each with its own environment.
        if rank > 0 {
            mpirun.arg(":");
        }
        mpirun.args(["-n", "1"]);
        if let Some((nics, provider)) = &over.causeway {
            let nic = nics.get(rank).map(|path| path.display().to_string());
            mpirun.args(["-x", &format!("CAUSEWAY_MX={}", nic.unwrap_or_default())]);
            mpirun.args(["-x", &format!("FI_PROVIDER_PATH={}", provider.display())]);
        }
        mpirun.arg(program).args(words);
    }
    mpirun
}

/// Returns a figure of HPCC's latency and bandwidth test, by its name in the summary, between two
/// ranks on two cores. Each run is a whole HPCC of small size; the run fails if HPCC's own check
/// does.
pub fn hpcc(effort: &Effort, over: &Transport<'_>, name: &str) -> Result<Vec<f64>, String> {
    let program = Path::new("/usr/bin/hpcc");
    if !program.exists() {
        return Err("hpcc is not installed (scripts/setup.sh bench)".into());
    }
    let folder = Folder::new("hpcc")?;
    let small = [("SIDE", "200"), ("BLOCK", "40"), ("ROWS", "1"), ("COLUMNS", "2")];
    let asked = small.iter().fold(HPCC_ASKED.to_owned(), |all, (name, is)| all.replace(name, is));
    std::fs::write(folder.file("hpccinf.txt"), asked).map_err(|e| e.to_string())?;
    let answer = folder.file("hpccoutf.txt");
    effort.each(|| {
        // HPCC appends to an existing file.
        let _ = std::fs::remove_file(&answer);
        run(two_ranks(over, program, &[]).current_dir(folder.path()))?;
        let said = std::fs::read_to_string(&answer).map_err(|e| format!("hpcc: {e}"))?;
        let value = |name: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.and_then(|value| value.trim().parse::<f64>().ok())
        };
        if value("Success") != Some(1.0) {
            return Err("hpcc: its check of results failed".into());
        }
        value(name).ok_or_else(|| format!("hpcc: no {name}"))
    })
}

/// Half round trips of `len` bytes through Open MPI's shared memory: microseconds.
pub fn open_mpi_us(effort: &Effort, len: usize, rounds: u64) -> Result<Vec<f64>, String> {
    let over = Transport { mca: SHARED_MEMORY, causeway: None };
    mpi(effort, &over, Exchange::HalfRound, len, rounds)
}
