//! A port whose attachment is not a vhost-user device: each event reaches the service.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use causeway_attach::{
    Attachment, AttachmentError, Connection, DoorbellSource, Event, FaultKind, Model,
};
use causeway_fabric::{Context, PollConfig, PortId, Progress, Service, Shard};
use causeway_host::fd::receive::UntrustedSocket;
use causeway_memory::{Grant, Grants, Map, Mapping, Rights};
use causeway_model::Name;
use causeway_model::{CommandError, PortState, PortView};
use causeway_model::{PortKind, PortSpec, VsockSpec};

const PAGE: u64 = 4096;

/// An attachment whose messages are single bytes: each stands for an event or an error.
#[derive(Debug)]
struct Bytes {
    stream: UntrustedSocket,
    memory: Arc<Mapping>,
    grants: Grants,
    map: Map,
    runs: bool,
    cost: u64,
}

impl Bytes {
    fn new(stream: UntrustedSocket) -> Self {
        let file = causeway_memory::create("attachment", PAGE).unwrap();
        let memory = Arc::new(Mapping::new(file.as_fd(), 0, PAGE).unwrap());
        Self { stream, memory, grants: Grants::new(), map: Map::default(), runs: false, cost: 0 }
    }

    fn grant(&mut self) {
        let guest = self.grants.len() as u64 * PAGE;
        let grant = Grant { guest, len: PAGE, offset: 0, rights: Rights::READ_WRITE };
        self.grants.grant_in(grant, &self.memory).unwrap();
        self.map = self.grants.epoch();
    }

    fn event(&mut self, byte: u8) -> Result<Event, AttachmentError> {
        let failed = |kind| Err(AttachmentError::new(kind, format!("byte {}", char::from(byte))));
        match byte {
            b'm' => {
                self.grant();
                Ok(Event::MemoryChanged)
            }
            b's' | b'p' => {
                self.runs = byte == b's';
                Ok(if self.runs { Event::QueueStarted(0) } else { Event::QueueStopped(0) })
            }
            b'd' => Ok(Event::Doorbell(0)),
            b'D' => Ok(Event::Doorbell(77)),
            b'x' => Ok(Event::Message),
            b'r' => Ok(Event::Reset),
            b'g' => failed(FaultKind::Guest),
            b'b' => failed(FaultKind::Guest).map_err(|error| error.with_bar(true)),
            b'h' => failed(FaultKind::Host),
            b'n' => failed(FaultKind::Connection),
            _ => Ok(Event::Closed),
        }
    }
}

impl Attachment for Bytes {
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), AttachmentError> {
        let mut byte = [0];
        match rustix::io::read(&self.stream, &mut byte) {
            Ok(0) => events.push(Event::Closed),
            Ok(_) => {
                self.cost += 1;
                events.push(self.event(byte[0])?);
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn cost(&self) -> u64 {
        self.cost
    }

    fn map(&self) -> Option<&Map> {
        Some(&self.map)
    }

    fn is_running(&self, queue: usize) -> bool {
        self.runs && queue == 0
    }

    fn doorbell(&self, _: usize) -> DoorbellSource<'_> {
        DoorbellSource::Event
    }
}

impl AsFd for Bytes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Records the calls of the dispatcher.
#[derive(Debug, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn log(&self, call: impl Into<String>) {
        self.0.lock().unwrap().push(call.into());
    }
}

impl Service for Recorder {
    fn model(&self, _: &PortSpec) -> Model {
        Model::new(1, 0, Vec::new())
    }

    fn connect(&self, _: &PortSpec, stream: UntrustedSocket) -> std::io::Result<Connection> {
        let attachment: Box<dyn Attachment> = Box::new(Bytes::new(stream));
        Ok(attachment.into())
    }

    fn added(&mut self, _: &mut Context<'_>, _: PortId) -> Result<(), CommandError> {
        Ok(())
    }

    fn removed(&mut self, _: &mut Context<'_>, _: PortId) {}

    fn started(&mut self, _: &mut Context<'_>, _: PortId, queue: usize) {
        self.log(format!("started {queue}"));
    }

    fn paused(&mut self, _: &mut Context<'_>, _: PortId, queue: usize) {
        self.log(format!("paused {queue}"));
    }

    fn stopped(&mut self, _: &mut Context<'_>, _: PortId) {
        self.log("stopped");
    }

    fn memory_changed(&mut self, cx: &mut Context<'_>, port: PortId) {
        let bytes = cx.ports.get(port).and_then(|port| port.map()).map_or(0, Map::bytes);
        self.log(format!("memory {bytes}"));
    }

    fn doorbell(&mut self, cx: &mut Context<'_>, port: PortId, doorbell: usize) {
        self.log(format!("doorbell {doorbell}"));
        cx.wake(port, doorbell);
    }

    fn serve(&mut self, _: &mut Context<'_>, _: PortId, queue: usize, _: usize) -> Progress {
        self.log(format!("served {queue}"));
        Progress::Parked
    }

    fn counters(&self, _: PortId) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// A shard with one port, and the frontend's side of its connection.
struct Bench {
    shard: Shard,
    calls: Arc<Mutex<Vec<String>>>,
    stream: UnixStream,
    now_ns: u64,
}

fn name() -> Name {
    "port".parse().unwrap()
}

impl Bench {
    fn new() -> Self {
        let (service, group): (_, Name) = (Recorder::default(), "group".parse().unwrap());
        let calls = Arc::clone(&service.0);
        let poll_config = PollConfig::default();
        let mut shard = Shard::new(group.clone(), Box::new(service), poll_config).unwrap();
        let spec = PortSpec {
            name: name(),
            group,
            socket: "unused".into(),
            memory_max: None,
            access: Default::default(),
            kind: PortKind::of(VsockSpec {
                cid: 3,
                guest_cid: None,
                host_socket: None,
                processes: false,
            }),
        };
        shard.port_add(spec, false).unwrap();
        let (stream, _) = UnixStream::pair().unwrap();
        let mut bench = Self { shard, calls, stream, now_ns: 1_000_000_000 };
        bench.connect().unwrap();
        bench
    }

    fn connect(&mut self) -> Result<(), CommandError> {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        self.stream = near;
        self.shard.connect(&name(), UntrustedSocket::from(OwnedFd::from(far)))
    }

    /// Sends bytes, and returns the calls that follow.
    fn send(&mut self, bytes: &[u8]) -> Vec<String> {
        self.stream.write_all(bytes).unwrap();
        self.step();
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn step(&mut self) {
        self.now_ns += 1_000_000;
        self.shard.step(self.now_ns, 50).unwrap();
    }

    fn view(&self) -> PortView {
        self.shard.port_view(&name()).unwrap()
    }
}

#[test]
fn attachment_events_reach_the_service() {
    let mut bench = Bench::new();
    assert_eq!(bench.view().state, PortState::Connected);
    assert_eq!(bench.send(b"m"), ["memory 4096"]);
    assert_eq!(bench.view().memory_bytes, PAGE);
    assert_eq!(bench.send(b"d"), ["doorbell 0"], "the queue does not run yet");
    assert_eq!(bench.send(b"s"), ["started 0", "served 0"]);
    assert_eq!(bench.view().state, PortState::Running);
    assert_eq!(bench.send(b"d"), ["doorbell 0", "served 0"]);
    assert_eq!(bench.send(b"D"), ["doorbell 77"]);
    assert_eq!(bench.send(b"m"), ["memory 8192", "served 0"]);
    assert_eq!(bench.send(b"x"), [""; 0]);
    assert_eq!(bench.send(b"p"), ["paused 0"]);
    assert_eq!(bench.view().state, PortState::Connected);
    assert_eq!(bench.send(b"r"), ["stopped"]);
    assert_eq!(bench.send(b"c"), ["stopped"]);
    assert_eq!(bench.view().state, PortState::Listening);
    bench.connect().unwrap();
    assert_eq!(bench.view().state, PortState::Connected);
}

#[test]
fn attachment_errors_close_the_port_by_their_kind() {
    let mut bench = Bench::new();
    for (byte, state, faults, host_faults) in [
        (b"n", PortState::Listening, 0, 0),
        (b"h", PortState::Listening, 0, 1),
        (b"g", PortState::Faulted, 1, 1),
        (b"b", PortState::Faulted, 2, 1),
    ] {
        assert_eq!(bench.send(b"s"), ["started 0", "served 0"]);
        assert_eq!(bench.send(byte), ["stopped"]);
        let view = bench.view();
        assert_eq!((view.state, view.faults_total), (state, faults));
        assert_eq!(view.host_faults_total, host_faults);
        assert_eq!(bench.connect().is_ok(), byte != b"b", "a front end that bars is refused");
    }
    assert_eq!(bench.view().fault.as_deref(), Some("byte b"));
}
