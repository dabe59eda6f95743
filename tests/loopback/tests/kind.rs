//! A kind of ports that a crate and a line of the daemon add is available everywhere: in `port
//! add`, the configuration file, `port show`, `stats`, the control API and manual pages; and frames
//! return. So are the section, the noun and the trace of the same service.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use causeway_attach::native::{NetOptions, NetPort};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

/// A causewayd with the loopback service, in a directory of its own.
struct Host {
    daemon: Child,
    folder: PathBuf,
}

fn spawn(config: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_causewayd-loopback"));
    command.arg("--config").arg(config).stdin(Stdio::null()).spawn().unwrap()
}

impl Host {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("causeway-loopback-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, config) = (folder.display(), folder.join("causeway.toml"));
        let text = format!(
            "[daemon]\ncontrol = \"{path}/control.sock\"\nrun_dir = \"{path}\"\nlog = \"warn\"\n\
             hold = \"none\"\n[[group]]\nname = \"blue\"\n\
             [[port]]\nname = \"a\"\ngroup = \"blue\"\nkind = \"loopback\"\nframe_max = 100\n\
             [[label]]\nname = \"first\"\nnumber = 7\n[[label]]\nname = \"second\"\n"
        );
        std::fs::write(&config, text).unwrap();
        let host = Self { daemon: spawn(&config), folder };
        host.await_ready();
        host
    }

    /// Kills the daemon and starts the next.
    fn restart(&mut self) {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
        self.daemon = spawn(&self.folder.join("causeway.toml"));
        self.await_ready();
    }

    fn await_ready(&self) {
        let since = Instant::now();
        while !self.causeway(&["info"]).status.success() {
            assert!(since.elapsed() < LIMIT, "causewayd is not ready");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn causeway(&self, words: &[&str]) -> Output {
        let control = self.folder.join("control.sock");
        Command::new(causeway()).arg("--control").arg(control).args(words).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        let out = self.causeway(words);
        let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        assert!(out.status.success(), "{words:?}: {text}");
        text
    }

    #[track_caller]
    fn json(&self, words: &[&str]) -> Value {
        let out = self.causeway(words);
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }
}

impl Host {
    /// Returns the status and the body of a request to the control API.
    fn request(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = UnixStream::connect(self.folder.join("control.sock")).unwrap();
        let length = body.len();
        let request = format!("{method} {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_default())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the operator's tool; builds it if cargo has not built it.
fn causeway() -> PathBuf {
    let daemon = Path::new(env!("CARGO_BIN_EXE_causewayd-loopback"));
    let tool = daemon.with_file_name("causeway");
    if !tool.exists() {
        let built =
            Command::new(env!("CARGO")).args(["build", "-q", "-p", "causeway-cli"]).status();
        assert!(built.is_ok_and(|status| status.success()), "causeway is built");
    }
    tool
}

#[test]
fn loopback_kind_is_known_everywhere() {
    let mut host = Host::start();
    // The configuration file, and `port show`.
    let shown = host.ok(&["port", "show", "a"]);
    assert!(shown.contains("kind        loopback"), "{shown}");
    assert!(shown.contains("frame max"), "{shown}");
    assert_eq!(host.json(&["port", "show", "a", "-j"])["frame_max"], 100);
    port_add(&host);
    manual_pages(&host);
    frames_and_counters(&host);
    printed_configuration(&host);
    labels(&host);
    traces(&host);
    configuration_problems(&host);
    host.restart();
    kept_objects(&host);
}

/// Checks that a restart keeps the port and the label that were added, and that the deleted label of
/// the configuration file returns.
fn kept_objects(host: &Host) {
    let labels = host.request("GET", "/v1/labels", "").1;
    let names: Vec<_> = labels.as_array().unwrap().iter().map(|label| &label["name"]).collect();
    assert_eq!(names, ["first", "second", "third"]);
    assert_eq!(host.json(&["port", "show", "b", "-j"])["memory_max"], 64);
    let exported = host.ok(&["config", "export"]);
    assert!(exported.contains("[[label]]\nname = \"third\"\nnumber = 3\n"), "{exported}");
    let diff = host.causeway(&["config", "diff"]);
    let text = String::from_utf8_lossy(&diff.stdout).into_owned();
    assert_eq!(diff.status.code(), Some(1), "{text}");
    assert!(text.contains("+ label third: number 3   (kept)"), "{text}");
    assert!(!text.contains("label first"), "{text}");
}

/// Checks the noun of the service. Its first objects are those of the section.
fn labels(host: &Host) {
    let label = |name: &str, number: u16| json!({ "name": name, "number": number });
    let listed = || host.request("GET", "/v1/labels", "").1;
    assert_eq!(listed(), json!([label("first", 7), label("second", 1)]));
    let add = |body: &str| host.request("POST", "/v1/labels", body);
    assert_eq!(add(r#"{"name":"third","number":3}"#), (201, label("third", 3)));
    assert_eq!(add(r#"{"name":"third"}"#).0, 409);
    let (status, refused) = add(r#"{"name":"fourth","number":100}"#);
    let text = refused["error"]["message"].as_str().unwrap();
    assert!(status == 422 && text.contains("1 to 99"), "{status} {text}");
    assert_eq!(host.request("DELETE", "/v1/labels/first", "").0, 204);
    assert_eq!(host.request("DELETE", "/v1/labels/first", "").0, 404);
    assert_eq!(listed(), json!([label("second", 1), label("third", 3)]));
    assert_eq!(host.request("PUT", "/v1/labels", "").0, 405);
    let (status, refused) = host.request("GET", "/v1/label", "");
    let text = refused["error"]["message"].as_str().unwrap();
    assert!(status == 404 && text.contains("kinds, labels, links"), "{status} {text}");
}

/// Checks the trace of the service.
fn traces(host: &Host) {
    let trace = |body: &str| host.request("POST", "/v1/trace", body);
    let (status, view) = trace(r#"{"what":"loopback","from":"a"}"#);
    assert_eq!((status, &view["verdict"], &view["to"]), (200, &json!("forward"), &json!(["a"])));
    assert_eq!(trace(r#"{"what":"loopback","from":"missing"}"#).0, 404);
    assert_eq!(trace(r#"{"what":"loopback"}"#).0, 422);
    let (status, refused) = trace(r#"{"what":"echo","from":"a"}"#);
    let text = refused["error"]["message"].as_str().unwrap();
    assert!(status == 422 && text.contains("frame, connect, verbs, loopback"), "{status} {text}");
}

/// Checks that problems of the section are reported like those of the daemon's own tables.
fn configuration_problems(host: &Host) {
    let config = host.folder.join("wrong.toml");
    std::fs::write(&config, "[[label]]\nname = \"a\"\nnumber = 0\n[[labels]]\n").unwrap();
    let daemon = env!("CARGO_BIN_EXE_causewayd-loopback");
    let checked = Command::new(daemon).arg("--config").arg(&config).arg("--check-config").output();
    let text = String::from_utf8(checked.unwrap().stderr).unwrap();
    assert!(text.contains("wrong.toml:3:10") && text.contains("1 to 99"), "{text}");
    assert!(text.contains("did you mean \"label\"?"), "{text}");
}

/// Checks `port add` with defaults, ranges and the keys of other kinds.
fn port_add(host: &Host) {
    host.ok(&["port", "add", "b", "--kind", "loopback", "--group", "blue", "--memory-max", "64"]);
    let b = host.json(&["port", "show", "b", "-j"]);
    assert_eq!((&b["frame_max"], &b["memory_max"]), (&1518.into(), &64.into()));
    assert!(b["mac"].is_string(), "derived: {b}");
    let add = |more: &[&str]| {
        host.causeway(
            &[&["port", "add", "c", "--kind", "loopback", "--group", "blue"], more].concat(),
        )
    };
    let wrong = add(&["--frame-max", "59"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("60 to 9018"), "{wrong:?}");
    let foreign = add(&["--cid", "3"]);
    assert!(
        String::from_utf8_lossy(&foreign.stderr).contains("only a port of kind"),
        "{foreign:?}"
    );
}

/// Checks that the control API describes the kind: manual pages and help texts contain it.
fn manual_pages(host: &Host) {
    let man = host.folder.join("man");
    host.ok(&["man", man.to_str().unwrap()]);
    let page = std::fs::read_to_string(man.join("causeway-port-add.1")).unwrap();
    assert!(page.contains("frame") && page.contains("loopback"), "{page}");
    assert!(host.ok(&["port", "add", "--help"]).contains("--frame-max"), "help");
}

/// Checks that frames return, and that `stats` counts them.
fn frames_and_counters(host: &Host) {
    let mut port = NetPort::attach(&host.folder.join("a.sock"), NetOptions::default()).unwrap();
    let (sent, mut got) = (vec![7; 64], Vec::new());
    assert!(port.send(&sent).unwrap());
    let since = Instant::now();
    while port.receive(0, &mut got).unwrap().is_none() {
        assert!(since.elapsed() < LIMIT, "the frame does not come back");
        port.wait(Some(Duration::from_millis(50))).unwrap();
    }
    assert_eq!(got, sent);
    assert!(port.send(&[7; 101]).unwrap(), "longer than frame_max");
    await_drops(host, 1);
    // The receive queue does not run.
    port.frontend().pause(0).unwrap();
    assert!(port.send(&sent).unwrap());
    await_drops(host, 2);
}

/// Waits until `stats` counts a number of dropped frames, and checks that one frame returned.
fn await_drops(host: &Host, count: u64) {
    let since = Instant::now();
    loop {
        let stats = host.json(&["stats", "-j"]);
        let a = stats["ports"].as_array().unwrap().iter().find(|port| port["name"] == "a").unwrap();
        assert_eq!(
            (&a["kind"], &a["counters"]["returned_frames_total"]),
            (&"loopback".into(), &1.into())
        );
        if a["counters"]["drop_frames_total"] == count {
            break;
        }
        assert!(since.elapsed() < LIMIT, "{a}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Checks that the printed configuration is equal when it is read again.
fn printed_configuration(host: &Host) {
    let config = host.folder.join("causeway.toml");
    let print = |file: &Path| {
        let daemon = env!("CARGO_BIN_EXE_causewayd-loopback");
        let out = Command::new(daemon).arg("--config").arg(file).arg("--print-config").output();
        String::from_utf8(out.unwrap().stdout).unwrap()
    };
    let printed = print(&config);
    assert!(printed.contains("kind = \"loopback\"\n") && printed.contains("frame_max = 100\n"));
    assert!(printed.contains("[[label]]\nname = \"second\"\nnumber = 1\n"), "{printed}");
    std::fs::write(&config, &printed).unwrap();
    assert_eq!(print(&config), printed);
}
