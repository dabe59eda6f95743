//! The daemon as a process: start, refusals, stop, and cleanup.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Dir, send};
use clap::Parser as _;

const LIMIT: Duration = Duration::from_secs(20);

fn config(dir: &Dir, more: &str) -> std::path::PathBuf {
    let file = dir.file("causeway.toml");
    let run = dir.0.display();
    let text = format!(
        "[daemon]\ncontrol = \"{run}/control.sock\"\n{more}\n[[group]]\nname = \"blue\"\n\
         [[port]]\nname = \"a-net\"\ngroup = \"blue\"\nkind = \"net\"\n\
         [[port]]\nname = \"a-vsock\"\ngroup = \"blue\"\nkind = \"vsock\"\ncid = 3\n"
    );
    std::fs::write(&file, text).unwrap();
    file
}

fn causewayd() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_causewayd"));
    for key in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM"] {
        command.env_remove(key);
    }
    command
}

/// A daemon process that is killed with its test.
struct Daemon(Child);

impl Daemon {
    fn start(config: &Path) -> Self {
        Self(causewayd().arg("--config").arg(config).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn ready(mut self, socket: &Path) -> Self {
        let until = Instant::now() + LIMIT;
        while UnixStream::connect(socket).is_err()
            || send(socket, "GET", "/v1/info", "").1["pid"] != self.0.id()
        {
            assert!(self.0.try_wait().unwrap().is_none(), "ended early");
            assert!(Instant::now() < until, "not ready");
            std::thread::sleep(Duration::from_millis(10));
        }
        self
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end; returns exit code and log.
    fn end(mut self) -> (Option<i32>, String) {
        let until = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut log = String::new();
        std::io::Read::read_to_string(&mut self.0.stderr.take().unwrap(), &mut log).unwrap();
        (status.code(), log)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = causewayd().args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn sockets(dir: &Dir) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(&dir.0)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_socket())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn process_serves_until_sigterm_and_removes_its_sockets() {
    let dir = Dir::new();
    let socket = dir.file("control.sock");
    let daemon = Daemon::start(&config(&dir, "")).ready(&socket);
    assert_eq!(sockets(&dir), ["a-net.sock", "a-vsock.sock", "control.sock"]);
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let (_, ports) = send(&socket, "GET", "/v1/ports", "");
    assert_eq!(ports.as_array().unwrap().len(), 2);
    assert_eq!(ports[1]["cid"], 3);
    let (status, _) =
        send(&socket, "POST", "/v1/ports", r#"{"name":"b","group":"blue","kind":"net"}"#);
    assert_eq!(status, 201);
    daemon.signal(rustix::process::Signal::HUP);
    daemon.signal(rustix::process::Signal::TERM);
    let (code, log) = daemon.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("level=info target=causeway_daemon::lifecycle msg=\"ready\""), "{log}");
    assert_eq!(sockets(&dir), [""; 0]);
    assert!(!dir.file("control.sock.lock").exists());
}

#[test]
fn process_survives_a_link_that_cannot_be_opened() {
    let dir = Dir::new();
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let more = format!(
        "[[link]]\nname = \"keyless\"\ngroup = \"blue\"\nremote = \"127.0.0.2\"\nlocal = \"127.0.0.1:9\"\n\
         private_key = \"/nonexistent/key\"\nkey = \"{}=\"\n\
         [[link]]\nname = \"nameless\"\ngroup = \"blue\"\nkind = \"vnet\"\nremote = \"no-such-host.invalid\"\n\
         [[link]]\nname = \"taken\"\ngroup = \"blue\"\nkind = \"vxlan\"\nvni = 1\nremote = \"127.0.0.2\"\n\
         local = \"127.0.0.1:{port}\"\n",
        "A".repeat(43)
    );
    let daemon = Daemon::start(&config(&dir, &more)).ready(&dir.file("control.sock"));
    let (status, links) = send(&dir.file("control.sock"), "GET", "/v1/links", "");
    assert_eq!(status, 200);
    let links = links.as_array().unwrap().clone();
    assert_eq!(links.len(), 3);
    for (link, reason) in links.iter().zip(["/nonexistent/key", "no-such-host", "in use"]) {
        assert_eq!(link["state"], "down", "{link}");
        assert!(link["reason"].as_str().unwrap().contains(reason), "{link}");
    }
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.end().0, Some(0));
}

#[test]
fn process_refuses_a_second_daemon_with_the_first_pid() {
    let dir = Dir::new();
    let socket = dir.file("control.sock");
    let file = config(&dir, "");
    let first = Daemon::start(&file).ready(&socket);
    let pid = first.0.id();
    let (code, _, error) = run(&["--config", file.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    let expected = format!("another causewayd is running already with pid {pid}");
    assert!(error.contains(&expected), "{error}");

    // Also if the lock file was removed.
    std::fs::remove_file(dir.file("control.sock.lock")).unwrap();
    let (code, _, error) = run(&["--config", file.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(error.contains(&expected), "{error}");
    assert_eq!(send(&socket, "GET", "/v1/info", "").0, 200, "the first goes on");
    first.signal(rustix::process::Signal::INT);
    assert_eq!(first.end().0, Some(0));
}

#[test]
fn process_replaces_the_socket_of_a_killed_daemon() {
    let dir = Dir::new();
    let socket = dir.file("control.sock");
    let file = config(&dir, "");
    let first = Daemon::start(&file).ready(&socket);
    first.signal(rustix::process::Signal::KILL);
    first.end();
    assert_eq!(sockets(&dir).len(), 3, "left behind");
    let second = Daemon::start(&file).ready(&socket);
    second.signal(rustix::process::Signal::TERM);
    assert_eq!(second.end().0, Some(0));
    assert_eq!(sockets(&dir), [""; 0]);
}

#[test]
fn process_never_removes_files_that_are_no_sockets() {
    for (name, message) in [("control.sock", "is not a socket"), ("a-net.sock", "not a socket")] {
        let dir = Dir::new();
        let file = config(&dir, "");
        std::fs::write(dir.file(name), "precious").unwrap();
        let (code, _, error) = run(&["--config", file.to_str().unwrap()]);
        assert_eq!(code, Some(1));
        assert!(error.contains(message), "{error}");
        assert_eq!(std::fs::read_to_string(dir.file(name)).unwrap(), "precious");
        assert_eq!(sockets(&dir), [""; 0], "the others are removed again");
    }
}

#[test]
fn process_sets_permissions_and_group_of_sockets() {
    let dir = Dir::new();
    let gid = rustix::process::getegid().as_raw();
    let more = format!(
        "control_mode = \"0600\"\nsocket_mode = \"0666\"\nsocket_group = \"{gid}\"\n\
         control_group = \"{gid}\""
    );
    let file = config(&dir, &more);
    let daemon = Daemon::start(&file).ready(&dir.file("control.sock"));
    let mode = |name| std::fs::metadata(dir.file(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("control.sock"), mode("a-net.sock")), (0o600, 0o666));
    drop(daemon);

    // A group without a mode gets permission to connect.
    let file = config(&dir, &format!("socket_group = \"{gid}\""));
    let daemon = Daemon::start(&file).ready(&dir.file("control.sock"));
    assert_eq!((mode("a-net.sock"), mode("a-vsock.sock")), (0o660, 0o660));
    drop(daemon);

    let file = config(&dir, "control_group = \"no-such-group-here\"");
    let (code, _, error) = run(&["--config", file.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(error.contains("key \"control_group\"") && error.contains("groupadd"), "{error}");
}

#[test]
fn process_notifies_the_service_manager() {
    let dir = Dir::new();
    let name = format!("causeway-process-test-{}", std::process::id());
    let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    manager.set_read_timeout(Some(LIMIT)).unwrap();
    let child = causewayd()
        .arg("--config")
        .arg(config(&dir, ""))
        .env("NOTIFY_SOCKET", format!("@{name}"))
        .env("WATCHDOG_USEC", "100000")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let daemon = Daemon(child);
    let hear = |expected: &str| {
        let until = Instant::now() + LIMIT;
        let mut got = [0; 256];
        loop {
            let n = match manager.recv(&mut got) {
                // A signal that ends a blocked notification of another test may reach this thread.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                heard => heard.unwrap(),
            };
            if String::from_utf8_lossy(&got[..n]).contains(expected) {
                return;
            }
            assert!(Instant::now() < until, "{expected} was not said");
        }
    };
    hear("READY=1");
    hear("WATCHDOG=1");
    daemon.signal(rustix::process::Signal::TERM);
    hear("STOPPING=1");
    assert_eq!(daemon.end().0, Some(0));
}

#[test]
fn process_checks_and_prints_a_configuration() {
    let dir = Dir::new();
    let file = config(&dir, "");
    let path = file.to_str().unwrap();
    let (code, out, _) = run(&["--config", path, "--check-config"]);
    assert_eq!(
        (code, out),
        (Some(0), format!("{path}: ok: 1 groups, 2 ports, 0 rules, 0 links, 0 routes\n"))
    );
    let (code, out, _) = run(&["--config", path, "--print-config"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("queue_pairs = 1") && out.contains("control_mode = \"0660\""), "{out}");

    std::fs::write(&file, "[daemon]\ncontrol = 3\n").unwrap();
    let (code, _, error) = run(&["--config", path, "--check-config"]);
    assert_eq!(code, Some(1));
    assert!(error.contains(&format!("{path}:2:11: key \"control\"")), "{error}");
    let (code, _, error) = run(&["--config", "/nonexistent", "--check-config"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("/nonexistent: No such file") && error.contains("--config"), "{error}");
    assert_eq!(run(&["--colour"]).0, Some(2));
    assert!(!dir.file("control.sock").exists());
}

#[test]
fn process_prints_manual_help_and_completions() {
    let (code, page, _) = run(&["--man"]);
    assert_eq!(code, Some(0));
    assert!(page.contains(".TH causewayd 8") && page.contains("check\\-config"), "{page}");
    let (code, page, _) = run(&["--man=causeway.toml"]);
    assert_eq!(code, Some(0));
    for part in [
        ".TH causeway.toml 5",
        ".SH [daemon]",
        "socket_group",
        "\"needed\" | \"vsock\" | \"all\" | \"none\"",
        ".SH \"[[port]] of kind hca\"",
        "queue_pairs_max",
        ".SH [[route]]",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let (_, help, _) = run(&["--help"]);
    assert!(help.contains("Examples:") && help.contains("SIGTERM"), "{help}");
    let (_, script, _) = run(&["--completion", "bash"]);
    assert!(script.contains("--check-config"), "{script}");
}

#[test]
fn packaging_example_configuration_is_valid() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/causeway.toml");
    // The package creates its group.
    let text = std::fs::read_to_string(example).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("control_group"));
    let (dir, text) = (Dir::new(), lines.collect::<Vec<_>>().join("\n"));
    let file = dir.file("example.toml");
    std::fs::write(&file, text).unwrap();
    let (code, out, error) = run(&["--config", file.to_str().unwrap(), "--check-config"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains("ok:"), "{out}");
}

#[test]
fn packaging_user_is_a_member_of_the_group_of_the_example() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let read = |name: &str| std::fs::read_to_string(packaging.join(name)).unwrap();
    let example = read("causeway.toml");
    let group = example.lines().find_map(|line| line.strip_prefix("#socket_group = ")).unwrap();
    let member = format!("m causeway {}", group.trim_matches('"'));
    let users = read("causeway-sysusers.conf");
    assert!(users.lines().any(|line| line == member), "{member} not in\n{users}");
}

#[test]
fn packaging_unit_matches_the_daemon() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/causewayd.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    assert!(unit.contains("Type=notify"));
    // `[dispatch] cpus` needs a call that @resources refuses.
    let filters = || unit.lines().filter_map(|l| l.strip_prefix("SystemCallFilter="));
    let refused = filters().position(|l| l.starts_with('~') && l.contains("@resources")).unwrap();
    let given = filters().position(|l| l.split(' ').any(|call| call == "sched_setaffinity"));
    assert!(given.is_some_and(|given| given > refused), "{unit}");
    let is_ours = |l: &&str| l.starts_with("ExecStart") && l.contains("/causewayd ");
    let commands: Vec<_> = unit.lines().filter(is_ours).collect();
    assert_eq!(commands.len(), 2);
    for command in commands {
        let (_, words) = command.split_once('=').unwrap();
        causeway_daemon::args::Args::try_parse_from(words.split_whitespace()).unwrap();
    }
}

#[test]
fn process_refuses_a_port_whose_socket_is_served() {
    let dir = Dir::new();
    let _other = UnixListener::bind(dir.file("a-net.sock")).unwrap();
    let file = config(&dir, "");
    let (code, _, error) = run(&["--config", file.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{error}");
    assert!(UnixStream::connect(dir.file("a-net.sock")).is_ok(), "the other one still serves");
}

#[test]
fn process_executes_the_vnet_file_or_does_not_start() {
    let dir = Dir::new();
    let (file, password) = (dir.file("links.vnet"), dir.file("password"));
    let control = format!(
        "[control]\nvnet_listen = \"127.0.0.1:0\"\nvnet_password_file = \"{}\"\n\
         vnet_group = \"blue\"\nvnet_file = \"{}\"\n",
        password.display(),
        file.display()
    );
    let config = config(&dir, &control);
    std::fs::write(&password, "s3cret\n").unwrap();
    std::fs::set_permissions(&password, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&file, "ADDROUTE any any INTERFACE a-net\nADDROUTE any any EDGE x\n").unwrap();
    let (code, log) = Daemon::start(&config).end();
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains("links.vnet:2: host \"x\"") && log.contains("nothing was changed"),
        "{log}"
    );
    assert!(sockets(&dir).is_empty(), "{:?}", sockets(&dir));

    std::fs::write(&file, "HELLO anyone 0.9\n# no links yet\nDONE\n").unwrap();
    let socket = dir.file("control.sock");
    let daemon = Daemon::start(&config).ready(&socket);
    daemon.signal(rustix::process::Signal::TERM);
    let (code, log) = daemon.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("VNET control") && !log.contains("s3cret"), "{log}");

    std::fs::set_permissions(&password, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, log) = Daemon::start(&config).end();
    assert!(code == Some(1) && log.contains("chmod 600"), "{log}");
    assert!(sockets(&dir).is_empty());
}

#[test]
fn process_logs_no_private_key() {
    let dir = Dir::new();
    let (key, text) = (dir.file("key"), "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=");
    std::fs::write(&key, text).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let link = format!(
        "[[link]]\nname = \"l\"\ngroup = \"blue\"\nkind = \"causeway\"\n\
         local = \"127.0.0.1:21875\"\nremote = \"127.0.0.1:9\"\nprivate_key = \"{}\"\n\
         key = \"hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\"\n",
        key.display()
    );
    let config = config(&dir, "log = \"debug\"\n");
    let mut all = std::fs::read_to_string(&config).unwrap();
    all.push_str(&link);
    std::fs::write(&config, all).unwrap();
    let socket = dir.file("control.sock");
    let daemon = Daemon::start(&config).ready(&socket);
    let (_, shown) = send(&socket, "GET", "/v1/links", "");
    daemon.signal(rustix::process::Signal::TERM);
    let (code, log) = daemon.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(shown.to_string().contains("hSDwCYkwp1R0"), "{shown}");
    assert!(log.lines().count() > 2, "{log}");
    for said in [log, shown.to_string()] {
        assert!(!said.contains(&text[..12]) && !said.contains("1, 1, 1, 1, 1, 1"), "{said}");
    }
}

#[test]
fn process_sets_owners_of_port_and_host_sockets() {
    let dir = Dir::new();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // Only root can change the owner of sockets.
    let other = if uid == 0 { 4711 } else { uid };
    let run = dir.0.display();
    let ports = format!(
        "[[port]]\nname = \"b\"\ngroup = \"blue\"\nkind = \"vsock\"\ncid = 4\n\
         socket_owner = \"{other}\"\nsocket_mode = \"0600\"\nhost_socket = \"{run}/b.host\"\n\
         host_socket_owner = \"{uid}\"\nhost_socket_group = \"{gid}\"\n\
         host_socket_mode = \"0640\"\n"
    );
    let file = config(&dir, "socket_mode = \"0666\"");
    let text = std::fs::read_to_string(&file).unwrap() + &ports;
    std::fs::write(&file, text).unwrap();
    let socket = dir.file("control.sock");
    let daemon = Daemon::start(&file).ready(&socket);
    let (status, added) = send(
        &socket,
        "POST",
        "/v1/ports",
        r#"{"name":"c","group":"blue","kind":"net","socket_mode":"0620"}"#,
    );
    assert_eq!((status, &added["socket_mode"]), (201, &serde_json::json!("0620")), "{added}");
    let meta = |name| std::fs::symlink_metadata(dir.file(name)).unwrap();
    let mode = |name| meta(name).permissions().mode() & 0o777;
    assert_eq!((mode("a-net.sock"), mode("c.sock")), (0o666, 0o620));
    assert_eq!((mode("b.sock"), mode("b.host")), (0o600, 0o640));
    assert_eq!((meta("b.sock").uid(), meta("b.host").uid()), (other, uid));
    assert_eq!(meta("b.host").gid(), gid);
    for (body, expected) in [
        (r#"{"name":"d","group":"blue","kind":"net","socket_mode":"660"}"#, "four octal digits"),
        (r#"{"name":"d","group":"blue","kind":"net","socket_owner":"nobody-here"}"#, "useradd"),
        (
            r#"{"name":"d","group":"blue","kind":"net","host_socket_mode":"0600"}"#,
            "only a port of kind",
        ),
        (
            r#"{"name":"d","group":"blue","kind":"vsock","cid":9,"host_socket_mode":"0600"}"#,
            "expected host_socket beside it",
        ),
    ] {
        let (status, error) = send(&socket, "POST", "/v1/ports", body);
        assert!(status >= 400 && error.to_string().contains(expected), "{body}: {error}");
    }
    assert!(!dir.file("d.sock").exists(), "a refused port leaves nothing");
    let (_, shown) = send(&socket, "GET", "/v1/ports/b", "");
    assert_eq!(shown["socket_owner"], serde_json::json!(other.to_string()));
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.end().0, Some(0));
}

#[test]
fn process_sets_no_permissions_through_a_symbolic_link() {
    let dir = Dir::new();
    let (target, link) = (dir.file("target.sock"), dir.file("link.sock"));
    let _listener = UnixListener::bind(&target).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let before = std::fs::metadata(&target).unwrap().permissions().mode();
    let gid = rustix::process::getegid().as_raw();
    let error = causeway_daemon::fabric::set_socket_access(&link, Some(0o600), (None, Some(gid)))
        .unwrap_err();
    assert!(error.contains("expected a socket"), "{error}");
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode(), before);
    causeway_daemon::fabric::set_socket_access(&target, Some(0o600), (None, Some(gid))).unwrap();
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn process_refuses_an_unsafe_run_dir_with_the_remedy() {
    let dir = Dir::new();
    let file = config(&dir, "");
    std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o777)).unwrap();
    let (code, _, error) = run(&["--config", file.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(error.contains("is writable for all users") && error.contains("chmod o-w"), "{error}");
    assert_eq!(sockets(&dir), [""; 0]);
}

/// Runs in a namespace of its own, in which the tmpfs of the sockets is full.
#[test]
fn process_starts_with_a_full_run_dir() {
    let dir = Dir::new();
    let file = config(&dir, "");
    let run = dir.0.display();
    // The configuration is copied first, because the mount hides it.
    let script = format!(
        "exec 3< {run}/causeway.toml && mount -t tmpfs -o size=16k none {run} \
         && (head -c 1M /dev/zero > {run}/fill; :) 2>/dev/null \
         && exec \"$0\" --config /proc/self/fd/3"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "-r", "sh", "-c", &script, env!("CARGO_BIN_EXE_causewayd")]);
    let mut daemon = Daemon(command.stderr(Stdio::piped()).spawn().unwrap());
    let pid = daemon.0.id();
    let socket = std::path::PathBuf::from(format!("/proc/{pid}/root{run}/control.sock"));
    let until = Instant::now() + LIMIT;
    while !socket.exists() || send(&socket, "GET", "/v1/info", "").0 != 200 {
        if daemon.0.try_wait().unwrap().is_some() {
            let (_, log) = daemon.end();
            let forbidden = ["unshare failed", "permission denied", "must be superuser"];
            if forbidden.iter().any(|word| log.contains(word)) {
                println!("skipped: this host makes no mount namespaces for this user: {log}");
                return;
            }
            panic!("{file:?}: {log}");
        }
        assert!(Instant::now() < until, "not ready");
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon.signal(rustix::process::Signal::TERM);
    let (code, log) = daemon.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("the file system is full"), "{log}");
}

/// Returns the values of a key of /proc for a running daemon, by the threads' names.
fn of_threads(pid: u32, key: &str) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let all = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        let name = std::fs::read_to_string(task.join("comm")).ok()?.trim().to_owned();
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some((name, line.trim().to_owned()))
    });
    all.collect()
}

#[test]
fn sandbox_confines_every_thread_that_serves() {
    let dir = Dir::new();
    let socket = dir.file("control.sock");
    // No held port: every thread is confined.
    let file = config(&dir, "hold = \"none\"");
    let text = std::fs::read_to_string(&file).unwrap() + "[dispatch]\ncpus = \"0\"\n";
    std::fs::write(&file, text).unwrap();
    let daemon = Daemon::start(&file).ready(&socket);
    let pid = daemon.0.id();
    for (key, expected) in [("NoNewPrivs:", "1"), ("Seccomp:", "2")] {
        for (thread, value) in of_threads(pid, key) {
            assert_eq!(value, expected, "{key} {thread}");
        }
    }
    let filters = of_threads(pid, "Seccomp_filters:");
    let count = |thread: &str| {
        let of = filters.iter().find(|(name, _)| name == thread);
        of.unwrap_or_else(|| panic!("{thread} {filters:?}")).1.parse::<u32>().unwrap()
    };
    assert!(count("dispatcher-0") > count("control"), "{filters:?}");
    for (thread, value) in of_threads(pid, "CapPrm:") {
        // CAP_NET_RAW is bit 13: no interface is configured.
        let sets = u64::from_str_radix(&value, 16).unwrap();
        assert_eq!(sets & 1 << 13, 0, "{thread} {value}");
    }
    let (status, error) = send(
        &socket,
        "POST",
        "/v1/links",
        r#"{"name":"r","group":"blue","kind":"raw","interface":"lo"}"#,
    );
    assert!(status >= 400, "{error}");
    if error.to_string().contains("CAP_NET_RAW") {
        assert!(error.to_string().contains("raw_sockets = true"), "{error}");
    }
    daemon.signal(rustix::process::Signal::TERM);
    let (code, log) = daemon.end();
    assert!(code == Some(0) && !log.contains("cannot be bound"), "{log}");
}
