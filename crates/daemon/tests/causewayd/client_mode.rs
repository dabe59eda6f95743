//! Ports that connect to a socket at which the VMM listens, through the daemon with its sandbox:
//! a native frontend, the installed QEMU, and requests that cannot work.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::daemon_process::{DaemonProcess, await_state, config};
use crate::common::{Dir, send};
use causeway_attach::native::{Client, NetOptions, NetPort};
use serde_json::Value;

const CAUSEWAYD: &str = env!("CARGO_BIN_EXE_causewayd");
const LIMIT: Duration = Duration::from_secs(30);

/// Returns a port that connects to `vmm.sock`.
fn connecting(dir: &Dir, more: &str) -> String {
    let socket = dir.file("vmm.sock");
    format!(
        "[[port]]\nname = \"a\"\ngroup = \"blue\"\nkind = \"net\"\nconnect = true\n\
         mac = \"52:54:00:00:00:01\"\nsocket = \"{}\"\n{more}\n\
         [[port]]\nname = \"b\"\ngroup = \"blue\"\nkind = \"net\"\nmac = \"52:54:00:00:00:02\"\n",
        socket.display()
    )
}

fn shown(dir: &Dir, port: &str) -> Value {
    send(&dir.file("control.sock"), "GET", &format!("/v1/ports/{port}"), "").1
}

fn accept(listener: &UnixListener) -> UnixStream {
    listener.set_nonblocking(true).unwrap();
    let since = Instant::now();
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            return stream;
        }
        assert!(since.elapsed() < LIMIT, "the port does not connect");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn client_mode_frontend_is_connected_again_after_a_restart_of_the_daemon() {
    let dir = Dir::new();
    let own = rustix::process::getuid().as_raw();
    let file = config(&dir, "all", &connecting(&dir, &format!("allowed_users = [\"{own}\"]")));
    let listener = UnixListener::bind(dir.file("vmm.sock")).unwrap();
    for _ in 0..2 {
        let mut daemon = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
        let client = Client::over(OwnedFd::from(accept(&listener))).unwrap();
        let mut a = NetPort::over(client, NetOptions::default()).unwrap();
        let mut b = NetPort::attach(&dir.file("b.sock"), NetOptions::default()).unwrap();
        await_state(&dir, "a", "running");
        await_state(&dir, "b", "running");
        let frame = [b"\x52\x54\0\0\0\x02\x52\x54\0\0\0\x01\x88\xb5", &[7; 60][..]].concat();
        a.send(&frame).unwrap();
        let (mut got, since) = (Vec::new(), Instant::now());
        while b.receive(0, &mut got).unwrap().is_none() {
            assert!(since.elapsed() < LIMIT, "no frame");
            b.wait(Some(Duration::from_millis(20))).unwrap();
        }
        assert_eq!(got, frame);
        let view = shown(&dir, "a");
        assert_eq!((&view["connect"], &view["held"]), (&Value::Bool(true), &Value::Bool(false)));
        assert_eq!(view["allowed_users"][0], own.to_string());
        daemon.kill();
    }
    let daemon = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let socket = dir.file("control.sock");
    assert_eq!(send(&socket, "POST", "/v1/shutdown", r#"{"release":true}"#).0, 204);
    drop(daemon);
    assert!(dir.file("vmm.sock").exists(), "the VMM's socket is left alone");
}

/// A QEMU process that is killed with its test.
struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn client_mode_attaches_the_installed_qemu_that_listens() {
    let qemu = format!("qemu-system-{}", std::env::consts::ARCH);
    if Command::new(&qemu).arg("--version").output().is_err() {
        eprintln!("skipped: there is no {qemu}");
        return;
    }
    let dir = Dir::new();
    let file = config(&dir, "none", &connecting(&dir, ""));
    let mut daemon = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    await_state(&dir, "a", "connecting");
    let error = shown(&dir, "a")["connect_error"].to_string();
    assert!(error.contains("vmm.sock") && error.contains("No such file"), "{error}");
    for connects in 1..=2 {
        let chardev =
            format!("socket,id=c0,path={},server=on,wait=off", dir.file("vmm.sock").display());
        let memory = "memory-backend-memfd,id=m,size=128M,share=on";
        let child = Command::new(&qemu)
            .args(["-nodefaults", "-display", "none", "-m", "128", "-S", "-accel", "tcg"])
            .args(["-object", memory, "-machine", "q35,memory-backend=m", "-chardev", &chardev])
            .args(["-netdev", "vhost-user,id=n0,chardev=c0"])
            .args(["-device", "virtio-net-pci,netdev=n0,vectors=0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut qemu = Qemu(child);
        await_state(&dir, "a", "connected");
        let view = shown(&dir, "a");
        assert_eq!(view["connects_total"], connects, "{view}");
        // QEMU has negotiated; it starts queues when a guest's driver runs.
        qemu.0.kill().unwrap();
        qemu.0.wait().unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(qemu.0.stderr.as_mut().unwrap(), &mut text).unwrap();
        assert!(!text.contains("CONFIG"), "QEMU complains about the configuration space: {text}");
        await_state(&dir, "a", "connecting");
        assert_eq!(shown(&dir, "a")["faults_total"], 0);
        std::fs::remove_file(dir.file("vmm.sock")).unwrap();
    }
    daemon.stop();
}

#[test]
fn client_mode_that_cannot_work_is_refused_with_the_reason() {
    let dir = Dir::new();
    let file = config(&dir, "needed", "");
    let mut daemon = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let socket = dir.file("control.sock");
    for (body, expected) in [
        (r#""kind":"net","connect":true"#, "connect: expected socket beside it"),
        (r#""kind":"mx","connect":true,"socket":"/run/x""#, "connect: only a port of kind"),
        (r#""kind":"hca","connect":true,"socket":"/run/x""#, "connect: only a port of kind"),
        (r#""kind":"vsock","cid":3,"connect":true,"socket":"/run/x""#, "hold = \\\"none\\\""),
        (r#""kind":"net","allowed_users":[]"#, "allowed_users: 0 users: expected 1 to 64"),
        (r#""kind":"net","allowed_users":["nobody-here"]"#, "allowed_users: this host has no user"),
        (r#""kind":"net","allowed_users":["a:b"]"#, "allowed_users[0]"),
        (r#""kind":"net","host_allowed_users":["0"]"#, "only a port of kind"),
        (r#""kind":"vsock","cid":3,"host_allowed_users":["0"]"#, "expected host_socket beside it"),
    ] {
        let body = format!("{{\"name\":\"d\",\"group\":\"blue\",{body}}}");
        let (status, error) = send(&socket, "POST", "/v1/ports", &body);
        assert!(status >= 400 && error.to_string().contains(expected), "{body}: {error}");
    }
    daemon.stop();
}

#[test]
fn allowed_users_of_a_held_port_are_shown_with_their_refusals() {
    let dir = Dir::new();
    let own = rustix::process::getuid().as_raw();
    let port = format!(
        "[[port]]\nname = \"v\"\ngroup = \"blue\"\nkind = \"vsock\"\ncid = 3\n\
         allowed_users = [\"{}\"]\n",
        own + 1
    );
    let file = config(&dir, "needed", &port);
    let mut daemon = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    assert!(Client::connect(&dir.file("v.sock")).is_err());
    let view = shown(&dir, "v");
    assert_eq!((&view["refused_users_total"], &view["refused_user"]), (&1.into(), &own.into()));
    daemon.release(&dir);
}
