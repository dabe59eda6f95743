//! `causeway capture` against the real dispatcher; tshark reads its files.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{ControlSocket, Dir, serve};
use causeway_attach::native::{NET_HEADER_BYTES, NetOptions, NetPort};
use causeway_daemon::services::SERVICES;
use causeway_fabric::{Fabric, Options};

const LIMIT: Duration = Duration::from_secs(30);
const UDP: u8 = 17;
const TCP: u8 = 6;

/// A capture process, killed if the test ends before it.
struct Tool(Child);

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Host {
    control: ControlSocket,
    _fabric: Fabric,
}

impl Host {
    fn start() -> Self {
        let fabric = Fabric::start(SERVICES, Options::default()).unwrap();
        let host = Self { control: serve(Arc::new(fabric.handle())), _fabric: fabric };
        for words in [
            "group add blue",
            "port add a --kind net --group blue --mac 52:54:00:00:00:01",
            "port add b --kind net --group blue --mac 52:54:00:00:00:02",
        ] {
            let output = host.tool(words).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        host
    }

    fn tool(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
        command.env("CAUSEWAY_CONTROL", &self.control.socket);
        command.args(words.split_whitespace());
        command
    }

    fn attach(&self, port: &str) -> NetPort {
        let shown = self.tool(&format!("port show {port} -j")).output().unwrap().stdout;
        let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
        let socket = shown["socket"].as_str().unwrap_or_else(|| panic!("{shown}"));
        NetPort::attach(Path::new(socket), NetOptions::default()).unwrap()
    }
}

/// Returns a frame of an IP protocol from guest 1 to guest 2, with `payload` bytes.
fn frame(protocol: u8, payload: u8) -> Vec<u8> {
    let len = 28 + payload;
    let mut bytes = vec![0x52, 0x54, 0, 0, 0, 2, 0x52, 0x54, 0, 0, 0, 1, 8, 0];
    bytes.extend([0x45, 0, 0, len, 0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([0x0f, 0xa0, 0x0f, 0xa1, 0, 8 + payload, 0, 0]);
    bytes.resize(14 + usize::from(len), payload);
    bytes
}

#[test]
fn capture_is_filtered_and_readable_by_tshark() {
    let tshark = Command::new("tshark").arg("--version").stdout(Stdio::null()).status();
    if tshark.is_err() {
        eprintln!("skipped: there is no tshark");
        return;
    }
    let (host, dir) = (Host::start(), Dir::new());
    let (mut a, mut b) = (host.attach("a"), host.attach("b"));
    let file = dir.file("frames.pcapng");
    let words = format!("capture b --write {} --count 3 --protocol udp", file.display());
    let mut tool = Tool(host.tool(&words).stderr(Stdio::null()).spawn().unwrap());
    let (until, mut round) = (Instant::now() + LIMIT, 0);
    let status = loop {
        assert!(Instant::now() < until, "nothing is captured");
        for bytes in [frame(UDP, 100 + round % 8), frame(TCP, 60)] {
            a.queue(0, &[0; NET_HEADER_BYTES], &bytes).unwrap();
            a.flush(0).unwrap();
        }
        round += 1;
        while b.receive(0, &mut Vec::new()).unwrap().is_some() {}
        if let Some(status) = tool.0.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success());
    let fields = ["eth.src", "eth.dst", "ip.proto", "udp.dstport", "frame.len", "data.data"];
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(&file).args(["-T", "fields", "-E", "separator=,"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let read = command.output().unwrap();
    let text = String::from_utf8(read.stdout).unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    assert_eq!(text.lines().count(), 3, "{text}");
    for line in text.lines() {
        let fields: Vec<&str> = line.split(',').collect();
        let [source, destination, protocol, port, len, data] = fields[..] else { panic!("{line}") };
        assert_eq!((source, destination), ("52:54:00:00:00:01", "52:54:00:00:00:02"));
        assert_eq!((protocol, port), ("17", "4001"), "{line}");
        let payload = len.parse::<usize>().unwrap() - 42;
        assert!((100..108).contains(&payload), "{line}");
        assert_eq!(data.replace(':', ""), format!("{payload:02x}").repeat(payload), "{line}");
    }
}

/// Counts the enhanced packet blocks of a pcapng file (pcapng specification, section 4.3).
fn frames(file: &[u8]) -> usize {
    let (mut at, mut count) = (0, 0);
    while at < file.len() {
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        count += usize::from(word(at) == 6);
        at += word(at + 4) as usize;
    }
    count
}

/// Under steady traffic every fetch returns frames; the limit must end the capture all the same.
#[test]
fn capture_under_steady_traffic_ends_at_its_limit() {
    let (host, dir) = (Host::start(), Dir::new());
    let (mut a, mut b) = (host.attach("a"), host.attach("b"));
    for (n, end) in ["--count 3", "--seconds 1", "--snap 64"].into_iter().enumerate() {
        let file = dir.file(&format!("{n}.pcapng"));
        let words = format!("capture b --write {} {end}", file.display());
        let mut tool = Tool(host.tool(&words).stderr(Stdio::null()).spawn().unwrap());
        let (since, mut told) = (Instant::now(), false);
        let status = loop {
            assert!(since.elapsed() < LIMIT, "{end}: it goes on");
            for _ in 0..64 {
                let _ = a.queue(0, &[0; NET_HEADER_BYTES], &frame(UDP, 100));
            }
            a.flush(0).unwrap();
            while b.receive(0, &mut Vec::new()).unwrap().is_some() {}
            if let Some(status) = tool.0.try_wait().unwrap() {
                break status;
            }
            // The last command has no limit of its own: Ctrl-C ends it.
            let some = || std::fs::metadata(&file).is_ok_and(|file| file.len() > 100_000);
            if n == 2 && !told && some() {
                told = true;
                let pid = rustix::process::Pid::from_child(&tool.0);
                rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            }
        };
        assert!(status.success(), "{end}");
        let count = frames(&std::fs::read(&file).unwrap());
        assert!(if n == 0 { count == 3 } else { count > 100 }, "{end}: {count}");
    }
}

#[test]
fn capture_of_a_missing_port_leaves_the_file_unchanged() {
    let (host, dir) = (Host::start(), Dir::new());
    let file = dir.file("kept.pcapng");
    std::fs::write(&file, "kept").unwrap();
    let output = host.tool(&format!("capture nobody --write {}", file.display())).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(std::fs::read(&file).unwrap(), b"kept");
    // A file that cannot be written is no usage error.
    let output = host.tool("capture b --write /nowhere/at/all").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
