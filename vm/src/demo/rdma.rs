//! The third table: RDMA and MPI between two guests of a stock Debian cloud kernel, by Debian's own
//! programs.
//!
//! The guests need QEMU 10.1 or later, which `scripts/rdma-guest.sh` fetches beside the kernel.
//! Where a part is missing and cannot be fetched, the table is omitted and the reason printed;
//! without the programs of MPI or a compiler for MPI on the host, the rows of MPI are omitted; a
//! daemon or guests that do not start are a failed row. The guests are emulated, unless
//! `CAUSEWAY_ACCEL` is `kvm`; a program in a guest may take 40 s, and one of MPI 150 s (times
//! `CAUSEWAY_PATIENCE`). `--seconds` does not apply. `super` calls [`all`] in the main thread.

use crate::step;
use crate::table::{Row, Unit};
use causeway_vm::rdma::programs::{messages, mpi};
use causeway_vm::rdma::{self, Counters, DEVICE, Exchange, Listener, Pair, Programs, Suite};
use causeway_vm::{Error, Result};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of a program under emulation.
const LIMIT: Duration = Duration::from_secs(40);
/// TCP port by which perftest's programs exchange their queue pairs' numbers.
const PERFTEST: Listener = Listener::Tcp(18515);
/// Time during which trapped accesses are counted.
const WATCHED: Duration = Duration::from_secs(2);
/// Interval at which the start of a stream is polled.
const START_POLL: Duration = Duration::from_millis(100);
/// Messages after which a program is taken to stream.
const STREAMING: u64 = 200;
/// Bytes of 10^9 bits, in 10^6 bytes.
const MEGABYTES_PER_GIGABIT: f64 = 125.0;

/// The table, and its caption.
pub struct Rdma {
    /// Description of the guests; or the reason for their absence.
    pub title: std::result::Result<String, String>,
    /// Whether the guests run without KVM.
    pub is_emulated: bool,
    /// Rows of the table.
    pub rows: Vec<Row>,
}

/// Boots the guests and measures every row.
pub fn all() -> Rdma {
    let suite = Suite::Trixie;
    step("guests with RDMA (the first run downloads QEMU 11, a kernel and RDMA programs)");
    let mut programs = Programs::Mpi;
    if let Err(why) = rdma::fetch(suite, programs) {
        step(&format!("MPI between guests is not shown: {why}"));
        programs = Programs::Verbs;
    }
    if let Err(why) = rdma::fetch(suite, programs) {
        step(&format!("RDMA is not shown: {why}"));
        return Rdma { title: Err(why.to_string()), is_emulated: false, rows: Vec::new() };
    }
    let since = Instant::now();
    match Pair::boot(suite, programs) {
        Ok(mut pair) => {
            let title = format!("RDMA between two guests: {}", pair.describe());
            step(&format!("{title}; active after {:.1} s", since.elapsed().as_secs_f64()));
            let mut rows = measured(&pair);
            if programs == Programs::Mpi {
                rows.extend(ranks(&mut pair));
            }
            Rdma { title: Ok(title), is_emulated: pair.engine() == "tcg", rows }
        }
        Err(why) => {
            step(&format!("  FAILED: {why}"));
            let row = Row::new("boot of two guests with adapters", Unit::Count, Err(why), None);
            let title = Ok("RDMA between two guests".into());
            Rdma { title, is_emulated: false, rows: vec![row] }
        }
    }
}

fn measured(pair: &Pair) -> Vec<Row> {
    vec![
        row("ibv_devinfo: an mlx5 port in each guest", Unit::Count, || device_info(pair)),
        row("rping: connection manager, content compared", Unit::Count, || rping(pair)),
        row("ib_send_lat, RC, 64 B", Unit::Micros, || latency(pair, &["ib_send_lat"])),
        row("ib_send_lat, UD, 64 B", Unit::Micros, || latency(pair, &["ib_send_lat", "-c", "UD"])),
        row("ib_write_bw, RC, 64 KiB", Unit::MegabytesPerSecond, || bandwidth(pair)),
        row("trapped register writes during ib_write_bw", Unit::Accesses, || traps(pair)),
    ]
}

/// Runs MPI programs of two ranks in each guest; no rows without a compiler for MPI on the host.
fn ranks(pair: &mut Pair) -> Vec<Row> {
    if let Err(why) = mpi::prepare(pair) {
        step(&format!("MPI between guests is not shown (install libopenmpi-dev): {why}"));
        return Vec::new();
    }
    vec![
        row("MPI over UCX, 2 x 2 ranks, content compared", Unit::Count, || {
            mpi::over_ucx(pair).map(|()| 1.0)
        }),
        row("MPI over messages, 2 x 2 ranks, content compared", Unit::Count, || {
            messages::over_messages(pair).map(|()| 1.0)
        }),
    ]
}

fn row(name: &str, unit: Unit, measure: impl FnOnce() -> Result<f64>) -> Row {
    step(name);
    let row = Row::new(name, unit, measure(), None);
    for error in &row.errors {
        step(&format!("  FAILED: {error}"));
    }
    row
}

fn device_info(pair: &Pair) -> Result<f64> {
    for guest in &pair.guests {
        let text = guest.run(&["ibv_devinfo", "-d", DEVICE], LIMIT)?;
        if !text.contains("PORT_ACTIVE") {
            return Err(Error::Traffic { what: format!("no active port in {text}") });
        }
    }
    Ok(1.0)
}

fn rping(pair: &Pair) -> Result<f64> {
    let ip = pair.guests[0].ip();
    let command = |role| ["rping", role, "-a", &ip, "-C", "10", "-S", "4096", "-V"];
    let (server, client) = (command("-s"), command("-c"));
    let listener = Listener::ConnectionManager;
    let exchange = Exchange { server: &server, client: &client, listener, limit: LIMIT };
    exchange.run(&pair.guests[0], &pair.guests[1]).map(|_| 1.0)
}

/// Runs a program of perftest in both guests and returns the client's output.
fn perftest(pair: &Pair, program: &[&str], options: &[&str]) -> Result<String> {
    let [at, from] = &pair.guests;
    let (index, ip) = (at.gid_index(), at.ip());
    let server = [program, &["-d", DEVICE, "-x", &index, "-F"], options].concat();
    let client = [&server[..], &[&ip]].concat();
    let exchange = Exchange { server: &server, client: &client, listener: PERFTEST, limit: LIMIT };
    exchange.run(at, from).map(|(_, output)| output)
}

/// Returns the median round trip; perftest prints half of it.
fn latency(pair: &Pair, program: &[&str]) -> Result<f64> {
    let output = perftest(pair, program, &["-s", "64", "-n", "1000"])?;
    // Bytes, iterations, minimum, maximum, typical (the median), …
    Ok(2.0 * figure(&output, 4)?)
}

fn bandwidth(pair: &Pair) -> Result<f64> {
    let options = ["-s", "65536", "-n", "1000", "--report_gbits"];
    let output = perftest(pair, &["ib_write_bw"], &options)?;
    // Bytes, iterations, peak, average, message rate.
    Ok(MEGABYTES_PER_GIGABIT * figure(&output, 3)?)
}

/// Counts the writes to trapped registers while a program posts messages. Reads are those of the
/// driver's health poll, about one in a second.
fn traps(pair: &Pair) -> Result<f64> {
    let requests = |sample: &Counters| sample.get("requests_total");
    let sample = || pair.counters(1);
    let before = sample()?;
    thread::scope(|scope| {
        let options = ["-s", "64", "-D", "6"];
        let program = scope.spawn(move || perftest(pair, &["ib_write_bw"], &options));
        let since = Instant::now();
        while requests(&sample()?) < requests(&before) + STREAMING {
            if since.elapsed() > LIMIT || program.is_finished() {
                break;
            }
            thread::sleep(START_POLL);
        }
        let first = sample()?;
        thread::sleep(WATCHED);
        let last = sample()?;
        let ended = program.join().map_err(|_| Error::Traffic { what: "panic".into() })?;
        ended?;
        let count = last.since(&first, "requests_total");
        step(&format!(
            "  {count} RDMA WRITEs in {} s, {} register reads (the driver's health poll)",
            WATCHED.as_secs(),
            last.since(&first, "register_reads_total")
        ));
        match count {
            0 => Err(Error::Traffic { what: "the program sent no messages".into() }),
            _ => Ok(last.since(&first, "register_writes_total") as f64),
        }
    })
}

/// Returns column `index` of the last line of perftest's output that begins with a number.
fn figure(output: &str, index: usize) -> Result<f64> {
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let lines = output.lines().rev().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.into_iter().find(|words| words.first().is_some_and(|word| is_number(word)));
    let value = line.and_then(|words| words.get(index).and_then(|word| word.parse().ok()));
    value.ok_or_else(|| Error::Traffic { what: format!("cannot parse the output '{output}'") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rdma_figure_is_a_column_of_the_last_line_of_numbers() {
        let output = " #bytes #iterations  t_min\n 64 1000 1.00 9.00 2.25 2.50\n-----\n";
        assert_eq!(figure(output, 4).unwrap(), 2.25);
        assert!(figure("-----\n", 4).is_err() && figure(output, 9).is_err());
    }
}
