//! Complete guests: two QEMU machines with their own kernels' stacks, over causewayd and over a
//! Linux bridge with taps.
//!
//! The figures are measured as in `make demo`, on the two cores of the benchmark. A run per round provides the figures of all rows,
//! because the guests have to boot. Without KVM the guests are emulated, and the emulation
//! dominates the figures. The demo (`causeway-demo`, which `make build` builds) is a child process,
//! which is killed after half an hour; rows that it could not verify have no figure, and without
//! QEMU all rows are left out with the reason. A run that failed is not repeated: its reason counts
//! for all rows.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::effort::Effort;
use crate::peers::process::{Folder, command, run_within};
use crate::pin::{CLIENT, SERVER};
use crate::row::{Guest, Plan};

/// Longest time of the demo: emulated guests boot for minutes on a busy machine.
const LONGEST: Duration = Duration::from_secs(1800);
const PEER: &str = "bridge + taps";
/// Rows of the demo shown here, with their units.
const ROWS: [(&str, &str); 6] = [
    ("Ethernet ping, 56 B", "us"),
    ("TCP throughput, 64 KiB writes", "MB/s"),
    ("AF_VSOCK ping-pong, 64 B", "us"),
    ("AF_VSOCK ping-pong, 4 KiB", "us"),
    ("AF_VSOCK ping-pong, 1 MiB", "us"),
    ("AF_VSOCK stream, 64 KiB writes", "MB/s"),
];

/// Figures of each row: over causewayd, and over the bridge.
type Figures = BTreeMap<String, [Option<f64>; 2]>;

/// Cached runs of the demo.
#[derive(Debug, Default)]
struct Demo(RefCell<Vec<Result<Rc<Figures>, String>>>);

impl Demo {
    /// Returns the figures of run `number`.
    fn run(&self, number: usize, effort: &Effort) -> Result<Rc<Figures>, String> {
        let mut runs = self.0.borrow_mut();
        while runs.len() <= number {
            runs.push(demo(effort).map(Rc::new));
        }
        runs.get(number).cloned().unwrap_or_else(|| Err("no run".into()))
    }
}

fn demo(effort: &Effort) -> Result<Figures, String> {
    let programs = std::env::current_exe().map_err(|e| e.to_string())?;
    let programs = programs.parent().ok_or("the path of this program has no folder")?;
    let (folder, program) = (Folder::new("guests")?, programs.join("causeway-demo"));
    if !program.exists() {
        return Err(format!("{} is missing: run make build", program.display()));
    }
    let json = folder.file("demo.json");
    let seconds = effort.time(Duration::from_secs(2)).as_secs_f64().to_string();
    // A row of the demo may fail while others succeed: the result of each row counts, not the exit
    // status.
    // The guests and causewayd may use both cores; the row's thread is pinned to one.
    let mut demo = command("taskset");
    demo.args(["--cpu-list", &format!("{CLIENT},{SERVER}")]).arg(&program);
    demo.env("CAUSEWAY_BIN_DIR", programs).args(["--guests", "--seconds", &seconds, "--json"]);
    let ended = run_within(demo.arg(&json), LONGEST);
    let text = std::fs::read(&json).map_err(|_| ended.err().unwrap_or_default())?;
    read(&serde_json::from_slice(&text).map_err(|e| e.to_string())?)
}

/// Extracts the verified rows from the demo's JSON.
fn read(json: &serde_json::Value) -> Result<Figures, String> {
    let rows = json["rows"].as_array().ok_or("the demo wrote no rows")?;
    let row = |row: &serde_json::Value| {
        let name = row["name"].as_str()?.to_owned();
        let verified = row["verified"].as_bool()?;
        let figure = |key: &str| row[key].as_f64().filter(|_| verified);
        Some((name, [figure("causeway"), figure("bridge_tap")]))
    };
    Ok(rows.iter().filter_map(row).collect())
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let demo = Rc::new(Demo::default());
    let plan = |(name, unit): (&'static str, &'static str)| {
        // Each side is measured once a round, and both use the same run.
        let side = |which: usize| {
            let (demo, next) = (Rc::clone(&demo), Cell::new(0));
            move |effort: &Effort| {
                let figures = demo.run(next.get(), effort)?;
                next.set(next.get() + 1);
                let figure = figures.get(name).and_then(|both| both[which]);
                figure.map(|figure| vec![figure]).ok_or_else(|| "the demo has no figure".into())
            }
        };
        Plan::new(format!("QEMU guests, {name}"), unit, Guest::Qemu, side(0))
            .beside(PEER, side(1))
            .whatever_the_floor()
            .note("Guests without KVM are emulated: the emulation then dominates both figures.")
    };
    ROWS.into_iter().map(plan).collect()
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn guests_reads_only_verified_figures() {
        let text = r#"{"rows": [
            {"name": "a", "causeway": 2.0, "bridge_tap": 3.0, "verified": true},
            {"name": "b", "causeway": 2.0, "bridge_tap": null, "verified": true},
            {"name": "c", "causeway": 2.0, "bridge_tap": 3.0, "verified": false}]}"#;
        let figures = read(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(figures["a"], [Some(2.0), Some(3.0)]);
        assert_eq!(figures["b"], [Some(2.0), None]);
        assert_eq!(figures["c"], [None, None]);
        assert!(read(&serde_json::from_str("{}").unwrap()).is_err());
    }
}
