//! The tool against the real dispatcher and services.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::common::{ControlSocket, send, serve};
use causeway_daemon::services::SERVICES;
use causeway_fabric::{Fabric, Options};

/// Locked while the tool runs. The dispatchers are threads of this process: a child forked by
/// another test inherits their sockets until it executes the tool, and keeps an address in use that
/// long.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Host {
    control: ControlSocket,
    _fabric: Fabric,
}

impl Host {
    /// Starts groups blue and red, with two guests' ports in blue and a port in red.
    fn start() -> Self {
        let options = Options { dispatchers: 2, ..Options::default() };
        let fabric = Fabric::start(SERVICES, options).unwrap();
        let control = serve(Arc::new(fabric.handle()));
        let host = Self { control, _fabric: fabric };
        for words in [
            "group add blue",
            "group add red",
            "port add a-net --kind net --group blue --mac 52:54:00:00:00:01",
            "port add b-net --kind net --group blue --mac 52:54:00:00:00:02",
            "port add c-net --kind net --group red --mac 52:54:00:00:00:03",
            "port add a-vsock --kind vsock --group blue --cid 3",
            "port add b-vsock --kind vsock --group blue --cid 4",
            "port add c-vsock --kind vsock --group red --cid 5",
        ] {
            host.run(words);
        }
        host
    }

    fn output(&self, words: &str) -> (i32, String) {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let output = Command::new(env!("CARGO_BIN_EXE_causeway"))
            .env("CAUSEWAY_CONTROL", &self.control.socket)
            .args(words.split_whitespace())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    #[track_caller]
    fn run(&self, words: &str) -> String {
        let (status, text) = self.output(words);
        assert_eq!(status, 0, "{words}: {text}");
        text
    }

    #[track_caller]
    fn verdict(&self, words: &str) -> (String, Vec<String>) {
        let json: serde_json::Value =
            serde_json::from_str(&self.run(&format!("{words} -j"))).unwrap();
        let to = json["to"].as_array().unwrap().iter().map(|p| p.as_str().unwrap().to_owned());
        (json["verdict"].as_str().unwrap().to_owned(), to.collect())
    }
}

fn to(verdict: &str, ports: &[&str]) -> (String, Vec<String>) {
    (verdict.to_owned(), ports.iter().map(|p| (*p).to_owned()).collect())
}

#[test]
fn trace_of_frames_stays_in_the_group() {
    let host = Host::start();
    let frame =
        |from: &str, mac: &str| host.verdict(&format!("trace frame --from {from} --to {mac}"));
    let down = frame("a-net", "52:54:00:00:00:02");
    assert_eq!(down, to("drop", &["b-net"]), "no guest is attached there");
    assert_eq!(frame("a-net", "ff:ff:ff:ff:ff:ff"), to("drop", &["b-net"]));
    assert_eq!(frame("a-net", "52:54:00:00:00:03").0, "drop", "of another group");
}

#[test]
fn trace_of_connects_follows_the_rules() {
    let host = Host::start();
    let connect = |words: &str| host.run(&format!("trace connect {words}"));
    let why = |words: &str, because: &str| {
        let text = connect(words);
        assert!(text.contains(because), "{words}: no {because:?} in\n{text}");
    };
    // No guest runs here, so every connect ends as a reset; only the reasons differ.
    why("--from a-vsock --cid 4 --port 22", "no rule matches");
    why("--from a-vsock --cid 4 --port 22", "port b-vsock has CID 4, but no guest runs it");
    why("--from a-vsock --cid 5 --port 22", "no traffic crosses groups");
    host.run("rule add reject --from blue/3:* --to blue/4:22");
    why("--from a-vsock --cid 4 --port 22", "rule 0 rejects it");
    why("--from a-vsock --cid 4 --port 23", "no rule matches");
    why("--group blue --cid 4 --port 22", "no rule matches");
    assert_eq!(host.output("trace connect --from z --cid 4 --port 22").0, 3);
}

#[test]
fn cli_conflicts_are_refused_and_deleted_objects_are_gone() {
    let host = Host::start();
    let (status, text) = host.output("port add d --kind net --group blue --mac 52:54:00:00:00:01");
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("52:54:00:00:00:01"), "{text}");
    let (status, text) = host.output("port add d --kind vsock --group blue --cid 3");
    assert_eq!(status, 1, "{text}");
    assert!(!host.control.socket.with_file_name("d.sock").exists(), "nothing is left of it");
    let (status, text) = host.output("rule add reject --to green/3:*");
    assert_eq!(status, 3, "{text}");
    assert!(text.contains("causeway group add"), "{text}");
    assert_eq!(host.output("group del blue").0, 1);
    host.run("port del a-net");
    assert!(!host.control.socket.with_file_name("a-net.sock").exists());
    host.run("port add d --kind net --group blue --mac 52:54:00:00:00:01");
}

#[test]
fn rule_list_shows_rules_of_the_site_and_their_deletion_names_the_remedy() {
    let host = Host::start();
    host.run("rule add accept --to blue/4:22");
    let shut = serde_json::json!({ "action": "reject", "to": "blue/*:22" });
    let report = serde_json::json!({
        "site": "lab", "host": "h1", "instance": 1, "begin": true, "end": true,
        "has_policies": true, "policies": [{ "group": "blue", "rules": [shut] }],
        "tunnel": { "local": "127.0.0.1:9", "private_key": "/nonexistent", "idle": 0 },
        "hosts": [], "addresses": [], "status": { "connected": true },
    });
    let (status, reply) =
        send(&host.control.socket, "POST", "/v1/cluster/remote", &report.to_string());
    assert_eq!(status, 200, "{reply}");
    let list = host.run("rule list");
    let rows: Vec<Vec<&str>> = list.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["blue:0", "reject", "*/*:*", "blue/*:22", "0", "cluster"], "{list}");
    assert_eq!(rows[2], ["0", "accept", "*/*:*", "blue/4:22", "0", "host"], "{list}");
    let (status, text) = host.output("rule del blue:0");
    assert!(status == 1 && text.contains("causeway cluster group set blue"), "{status} {text}");
    let (status, text) = host.output("rule del blue:7");
    assert_eq!(status, 3, "{text}");
    host.run("rule del 0");
    assert_eq!(host.run("rule list").lines().count(), 2);
}

#[test]
fn dispatcher_list_and_move() {
    let host = Host::start();
    let list = host.run("dispatcher list");
    let head = list.lines().next().unwrap();
    let heads: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(
        heads,
        ["DISPATCHER", "CPU", "BUSY", "SPIN", "GROUP", "SERVICE", "PORTS", "BUSY", "MOVES"]
    );
    let shards = |text: &str| -> Vec<(usize, String, String)> {
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        let of = |dispatcher: &serde_json::Value| -> Vec<(usize, String, String)> {
            let number = dispatcher["number"].as_u64().unwrap() as usize;
            let text =
                |shard: &serde_json::Value, key: &str| shard[key].as_str().unwrap().to_owned();
            let shards = dispatcher["shards"].as_array().unwrap().iter();
            shards.map(|s| (number, text(s, "group"), text(s, "service"))).collect()
        };
        let mut all: Vec<_> = json.as_array().unwrap().iter().flat_map(of).collect();
        all.sort();
        all
    };
    assert_eq!(shards(&host.run("dispatcher list -j")).len(), 4, "two groups of two services");
    let blue = |number| {
        [(number, "blue".to_owned(), "net".to_owned()), (number, "blue".into(), "vsock".into())]
    };
    for number in [1, 0] {
        let moved = shards(&host.run(&format!("dispatcher move blue {number} -j")));
        assert!(blue(number).iter().all(|shard| moved.contains(shard)), "{moved:?}");
    }
    let moved = shards(&host.run("dispatcher move blue 1 --service vsock -j"));
    assert!(moved.contains(&blue(1)[1]) && moved.contains(&blue(0)[0]), "{moved:?}");
    let shown = host.run("port show a-vsock");
    assert!(shown.lines().any(|l| l.split_whitespace().eq(["dispatcher", "1"])), "{shown}");
    assert!(shown.contains("guest-driven"), "{shown}");
    let (status, text) = host.output("dispatcher move blue 2");
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("expected 0 to 1"), "{text}");
    let (status, text) = host.output("dispatcher move green 1");
    assert!(text.contains("see `causeway group list`"), "{status} {text}");
}

#[test]
fn apply_reaches_the_state_of_the_file() {
    let host = Host::start();
    let dir = crate::common::Dir::new();
    let (file, key) = (dir.file("c.toml"), dir.file("key"));
    let (key, shown) = (key.display().to_string(), file.display().to_string());
    host.run(&format!("key generate --out {key}"));
    // A peer's key; the own key would be refused. RFC 7748, section 6.1.
    let public = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
    // A free port of the host.
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = format!(
        r#"
        [daemon]
        key_file = "{key}"
        [[group]]
        name = "blue"
        [[group]]
        name = "strict"
        forwarding = "routes"
        [[port]]
        name = "a-net"
        group = "blue"
        kind = "net"
        mac = "52:54:00:00:00:01"
        [[rule]]
        action = "reject"
        to = "host:22"
        [[link]]
        name = "l"
        group = "blue"
        local = "{free}"
        remote = "127.0.0.1:9"
        key = "{}"
        [[route]]
        group = "blue"
        destination = "52:54:00:00:00:99"
        to = {{ edge = "l" }}
        "#,
        public
    );
    std::fs::write(&file, &text).unwrap();
    let dry = host.run(&format!("apply -f {shown} --dry-run"));
    assert!(dry.contains("- group red") && dry.contains("+ link l"), "{dry}");
    host.run(&format!("apply -f {shown}"));
    assert_eq!(host.run(&format!("apply -f {shown}")), "nothing to change\n");
    let link = host.run("link show l");
    assert!(link.contains("causeway") && link.contains("down: the peer has not"), "{link}");
    let secret = std::fs::read_to_string(&key).unwrap();
    assert!(!link.contains(secret.trim()), "the private key is not shown");
    assert!(host.run("route list").contains("edge:l"));
    assert!(host.run("traffic blue").starts_with("SOURCE"));
    std::fs::write(&file, text.replace("127.0.0.1:9\"", "127.0.0.1:10\"")).unwrap();
    let diff = host.run(&format!("apply -f {shown}"));
    assert!(diff.contains("remote 127.0.0.1:9 -> 127.0.0.1:10"), "{diff}");
    assert_eq!(host.run(&format!("apply -f {shown}")), "nothing to change\n");
    std::fs::write(&file, "").unwrap();
    host.run(&format!("apply -f {shown}"));
    assert_eq!(host.run("group list").lines().count(), 1, "nothing is left");
}

/// Longest time for QEMU to start and end, on a busy machine.
const QEMU_LIMIT: Duration = Duration::from_secs(120);

/// Returns the program name of QEMU, or `None` after a message if it is not installed.
fn installed_qemu() -> Option<String> {
    let qemu = format!("qemu-system-{}", std::env::consts::ARCH);
    if Command::new(&qemu).arg("--version").output().is_err() {
        eprintln!("skipped: there is no {qemu}");
        return None;
    }
    Some(qemu)
}

impl Host {
    /// Starts QEMU without running its guest, waits until all ports have a frontend, and lets QEMU
    /// quit.
    #[track_caller]
    fn attach(&self, mut qemu: Command, ports: &[&str]) {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        qemu.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = qemu.spawn().unwrap();
        drop(alone);
        let since = Instant::now();
        let is_attached = |port: &str| {
            let shown: serde_json::Value =
                serde_json::from_str(&self.run(&format!("port show {port} -j"))).unwrap();
            assert_eq!(shown["faults_total"], 0, "{port}: {shown}");
            shown["state"] == "connected"
        };
        let mut is_complete = false;
        while !is_complete && child.try_wait().unwrap().is_none() && since.elapsed() < QEMU_LIMIT {
            is_complete = ports.iter().all(|port| is_attached(port));
            std::thread::sleep(Duration::from_millis(50));
        }
        // A QEMU that ended has closed its input; the status below tells.
        let _ = child.stdin.take().unwrap().write_all(b"quit\n");
        while child.try_wait().unwrap().is_none() {
            if since.elapsed() > QEMU_LIMIT {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{ports:?}: {}: {error}", output.status);
        assert!(is_complete, "{ports:?}: no frontend: {error}");
    }
}

/// Options of QEMU that start no guest, without the size of its memory.
const PAUSED: [&str; 8] =
    ["-machine", "accel=tcg", "-S", "-display", "none", "-nodefaults", "-monitor", "stdio"];

#[test]
fn port_show_prints_arguments_that_start_the_installed_qemu() {
    let Some(qemu) = installed_qemu() else { return };
    let host = Host::start();
    host.run("port add pairs --kind net --group blue --queue-pairs 2");
    for port in ["a-net", "pairs", "a-vsock"] {
        let text = host.run(&format!("port show {port} --for qemu"));
        let arguments = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
        let options = PAUSED.join(" ");
        let script = format!("exec {qemu} {options} -m 1G {}", arguments.join("\n"));
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        host.attach(command, &[port]);
    }
}

#[test]
fn vm_show_prints_lines_that_attach_all_ports_of_a_guest() {
    let Some(qemu) = installed_qemu() else { return };
    let host = Host::start();
    host.run("port add second --kind net --group red --vm a --mtu 9000");
    let text = host.run("vm show a --for qemu --memory 192M -j");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let arguments: Vec<&str> =
        value["arguments"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert!(arguments.iter().any(|word| word.contains("size=192M")), "{text}");
    let mut command = Command::new(&qemu);
    // Without -m, QEMU has the memory of the printed size.
    command.args(PAUSED).args(&arguments);
    host.attach(command, &["a-net", "a-vsock", "second"]);
}

#[test]
fn stats_print_metrics_in_both_formats() {
    let host = Host::start();
    let open = host.run("stats -o openmetrics");
    assert!(open.contains("# TYPE causeway_port_drops counter\n") && open.ends_with("# EOF\n"));
    let prometheus = host.run("stats -o prometheus");
    assert!(prometheus.contains("# TYPE causeway_port_drops_total counter\n"), "{prometheus}");
    let line =
        "causeway_port_state{group=\"blue\",port=\"a-net\",kind=\"net\",state=\"listening\"} 1\n";
    assert!(open.contains(line) && prometheus.contains(line), "{open}");
    let (status, text) = host.output("port list -o openmetrics");
    assert!(status == 2 && text.contains("expected `causeway stats`"), "{status}: {text}");
    let (status, text) = host.output("stats -o prometheus --interval 1");
    assert!(status == 2 && text.contains("expected no --interval"), "{status}: {text}");
}

#[test]
fn connection_list_has_filters_and_refuses_unknown_ports() {
    let host = Host::start();
    let text = host.run("connection list");
    assert!(text.starts_with("GROUP  FROM  TO  TYPE  STATE  AGE"), "{text}");
    assert_eq!(host.run("connection list --port a-vsock --state open -j").trim(), "[]");
    let (status, text) = host.output("connection list --port missing");
    assert!(status == 3 && text.contains("see `causeway port list`"), "{status}: {text}");
    let (status, text) = host.output("connection list --limit 0");
    assert!(status == 2 && text.contains("number from 1"), "{status}: {text}");
}

#[test]
fn doctor_reports_every_check_with_and_without_a_daemon() {
    let host = Host::start();
    let (_, text) = host.output("doctor -o json");
    let end = text.rfind('}').map_or(0, |at| at + 1);
    let found: serde_json::Value = serde_json::from_str(&text[..end]).unwrap();
    let findings = found["findings"].as_array().unwrap();
    for check in
        ["kvm", "qemu", "memory", "hugepages", "clock", "daemon", "apparmor", "sockets", "ports"]
    {
        assert!(findings.iter().any(|finding| finding["check"] == check), "{check}: {text}");
    }
    let problems = ["warn", "fail"];
    let is_problem = |finding: &&serde_json::Value| {
        problems.iter().any(|severity| finding["severity"] == *severity)
    };
    for finding in findings.iter().filter(is_problem) {
        assert!(finding["remedy"].is_string(), "{finding}");
    }
    let (status, text) = host.output("doctor --control /nonexistent/control.sock");
    assert_eq!(status, 1, "{text}");
    assert!(text.starts_with("FAIL     daemon") && text.contains("-> start it with"), "{text}");
}
