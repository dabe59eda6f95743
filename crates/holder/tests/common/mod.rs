//! A holder in this process, and a causewayd that tests drive step by step and end at will.
#![allow(dead_code, reason = "every test file uses another part")]

use std::io::{IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use causeway_attach::native::{self, NetOptions, NetPort};
use causeway_attach::{Model, Server};
use causeway_holder::client::Client;
use causeway_holder::holder::{Holder, HolderOptions, StopHandle};
use causeway_holder::protocol::{HeldPort, HeldProtocol};
use causeway_ring::Chain;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    sendmsg, socket_with,
};

pub const LIMIT: Duration = Duration::from_secs(20);
pub const QUEUES: u16 = 2;
pub const RING: u16 = 256;
/// The native port's transmit queue.
pub const SEND: usize = 1;

/// A holder with a directory of its own.
pub struct Held {
    pub dir: PathBuf,
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
}

impl Held {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("causeway-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let holder = Holder::new(HolderOptions { dir: dir.clone(), stay: true }).unwrap();
        let stop = holder.stopper();
        let thread = thread::spawn(move || holder.run().unwrap());
        Self { dir, stop, thread: Some(thread) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn port(&self, name: &str) -> HeldPort {
        HeldPort {
            name: name.into(),
            public: self.path(name),
            inner: self.path(&format!("{name}.inner")),
            protocol: HeldProtocol::VhostUser,
            users: None,
            queues: QUEUES,
            ring_size: RING,
            device: "test".into(),
        }
    }

    pub fn client(&self) -> Control {
        Control::new(&self.dir)
    }

    /// Connects and sends a request that only causewayd can answer.
    pub fn ask_causewayd(&self, name: &str) {
        let client = native::Client::connect_within(&self.path(name), LIMIT).unwrap();
        assert_eq!(client.offered(), model().offered());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.thread.take().unwrap().join();
        let _ = std::fs::remove_dir_all(&self.dir);
        assert!(ended.is_ok() || thread::panicking(), "the holder panicked");
    }
}

pub fn model() -> Model {
    Model { ring_size_max: RING, ..Model::new(usize::from(QUEUES), 1 << 15, vec![7; 12]) }
}

/// Environment variable with the path of the control socket, for [`causewayd_process`].
const CONTROL: &str = "CAUSEWAY_TEST_CONTROL";

/// The process of a causewayd: connects to the holder, passes the connection to the test, and lives
/// until the test ends it.
#[test]
fn causewayd_process() {
    let Some(path) = std::env::var_os(CONTROL) else { return };
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [socket.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let test = std::io::stdin();
    sendmsg(&test, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).unwrap();
    drop(socket);
    let _ = test.lock().read_to_end(&mut Vec::new());
}

/// The control connection of a causewayd, and its process. The drop closes the connection and ends
/// the process.
pub struct Control {
    client: Option<Client>,
    process: Child,
    /// Open for as long as the process lives.
    _stdin: UnixStream,
}

impl Control {
    fn new(dir: &Path) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "common::causewayd_process", "--nocapture"])
            .env(CONTROL, dir.join("control"))
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0; 1];
        let flags = RecvFlags::CMSG_CLOEXEC;
        recvmsg(&ours, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).unwrap();
        let socket = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let client = Some(Client::over(socket.unwrap()).unwrap());
        Self { client, process, _stdin: ours }
    }

    /// Closes the control connection of a causewayd that runs on.
    pub fn disconnect(&mut self) {
        self.client = None;
    }
}

impl Deref for Control {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().unwrap()
    }
}

impl DerefMut for Control {
    fn deref_mut(&mut self) -> &mut Client {
        self.client.as_mut().unwrap()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.client = None;
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A generation of causewayd. Dropping it has the effect of a kill.
pub struct Life {
    pub control: Control,
    listener: UnixListener,
    server: Option<Server>,
}

impl Life {
    pub fn new(held: &Held, name: &str) -> Self {
        let port = held.port(name);
        let _ = std::fs::remove_file(&port.inner);
        let listener = UnixListener::bind(&port.inner).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut control = held.client();
        control.add(port).unwrap();
        Self { control, listener, server: None }
    }

    /// Processes the frontend's messages.
    pub fn turn(&mut self) {
        if self.server.is_none()
            && let Ok((stream, _)) = self.listener.accept()
        {
            stream.set_nonblocking(true).unwrap();
            self.server = Some(Server::new(model(), OwnedFd::from(stream)));
        }
        if let Some(server) = &mut self.server {
            let mut events = Vec::new();
            if server.receive(&mut events).is_err() || server.is_over() {
                self.server = None;
            }
        }
    }

    pub fn until(&mut self, what: &str, done: impl Fn(&mut Self) -> bool) {
        let since = Instant::now();
        while !done(self) {
            assert!(since.elapsed() < LIMIT, "{what} did not come");
            self.turn();
            thread::sleep(Duration::from_micros(200));
        }
    }

    pub fn is_running(&self) -> bool {
        self.server.as_ref().is_some_and(|s| s.device().is_running(SEND))
    }

    pub fn is_free(&self) -> bool {
        self.server.is_none()
    }

    /// Returns the next frame sent: its head index and its first byte behind the header.
    pub fn pop(&mut self) -> Option<(u16, u8)> {
        let device = self.server.as_mut()?.device_mut();
        let (map, queue) = device.queue_mut(SEND)?;
        let mut chain = Chain::new();
        if !queue.ring.as_mut()?.pop(map, &mut chain).unwrap() {
            return None;
        }
        let mut bytes = [0; 13];
        map.read(chain.readable()[0].addr, &mut bytes).unwrap();
        Some((chain.head(), bytes[12]))
    }

    /// Completes frames and notifies the frontend.
    pub fn push(&mut self, heads: &[u16]) {
        let device = self.server.as_mut().unwrap().device_mut();
        let ring = device.queues[SEND].ring.as_mut().unwrap();
        heads.iter().for_each(|head| ring.push(*head, 0).unwrap());
        ring.publish().unwrap();
    }
}

/// Serves `life` in a thread until the returned closure is called.
pub fn background(mut life: Life) -> impl FnOnce() -> Life {
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flag = stop.clone();
    let thread = thread::spawn(move || {
        while !flag.load(Ordering::Relaxed) {
            life.turn();
            thread::sleep(Duration::from_micros(200));
        }
        life
    });
    move || {
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap()
    }
}

/// Attaches a native front end to a held port while `life` serves it.
pub fn attach(path: &Path, life: Life) -> (NetPort, Life) {
    let halt = background(life);
    let options = NetOptions { ring_size: 64, ..NetOptions::default() };
    let port = NetPort::over(native::Client::connect_within(path, LIMIT).unwrap(), options);
    (port.unwrap(), halt())
}

/// Sends frames that begin with these bytes.
pub fn send(port: &mut NetPort, frames: impl IntoIterator<Item = u8>) {
    for byte in frames {
        assert!(port.queue(0, &[0; 12], &[byte; 60]).unwrap());
    }
    port.flush(0).unwrap();
}
