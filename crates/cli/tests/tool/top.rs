//! `causeway top` against the real dispatcher: as a batch, and on a terminal (of `script`).

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{ControlSocket, Dir, serve};
use causeway_attach::native::{NET_HEADER_BYTES, NetOptions, NetPort};
use causeway_fabric::{Fabric, Options};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);
/// Sequences by which a terminal enters and leaves the alternate screen.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

struct Host {
    control: ControlSocket,
    _fabric: Fabric,
}

impl Host {
    /// Starts a daemon with two ports of a group.
    fn start() -> Self {
        let services =
            &[causeway_ethernet::SERVICE, causeway_link::SERVICE, causeway_socket::SERVICE];
        let fabric = Fabric::start(services, Options::default()).unwrap();
        let host = Self { control: serve(Arc::new(fabric.handle())), _fabric: fabric };
        for words in [
            "group add blue",
            "port add vm1-net --kind net --group blue --mac 52:54:00:00:00:01",
            "port add vm2-net --kind net --group blue --mac 52:54:00:00:00:02",
        ] {
            let output = tool(&host.control.socket, words).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        host
    }

    fn attach(&self, port: &str) -> NetPort {
        let shown = tool(&self.control.socket, &format!("port show {port} -j")).output().unwrap();
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        let socket = shown["socket"].as_str().unwrap_or_else(|| panic!("{shown}"));
        NetPort::attach(Path::new(socket), NetOptions::default()).unwrap()
    }
}

fn tool(socket: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
    command.env("CAUSEWAY_CONTROL", socket).args(words.split_whitespace());
    command
}

/// Sends frames from vm1 to vm2 until `until` is true.
fn traffic(a: &mut NetPort, b: &mut NetPort, mut until: impl FnMut() -> bool) {
    let since = Instant::now();
    let mut frame = vec![0x52, 0x54, 0, 0, 0, 2, 0x52, 0x54, 0, 0, 0, 1, 0x88, 0xb5];
    frame.resize(100, 7);
    while !until() {
        assert!(since.elapsed() < LIMIT, "not reached");
        a.queue(0, &[0; NET_HEADER_BYTES], &frame).unwrap();
        a.flush(0).unwrap();
        while b.receive(0, &mut Vec::new()).unwrap().is_some() {}
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn top_batch_prints_rates_of_live_traffic() {
    let host = Host::start();
    let (mut a, mut b) = (host.attach("vm1-net"), host.attach("vm2-net"));
    let mut run = |words: &str| {
        let mut command = tool(&host.control.socket, words);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        traffic(&mut a, &mut b, || child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{words}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run("top -b -n 2 -d 0.5");
    assert_eq!(text.matches("causeway top: daemon up").count(), 2, "{text}");
    let line = |name: &str| {
        let line = text.lines().rfind(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).split_whitespace().collect::<Vec<_>>()
    };
    let (sender, receiver) = (line("vm1-net"), line("vm2-net"));
    assert_eq!(sender[1..4], ["blue", "net", "running"], "{text}");
    assert!(sender[4].parse::<f64>().unwrap() > 10.0, "{text}");
    assert_eq!((sender[6], receiver[4]), ("0", "0"), "{text}");
    assert!(receiver[6].parse::<f64>().unwrap() > 10.0, "{text}");
    assert!(text.contains("NUMBER") && text.contains("P99-US"), "dispatchers: {text}");
    // JSON, a line for each report.
    let text = run("top -n 2 -d 0.3 -o json");
    let reports: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(reports.len(), 2);
    let port = &reports[1]["ports"][0];
    let frames = port["transmit_packets_per_second"].as_f64().unwrap();
    let bytes = port["transmit_bytes_per_second"].as_f64().unwrap();
    assert!(frames > 10.0 && (bytes / frames - 100.0).abs() < 1.0, "{port}");
    assert_eq!((&port["guest_attached"], &reports[1]["restarted"]), (&true.into(), &false.into()));
    // A view alone, sorted and filtered; without a terminal the report is a batch.
    let text = run("top -n 1 -d 0.2 --view ports --sort RX-PPS --filter NET");
    assert!(text.find("vm2-net").unwrap() < text.find("vm1-net").unwrap(), "{text}");
    assert!(!text.contains("P99-US"), "{text}");
}

#[test]
fn top_refuses_wrong_values_and_reports_a_missing_daemon() {
    let host = Host::start();
    let fails = |words: &str, status: i32, text: &str| {
        let output = tool(&host.control.socket, words).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{words}: {error}");
        assert!(error.contains(text), "{words}: {error}");
    };
    fails("top -d 0.01", 2, "expected 0.1 to 3600 seconds");
    fails("top -n 0", 2, "0 is not in");
    fails("top --sort nothing", 2, "expected name, group, kind");
    fails("top --view links --sort faults", 2, "rtt, loss");
    fails("top -b --control /nowhere/at/all", 4, "no daemon serves");
}

/// `causeway top` on a terminal of 80 columns and 24 lines, which `script` makes. Files have the
/// settings of the terminal before and after the tool, and its exit status.
struct Terminal {
    child: Child,
    dir: Dir,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(control: &Path) -> Option<Self> {
        let dir = Dir::new();
        let file = |name: &str| dir.file(name).display().to_string();
        let shell = format!(
            "stty rows 24 cols 80; stty -g > {}; '{}' top -d 0.2 & echo $! > {}; wait $!; \
             echo $? > {}; stty -g > {}",
            file("before"),
            env!("CARGO_BIN_EXE_causeway"),
            file("pid"),
            file("status"),
            file("after"),
        );
        // A background process of `sh` reads no terminal: the tool stays in the foreground.
        let shell = shell.replace(" & echo $!", " < /dev/tty & echo $!");
        let child = Command::new("script")
            .args(["-qfec", &shell, "/dev/null"])
            .env("CAUSEWAY_CONTROL", control)
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            eprintln!("skipped: there is no script of util-linux");
            return None;
        };
        let output = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to) = (child.stdout.take().unwrap(), output.clone());
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut chunk) {
                to.lock().unwrap().extend_from_slice(&chunk[..n]);
            }
        });
        Some(Self { child, dir, output })
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Waits for a text behind the first `from` bytes of the output.
    #[track_caller]
    fn await_text(&self, from: usize, text: &str) {
        let since = Instant::now();
        while !self.text()[from..].contains(text) {
            assert!(since.elapsed() < LIMIT, "no {text:?} in {:.4000?}", &self.text()[from..]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn keys(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.file(name)).unwrap_or_default().trim().to_owned()
    }

    /// Waits for the end of the tool, and checks that the terminal is as before.
    #[track_caller]
    fn ends_restored(mut self, status: &str) {
        let since = Instant::now();
        while self.file("after").is_empty() {
            assert!(since.elapsed() < LIMIT, "the tool goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child.wait().unwrap();
        assert_eq!(self.file("status"), status, "{:?}", self.text());
        assert_eq!(self.file("before"), self.file("after"), "the settings are restored");
        let text = self.text();
        assert!(text.rfind(LEAVE).unwrap() > text.rfind(ENTER).unwrap(), "{text:?}");
        assert!(text.contains("\x1b[?25h"), "the cursor is shown: {text:?}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(pid) = self.file("pid").parse().ok().and_then(rustix::process::Pid::from_raw)
            && self.file("after").is_empty()
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn top_terminal_shows_rates_and_obeys_keys() {
    let host = Host::start();
    let (mut a, mut b) = (host.attach("vm1-net"), host.attach("vm2-net"));
    let Some(mut terminal) = Terminal::start(&host.control.socket) else { return };
    terminal.await_text(0, ENTER);
    let since = Instant::now();
    traffic(&mut a, &mut b, || since.elapsed() > Duration::from_secs(1));
    let text = terminal.text();
    for part in ["vm1-net", "vm2-net", "running", "TX-BIT/S", "attached", "1 Ports"] {
        assert!(text.contains(part), "no {part}: {text:.4000?}");
    }
    let at = text.len();
    terminal.keys("3");
    terminal.await_text(at, "MEAN-US");
    terminal.keys("?");
    terminal.await_text(at, "┌ causeway top ─");
    terminal.keys("x");
    terminal.keys("q");
    terminal.ends_restored("0");
}

#[test]
fn top_terminal_is_restored_after_sigterm() {
    let host = Host::start();
    let Some(terminal) = Terminal::start(&host.control.socket) else { return };
    terminal.await_text(0, "vm2-net");
    let pid = rustix::process::Pid::from_raw(terminal.file("pid").parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    terminal.ends_restored("0");
}

#[test]
fn top_terminal_survives_the_loss_of_the_daemon() {
    let (first, dir) = (Host::start(), Dir::new());
    let control: PathBuf = dir.file("control.sock");
    std::os::unix::fs::symlink(&first.control.socket, &control).unwrap();
    let Some(mut terminal) = Terminal::start(&control) else { return };
    terminal.await_text(0, "vm2-net");
    drop(first);
    terminal.await_text(0, "NO DATA for");
    terminal.await_text(0, "no daemon serves");
    let second = Host::start();
    let output = tool(&second.control.socket, "port del vm1-net").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let at = terminal.text().len();
    std::fs::remove_file(&control).unwrap();
    std::os::unix::fs::symlink(&second.control.socket, &control).unwrap();
    terminal.await_text(at, "0/1 attached");
    terminal.keys("q");
    terminal.ends_restored("0");
}
