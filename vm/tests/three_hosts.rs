//! `examples/three-hosts/run` succeeds, and its summary is that of docs/guide/cluster.md, apart from
//! times.

use causeway_vm::{Namespace, RunDir, build, place};
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The title of the summary.
const SUMMARY: &str = "== Summary";
/// Time limit of the example, below that of scripts/test.sh for a test program (900 s).
const LIMIT: Duration = Duration::from_secs(800);

/// The example; ended with its processes on drop.
struct Example(Child);

impl Example {
    /// Waits for the end; returns whether the example succeeded.
    fn succeeds(&mut self) -> bool {
        let since = Instant::now();
        while since.elapsed() < LIMIT {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        if self.0.try_wait().unwrap().is_none() {
            // The script ends all that it started.
            let _ = Command::new("kill").arg(self.0.id().to_string()).status();
            let _ = self.0.wait();
        }
    }
}

/// Returns the summary in a text: a line for each result, with a number for each measured time.
fn summary(text: &str) -> Vec<String> {
    let (_, rest) = text.split_once(SUMMARY).expect("the text has a summary");
    let lines = rest.lines().skip(1).take_while(|line| !line.is_empty() && *line != "```");
    let is_time = |word: &str| word.contains(|c: char| c.is_ascii_digit()) && word != "0";
    let result = |line: &str| match line.rsplit_once(' ') {
        Some((rest, unit @ ("ms" | "s"))) => {
            let (text, time) = rest.rsplit_once(' ').unwrap();
            assert!(is_time(time), "{line}");
            format!("{} TIME {unit}", text.trim_end())
        }
        _ => line.into(),
    };
    lines.map(result).collect()
}

#[test]
fn three_hosts_example_joins_loses_etcd_and_moves_a_guest() {
    if let Err(why) = Namespace::new() {
        eprintln!("skipped: {why}");
        return;
    }
    let folder = RunDir::new().unwrap();
    let (daemon, _) = build::daemon().unwrap();
    let [out, error] = ["out", "error"].map(|name| folder.join(name));
    let example = Command::new(place::workspace().join("examples/three-hosts/run"))
        .arg(folder.join("h"))
        .env("CAUSEWAY_BIN_DIR", daemon.parent().unwrap())
        .env("CAUSEWAY_GUEST_IMAGE", env!("CARGO_BIN_EXE_causeway-guest-image"))
        .stdin(Stdio::null())
        .stdout(File::create(&out).unwrap())
        .stderr(File::create(&error).unwrap())
        .spawn()
        .unwrap();
    let is_success = Example(example).succeeds();
    let [out, error] = [out, error].map(|file| fs::read_to_string(file).unwrap());
    assert!(is_success, "{out}\n{error}");
    let guide = place::workspace().join("docs/guide/cluster.md");
    let (printed, shown) = (summary(&out), summary(&fs::read_to_string(guide).unwrap()));
    assert!(shown.len() > 4, "docs/guide/cluster.md shows the summary: {shown:?}");
    assert_eq!(printed, shown, "{out}");
}

#[test]
fn three_hosts_summary_has_no_times() {
    let text = "== Summary, after 9 s\nlost   0\nmoved    22 ms\naway   6.6 s\n\nmore";
    assert_eq!(summary(text), ["lost   0", "moved TIME ms", "away TIME s"]);
}
