//! `causeway forward` as a process, between sockets and a guest of the real socket service.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{ControlSocket, serve};
use causeway_attach::native::{ConnectionId, SocketError, Sockets, VsockOptions, VsockPort};
use causeway_daemon::services::SERVICES;
use causeway_fabric::{Fabric, Options};
use causeway_wire::vsock::Type;

const PATIENCE: Duration = Duration::from_secs(60);
/// CID of the host, virtio 1.3 section 5.10.4.
const CID_HOST: u64 = 2;

/// The tool with a command line.
fn causeway(control: &ControlSocket, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
    command.env("CAUSEWAY_CONTROL", &control.socket).args(words.split_whitespace());
    command
}

fn run(control: &ControlSocket, words: &str) {
    let output = causeway(control, words).output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A process that is killed when the test ends early.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_there() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Receives to the end of the peer's data.
fn receive_all(guest: &mut Sockets, connection: ConnectionId) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 65_536]);
    loop {
        match guest.try_receive(connection, &mut buffer) {
            Ok(0) => _ = guest.wait(PATIENCE).unwrap(),
            Ok(count) => all.extend_from_slice(&buffer[..count]),
            Err(SocketError::Closed) => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn forward_connects_guests_and_processes_in_its_sandbox() {
    let fabric = Fabric::start(SERVICES, Options::default()).unwrap();
    let control = serve(Arc::new(fabric.handle()));
    let dir = control.socket.parent().unwrap().to_owned();
    let [host_socket, target] = ["vm1.vsock", "log.sock"].map(|name| dir.join(name));
    run(&control, "group add blue");
    let host = host_socket.display();
    run(&control, &format!("port add vm1 --kind vsock --group blue --cid 3 --host-socket {host}"));
    let socket = control.socket.with_file_name("vm1.sock");
    let mut guest =
        Sockets::new(VsockPort::attach(Path::new(&socket), VsockOptions::default()).unwrap());
    guest.listen(Type::Stream, 22);
    let log = UnixListener::bind(&target).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let words = format!(
        "forward --from tcp:127.0.0.1:{port} --to vsock:vm1:22 --from vsock:vm1:5000 --to unix:{} -j",
        target.display()
    );
    let child = causeway(&control, &words).stdout(Stdio::piped()).spawn().unwrap();
    let mut process = Process(child);
    wait_for("the forwarder listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    // The probe's connection ends at once.
    let probe = guest.accept(PATIENCE).unwrap();
    assert_eq!(receive_all(&mut guest, probe), b"");
    guest.close(probe).unwrap();

    // A client at TCP reaches the guest, and its end of data too.
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let sent: Vec<u8> = (0..500_000_u32).map(|n| (n % 253) as u8).collect();
    let bytes = sent.clone();
    let client = std::thread::spawn(move || {
        client.write_all(&bytes).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    });
    let connection = guest.accept(PATIENCE).unwrap();
    assert!(receive_all(&mut guest, connection) == sent, "the client's bytes arrive");
    guest.send(connection, b"all received", PATIENCE).unwrap();
    guest.close(connection).unwrap();
    let joined = std::thread::spawn(move || client.join().unwrap());
    while !joined.is_finished() {
        guest.wait(Duration::from_millis(10)).unwrap();
    }
    assert_eq!(joined.join().unwrap(), "all received");

    // The guest reaches a process at a Unix socket.
    let connection = guest.connect(Type::Stream, CID_HOST, 5000, PATIENCE).unwrap();
    guest.send(connection, b"log line\n", PATIENCE).unwrap();
    guest.shutdown_send(connection).unwrap();
    let (mut stream, _) = log.accept().unwrap();
    let mut line = String::new();
    stream.read_to_string(&mut line).unwrap();
    assert_eq!(line, "log line\n");
    drop(stream);

    let pid = rustix::process::Pid::from_raw(process.0.id() as i32).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut totals = String::new();
    process.0.stdout.take().unwrap().read_to_string(&mut totals).unwrap();
    assert!(process.0.wait().unwrap().success());
    let first: serde_json::Value = serde_json::from_str(totals.lines().next().unwrap()).unwrap();
    assert_eq!((&first["accepted_total"], &first["refused_total"]), (&2.into(), &0.into()));
    assert_eq!(first["to_target_bytes_total"], 500_000);
    assert!(!dir.join("vm1.vsock_5000").exists(), "the forwarder removed its socket");
}

#[test]
fn forward_over_standard_input_reaches_a_guest() {
    let fabric = Fabric::start(SERVICES, Options::default()).unwrap();
    let control = serve(Arc::new(fabric.handle()));
    let host_socket = control.socket.with_file_name("vm1.vsock");
    run(&control, "group add blue");
    let host = host_socket.display();
    run(
        &control,
        &format!("port add vm1-vsock --kind vsock --group blue --cid 3 --host-socket {host}"),
    );
    let refused = causeway(&control, "forward --stdio vsock:vm1:22").output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("the guest is not up"), "{text}");
    let socket = control.socket.with_file_name("vm1-vsock.sock");
    let mut guest = Sockets::new(VsockPort::attach(&socket, VsockOptions::default()).unwrap());
    guest.listen(Type::Stream, 22);
    let host = control.socket.with_file_name("apps.vsock");
    let host = host.display();
    let apps = "port add apps --kind vsock --group blue --cid 9 --processes --host-socket";
    run(&control, &format!("{apps} {host}"));
    // By the name of the VM, and by its CID through a port for processes.
    for target in ["vsock:vm1:22", "vsock:3@apps:22"] {
        converse(&control, &mut guest, target);
    }
    let refused = causeway(&control, "forward --stdio vsock:7@apps:22").output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("no guest with CID 7 runs in the group"), "{text}");
}

/// Moves a line in each direction between `forward --stdio` and a listener of the guest.
fn converse(control: &ControlSocket, guest: &mut Sockets, target: &str) {
    let mut command = causeway(control, &format!("forward --stdio {target}"));
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut process = Process(child);
    let connection = guest.accept(PATIENCE).unwrap();
    guest.send(connection, b"SSH-2.0-guest\r\n", PATIENCE).unwrap();
    let mut stdin = process.0.stdin.take().unwrap();
    stdin.write_all(b"SSH-2.0-client\r\n").unwrap();
    drop(stdin);
    assert_eq!(receive_all(guest, connection), b"SSH-2.0-client\r\n");
    guest.close(connection).unwrap();
    let mut out = String::new();
    let mut stdout = process.0.stdout.take().unwrap();
    let reader = std::thread::spawn(move || stdout.read_to_string(&mut out).map(|_| out));
    while !reader.is_finished() {
        guest.wait(Duration::from_millis(10)).unwrap();
    }
    assert_eq!(reader.join().unwrap().unwrap(), "SSH-2.0-guest\r\n");
    assert!(process.0.wait().unwrap().success());
}

#[test]
fn forward_command_lines_are_checked() {
    let fabric = Fabric::start(SERVICES, Options::default()).unwrap();
    let control = serve(Arc::new(fabric.handle()));
    run(&control, "group add blue");
    run(&control, "port add n --kind net --group blue");
    run(&control, "port add v --kind vsock --group blue --cid 3");
    run(&control, "port add w-net --kind net --group blue");
    run(&control, "port add w-vsock --kind vsock --group blue --cid 4");
    run(&control, "port add two-a --kind vsock --group blue --cid 5 --vm two");
    run(&control, "port add two-b --kind vsock --group blue --cid 6 --vm two");
    run(&control, "forward -j list");
    run(&control, "forward del gone --if-exists");
    for (words, status, says) in [
        ("forward", 2, "--from"),
        ("forward --from tcp:127.0.0.1:0", 2, "each --from needs a --to"),
        ("forward --from udp:1:2 --to unix:/x", 2, "expected tcp:HOST:PORT"),
        ("forward --from unix:/x --to vsock:gone:1", 3, "gone"),
        ("forward --from vsock:4@v:1 --to unix:/x", 2, "a source has no CID"),
        ("forward --from unix:/x --to vsock:n:1", 2, "not of kind vsock"),
        ("forward --from unix:/x --to vsock:v:1", 2, "no host_socket"),
        ("forward --from unix:/x --to vsock:w:1", 2, "port w-vsock has no host_socket"),
        ("forward --from unix:/x --to vsock:two:1", 3, "port \"two\" does not exist"),
        ("forward --all --from tcp:127.0.0.1:1", 2, "cannot be used with"),
        ("forward --all list", 2, "without a verb"),
        ("forward --from unix:/x --to unix:/y list", 2, "without a verb"),
        ("forward add x --from unix:/x", 2, "--to"),
        ("forward add x --from unix:/x --to udp:1:2", 2, "the kind is unknown"),
        ("forward del gone", 3, "see `causeway forward list`"),
        ("forward --file /nonexistent", 2, "No such file"),
        ("forward --from unix:/nonexistent/x --to unix:/y", 1, "cannot listen"),
    ] {
        let output = causeway(&control, words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{words}: {error}");
        assert!(error.contains(says), "{words}: {error}");
    }
}
