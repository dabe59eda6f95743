//! `causeway forward --all` and the verbs of forwards, with guests of the real socket service.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{ControlSocket, serve};
use causeway_attach::native::{Sockets, VsockOptions, VsockPort};
use causeway_daemon::services::SERVICES;
use causeway_fabric::{Fabric, Options};
use causeway_wire::vsock::Type;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon with a group, and the tool.
struct Host {
    fabric: Fabric,
    control: ControlSocket,
}

/// A forwarder that is killed when the test ends early.
struct Forwarder(Child);

impl Drop for Forwarder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Host {
    fn new() -> Self {
        let fabric = Fabric::start(SERVICES, Options::default()).unwrap();
        let control = serve(Arc::new(fabric.handle()));
        let host = Self { fabric, control };
        host.ok("group add blue");
        host
    }

    fn causeway(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
        command.env("CAUSEWAY_CONTROL", &self.control.socket).args(words.split_whitespace());
        command
    }

    #[track_caller]
    fn ok(&self, words: &str) -> String {
        let output = self.causeway(words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn path(&self, name: &str) -> String {
        self.control.socket.with_file_name(name).display().to_string()
    }

    fn add_port(&self, name: &str, cid: u32) {
        let socket = self.path(&format!("{name}.vsock"));
        let add = format!("port add {name} --kind vsock --group blue --cid {cid}");
        self.ok(&format!("{add} --host-socket {socket}"));
    }

    /// Attaches a guest that listens at port 22.
    fn guest(&self, name: &str) -> Sockets {
        let socket = self.path(&format!("{name}.sock"));
        let port = VsockPort::attach(Path::new(&socket), VsockOptions::default()).unwrap();
        let mut guest = Sockets::new(port);
        guest.listen(Type::Stream, 22);
        guest
    }

    fn forwarder(&self) -> Forwarder {
        Forwarder(self.causeway("forward --all").stderr(Stdio::null()).spawn().unwrap())
    }

    fn forward(&self, name: &str) -> Value {
        let list: Value = serde_json::from_str(&self.ok("forward list -j")).unwrap();
        let list = list.as_array().unwrap();
        list.iter().find(|forward| forward["name"] == name).unwrap().clone()
    }

    /// Waits for the state of a forward; returns its reason.
    #[track_caller]
    fn await_state(&self, name: &str, state: &str) -> String {
        let since = Instant::now();
        loop {
            let forward = self.forward(name);
            if forward["state"] == state {
                return forward["reason"].as_str().unwrap().to_owned();
            }
            assert!(since.elapsed() < PATIENCE, "{name} is not {state}: {forward}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Returns the processes of a forwarder's forwards.
fn workers(forwarder: &Forwarder) -> Vec<Pid> {
    let pid = forwarder.0.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Passes a byte from a client to the guest and back.
fn echo_once(guest: &mut Sockets, client: &mut TcpStream) {
    client.write_all(b"x").unwrap();
    let connection = guest.accept(PATIENCE).unwrap();
    let (mut byte, since) = ([0], Instant::now());
    while guest.try_receive(connection, &mut byte).unwrap() == 0 {
        assert!(since.elapsed() < PATIENCE, "the client's byte does not arrive");
        guest.wait(Duration::from_millis(50)).unwrap();
    }
    guest.send(connection, &byte, PATIENCE).unwrap();
    client.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
}

#[test]
fn forwarder_runs_the_forwards_of_the_daemon_and_follows_changes() {
    let host = Host::new();
    host.add_port("vm1", 3);
    let mut guest = host.guest("vm1");
    let ports = [free_port(), free_port()];
    let add = |name: &str, port: u16| {
        host.ok(&format!("forward add {name} --from tcp:127.0.0.1:{port} --to vsock:vm1:22"))
    };
    assert!(add("a", ports[0]).contains("no forwarder runs: start `causeway forward --all`"));
    let mut forwarder = host.forwarder();
    host.await_state("a", "listening");
    assert!(add("b", ports[1]).contains("it listens at tcp:127.0.0.1"));
    // One after the other: the guest accepts connections in the order of their arrival.
    let mut first = connect(ports[0]);
    echo_once(&mut guest, &mut first);
    let mut second = connect(ports[1]);
    echo_once(&mut guest, &mut second);
    for pid in workers(&forwarder) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
        assert!(status.unwrap().contains("NoNewPrivs:\t1"), "each process restricts itself");
    }

    // A deletion resets the forward's connections, and no others.
    host.ok("forward del a");
    let error = first.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(TcpStream::connect(("127.0.0.1", ports[0])).is_err(), "the source is closed");
    second.write_all(b"still").unwrap();
    let mut counters = Value::Null;
    let since = Instant::now();
    while counters["target_bytes_total"] != 6 {
        assert!(since.elapsed() < PATIENCE, "{counters}");
        guest.wait(Duration::from_millis(50)).unwrap();
        counters = host.forward("b")["counters"].take();
    }
    assert_eq!(
        (&counters["connections_total"], &counters["open_connections"]),
        (&1.into(), &1.into())
    );
    assert_eq!(
        (&counters["client_bytes_total"], &counters["starts_total"]),
        (&1.into(), &1.into())
    );

    // The end of the forwarder ends all, and is shown at once.
    let left = workers(&forwarder);
    kill_process(Pid::from_child(&forwarder.0), Signal::TERM).unwrap();
    assert!(forwarder.0.wait().unwrap().success());
    assert!(left.iter().all(|pid| test_kill_process(*pid).is_err()), "no process is left");
    assert_eq!(host.forward("b")["state"], "no-forwarder");
    drop(host.fabric);
}

#[test]
fn forwarder_reports_sources_and_targets_that_fail_until_they_work() {
    let host = Host::new();
    let forwarder = host.forwarder();
    let (port, taken, target) = (free_port(), free_port(), host.path("target.sock"));
    let from = format!("--from tcp:127.0.0.1:{port}");

    // A target that is down, and comes.
    host.ok(&format!("forward add down {from} --to unix:{target}"));
    host.await_state("down", "listening");
    assert_eq!(connect(port).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let reason = host.await_state("down", "target-down");
    assert!(reason.contains("cannot connect") && reason.contains("No such file"), "{reason}");
    let listener = UnixListener::bind(&target).unwrap();
    let client = connect(port);
    drop(listener.accept().unwrap());
    drop(client);
    assert_eq!(host.await_state("down", "listening"), "");

    // A port that does not exist, a guest that is not up, and one that listens.
    host.ok("forward del down");
    let text = host.ok(&format!("forward add later {from} --to vsock:vm1:22"));
    assert!(text.contains("does not work yet: port vm1 does not exist"), "{text}");
    host.add_port("vm1", 3);
    host.await_state("later", "listening");
    assert_eq!(connect(port).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(host.await_state("later", "refused").contains("the guest is not up"));
    let mut guest = host.guest("vm1");
    echo_once(&mut guest, &mut connect(port));
    host.await_state("later", "listening");

    // The name of a VM; its port has another.
    host.add_port("vm2-vsock", 4);
    let vm_port = free_port();
    host.ok(&format!("forward add vm --from tcp:127.0.0.1:{vm_port} --to vsock:vm2:22"));
    host.await_state("vm", "listening");
    echo_once(&mut host.guest("vm2-vsock"), &mut connect(vm_port));

    // A source in use: by another forward, and by another process until it ends.
    let same = host.causeway(&format!("forward add same {from} --to vsock:vm1:22")).output();
    let error = String::from_utf8(same.unwrap().stderr).unwrap();
    assert!(error.contains("is the source of forward later already"), "{error}");
    let listener = TcpListener::bind(("127.0.0.1", taken)).unwrap();
    let add = format!("forward add taken --from tcp:127.0.0.1:{taken} --to vsock:vm1:22");
    let text = host.ok(&add);
    assert!(text.contains("Address already in use"), "{text}");
    assert!(host.ok(&format!("{add} --may-exist")).contains("exists already"));
    drop(listener);
    host.await_state("taken", "listening");

    // A process that is killed is started again.
    for pid in workers(&forwarder) {
        kill_process(pid, Signal::KILL).unwrap();
    }
    host.await_state("later", "failed");
    host.await_state("later", "listening");
    assert!(host.forward("later")["counters"]["starts_total"].as_u64() >= Some(2));
    assert!(host.ok("forward list").contains("vsock:vm1:22"));
}

#[test]
fn forwarder_is_single_and_its_forwards_end_with_it() {
    let host = Host::new();
    host.add_port("vm1", 3);
    let port = free_port();
    host.ok(&format!("forward add a --from tcp:127.0.0.1:{port} --to vsock:vm1:22"));
    let mut first = host.forwarder();
    host.await_state("a", "listening");
    let second = host.causeway("forward --all").output().unwrap();
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1), "{error}");
    assert!(error.contains("forwards already: stop it first"), "{error}");
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    let since = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        assert!(since.elapsed() < PATIENCE, "the forward outlives the forwarder");
        std::thread::sleep(Duration::from_millis(20));
    }
    host.await_state("a", "no-forwarder");
    let _next = host.forwarder();
    host.await_state("a", "listening");
}

#[test]
fn forwarder_continues_while_the_daemon_is_away() {
    let (first, target) = (Host::new(), Host::new());
    // The forwarder finds each daemon at the same path.
    let control = first.control.dir.file("link.sock");
    std::os::unix::fs::symlink(&first.control.socket, &control).unwrap();
    let (port, path) = (free_port(), target.path("target.sock"));
    let listener = UnixListener::bind(&path).unwrap();
    let add = format!("forward add a --from tcp:127.0.0.1:{port} --to unix:{path}");
    first.ok(&add);
    let mut command = first.causeway("forward --all");
    command.env("CAUSEWAY_CONTROL", &control).stderr(Stdio::piped());
    let mut forwarder = Forwarder(command.spawn().unwrap());
    let mut log = BufReader::new(forwarder.0.stderr.take().unwrap()).lines();
    let mut await_line = |words: &str| {
        let is_it = |line: &std::io::Result<String>| line.as_ref().unwrap().contains(words);
        assert!(log.by_ref().any(|line| is_it(&line)), "{words}");
    };
    first.await_state("a", "listening");
    let mut client = connect(port);
    let (mut end, _) = listener.accept().unwrap();
    std::fs::remove_file(&control).unwrap();
    await_line("1 forwards continue");
    let echo = |client: &mut TcpStream, end: &mut UnixStream| {
        client.write_all(b"x").unwrap();
        let mut byte = [0];
        end.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    };
    echo(&mut client, &mut end);
    let mut later = connect(port);
    let (mut later_end, _) = listener.accept().unwrap();
    echo(&mut later, &mut later_end);
    // The next daemon has the same forward, as a restart has: nothing is started anew.
    target.ok(&add);
    std::os::unix::fs::symlink(&target.control.socket, &control).unwrap();
    await_line("causewayd answers again");
    target.await_state("a", "listening");
    echo(&mut client, &mut end);
    let counters = target.forward("a")["counters"].take();
    assert_eq!((&counters["starts_total"], &counters["connections_total"]), (&1.into(), &2.into()));
}
