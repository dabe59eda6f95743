//! Helpers of the daemon's tests: a model of the fabric, and a client that sends raw bytes.
#![allow(dead_code)] // Each test binary uses its part.

pub mod daemon_process;
pub mod model;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use causeway_daemon::api::{self, ApiContext};
use causeway_daemon::config::{Config, ConfigContext};
use causeway_daemon::fabric::{FabricControl, apply};
use causeway_daemon::http::server::{ControlServer, RequestHandler};
use causeway_daemon::kept::Kept;
use causeway_daemon::metrics::Metrics;
use causeway_daemon::peer::ControlAccess;
use causeway_daemon::refusals::ControlRefusals;
use causeway_daemon::services::{Registered, SERVICES};

/// A directory per test, removed with it.
#[derive(Debug)]
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("causeway-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A control socket over a fabric.
#[derive(Debug)]
pub struct ControlSocket {
    pub socket: PathBuf,
    pub server: ControlServer,
    pub dir: Dir,
}

/// Resolves one fixed name, and addresses.
pub fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    match host {
        "far.example" => Ok(vec![SocketAddr::from(([10, 0, 0, 9], port))]),
        other => match other.parse::<IpAddr>() {
            Ok(address) => Ok(vec![SocketAddr::new(address, port)]),
            Err(_) => Err(format!("host {other:?} cannot be resolved: nobody knows it")),
        },
    }
}

/// Serves the control API over `fabric`.
pub fn serve(fabric: Arc<dyn FabricControl>) -> ControlSocket {
    serve_in(Dir::new(), fabric, None)
}

/// Serves the control API over `fabric` with the configuration file `text`, and a state file in a
/// directory of the test.
pub fn serve_kept(fabric: Arc<dyn FabricControl>, text: &str) -> (ControlSocket, Arc<Kept>) {
    let dir = Dir::new();
    let kept = open_kept(&dir, fabric, text);
    (serve_in(dir, kept.clone(), Some(kept.clone())), kept)
}

/// Starts with the configuration file `text` and the state file in `dir`.
pub fn open_kept(dir: &Dir, fabric: Arc<dyn FabricControl>, text: &str) -> Arc<Kept> {
    let file = dir.file("causeway.toml");
    let control = format!("[daemon]\ncontrol = \"{}\"\n", dir.file("control.sock").display());
    std::fs::write(&file, control + text).unwrap();
    let registered = Registered::of(SERVICES);
    let config = Config::load(&file, &ConfigContext::of_process(registered)).unwrap();
    let definitions = (registered.kinds, registered.sections);
    let kept = Arc::new(Kept::open(fabric, &config, file, definitions, false));
    let before_ports = || kept.restore_before_ports();
    apply(&kept.of_file(), &config, Vec::new(), &before_ports, &|| false).unwrap();
    kept.restore_rest(&|| false);
    kept.begin().unwrap();
    kept
}

fn serve_in(dir: Dir, fabric: Arc<dyn FabricControl>, kept: Option<Arc<Kept>>) -> ControlSocket {
    let socket = dir.file("control.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let access = ControlAccess { uid: rustix::process::geteuid().as_raw(), group: None };
    let refusals = Arc::<ControlRefusals>::default();
    let started = Instant::now();
    let about = ApiContext {
        kinds: &causeway_model::port::KINDS,
        sections: Registered::of(SERVICES).sections,
        nouns: Registered::of(SERVICES).nouns,
        started,
        run_dir: dir.0.clone(),
        control: socket.clone(),
        key_file: "/etc/causeway/key".into(),
        resolve,
        refusals: refusals.clone(),
        stop: Arc::default(),
        kept,
        metrics: Arc::new({
            let registered = Registered::of(SERVICES);
            Metrics::new((started, refusals.clone()), registered.helps.clone(), registered.metrics)
        }),
    };
    let handler: Arc<RequestHandler> =
        Arc::new(move |peer, request| api::answer(&*fabric, &about, peer, request));
    let server = ControlServer::start(listener, access, handler, refusals).unwrap();
    ControlSocket { socket, server, dir }
}

/// Sends bytes unchanged and returns status and body of the reply; status 0 means no reply.
pub fn raw(socket: &Path, bytes: &[u8]) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The write may fail for a refused client; only the reply counts.
    let _ = stream.write_all(bytes);
    read_reply(&mut stream)
}

/// Reads the reply on `stream`.
pub fn read_reply(stream: &mut UnixStream) -> (u16, String) {
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    let reply = String::from_utf8_lossy(&reply);
    let reply = reply.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(&reply);
    let status = reply.get(9..12).and_then(|s| s.parse().ok()).unwrap_or(0);
    let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

/// Sends a request with a JSON body; returns the status and the notes of the reply.
pub fn send_noted(socket: &Path, method: &str, path: &str, body: &str) -> (u16, Vec<String>) {
    let length = body.len();
    let text =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}");
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let notes = reply.lines().filter_map(|line| line.strip_prefix("Causeway-Note: "));
    (reply[9..12].parse().unwrap(), notes.map(str::to_owned).collect())
}

/// Sends a request with a JSON body.
pub fn send(socket: &Path, method: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
    let length = body.len();
    let text =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}");
    let (status, body) = raw(socket, text.as_bytes());
    let value = if body.is_empty() {
        serde_json::Value::Null
    } else {
        serde_json::from_str(&body).unwrap_or_else(|e| panic!("{method} {path}: {e}: {body}"))
    };
    (status, value)
}
