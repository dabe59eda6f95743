//! The rig: an etcd, and hosts of a daemon, a directory process and guests.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_attach::native::{NetOptions, NetPort, Sockets, VsockOptions, VsockPort};
use causeway_etcd::http::{Connection, HttpCall};
use causeway_testing::folder::Folder;
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// Time for everything that the tests wait for.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The variable by which a process of this test program becomes a daemon.
const DAEMON: &str = "CAUSEWAY_TEST_CONFIGURATION";
/// Ethernet type of test frames (IEEE 802, local experimental).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// Waits until `done` returns a value.
///
/// # Panics
/// The time is up.
pub fn wait<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(since.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that is killed at the end of the test.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts a process.
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    /// Starts a process without output.
    pub fn start_quiet(command: &mut Command) -> std::io::Result<Self> {
        command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        command.spawn().map(Self)
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Ends the process with SIGTERM, and waits for its end.
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
        wait("the process ends", || self.0.try_wait().unwrap());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a free TCP port.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A real etcd with a data directory of its own.
#[derive(Debug)]
pub struct EtcdServer {
    folder: Folder,
    port: u16,
    peer: u16,
    /// Options for TLS of the server, and of its clients.
    security: Option<(Vec<String>, Vec<String>)>,
    process: Option<Running>,
}

impl EtcdServer {
    /// Starts etcd.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts etcd with options for TLS of the server and of its clients.
    pub fn start_with(security: Option<(Vec<String>, Vec<String>)>) -> Self {
        let (folder, port, peer) = (Folder::new("etcd"), free_port(), free_port());
        let mut server = Self { folder, port, peer, security, process: None };
        server.restart();
        server
    }

    /// Starts etcd again on its data.
    pub fn restart(&mut self) {
        let url = |port| format!("http://127.0.0.1:{port}");
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(self.folder.join("data"));
        command.args(["--log-level", "error", "--listen-client-urls", &self.url()]);
        command.args(["--advertise-client-urls", &self.url()]);
        command.args(["--listen-peer-urls", &url(self.peer)]);
        command.args(["--initial-advertise-peer-urls", &url(self.peer)]);
        command.arg(format!("--initial-cluster=default={}", url(self.peer)));
        let (server, client) = self.security.clone().unwrap_or_default();
        command.args(server);
        let process = Running::start_quiet(&mut command).unwrap_or_else(|error| {
            panic!("cannot start etcd ({error}): install etcd-server (scripts/setup.sh test)")
        });
        self.process = Some(process);
        let program = env!("CARGO_BIN_EXE_causeway-directory");
        wait("etcd answers", || {
            let mut list = Command::new(program);
            list.args(["group", "list", "--etcd", &self.url()]).args(&client);
            list.stderr(Stdio::null());
            list.stdout(Stdio::null()).status().unwrap().success().then_some(())
        });
    }

    /// Returns the URL of clients.
    pub fn url(&self) -> String {
        let scheme = if self.security.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// Kills etcd; its data stays.
    pub fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    /// Returns the TCP port of clients.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Sends a signal to etcd.
    pub fn signal(&self, signal: Signal) {
        self.process.as_ref().unwrap().signal(signal);
    }

    /// Sends a request of etcd's JSON gateway.
    pub fn post(&self, path: &str, body: &str, token: Option<&str>) -> Value {
        post(self.port, path, body, token)
    }

    /// Deletes all keys with a prefix, in one step.
    pub fn wipe(&self, prefix: &str) {
        let encoded = |text: &str| STANDARD.encode(text);
        let end = format!("{}0", prefix.strip_suffix('/').unwrap());
        let body = format!(r#"{{"key":"{}","range_end":"{}"}}"#, encoded(prefix), encoded(&end));
        self.post("/v3/kv/deleterange", &body, None);
    }

    /// Runs a verb of `causeway-directory`; returns its output.
    pub fn verb(&self, args: &[&str]) -> String {
        let output = self.try_verb(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a verb of `causeway-directory` in site `lab`, which may fail.
    pub fn try_verb(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Returns the command of a verb of `causeway-directory` in site `lab`.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway-directory"));
        command.args(["--etcd", &self.url(), "--site", "lab"]).args(args);
        command
    }
}

/// Sends a request of etcd's JSON gateway to a port.
pub fn post(port: u16, path: &str, body: &str, token: Option<&str>) -> Value {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (method, body) = ("POST", body.as_bytes());
    let request = HttpCall { method, path, host: "x", token, body };
    let mut connection = Connection::new(stream);
    let status = connection.send(&request).unwrap();
    let answer = connection.read_all(1 << 20).unwrap();
    assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&answer));
    serde_json::from_slice(&answer).unwrap()
}

/// A CID for which every host has a port.
pub const SHARED_CID: u32 = 200;

/// A host: a daemon with ports `vm0` to `vm3` in group `blue`, a port `vm4` with the address
/// [`SHARED`], ports for AF_VSOCK with the host's CID and with [`SHARED_CID`], and a directory
/// process.
#[derive(Debug)]
pub struct Host {
    pub number: u8,
    name: String,
    folder: Folder,
    etcd: String,
    /// User of etcd, which is its password too.
    user: Option<String>,
    port: u16,
    daemon: Option<Running>,
    directory: Option<Running>,
}

/// Returns the CID that only this host has a port for.
pub fn cid(host: u8) -> u32 {
    100 + u32::from(host)
}
/// The address that port `vm4` of every host has.
pub const SHARED: [u8; 6] = [0x52, 0x54, 0, 0, 0xff, 4];

/// Returns the address of a guest.
pub fn mac(host: u8, guest: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, host, guest]
}

impl Host {
    /// Starts the daemon and the directory process. Hosts of one site use one UDP port.
    pub fn start(number: u8, etcd: &EtcdServer, port: u16) -> Self {
        Self::start_as(number, etcd, port, None)
    }

    /// Starts the host with a user of etcd, which is its password too.
    pub fn start_as(number: u8, etcd: &EtcdServer, port: u16, user: Option<&str>) -> Self {
        Self::start_at((number, &format!("h{number}")), etcd.url(), port, user)
    }

    /// Starts the host with a name of its own, and URLs of etcd.
    pub fn start_at(
        (number, name): (u8, &str),
        etcd: String,
        port: u16,
        user: Option<&str>,
    ) -> Self {
        let mut host = Self::prepare((number, name), etcd, port, user);
        host.start_directory();
        host
    }

    /// Starts the daemon only.
    fn prepare((number, name): (u8, &str), etcd: String, port: u16, user: Option<&str>) -> Self {
        let folder = Folder::new("host");
        let run = folder.path().display().to_string();
        let mut text = format!(
            "[daemon]\ncontrol = \"{run}/control.sock\"\nrun_dir = \"{run}\"\nlog = \"warn\"\n\
             hold = \"none\"\nstate_file = \"{run}/state.toml\"\nsandbox_paths = [\"{run}\"]\n\
             [[group]]\nname = \"blue\"\n"
        );
        for guest in 0..5 {
            let owner = if guest == 4 { 0xff } else { number };
            text += &format!(
                "[[port]]\nname = \"vm{guest}\"\ngroup = \"blue\"\nkind = \"net\"\n\
                 mac = \"52:54:00:00:{owner:02x}:{guest:02x}\"\n"
            );
        }
        for cid in [cid(number), SHARED_CID] {
            text += &format!(
                "[[port]]\nname = \"cid{cid}\"\ngroup = \"blue\"\nkind = \"vsock\"\ncid = {cid}\n"
            );
        }
        std::fs::write(folder.join("causeway.toml"), text).unwrap();
        let key = causeway_model::keys::PrivateKey::new([number; 32]);
        let file = folder.join("key");
        std::fs::write(&file, key.to_text().as_str()).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let (name, user) = (name.to_owned(), user.map(str::to_owned));
        let (daemon, directory) = (None, None);
        let mut host = Self { number, name, folder, etcd, user, port, daemon, directory };
        host.start_daemon();
        host
    }

    /// Starts a host with the name, the keys and the state of another one.
    pub fn start_copy(number: u8, of: &Self, port: u16) -> Self {
        let mut copy = Self::prepare((number, &of.name), of.etcd.clone(), port, None);
        std::fs::copy(of.folder.join("key"), copy.folder.join("key")).unwrap();
        std::fs::create_dir_all(copy.state()).unwrap();
        let (from, to) = (of.state().join("signing.key"), copy.state().join("signing.key"));
        std::fs::copy(from, to).unwrap();
        copy.start_directory();
        copy
    }

    /// Starts the daemon, and waits until it answers.
    pub fn start_daemon(&mut self) {
        // This test program is the daemon: see `daemon_of_a_host`.
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "hosts::daemon_of_a_host", "--test-threads=1", "--nocapture"]);
        command.env(DAEMON, self.folder.join("causeway.toml")).stdout(Stdio::null());
        self.daemon = Some(Running::start(&mut command));
        wait("the daemon answers", || self.try_ask("GET", "/v1/info"));
    }

    /// Starts the directory process.
    pub fn start_directory(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway-directory"));
        command.args(["--etcd", &self.etcd, "--site", "lab", "run"]);
        command.args(["--host", &self.name]);
        let address = format!("127.0.0.{}:{}", 80 + self.number, self.port);
        command.args(["--local", &address, "--endpoint", &address]);
        // The shortest idle time of links.
        command.args(["--idle", "10"]);
        command.arg("--key").arg(self.folder.join("key"));
        command.arg("--control").arg(self.socket());
        command.arg("--state").arg(self.state());
        if let Some(user) = &self.user {
            let file = self.folder.join("password");
            std::fs::write(&file, user).unwrap();
            command.args(["--etcd-user", user]).arg("--etcd-password-file").arg(file);
        }
        self.directory = Some(Running::start(&mut command));
    }

    /// Kills the daemon.
    pub fn kill_daemon(&mut self) {
        self.daemon.take().unwrap().kill();
    }

    /// Kills the directory process.
    pub fn kill_directory(&mut self) {
        self.directory.take().unwrap().kill();
    }

    /// Ends the directory process with SIGTERM: the host is unseen at once.
    pub fn end_directory(&mut self) {
        self.directory.take().unwrap().terminate();
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("control.sock")
    }

    /// Returns the state directory of the directory process.
    pub fn state(&self) -> PathBuf {
        self.folder.join("directory")
    }

    /// Attaches a guest.
    pub fn attach(&self, guest: u8) -> NetPort {
        let path = self.folder.join(format!("vm{guest}.sock"));
        wait("the port accepts a frontend", || NetPort::attach(&path, NetOptions::default()).ok())
    }

    /// Attaches a guest with AF_VSOCK.
    pub fn attach_sockets(&self, cid: u32) -> Sockets {
        let path = self.folder.join(format!("cid{cid}.sock"));
        let attach = || VsockPort::attach(&path, VsockOptions::default()).ok();
        Sockets::new(wait("the port accepts a frontend", attach))
    }

    /// Asks the daemon; `None` if it does not answer.
    fn try_ask(&self, method: &str, path: &str) -> Option<Value> {
        ask(&self.socket(), method, path, "")
    }

    /// Sends a change to the daemon.
    pub fn post(&self, path: &str, body: &str) {
        ask(&self.socket(), "POST", path, body).unwrap_or_else(|| panic!("{path}: no answer"));
    }

    /// Asks the daemon for a change that it may refuse; returns the status and the text of the reply.
    pub fn change(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let (status, body) = exchange(&self.socket(), method, path, body).unwrap();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// Returns a file in the folder of the host, such as the socket of a port.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Asks the daemon.
    pub fn get(&self, path: &str) -> Value {
        self.try_ask("GET", path).unwrap_or_else(|| panic!("{path}: no answer"))
    }

    /// Waits until a view fulfils a condition.
    pub fn await_view(&self, path: &str, is_met: impl Fn(&Value) -> bool) -> Value {
        let (mut last, since) = (Value::Null, Instant::now());
        while since.elapsed() < PATIENCE {
            last = self.get(path);
            if is_met(&last) {
                return last;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("host {}: {path}: {last:#}", self.number);
    }

    /// Waits until the cluster has this state.
    pub fn await_state(&self, state: &str) -> Value {
        self.await_view("/v1/cluster", |view| view["state"] == state)
    }
}

fn ask(socket: &Path, method: &str, path: &str, body: &str) -> Option<Value> {
    let (status, body) = exchange(socket, method, path, body)?;
    assert!((200..300).contains(&status), "{path}: {}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).ok()
}

/// Sends a request to a daemon; returns the status and the body of the reply.
fn exchange(socket: &Path, method: &str, path: &str, body: &str) -> Option<(u16, Vec<u8>)> {
    let stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut connection = Connection::new(stream);
    let request = HttpCall { method, path, host: "x", token: None, body: body.as_bytes() };
    let status = connection.send(&request).ok()?;
    Some((status, connection.read_all(1 << 24).ok()?))
}

/// Sends frames from one guest to another until one arrives.
pub fn cross(from: &mut NetPort, (source, to): ([u8; 6], [u8; 6]), at: &mut NetPort) {
    let frame = [&to[..], &source, &ETHERTYPE, &[7; 46]].concat();
    let mut received = Vec::new();
    let mut sent = Instant::now() - PATIENCE;
    wait(&format!("a frame from {source:02x?} arrives"), || {
        // Frames from the receiver have to leave its ring too.
        while from.receive(0, &mut received).unwrap().is_some() {}
        if sent.elapsed() > Duration::from_millis(50) {
            from.send(&frame).unwrap();
            sent = Instant::now();
        }
        while at.receive(0, &mut received).unwrap().is_some() {
            if received == frame {
                return Some(());
            }
        }
        None
    });
}

/// Sends `count` frames one by one, and asserts that each arrives.
pub fn stream(from: &mut NetPort, (source, to): ([u8; 6], [u8; 6]), at: &mut NetPort, count: u32) {
    let mut received = Vec::new();
    for number in 0..count {
        let frame = [&to[..], &source, &ETHERTYPE, &number.to_be_bytes(), &[9; 42]].concat();
        assert!(from.send(&frame).unwrap());
        wait(&format!("frame {number} of {count} arrives"), || {
            while at.receive(0, &mut received).unwrap().is_some() {
                if received == frame {
                    return Some(());
                }
            }
            None
        });
    }
}

/// Returns a UDP port that is free on loopback.
pub fn udp_port() -> u16 {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The daemon of a host, in a process of its own; without the variable the test does nothing.
#[test]
fn daemon_of_a_host() {
    use clap::Parser as _;
    let Some(config) = std::env::var_os(DAEMON) else { return };
    let args = ["causewayd".into(), "--config".into(), config];
    let args = causeway_daemon::args::Args::parse_from(args);
    let done = causeway_daemon::run::run(&args, causeway_daemon::services::SERVICES);
    assert!(done.is_ok(), "{done:?}");
}
