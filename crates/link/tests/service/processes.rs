//! Host processes that reach guests of another host through a port for processes.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use crate::hosts::{Host, PATIENCE, name, wait, wait_state, wait_up};
use crate::sockets::{link, pattern, sockets, wait_reachable};
use causeway_attach::native::{ConnectionId, SocketError, Sockets};
use causeway_model::commands::{links, trace};
use causeway_model::{
    Answer, Command, LinkState, PortKind, PortSpec, SocketKind, TraceView, VsockSpec,
};
use causeway_model::{RuleAction, RuleSpec};
use causeway_wire::vsock::Type;

/// Adds a port for processes, with CID 5.
pub fn add_port(host: &Host) {
    host.call(Command::PortAdd(PortSpec {
        name: name("apps"),
        group: name("red"),
        socket: host.path("apps"),
        access: Default::default(),
        memory_max: None,
        kind: PortKind::of(VsockSpec {
            cid: 5,
            guest_cid: None,
            host_socket: Some(host.path("apps.host")),
            processes: true,
        }),
    }));
}

/// Connects to the port for processes as a process does.
pub fn connect(host: &Host, line: &str) -> UnixStream {
    let mut stream = UnixStream::connect(host.path("apps.host")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(line.as_bytes()).unwrap();
    stream
}

/// Two linked hosts: processes of the first have CID 5, the second has a guest with CID 4.
struct Rig {
    guest: Sockets,
    hosts: [Host; 2],
}

impl Rig {
    fn new(port: u16) -> Self {
        let hosts = [Host::with_sockets(), Host::with_sockets()];
        let [left, right] = &hosts;
        add_port(left);
        let guest = sockets(right, 4);
        link(left, 45, 46, port);
        link(right, 46, 45, port);
        wait_up(left, "peer");
        wait_up(right, "peer");
        wait_reachable(left, "apps", 4);
        Self { guest, hosts }
    }

    /// Connects as a process does.
    fn connect(&self, line: &str) -> UnixStream {
        connect(&self.hosts[0], line)
    }

    /// Connects to a listener of the guest.
    fn join(&mut self, number: u32) -> (UnixStream, ConnectionId) {
        self.guest.listen(Type::Stream, number);
        let mut stream = self.connect(&format!("CONNECT 4:{number}\n"));
        let id = self.guest.accept(PATIENCE).unwrap();
        let line = read_line(&mut stream);
        assert!(line.starts_with("OK "), "{line}");
        (stream, id)
    }

    /// As [`Self::join`], after a new session began: the guest's host refuses the port's CID until
    /// the session has told it.
    fn join_again(&mut self, number: u32) -> (UnixStream, ConnectionId) {
        self.guest.listen(Type::Stream, number);
        let since = std::time::Instant::now();
        loop {
            let mut stream = self.connect(&format!("CONNECT 4:{number}\n"));
            if let Ok(id) = self.guest.accept(std::time::Duration::from_secs(2)) {
                let line = read_line(&mut stream);
                assert!(line.starts_with("OK "), "{line}");
                return (stream, id);
            }
            assert!(since.elapsed() < PATIENCE, "no connection in the new session");
        }
    }

    /// Serves the guest until a process has read the answer to its line.
    fn refusal(&mut self, line: &str) -> String {
        let mut stream = self.connect(line);
        let answer = std::thread::spawn(move || read_line(&mut stream));
        let guest = &mut self.guest;
        let done = || {
            guest.turn().unwrap();
            answer.is_finished()
        };
        wait(done, || format!("{line}: no answer"));
        answer.join().unwrap()
    }

    fn trace(&self, host: usize, from: Option<&str>, cid: u32, kind: SocketKind) -> TraceView {
        let group = from.is_none().then(|| name("red"));
        let from = from.map(name);
        let socket_type = Some(kind);
        let query = trace::Connect { from, group, cid, port: 7, socket_type };
        match self.hosts[host].call(Command::Trace(causeway_model::TraceQuery::new(&query))) {
            Answer::Trace(view) => view,
            other => panic!("{other:?}"),
        }
    }
}

/// Reads a line.
pub fn read_line(stream: &mut UnixStream) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

/// Receives `data` at the guest, and checks the bytes.
fn receive(guest: &mut Sockets, id: ConnectionId, data: &[u8]) {
    let (mut got, mut room) = (0, vec![0; 64 << 10]);
    let since = std::time::Instant::now();
    while got < data.len() {
        let taken = guest.try_receive(id, &mut room).unwrap();
        assert_eq!(room[..taken], data[got..got + taken], "at {got}");
        got += taken;
        assert!(since.elapsed() < PATIENCE, "{got} of {} bytes arrived", data.len());
        if taken == 0 {
            drop(guest.wait(std::time::Duration::from_millis(20)));
        }
    }
}

#[test]
fn vsock_processes_reach_a_guest_of_another_host() {
    let mut rig = Rig::new(21621);
    let (mut stream, id) = rig.join(5000);
    let page = rig.hosts[0].ask(causeway_model::commands::connections::List::default());
    let shown: Vec<_> = page.connections.iter().map(|c| (&c.caller, &c.callee)).collect();
    let [(caller, callee)] = shown[..] else { panic!("{shown:?}") };
    assert_eq!((caller.port.clone(), caller.cid), (Some(name("apps")), 5));
    assert_eq!((callee.link.clone(), callee.cid, callee.number), (Some(name("peer")), 4, 5000));
    let data = pattern(3, 1 << 20);
    let mut writing = stream.try_clone().unwrap();
    let copy = data.clone();
    let writer = std::thread::spawn(move || {
        writing.write_all(&copy).unwrap();
        writing.shutdown(Shutdown::Write).unwrap();
    });
    receive(&mut rig.guest, id, &data);
    writer.join().unwrap();
    let ended = rig.guest.receive(id, &mut [0; 1], PATIENCE);
    assert!(matches!(ended, Err(SocketError::Closed)), "{ended:?}");
    // The other direction goes on after the half-close.
    let reader = std::thread::spawn(move || {
        let mut back = Vec::new();
        stream.read_to_end(&mut back).map(|_| back)
    });
    rig.guest.send(id, &data, PATIENCE).unwrap();
    rig.guest.close(id).unwrap();
    assert!(reader.join().unwrap().unwrap() == data, "other bytes came back");
    let count = |host: usize| {
        let list = causeway_model::commands::connections::List::default();
        rig.hosts[host].ask(list).connections.len()
    };
    wait(|| count(0) == 0 && count(1) == 0, || "a connection is left".into());
}

#[test]
fn vsock_process_that_does_not_read_stops_its_guest_alone() {
    let mut rig = Rig::new(21622);
    let (mut stuck, unread) = rig.join(1);
    let (mut stream, id) = rig.join(2);
    let data = pattern(4, 4 << 20);
    let (mut sent, mut since) = (0, std::time::Instant::now());
    while since.elapsed() < std::time::Duration::from_millis(300) {
        let taken = rig.guest.try_send(unread, &data[sent..]).unwrap();
        if taken > 0 {
            (sent, since) = (sent + taken, std::time::Instant::now());
        }
    }
    assert!(sent < 2 << 20, "{sent} bytes were sent to a process that does not read");
    stream.write_all(&data[..1000]).unwrap();
    receive(&mut rig.guest, id, &data[..1000]);
    rig.guest.send(id, &data[..1000], PATIENCE).unwrap();
    let mut back = vec![0; 1000];
    stream.read_exact(&mut back).unwrap();
    assert!(back == data[..1000]);
    // Nothing was lost.
    let mut back = vec![0; sent];
    let reader = std::thread::spawn(move || stuck.read_exact(&mut back).map(|()| back));
    let guest = &mut rig.guest;
    let done = || {
        guest.turn().unwrap();
        reader.is_finished()
    };
    wait(done, || "the process does not read all".into());
    assert!(reader.join().unwrap().unwrap() == data[..sent]);
}

#[test]
fn vsock_connects_of_processes_are_refused_with_their_reason() {
    let mut rig = Rig::new(21623);
    let refused = |answer: String, reason: &str| {
        assert!(answer.starts_with("ERR ") && answer.contains(reason), "{answer:?}");
    };
    refused(rig.refusal("CONNECT 7\n"), "expected a line CONNECT <CID>:<port>");
    refused(rig.refusal("CONNECT 99:7\n"), "no guest with CID 99 runs");
    refused(rig.refusal("CONNECT 5:7\n"), "no guest with CID 5 runs");
    refused(rig.refusal("CONNECT 2:7\n"), "no guest with CID 2 runs");
    refused(rig.refusal("CONNECT 4:7\n"), "no program listens at port 7");
    rig.guest.listen(Type::Stream, 7);
    let rule = |from: &str| RuleSpec {
        action: RuleAction::Reject,
        from: from.parse().unwrap(),
        to: "red/4:7".parse().unwrap(),
    };
    // The rules of both hosts know the processes by the CID of their port.
    rig.hosts[1].call(Command::RuleAdd { index: None, rule: rule("red/5:*") });
    refused(rig.refusal("CONNECT 4:7\n"), "a rule of its host");
    rig.hosts[0].call(Command::RuleAdd { index: None, rule: rule("red/5:*") });
    refused(rig.refusal("CONNECT 4:7\n"), "a rule rejects the connection");
    let view = rig.trace(0, Some("apps"), 4, SocketKind::Stream);
    assert_eq!(view.verdict, "reject", "{:?}", view.steps);
    rig.join(8);
}

#[test]
fn vsock_traces_tell_which_guests_processes_reach() {
    let rig = Rig::new(21624);
    let last = |view: TraceView| (view.verdict.clone(), view.steps.join("; "));
    let (verdict, steps) = last(rig.trace(0, Some("apps"), 4, SocketKind::Stream));
    assert!(verdict == "accept" && steps.contains("at the peer of link peer"), "{steps}");
    let (verdict, steps) = last(rig.trace(0, Some("apps"), 4, SocketKind::Seqpacket));
    assert!(verdict == "reject" && steps.contains("guests of this host only"), "{steps}");
    let (verdict, steps) = last(rig.trace(0, Some("apps"), 2, SocketKind::Stream));
    assert!(verdict == "reject" && steps.contains("CID 2 is the host"), "{steps}");
    let (verdict, steps) = last(rig.trace(0, None, 4, SocketKind::Stream));
    assert!(verdict == "reject" && steps.contains("a port with the key processes"), "{steps}");
}

#[test]
fn vsock_data_of_an_ended_connection_is_read_beside_a_connection_of_a_later_session() {
    let mut rig = Rig::new(21626);
    let (mut slow, id) = rig.join(1);
    // More than the buffer of the process's socket takes: the daemon keeps the rest.
    let (mut sent, data) = (0, pattern(1, 64 << 10));
    wait(
        || {
            sent += rig.guest.try_send(id, &data).unwrap();
            drop(rig.guest.wait(std::time::Duration::from_millis(1)));
            sent >= 320 << 10
        },
        || "the guest does not send".into(),
    );
    // A shutdown, and the reset by which a guest answers when its program has gone.
    rig.guest.close(id).unwrap();
    rig.guest.close(id).unwrap();
    rig.guest.turn().unwrap();
    let list = || rig.hosts[1].ask(causeway_model::commands::connections::List::default());
    wait(|| list().connections.is_empty(), || format!("{:?}", list()));
    // The numbers of channels begin anew with the session.
    rig.hosts[1].ask(links::Delete(name("peer")));
    wait_state(&rig.hosts[0], "peer", LinkState::Down);
    link(&rig.hosts[1], 46, 45, 21626);
    wait_reachable(&rig.hosts[0], "apps", 4);
    let (mut stream, id) = rig.join_again(2);
    let mut rest = Vec::new();
    match slow.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the first connection does not end: {error}"),
    }
    assert!(!rest.is_empty() && rest.len() <= sent, "{} of {sent} bytes", rest.len());
    drop(slow);
    for _ in 0..10 {
        stream.write_all(b"ping").unwrap();
        receive(&mut rig.guest, id, b"ping");
    }
}

/// Waits until the stream ends.
fn ends(stream: &mut UnixStream) {
    match stream.read(&mut [0; 1]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("the stream does not end: {other:?}"),
    }
}

#[test]
fn vsock_connections_of_processes_end_with_their_port_and_the_link() {
    let mut rig = Rig::new(21625);
    let (mut stream, _) = rig.join(1);
    rig.hosts[1].ask(links::Delete(name("peer")));
    ends(&mut stream);
    link(&rig.hosts[1], 46, 45, 21625);
    wait_reachable(&rig.hosts[0], "apps", 4);
    let (mut stream, id) = rig.join(2);
    rig.hosts[0].call(Command::PortDel(name("apps")));
    let ended = rig.guest.receive(id, &mut [0; 1], PATIENCE);
    assert!(matches!(ended, Err(SocketError::Reset)), "{ended:?}");
    ends(&mut stream);
}
