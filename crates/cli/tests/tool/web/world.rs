//! Two hosts in this process: dispatchers with guests that exchange traffic, links between them, and
//! `causeway web` of the first host as a process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_attach::native::{NetOptions, NetPort, Sockets, VsockOptions, VsockPort};
use causeway_daemon::services::SERVICES;
use causeway_fabric::{Fabric, Options};
use causeway_wire::vsock::Type;
use serde_json::Value;

use crate::common::daemon_process::{self, DaemonProcess};
use crate::common::{ControlSocket, Dir, serve};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A host: causewayd, as a process if `CAUSEWAY_BIN_DIR` has it, else its dispatchers and its control
/// socket in this process.
#[derive(Debug)]
pub struct Host {
    pub dir: PathBuf,
    pub control: PathBuf,
    daemon: Daemon,
}

#[derive(Debug)]
#[allow(dead_code)] // Threads are kept for their drop.
enum Daemon {
    Threads(ControlSocket, Fabric),
    Process(DaemonProcess, Dir),
}

impl Host {
    pub fn start() -> Self {
        if let Some(programs) = std::env::var_os("CAUSEWAY_BIN_DIR") {
            return Self::start_process(&Path::new(&programs).join("causewayd"));
        }
        let options = Options { dispatchers: 2, ..Options::default() };
        let fabric = Fabric::start(SERVICES, options).unwrap();
        let control = serve(Arc::new(fabric.handle()));
        let (dir, socket) = (control.dir.0.clone(), control.socket.clone());
        Self { dir, control: socket, daemon: Daemon::Threads(control, fabric) }
    }

    fn start_process(causewayd: &Path) -> Self {
        let dir = Dir::new();
        let file = daemon_process::config(&dir, "needed", "");
        let text = std::fs::read_to_string(&file).unwrap();
        let keys = format!(
            "[daemon]\nrun_dir = \"{}\"\nstate_file = \"{}\"\n",
            dir.0.display(),
            dir.file("state.toml").display()
        );
        let text = text.replace("[daemon]\n", &keys).replace("[[group]]\nname = \"blue\"\n", "");
        std::fs::write(&file, text).unwrap();
        let process = DaemonProcess::start(causewayd.to_str().unwrap(), &file).ready(&dir);
        Self {
            dir: dir.0.clone(),
            control: dir.file("control.sock"),
            daemon: Daemon::Process(process, dir),
        }
    }

    /// Runs the tool; it must succeed.
    #[track_caller]
    pub fn run(&self, words: &str) {
        let output = causeway(&self.control, words).output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Adds the ports of a VM to a group.
    pub fn add_vm(&self, number: u8, group: &str) {
        let mac = format!("52:54:00:00:00:{number:02x}");
        self.run(&format!("port add vm{number}-net --kind net --group {group} --mac {mac}"));
        let cid = number + 2;
        self.run(&format!("port add vm{number}-vsock --kind vsock --group {group} --cid {cid}"));
    }

    fn socket(&self, port: &str) -> PathBuf {
        self.dir.join(format!("{port}.sock"))
    }

    /// Attaches the network card of a VM.
    pub fn net(&self, number: u8) -> Guest {
        let path = self.socket(&format!("vm{number}-net"));
        Guest { number, port: NetPort::attach(&path, NetOptions::default()).unwrap() }
    }

    /// Attaches the socket device of a VM.
    pub fn vsock(&self, number: u8) -> Sockets {
        let path = self.socket(&format!("vm{number}-vsock"));
        Sockets::new(VsockPort::attach(&path, VsockOptions::default()).unwrap())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Daemon::Process(process, dir) = &mut self.daemon
            && !std::thread::panicking()
        {
            // Ends the holder too.
            process.release(dir);
        }
    }
}

/// The tool with a command line.
pub fn causeway(control: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
    command.env("CAUSEWAY_CONTROL", control).args(words.split_whitespace());
    command
}

/// A guest's network card.
#[derive(Debug)]
pub struct Guest {
    number: u8,
    port: NetPort,
}

/// Frames that a guest sends every few milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Flow {
    pub from: u8,
    pub to: u8,
    pub frames: usize,
    pub bytes: usize,
}

/// A thread that runs guests until it is dropped.
#[derive(Debug)]
pub struct Traffic {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    /// Starts to send. Each guest receives, also from senders that it does not answer.
    pub fn start(mut guests: Vec<Guest>, flows: Vec<Flow>) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = stopping.clone();
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for flow in &flows {
                    let guest = guests.iter_mut().find(|guest| guest.number == flow.from).unwrap();
                    let frame = frame(flow);
                    for _ in 0..flow.frames {
                        guest.port.send(&frame).unwrap();
                    }
                }
                for guest in &mut guests {
                    guest.port.discard_all(0).unwrap();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { stopping, thread: Some(thread) }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(std::thread::panicking() || ended.is_ok(), "the guests' thread failed");
    }
}

/// Returns a frame of an experimental type (RFC 5342, appendix B).
fn frame(flow: &Flow) -> Vec<u8> {
    let mut frame = vec![0x52, 0x54, 0, 0, 0, flow.to, 0x52, 0x54, 0, 0, 0, flow.from, 0x88, 0xb5];
    frame.resize(flow.bytes, 0);
    frame
}

/// Connects two guests' sockets `count` times. The guests must be kept, so that the connections
/// stay.
pub fn connect(mut caller: Sockets, mut callee: Sockets, cid: u64, count: u32) -> [Sockets; 2] {
    callee.listen(Type::Stream, 22);
    let accepts = std::thread::spawn(move || {
        for _ in 0..count {
            callee.accept(PATIENCE).unwrap();
        }
        callee
    });
    for _ in 0..count {
        caller.connect(Type::Stream, cid, 22, PATIENCE).unwrap();
    }
    [caller, accepts.join().unwrap()]
}

/// Returns free UDP addresses of the loopback interface.
pub fn free_datagram_addresses<const N: usize>() -> [SocketAddr; N] {
    let sockets = [(); N].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap())
}

/// `causeway web`, killed with the test.
#[derive(Debug)]
pub struct Web {
    child: Child,
    pub address: SocketAddr,
}

impl Web {
    /// Starts the process and waits until it serves.
    pub fn start(control: &Path, options: &str) -> Self {
        let words = format!("web --listen 127.0.0.1:0 {options}");
        let mut child = causeway(control, &words).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("http://")?.1.split_once('/')?.0.parse().ok());
        let address = address.expect("the process names its address");
        // Later lines are shown with the test.
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| eprintln!("{line}"))
        });
        Self { child, address }
    }

    /// Sends SIGTERM and returns the exit code.
    pub fn stop(&mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }

    /// Returns the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends bytes and returns the whole reply.
    pub fn raw(&self, bytes: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The server may refuse before it has read everything.
        let _ = stream.write_all(bytes);
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        Reply::of(&String::from_utf8_lossy(&text))
    }

    /// Sends a GET request with further headers, each with its line end.
    pub fn get(&self, path: &str, headers: &str) -> Reply {
        self.raw(
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.address).as_bytes(),
        )
    }

    /// Polls the state until `is_there` accepts it.
    #[track_caller]
    pub fn wait(&self, what: &str, is_there: impl Fn(&Value) -> bool) -> Value {
        let since = Instant::now();
        loop {
            let reply = self.get("/api/state", "");
            let state = if reply.status == 200 {
                serde_json::from_str(&reply.body).unwrap()
            } else {
                Value::Null
            };
            if is_there(&state) {
                return state;
            }
            assert!(since.elapsed() < PATIENCE, "{what}: {state:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A reply; status 0 is none.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = |line: &&str| line.split_once(": ").is_some_and(|(n, _)| n == name);
        self.head.lines().find(found)?.split_once(": ").map(|(_, value)| value)
    }
}
