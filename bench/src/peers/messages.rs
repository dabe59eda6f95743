//! Other messaging between processes of a host: UCX, as packaged by Debian, with the transports
//! that it chooses itself.
//!
//! `rows::messages` compares with UCX's own benchmark program (`ucx_perftest`), which is started
//! twice, as server and client on the two cores; its output is parsed. The server has 300 ms to
//! listen. A missing program, a client that fails, or output without the expected column leaves the
//! peer out with the reason. Nothing is installed.
//!
//! The server is killed when the client has ended, with or without success. A client that hangs is
//! killed after 5 minutes ([`run`]), and the peer is left out. Each function returns a value for
//! each run of the [`Effort`], or the first error; `rounds` asks for one run at a time.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use super::process::{Program, command, run};
use crate::effort::Effort;
use crate::pin::{CLIENT, SERVER};

/// Time allowed for a server to listen.
const START_DELAY: Duration = Duration::from_millis(300);

/// Returns a figure of UCX's own benchmark: one column of its last line.
fn ucx(test: &str, len: usize, rounds: u64, column: usize) -> Result<f64, String> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = free.map_err(|e| e.to_string())?.port().to_string();
    let perftest = |core: usize| {
        let mut perftest = command("ucx_perftest");
        perftest.args(["-p", &port, "-c", &core.to_string()]);
        perftest
    };
    if !PathBuf::from("/usr/bin/ucx_perftest").exists() {
        return Err("UCX is not installed".into());
    }
    let _server = Program::start(&mut perftest(SERVER))?;
    std::thread::sleep(START_DELAY);
    let (len, rounds) = (len.to_string(), rounds.to_string());
    let mut client = perftest(CLIENT);
    let said = run(client.args(["127.0.0.1", "-t", test, "-s", &len, "-n", &rounds, "-f", "-v"]))?;
    let figure = said.lines().last().and_then(|line| line.split(',').nth(column)?.parse().ok());
    figure.ok_or_else(|| format!("ucx_perftest: {said}"))
}

/// Half round trips of `len` bytes through UCX's tagged messages: microseconds.
pub fn ucx_us(effort: &Effort, len: usize, rounds: u64) -> Result<Vec<f64>, String> {
    let rounds = effort.rounds(rounds);
    effort.each(|| ucx("tag_lat", len, rounds, 1))
}

/// Messages of `len` bytes through UCX back to back: GB/s.
pub fn ucx_gb_s(effort: &Effort, len: usize, count: u64) -> Result<Vec<f64>, String> {
    let count = effort.rounds(count);
    // The column is in MiB/s.
    effort.each(|| ucx("tag_bw", len, count, 5).map(|mib| mib * 1.048_576 / 1e3))
}

/// Messages of `len` bytes a second through UCX: millions.
pub fn ucx_mps(effort: &Effort, len: usize, count: u64) -> Result<Vec<f64>, String> {
    let count = effort.rounds(count);
    effort.each(|| ucx("tag_bw", len, count, 7).map(|rate| rate / 1e6))
}
