//! Captures of vsock ports, and `causeway extcap` as Wireshark calls it; tshark reads both.

use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{ControlSocket, Dir, serve};
use causeway_attach::native::{NET_HEADER_BYTES, NetOptions, NetPort};
use causeway_attach::native::{Sockets, VsockOptions, VsockPort};
use causeway_daemon::services::SERVICES;
use causeway_fabric::{Fabric, Options};
use causeway_wire::vsock::Type;

const PATIENCE: Duration = Duration::from_secs(60);

struct Host {
    control: ControlSocket,
    _fabric: Fabric,
}

impl Host {
    /// Starts a daemon with ports of two guests, a link, and a port that cannot be captured.
    fn start() -> Self {
        let fabric = Fabric::start(SERVICES, Options::default()).unwrap();
        let host = Self { control: serve(Arc::new(fabric.handle())), _fabric: fabric };
        let vsock = host.path("vm2.vsock");
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for words in [
            "group add blue",
            "port add vm1-net --kind net --group blue --mac 52:54:00:00:00:01",
            "port add vm2-net --kind net --group blue --mac 52:54:00:00:00:02",
            "port add vm1-vsock --kind vsock --group blue --cid 3",
            &format!("port add vm2-vsock --kind vsock --group blue --cid 4 --host-socket {vsock}"),
            "port add mx0 --kind mx --group blue",
            &format!(
                "link add to-b --group blue --kind vxlan --remote 127.0.0.1:1 --local {free} --vni 7"
            ),
        ] {
            host.ok(words);
        }
        host
    }

    fn path(&self, name: &str) -> String {
        self.control.socket.with_file_name(name).display().to_string()
    }

    fn tool(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
        command.env("CAUSEWAY_CONTROL", &self.control.socket);
        command.args(words.split_whitespace());
        command
    }

    #[track_caller]
    fn ok(&self, words: &str) -> String {
        let output = self.tool(words).output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn fails(&self, words: &str, text: &str) {
        let output = self.tool(words).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(text), "{words}: {error}");
    }

    fn guest(&self, name: &str) -> Sockets {
        let socket = self.path(&format!("{name}.sock"));
        Sockets::new(VsockPort::attach(Path::new(&socket), VsockOptions::default()).unwrap())
    }
}

/// A process that is killed if the test ends before it.
struct Tool(Child);

impl Tool {
    /// Starts a capture, and waits until it has written the head of its file.
    fn capture(host: &Host, words: &str, file: &Path) -> Self {
        let words = format!("{words} {}", file.display());
        let tool = Self(host.tool(&words).stderr(Stdio::null()).spawn().unwrap());
        let since = Instant::now();
        while std::fs::metadata(file).map_or(0, |file| file.len()) == 0 {
            assert!(since.elapsed() < PATIENCE, "the capture does not begin");
            std::thread::sleep(Duration::from_millis(5));
        }
        tool
    }

    /// Ends the capture as Wireshark does.
    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_tshark() -> bool {
    let found = Command::new("tshark").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: there is no tshark");
    }
    found
}

/// Returns the fields of the packets of a file, a line each.
fn fields(file: &Path, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(file).args(["-T", "fields", "-E", "separator=,"]);
    fields.iter().for_each(|field| _ = command.args(["-e", field]));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.replace(':', "")).collect()
}

/// Sends `ping` from the first guest to the second and `pong` back, then `hello` of a process.
fn talk(host: &Host) {
    let (mut first, mut second) = (host.guest("vm1-vsock"), host.guest("vm2-vsock"));
    second.listen(Type::Stream, 22);
    let server = std::thread::spawn(move || {
        let mut bytes = [0; 64];
        let connection = second.accept(PATIENCE).unwrap();
        second.receive(connection, &mut bytes[..4], PATIENCE).unwrap();
        second.send(connection, b"pong", PATIENCE).unwrap();
        let connection = second.accept(PATIENCE).unwrap();
        second.receive(connection, &mut bytes[..5], PATIENCE).unwrap();
        second.send(connection, b"goodbye", PATIENCE).unwrap();
        let _ = second.wait(Duration::from_millis(200));
    });
    let since = Instant::now();
    let connection = loop {
        // The second guest may not run yet.
        match first.connect(Type::Stream, 4, 22, PATIENCE) {
            Ok(connection) => break connection,
            Err(error) => assert!(since.elapsed() < PATIENCE, "{error}"),
        }
    };
    first.send(connection, b"ping", PATIENCE).unwrap();
    let mut bytes = [0; 64];
    first.receive(connection, &mut bytes[..4], PATIENCE).unwrap();
    assert!(first.connect(Type::Stream, 4, 23, PATIENCE).is_err(), "no socket listens there");
    let mut process = UnixStream::connect(host.path("vm2.vsock")).unwrap();
    process.write_all(b"CONNECT 22\n").unwrap();
    let mut answer = [0; 3];
    process.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"OK ");
    process.write_all(b"hello").unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"goodbye") {
        let mut byte = [0];
        process.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    server.join().unwrap();
}

#[test]
fn capture_of_a_vsock_port_is_readable_by_tshark() {
    if !has_tshark() {
        return;
    }
    let (host, dir) = (Host::start(), Dir::new());
    let [guest, cut, whole] = ["guest", "cut", "whole"].map(|name| dir.file(name));
    let tools = [
        Tool::capture(&host, "capture vm2-vsock --port 22 --write", &guest),
        Tool::capture(&host, "capture vm1-vsock --snap 77 --write", &cut),
        Tool::capture(
            &host,
            "extcap --capture --extcap-interface causeway-port-vm1-vsock --fifo",
            &whole,
        ),
    ];
    talk(&host);
    tools.into_iter().for_each(Tool::stop);
    let names = ["vsock.src_cid", "vsock.dst_cid", "vsock.op", "vsock.virtio.op", "vsock.payload"];
    let packets = fields(&guest, &names);
    // Operations: connect 1, disconnect 2, control 3, payload 4; of virtio: request 1, data 5.
    for packet in [
        "3,4,1,1,",
        "4,3,1,2,",
        "3,4,4,5,70696e67",
        "4,3,4,5,706f6e67",
        "2,4,1,1,",
        "2,4,4,5,68656c6c6f",
        "4,2,4,5,676f6f64627965",
    ] {
        assert!(packets.iter().any(|found| found == packet), "no {packet} in {packets:#?}");
    }
    let ports = fields(&guest, &["vsock.src_port", "vsock.dst_port"]);
    assert!(ports.iter().all(|line| line.split(',').any(|port| port == "22")), "{ports:?}");
    // Without the filter, the connect to port 23 and its reset are captured.
    let ports = fields(&whole, &["vsock.dst_port", "vsock.virtio.op"]);
    assert!(ports.iter().any(|line| line == "23,1"), "{ports:?}");
    let packets = fields(&whole, &["vsock.src_cid", "vsock.virtio.op", "vsock.payload"]);
    assert!(packets.iter().any(|line| line == "3,5,70696e67"), "{packets:?}");
    assert!(!packets.iter().any(|line| line.starts_with("2,")), "of the other guest: {packets:?}");
    // Two headers of 32 and 44 bytes and one byte of data are kept.
    let lengths = fields(&cut, &["frame.len", "frame.cap_len"]);
    assert!(lengths.iter().any(|line| line == "80,77"), "{lengths:?}");
}

#[test]
fn capture_of_a_vsock_port_is_bounded_and_ends_with_its_port() {
    let (host, dir) = (Host::start(), Dir::new());
    host.fails("capture vm1-vsock --protocol tcp --write /dev/null", "expected port alone");
    host.fails("capture mx0 --write /dev/null", "ports of kind mx cannot be captured");
    let files: Vec<PathBuf> = (0..16).map(|n| dir.file(&n.to_string())).collect();
    let mut tools: Vec<Tool> =
        files.iter().map(|file| Tool::capture(&host, "capture vm1-vsock --write", file)).collect();
    host.fails("capture vm2-vsock --write /dev/null", "16 captures in this group already");
    tools.pop().unwrap().stop();
    host.ok("capture vm2-vsock --seconds 1 --write /dev/null");
    host.ok("port del vm1-vsock");
    for mut tool in tools {
        assert!(tool.0.wait().unwrap().success(), "the capture ends with its port");
    }
}

#[test]
fn extcap_prints_interfaces_link_types_and_options() {
    let host = Host::start();
    let text = host.ok("extcap --extcap-interfaces --extcap-version=4.0");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("extcap {version="), "{text}");
    let line = |name: &str| {
        let start = format!("interface {{value={name}}}{{display=");
        lines.iter().find(|line| line.starts_with(&start)).copied().unwrap_or_default()
    };
    let port = line("causeway-port-vm1-net");
    assert!(port.ends_with("Causeway port vm1-net (group blue, listening)}"), "{text}");
    assert!(line("causeway-port-vm2-vsock").contains("socket packets, group blue"), "{text}");
    assert!(line("causeway-link-to-b").contains("(vxlan, group blue, "), "{text}");
    assert!(!text.contains("mx0") && lines.len() == 6, "{text}");
    let dlt = |name: &str| host.ok(&format!("extcap --extcap-dlts --extcap-interface {name}"));
    assert_eq!(dlt("causeway-port-vm1-net"), "dlt {number=1}{name=EN10MB}{display=Ethernet}\n");
    assert!(dlt("causeway-port-vm1-vsock").starts_with("dlt {number=271}{name=VSOCK}"));
    assert!(dlt("causeway-link-to-b").starts_with("dlt {number=1}"));
    let config = "extcap --extcap-config --extcap-interface";
    assert!(host.ok(&format!("{config} causeway-link-to-b")).contains("{call=--host}"));
    let options = host.ok(&format!("{config} causeway-port-vm1-vsock"));
    assert!(options.contains("{call=--port}") && !options.contains("--host"), "{options}");
    host.fails("extcap", "--extcap-interfaces");
    host.fails("extcap --extcap-dlts --extcap-interface eth0", "expected causeway-port-NAME");
    host.fails("extcap --extcap-dlts --extcap-interface causeway-port-none", "does not exist");
    host.fails("extcap --extcap-config --extcap-interface causeway-port-mx0", "cannot be captured");
    let capture = "extcap --capture --extcap-interface causeway-port-vm1-net";
    host.fails(capture, "--fifo");
    let filter = "--fifo /dev/null --extcap-capture-filter tcp";
    host.fails(&format!("{capture} {filter}"), "capture filters are not supported");
    // Without a daemon Wireshark starts with an empty list.
    let output =
        host.tool("extcap --extcap-interfaces --control /nowhere/at/all").output().unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"extcap {"), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no daemon serves"), "{output:?}");
}

/// Returns tshark with the extcap program of the packages as its only extcap program. tshark of root
/// ignores `WIRESHARK_EXTCAP_DIR`, so that its folder is replaced in a mount namespace.
fn tshark(host: &Host, dir: &Dir, arguments: &[&str]) -> Command {
    let folder = dir.file("extcap");
    std::fs::create_dir_all(&folder).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/wireshark-extcap");
    std::fs::copy(script, folder.join("causeway")).unwrap();
    let mut command = if rustix::process::geteuid().is_root() {
        let folders = Command::new("tshark").args(["-G", "folders"]).output().unwrap().stdout;
        let folders = String::from_utf8(folders).unwrap();
        let system = folders.lines().find_map(|line| line.strip_prefix("Extcap path:"));
        let mut command = Command::new("unshare");
        command.args([
            "-m",
            "sh",
            "-c",
            "mount --bind \"$1\" \"$2\" && shift 2 && exec tshark \"$@\"",
        ]);
        command.args(["sh", folder.to_str().unwrap(), system.unwrap().trim()]);
        command
    } else {
        Command::new("tshark")
    };
    let tool = Path::new(env!("CARGO_BIN_EXE_causeway")).parent().unwrap().display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(arguments).env("WIRESHARK_EXTCAP_DIR", folder);
    command.env("PATH", format!("{tool}:{path}")).env("HOME", &dir.0);
    command.env("CAUSEWAY_CONTROL", &host.control.socket);
    command
}

#[test]
fn extcap_of_tshark_lists_and_captures_a_live_port() {
    if !has_tshark() {
        return;
    }
    let (host, dir) = (Host::start(), Dir::new());
    let output = tshark(&host, &dir, &["-D"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "causeway-port-vm1-net (Causeway port vm1-net (group blue, listening))",
        "causeway-port-vm1-vsock (Causeway port vm1-vsock (socket packets, group blue, ",
        "causeway-link-to-b (Causeway link to-b (vxlan, group blue, ",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let attach = |name: &str| {
        let socket = host.path(&format!("{name}.sock"));
        NetPort::attach(Path::new(&socket), NetOptions::default()).unwrap()
    };
    let (mut a, mut b) = (attach("vm1-net"), attach("vm2-net"));
    let words = ["-n", "-i", "causeway-port-vm2-net", "-c", "5", "-T", "fields", "-e", "eth.src"];
    let mut command = tshark(&host, &dir, &words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Tool(command.spawn().unwrap());
    let mut frame = vec![0x52, 0x54, 0, 0, 0, 2, 0x52, 0x54, 0, 0, 0, 1, 0x88, 0xb5];
    frame.resize(100, 7);
    let since = Instant::now();
    while child.0.try_wait().unwrap().is_none() {
        assert!(since.elapsed() < PATIENCE, "tshark captures nothing");
        a.queue(0, &[0; NET_HEADER_BYTES], &frame).unwrap();
        a.flush(0).unwrap();
        while b.receive(0, &mut Vec::new()).unwrap().is_some() {}
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut text = String::new();
    child.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let mut error = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(child.0.wait().unwrap().success(), "{text}{error}");
    assert_eq!(
        text.lines().filter(|line| *line == "52:54:00:00:00:01").count(),
        5,
        "{text}{error}"
    );
}
