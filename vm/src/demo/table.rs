//! The tables, as text and as JSON.
//!
//! `super` collects the rows in a [`Report`], prints the text and writes the JSON file (`--json`)
//! after the last row. Programs may read the JSON: [`Report::format`] is raised when a field
//! changes its meaning. The text has the first line of each error below the tables, and the JSON
//! the whole error. The module measures nothing but the host's load; the only error is that of the
//! file. Everything runs in the main thread, once for each run; the JSON file of an earlier run is
//! overwritten.

use crate::rdma::Rdma;
use crate::scene::{self, Scene};
use causeway_vm::machine::Engine;
use causeway_vm::{Error, Result};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// Unit of a row's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Round-trip time, in microseconds: less is better.
    #[serde(rename = "us")]
    Micros,
    /// 10^6 bytes per second: more is better.
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// Completed operations: not compared.
    #[serde(rename = "count")]
    Count,
    /// Accesses to registers that exit to the hypervisor: less is better, not compared.
    #[serde(rename = "accesses")]
    Accesses,
}

/// Note on guests without KVM.
const EMULATED: &str = "\
The guests' processors are emulated by software, which makes the guests themselves the limit: most of
each time above passes in their kernels, over either path, so that both columns resemble each other
whatever lies between the guests. The table shows function, not speed. Where /dev/kvm exists, the same
command measures guests at speed.
";
/// Name of the reference path in the table of guests.
const BRIDGE: &str = "bridge+tap";
/// Name of the reference path in the table of messages.
const SOCKETS: &str = "sockets";

/// A line of the table.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Name of the exchange.
    pub name: String,
    /// Unit of the figures.
    pub unit: Unit,
    /// Over Causeway; `None` when it failed.
    pub causeway: Option<f64>,
    /// Over the bridge; `None` when it failed, or without a bridge or such an exchange over it.
    pub bridge_tap: Option<f64>,
    /// Through sockets; `None` when it failed or the row is not one of messages or MPI between
    /// processes.
    pub sockets: Option<f64>,
    /// Causeway's figure relative to the reference path, above 1 where Causeway is better; `None`
    /// where a figure is missing or the unit is not compared.
    pub ratio: Option<f64>,
    /// Whether no path failed; the exchange of most rows compares the content.
    pub verified: bool,
    /// Errors of the row.
    pub errors: Vec<String>,
}

impl Row {
    /// Creates a row of guests from two results.
    pub fn new(name: &str, unit: Unit, ours: Result<f64>, bridge: Option<Result<f64>>) -> Self {
        let (row, bridge_tap) = Self::of_two(name, unit, ours, (BRIDGE, bridge));
        Self { bridge_tap, ..row }
    }

    /// Creates a row of messages from two results.
    pub fn beside_sockets(
        name: &str,
        unit: Unit,
        ours: Result<f64>,
        sockets: Option<Result<f64>>,
    ) -> Self {
        let (row, sockets) = Self::of_two(name, unit, ours, (SOCKETS, sockets));
        Self { sockets, ..row }
    }

    fn of_two(
        name: &str,
        unit: Unit,
        ours: Result<f64>,
        (peer, theirs): (&str, Option<Result<f64>>),
    ) -> (Self, Option<f64>) {
        let mut errors = Vec::new();
        let mut keep = |path: &str, outcome: Result<f64>| {
            outcome.map_err(|e| errors.push(format!("{path}: {e}"))).ok()
        };
        let causeway = keep("causeway", ours);
        let beside = theirs.and_then(|b| keep(peer, b));
        let ratio = match (unit, causeway, beside) {
            (Unit::Micros, Some(a), Some(b)) if a > 0.0 => Some(b / a),
            (Unit::MegabytesPerSecond, Some(a), Some(b)) if b > 0.0 => Some(a / b),
            _ => None,
        };
        let verified = errors.is_empty();
        let (bridge_tap, sockets) = (None, None);
        let name = name.into();
        (Self { name, unit, causeway, bridge_tap, sockets, ratio, verified, errors }, beside)
    }
}

/// Result of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this object's layout; raised when a field changes its meaning.
    pub format: u32,
    /// Engine of the guests of `rows`: `kvm`, `tcg` or `uml`; `none` without these guests.
    pub accelerator: &'static str,
    /// QEMU's version, where the guests run in it.
    pub qemu: Option<String>,
    /// The guests' kernel.
    pub guest_kernel: String,
    /// Processor cores of the host.
    pub host_cores: usize,
    /// Reason for the absence of a bridge, if any.
    pub no_bridge: Option<String>,
    /// Processes that wanted a processor in the minute before the run, on average.
    pub load: f64,
    /// Whether every row passed.
    pub ok: bool,
    /// Rows of the guests.
    pub rows: Vec<Row>,
    /// Rows of messages and of MPI between processes.
    pub messages: Vec<Row>,
    /// Rows of RDMA between guests.
    pub rdma: Vec<Row>,
    /// Reason for the absence of RDMA, if any.
    pub no_rdma: Option<String>,
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    rdma_title: String,
    /// Whether the guests of `rdma` run without KVM.
    #[serde(skip)]
    rdma_is_emulated: bool,
}

impl Report {
    /// Creates the report of `rows` on `scene`.
    pub fn new(scene: &Scene, rows: Vec<Row>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let machine = &scene.machine;
        let kernel = &machine.image.kernel.release;
        let title = format!(
            "Two guests: Linux {kernel}, one processor each, {}; host with {cores} cores",
            machine.describe()
        );
        let qemu = match &machine.engine {
            Engine::Qemu(qemu, _) => Some(qemu.version_text.clone()),
            Engine::UserMode => None,
        };
        Self {
            format: 1,
            accelerator: machine.word(),
            qemu,
            guest_kernel: kernel.clone(),
            host_cores: cores,
            no_bridge: scene.bridge.as_ref().err().cloned(),
            load: scene.load,
            ok: rows.iter().all(|r| r.verified),
            rows,
            messages: Vec::new(),
            rdma: Vec::new(),
            no_rdma: None,
            title,
            rdma_title: String::new(),
            rdma_is_emulated: false,
        }
    }

    /// Creates the report of a run without guests.
    pub fn without_guests() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            format: 1,
            accelerator: "none",
            qemu: None,
            guest_kernel: String::new(),
            host_cores: cores,
            no_bridge: None,
            load: scene::load(),
            ok: true,
            rows: Vec::new(),
            messages: Vec::new(),
            rdma: Vec::new(),
            no_rdma: None,
            title: format!("No guests; host with {cores} cores"),
            rdma_title: String::new(),
            rdma_is_emulated: false,
        }
    }

    /// Adds the rows of messages.
    pub fn add_messages(&mut self, rows: Vec<Row>) {
        self.ok &= rows.iter().all(|row| row.verified);
        self.messages = rows;
    }

    /// Adds the rows of RDMA; a missing part of its guests is not a failure.
    pub fn add_rdma(&mut self, rdma: Rdma) {
        self.ok &= rdma.rows.iter().all(|row| row.verified);
        self.rdma = rdma.rows;
        self.rdma_is_emulated = rdma.is_emulated;
        match rdma.title {
            Ok(title) => self.rdma_title = title,
            Err(why) => self.no_rdma = Some(why),
        }
    }

    /// Formats the tables as text.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        text.push_str(&busy(self.load, self.host_cores));
        if !self.rows.is_empty() {
            text.push('\n');
            self.guests(&mut text);
        }
        if !self.messages.is_empty() {
            text.push_str("\nMX messages between two processes\n\n");
            table(&mut text, Some(SOCKETS), &self.messages);
            text.push_str(
                "\nNo guest takes part: processors run at full speed, and the figures are \
                 those of this machine.\nTimes are median round trips. sockets are AF_UNIX on one \
                 host, TCP over the same cable between two\n(network namespaces); for MPI, Open \
                 MPI's own TCP. On one host both ends poll. Between hosts the\nends sleep, and \
                 Causeway's messages pass both daemons; with bypass the processes use the\n\
                 interface themselves and poll, while TCP's ends sleep.\n",
            );
        }
        self.rdma(&mut text);
        let rows = self.rows.iter().chain(&self.messages).chain(&self.rdma);
        for error in rows.flat_map(|r| &r.errors) {
            let _ = writeln!(text, "FAILED {}", first_line(error));
        }
        text
    }

    /// Appends the table of guests and its notes.
    fn guests(&self, text: &mut String) {
        table(text, Some(BRIDGE), &self.rows);
        text.push_str("\nTimes are round trips (ping: mean, ping-pong: median).\n");
        if self.accelerator == "tcg" {
            text.push_str(EMULATED);
        }
        match &self.no_bridge {
            None => text.push_str(
                "In AF_VSOCK rows, bridge+tap is TCP with the same writes: \
                 the kernel has no AF_VSOCK between guests.\n",
            ),
            Some(why) => {
                let _ = writeln!(text, "No bridge+tap: {}", first_line(why));
            }
        }
    }

    /// Appends the table of RDMA, or the reason for its absence.
    fn rdma(&self, text: &mut String) {
        if let Some(why) = &self.no_rdma {
            let _ = writeln!(text, "\nNo RDMA between guests: {}", last_line(why));
        }
        if self.rdma.is_empty() {
            return;
        }
        let _ = writeln!(text, "\n{}\n", self.rdma_title);
        table(text, None, &self.rdma);
        text.push_str(
            "\nTimes are median round trips. Kernel, driver and programs are Debian's, unchanged.\n",
        );
        if self.rdma_is_emulated {
            text.push_str("The guests are emulated: the table shows function, not speed.\n");
        }
        text.push_str(
            "Under KVM a trapped register write costs an exit to the hypervisor; 0 means that the \
             data path has\nnone.\n",
        );
    }

    /// Writes the table as JSON.
    pub fn write_json(&self, path: &Path) -> Result<()> {
        let what = format!("write {}", path.display());
        let json = serde_json::to_string_pretty(self).unwrap_or_default();
        std::fs::write(path, json + "\n").map_err(Error::io(what))
    }
}

/// Appends a table that compares Causeway with `peer`, if there is one.
fn table(text: &mut String, peer: Option<&str>, rows: &[Row]) {
    let mut header = vec!["", "causeway"];
    header.extend(peer.into_iter().flat_map(|peer| [peer, "Causeway is"]));
    header.push("verified");
    let header = header.into_iter().map(String::from).collect();
    let cells = rows.iter().map(|row| cells(row, peer));
    let lines: Vec<Vec<String>> = std::iter::once(header).chain(cells).collect();
    let columns = lines.first().map_or(0, Vec::len);
    let width = |i: usize| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in &lines {
        let _ = write!(text, "{:<w$}", line[0], w = widths[0]);
        for (cell, w) in line.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>w$}");
        }
        text.push('\n');
    }
}

fn cells(row: &Row, peer: Option<&str>) -> Vec<String> {
    let failed = |path: &str| row.errors.iter().any(|e| e.starts_with(path));
    let value = |path: &str, v: Option<f64>| match v {
        Some(v) => number(row.unit, v),
        None if failed(path) => "FAILED".into(),
        None => "-".into(),
    };
    let mut cells = vec![row.name.clone(), value("causeway", row.causeway)];
    if let Some(peer) = peer {
        cells.push(value(peer, row.bridge_tap.or(row.sockets)));
        cells.push(row.ratio.map_or("-".into(), compared));
    }
    cells.push(if row.verified { "yes".into() } else { "NO".into() });
    cells
}

/// Returns a warning if other programs used the processors before the run.
fn busy(load: f64, cores: usize) -> String {
    if load < 0.5 * cores as f64 {
        return String::new();
    }
    format!(
        "Other programs use the processors (load {load:.1} on {cores} cores): an end that polls \
         loses its\nprocessor, and the figures are not representative.\n"
    )
}

/// Largest ratio that counts as equal: the figures of a demo differ by more between two runs.
const EQUAL: f64 = 1.03;

/// Returns a ratio above 1 where Causeway is better in words that cannot be misread.
fn compared(ratio: f64) -> String {
    let (factor, word) = if ratio >= 1.0 { (ratio, "as fast") } else { (1.0 / ratio, "slower") };
    match factor {
        factor if factor <= EQUAL => "equal".into(),
        factor if factor < 2.0 => format!("{factor:.2}x {word}"),
        factor if factor < 10.0 => format!("{factor:.1}x {word}"),
        factor => format!("{factor:.0}x {word}"),
    }
}

fn number(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Micros if value < 10.0 => format!("{value:.2} us"),
        Unit::Micros => format!("{value:.0} us"),
        Unit::MegabytesPerSecond if value < 100.0 => format!("{value:.1} MB/s"),
        Unit::MegabytesPerSecond => format!("{value:.0} MB/s"),
        Unit::Count => "ok".into(),
        Unit::Accesses => format!("{value:.0}"),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Returns the last line of a script's output, which has the reason and the remedy.
fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rows: Vec<Row>) -> Report {
        Report {
            format: 1,
            accelerator: "tcg",
            qemu: Some("7.2.22".into()),
            guest_kernel: "6.1".into(),
            host_cores: 2,
            no_bridge: None,
            load: 0.0,
            ok: rows.iter().all(|r| r.verified),
            rows,
            messages: Vec::new(),
            rdma: Vec::new(),
            no_rdma: None,
            title: "title".into(),
            rdma_title: String::new(),
            rdma_is_emulated: false,
        }
    }

    #[test]
    fn table_ratio_follows_the_unit() {
        let time = Row::new("a", Unit::Micros, Ok(50.0), Some(Ok(100.0)));
        let rate = Row::new("b", Unit::MegabytesPerSecond, Ok(50.0), Some(Ok(100.0)));
        assert_eq!((time.ratio, rate.ratio), (Some(2.0), Some(0.5)));
    }

    #[test]
    fn table_warns_of_a_machine_that_is_busy() {
        assert_eq!(busy(0.2, 2), "");
        assert!(busy(7.0, 2).contains("load 7.0 on 2 cores"));
    }

    #[test]
    fn table_ratios_are_words_above_one() {
        let words = [(2.94, "2.9x as fast"), (0.34, "2.9x slower"), (25.3, "25x as fast")];
        for (ratio, want) in
            words.into_iter().chain([(1.02, "equal"), (0.98, "equal"), (1.042, "1.04x as fast")])
        {
            assert_eq!(compared(ratio), want);
        }
    }

    #[test]
    fn table_explains_emulation_only_where_the_guests_are_emulated() {
        let text = |accelerator| {
            let mut report = report(vec![Row::new("a", Unit::Count, Ok(1.0), None)]);
            report.accelerator = accelerator;
            report.text()
        };
        assert!(text("tcg").contains("function, not speed"), "{}", text("tcg"));
        assert!(!text("kvm").contains("function, not speed"));
        let rdma = |is_emulated| {
            let rows = vec![Row::new("writes", Unit::Accesses, Ok(0.0), None)];
            let mut report = report(Vec::new());
            report.add_rdma(Rdma { title: Ok("two guests".into()), is_emulated, rows });
            report.text()
        };
        assert!(rdma(true).contains("The guests are emulated"), "{}", rdma(true));
        assert!(!rdma(false).contains("emulated"), "{}", rdma(false));
    }

    #[test]
    fn table_fails_with_a_failed_row_and_shows_its_error() {
        let why = || Error::Traffic { what: "byte 7 differs\nmore".into() };
        let rows = vec![
            Row::new("good", Unit::Count, Ok(1.0), None),
            Row::new("bad", Unit::Micros, Err(why()), Some(Ok(3.0))),
        ];
        let report = report(rows);
        assert!(!report.ok);
        let text = report.text();
        assert!(text.contains("FAILED causeway: byte 7 differs\n"), "{text}");
        let lines: Vec<&str> = text.lines().filter(|l| l.ends_with("yes")).collect();
        assert_eq!(lines.len(), 1, "{text}");
    }

    #[test]
    fn table_of_messages_fails_the_report() {
        let mut report = report(vec![Row::new("a", Unit::Count, Ok(1.0), None)]);
        let why = Error::Traffic { what: "no answer".into() };
        report.add_messages(vec![
            Row::beside_sockets("b", Unit::Micros, Ok(1.0), Some(Ok(4.0))),
            Row::beside_sockets("c", Unit::Micros, Ok(1.0), Some(Err(why))),
        ]);
        assert!(!report.ok);
        let text = report.text();
        for want in ["Causeway is", "4.0x as fast", "FAILED sockets: no answer"] {
            assert!(text.contains(want), "{want} not in:\n{text}");
        }
    }

    #[test]
    fn table_of_rdma_has_no_comparison_and_its_absence_has_a_reason() {
        let mut with = report(Vec::new());
        let rows = vec![Row::new("writes", Unit::Accesses, Ok(0.0), None)];
        with.add_rdma(Rdma { title: Ok("two guests".into()), is_emulated: false, rows });
        let text = with.text();
        assert!(
            text.contains("two guests\n") && text.contains("writes         0       yes\n"),
            "{text}"
        );
        let mut without = report(Vec::new());
        let title = Err("fetching\nno network".into());
        without.add_rdma(Rdma { title, is_emulated: false, rows: Vec::new() });
        let text = without.text();
        assert!(without.ok && text.contains("No RDMA between guests: no network\n"), "{text}");
    }

    #[test]
    fn table_columns_line_up() {
        let rows = vec![
            Row::new("short", Unit::Micros, Ok(1.0), Some(Ok(12345.0))),
            Row::new("a much longer name", Unit::MegabytesPerSecond, Ok(1234.0), None),
        ];
        let text = report(rows).text();
        let ends: Vec<usize> = text
            .lines()
            .filter(|l| l.ends_with("yes") || l.ends_with("verified"))
            .map(str::len)
            .collect();
        assert!(ends.len() == 3 && ends.windows(2).all(|w| w[0] == w[1]), "{text}");
    }
}
