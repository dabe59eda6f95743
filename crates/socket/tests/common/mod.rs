//! A fabric with the socket service, and native ports attached to it.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod raw;

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use causeway_attach::native::{ConnectionId, SocketError, Sockets};
use causeway_attach::native::{VsockOptions, VsockPort};
use causeway_fabric::{Fabric, Handle, Options};
use causeway_model::Name;
use causeway_model::{Answer, Command, CommandError, PortState, PortView, SocketAccess};
use causeway_model::{PortKind, PortSpec, RuleAction, RuleSpec, VsockSpec};
use causeway_testing::folder::Folder;
use causeway_wire::vsock::{Header, Op, Type};

pub use causeway_testing::wait::{PATIENCE, wait};

/// Accepts a connection of the daemon, within [`PATIENCE`]; reads and writes have that limit too.
pub fn accept(listener: &UnixListener) -> UnixStream {
    let mut stream = None;
    listener.set_nonblocking(true).unwrap();
    wait(
        || {
            stream = listener.accept().ok();
            stream.is_some()
        },
        || "the daemon does not connect".into(),
    );
    limited(stream.unwrap().0)
}

/// Returns the stream with a limit of [`PATIENCE`] for reads and writes.
pub fn limited(stream: UnixStream) -> UnixStream {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub struct Rig {
    pub handle: Handle,
    fabric: Option<Fabric>,
    dir: Folder,
}

impl Rig {
    /// Starts a fabric with the groups `red` and `blue`.
    pub fn new() -> Self {
        let dir = Folder::new("socket");
        // Two dispatchers, so that each group has its own.
        let options = Options { dispatchers: 2, ..Options::default() };
        let fabric = Fabric::start(&[causeway_socket::SERVICE], options).unwrap();
        let rig = Self { handle: fabric.handle(), fabric: Some(fabric), dir };
        for group in ["red", "blue"] {
            rig.handle.call(Command::GroupAdd(group.parse::<Name>().unwrap().into())).unwrap();
        }
        rig
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Adds the port `cid` to a group; its host socket is `<cid>.host`.
    pub fn try_add(&self, group: &str, cid: u32) -> Result<Answer, CommandError> {
        self.try_add_with(group, cid, SocketAccess::default())
    }

    /// As [`Self::try_add`], with access to the sockets.
    pub fn try_add_with(
        &self,
        group: &str,
        cid: u32,
        access: SocketAccess,
    ) -> Result<Answer, CommandError> {
        let name = format!("{group}-{cid}");
        self.handle.call(Command::PortAdd(PortSpec {
            socket: self.path(&name),
            access,
            memory_max: None,
            kind: PortKind::of(VsockSpec {
                cid,
                guest_cid: None,
                host_socket: Some(self.path(&format!("{name}.host"))),
                processes: false,
            }),
            name: name.parse().unwrap(),
            group: group.parse().unwrap(),
        }))
    }

    /// Adds a port and attaches to it.
    pub fn port_with(&self, group: &str, cid: u32, options: VsockOptions) -> VsockPort {
        self.try_add(group, cid).unwrap();
        let port = VsockPort::attach(&self.path(&format!("{group}-{cid}")), options).unwrap();
        self.wait_for(group, cid, |v| {
            v.state == PortState::Running && v.queues[..2].iter().all(|q| q.running)
        });
        port
    }

    pub fn port(&self, group: &str, cid: u32) -> VsockPort {
        self.port_with(group, cid, VsockOptions::default())
    }

    pub fn sockets(&self, group: &str, cid: u32) -> Sockets {
        Sockets::new(self.port(group, cid))
    }

    /// Attaches a guest that can violate the rules of a driver.
    pub fn raw(&self, group: &str, cid: u32) -> raw::Raw {
        self.try_add(group, cid).unwrap();
        let port = raw::Raw::attach(&self.path(&format!("{group}-{cid}")));
        self.wait_for(group, cid, |v| v.queues[..2].iter().all(|q| q.running));
        port
    }

    pub fn rule(&self, action: RuleAction, from: &str, to: &str) {
        let rule = RuleSpec { action, from: from.parse().unwrap(), to: to.parse().unwrap() };
        self.handle.call(Command::RuleAdd { index: None, rule }).unwrap();
    }

    pub fn view(&self, group: &str, cid: u32) -> PortView {
        match self
            .handle
            .call(Command::PortShow(format!("{group}-{cid}").parse().unwrap()))
            .unwrap()
        {
            Answer::Port(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    pub fn counter(&self, group: &str, cid: u32, name: &str) -> u64 {
        self.view(group, cid).counters[name]
    }

    pub fn wait_for(&self, group: &str, cid: u32, mut ready: impl FnMut(&PortView) -> bool) {
        wait(|| ready(&self.view(group, cid)), || format!("{:?}", self.view(group, cid)));
    }

    /// Waits until the port was closed for a violation, and returns the reason.
    pub fn wait_fault(&self, group: &str, cid: u32) -> String {
        self.wait_for(group, cid, |v| v.state == PortState::Faulted);
        self.view(group, cid).fault.unwrap()
    }

    /// Waits until a violation was recorded while the port runs, and returns the reason.
    pub fn wait_note(&self, group: &str, cid: u32) -> String {
        self.wait_for(group, cid, |v| v.fault.is_some());
        let view = self.view(group, cid);
        assert_eq!(view.state, PortState::Running);
        view.fault.unwrap()
    }

    /// Waits until an event was recorded that is no fault, and returns its text.
    pub fn wait_notice(&self, group: &str, cid: u32) -> String {
        self.wait_for(group, cid, |v| v.notice.is_some());
        self.view(group, cid).notice.unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.fabric.take().unwrap().wait();
        if !std::thread::panicking() {
            ended.expect("no dispatcher failed");
        }
    }
}

/// Returns bytes that differ at every position and by seed.
pub fn pattern(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

/// Connects `a` to a listener on `b`, both driven from this thread.
pub fn join(
    a: &mut Sockets,
    b: &mut Sockets,
    kind: Type,
    port: u32,
) -> (ConnectionId, ConnectionId) {
    b.listen(kind, port);
    std::thread::scope(|scope| {
        let cid = b.cid();
        let accepted = scope.spawn(move || b.accept(PATIENCE).unwrap());
        let connected = a.connect(kind, cid, port, PATIENCE).unwrap();
        (connected, accepted.join().unwrap())
    })
}

/// Moves `data` over a stream in writes of `write` bytes, and checks the received bytes.
pub fn transfer(
    from: (&mut Sockets, ConnectionId),
    to: (&mut Sockets, ConnectionId),
    data: &[u8],
    write: usize,
) {
    let (a, ca) = from;
    let (b, cb) = to;
    let (mut sent, mut got) = (0, Vec::with_capacity(data.len()));
    let mut room = vec![0; 64 << 10];
    let since = Instant::now();
    while got.len() < data.len() {
        if sent < data.len() {
            let end = (sent + write).min(data.len());
            sent += a.try_send(ca, &data[sent..end]).unwrap();
        } else {
            a.turn().unwrap();
        }
        let taken = b.try_receive(cb, &mut room).unwrap();
        assert_eq!(room[..taken], data[got.len()..got.len() + taken], "at {}", got.len());
        got.extend_from_slice(&room[..taken]);
        assert!(since.elapsed() < PATIENCE, "{} of {} bytes arrived", got.len(), data.len());
    }
}

/// Returns the header of a guest's packet.
pub fn packet(src: (u32, u32), dst: (u32, u32), op: Op, len: u32) -> Header {
    let (src, dst) = ((src.0.into(), src.1), (dst.0.into(), dst.1));
    Header { len, buf_alloc: 1 << 18, ..Header::between(src, dst, Type::Stream.raw(), op) }
}

/// Sends one packet of a hand-driven port.
pub fn send(port: &mut VsockPort, header: &Header, data: &[u8]) {
    assert!(port.queue(header, data).unwrap(), "no room to send");
    port.flush().unwrap();
}

/// Returns the next packet that reaches a hand-driven port.
pub fn receive(port: &mut VsockPort, data: &mut Vec<u8>) -> Header {
    let since = Instant::now();
    loop {
        if let Some(header) = port.receive(data).unwrap() {
            return header;
        }
        assert!(since.elapsed() < PATIENCE, "no packet came");
        port.wait(false, Some(Duration::from_millis(100))).unwrap();
    }
}

/// Returns the operation of the next packet.
pub fn next_op(port: &mut VsockPort) -> Op {
    receive(port, &mut Vec::new()).operation().unwrap()
}

/// Opens a connection between two hand-driven ports.
pub fn open(a: &mut VsockPort, b: &mut VsockPort, from: u32, to: u32) {
    let (ca, cb) = (a.cid() as u32, b.cid() as u32);
    send(a, &packet((ca, from), (cb, to), Op::Request, 0), &[]);
    assert_eq!(next_op(b), Op::Request);
    send(b, &packet((cb, to), (ca, from), Op::Response, 0), &[]);
    assert_eq!(next_op(a), Op::Response);
}

/// Returns whether the error is a reset.
pub fn is_reset<T>(result: Result<T, SocketError>) -> bool {
    matches!(result, Err(SocketError::Reset))
}

/// Two guests with traffic of their own beside a misbehaving guest.
pub struct Bystanders {
    a: causeway_attach::native::Sockets,
    b: causeway_attach::native::Sockets,
    ids: (causeway_attach::native::ConnectionId, causeway_attach::native::ConnectionId),
}

impl Bystanders {
    pub fn new(rig: &Rig) -> Self {
        let (mut a, mut b) = (rig.sockets("red", 14), rig.sockets("red", 15));
        let ids = join(&mut a, &mut b, Type::Stream, 1);
        Self { a, b, ids }
    }

    pub fn go_on(&mut self) {
        transfer((&mut self.a, self.ids.0), (&mut self.b, self.ids.1), &pattern(8, 100_000), 7000);
    }
}
