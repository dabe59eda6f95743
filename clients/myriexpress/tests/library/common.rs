//! A daemon in the test process, and C programs that attach to its NICs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use causeway_fabric::{Fabric, Handle, Options};
use causeway_model::Mac;
use causeway_model::{Answer, Command as Control, CommandError};
use causeway_model::{MxSpec, MxUdp, PortKind, PortSpec};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the directory of the library.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let here = test.parent().unwrap();
    let at = |path: &Path| path.join("libmyriexpress.so").exists();
    let found = [here, here.parent().unwrap()].into_iter().find(|path| at(path));
    found.expect("cargo built the library").to_owned()
}

pub fn headers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// A compiled program, which is deleted when dropped.
pub struct Program(PathBuf);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl AsRef<std::ffi::OsStr> for Program {
    fn as_ref(&self) -> &std::ffi::OsStr {
        self.0.as_os_str()
    }
}

/// Compiles a program of `tests/c`.
pub fn compile(name: &str) -> Program {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name);
    let program = std::env::temp_dir()
        .join(format!("causeway-myri-{}-{number}-{name}.out", std::process::id()));
    let library = library();
    let done = Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"])
        .args([&program, &source])
        .arg(format!("-I{}", headers().display()))
        .args([format!("-L{}", library.display()), format!("-Wl,-rpath,{}", library.display())])
        .arg("-lmyriexpress")
        .status();
    assert!(done.unwrap().success(), "{name} compiles");
    Program(program)
}

/// A daemon with NICs `a` and `b` of one group, and `c` of another.
pub struct Host {
    handle: Handle,
    _fabric: Fabric,
    dir: PathBuf,
}

pub fn nic(board: &str) -> u64 {
    0x0200_0000_0000 | u64::from(board.as_bytes()[0])
}

impl Host {
    pub fn new() -> Self {
        let host = Self::without_boards();
        for (board, group) in [("a", "red"), ("b", "red"), ("c", "blue")] {
            host.add(board, group, None).unwrap();
        }
        host
    }

    /// Starts a daemon with a NIC of group `red` on an interface.
    pub fn on(interface: &str, board: &str) -> Self {
        let host = Self::without_boards();
        host.add(board, "red", Some(interface)).unwrap();
        host
    }

    /// As [`Self::on`], in direct mode.
    pub fn past(interface: &str, board: &str) -> Self {
        Self::past_at(interface, board, folder())
    }

    /// As [`Self::past`], with sockets in a folder.
    pub fn past_at(interface: &str, board: &str, dir: PathBuf) -> Self {
        let host = Self::at(dir);
        host.add_past(interface, board);
        host
    }

    /// Adds a NIC in direct mode.
    pub fn add_past(&self, interface: &str, board: &str) {
        let interface = Some(interface.to_owned());
        self.add_spec(board, "red", |local| MxSpec { interface, bypass: true, ..local }).unwrap();
    }

    /// Starts a daemon with a NIC of group `red` with datagrams between ports of the loopback
    /// address.
    pub fn with_udp(board: &str, listen: u16, peer: u16) -> Self {
        let host = Self::without_boards();
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let udp = MxUdp { listen: at(listen), peers: vec![at(peer)] };
        host.add_spec(board, "red", |local| MxSpec { udp: Some(udp), ..local }).unwrap();
        host
    }

    fn without_boards() -> Self {
        Self::at(folder())
    }

    /// Starts a daemon without NICs, with sockets in a folder.
    pub fn at(dir: PathBuf) -> Self {
        std::fs::create_dir_all(&dir).unwrap();
        let fabric = Fabric::start(&[causeway_mx::SERVICE], Options::default()).unwrap();
        let host = Self { handle: fabric.handle(), _fabric: fabric, dir };
        for group in ["red", "blue"] {
            let name: causeway_model::Name = group.parse().unwrap();
            host.handle.call(Control::GroupAdd(name.into())).unwrap();
        }
        host
    }

    /// Adds a NIC.
    pub fn add(
        &self,
        board: &str,
        group: &str,
        interface: Option<&str>,
    ) -> Result<Answer, CommandError> {
        let interface = interface.map(str::to_owned);
        self.add_spec(board, group, |local| MxSpec { interface, ..local })
    }

    fn add_spec(
        &self,
        board: &str,
        group: &str,
        make: impl FnOnce(MxSpec) -> MxSpec,
    ) -> Result<Answer, CommandError> {
        let [_, _, mac @ ..] = nic(board).to_be_bytes();
        let kind = PortKind::of(make(MxSpec::local(Mac(mac), format!("{board}:0"))));
        let (name, group) = (board.parse().unwrap(), group.parse().unwrap());
        let socket = self.dir.join(board);
        self.handle.call(Control::PortAdd(PortSpec {
            name,
            group,
            socket,
            access: Default::default(),
            memory_max: None,
            kind,
        }))
    }

    /// Stops the daemon. Returns the folder of its sockets, which remain.
    pub fn stop(mut self) -> PathBuf {
        std::mem::take(&mut self.dir)
    }

    /// Returns the folder of the sockets.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the counters of a NIC.
    pub fn counters(&self, board: &str) -> BTreeMap<String, u64> {
        match self.handle.call(Control::PortShow(board.parse().unwrap())) {
            Ok(Answer::Port(view)) => view.counters,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the counters of a NIC once it has no endpoint: the daemon notices later that a process
    /// has ended.
    pub fn counters_at_rest(&self, board: &str) -> BTreeMap<String, u64> {
        let since = Instant::now();
        loop {
            let counted = self.counters(board);
            if counted["endpoints"] == 0 {
                return counted;
            }
            assert!(since.elapsed() < Duration::from_secs(10), "{counted:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Starts a program as a process of NICs of this daemon.
    pub fn start(
        &self,
        program: impl AsRef<std::ffi::OsStr>,
        boards: &[&str],
        arguments: &[&str],
    ) -> Running {
        start(&self.dir, program, boards, arguments)
    }

    /// As [`Self::start`], for a process without channels: its messages pass through this daemon.
    pub fn start_without_channels(
        &self,
        program: impl AsRef<std::ffi::OsStr>,
        boards: &[&str],
        arguments: &[&str],
    ) -> Running {
        let mut command = command(&self.dir, program, boards, arguments);
        Running(command.env("CAUSEWAY_MX_CHANNELS", "0").spawn().unwrap())
    }
}

/// Returns a new folder.
pub fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("causeway-my-{}-{number}", std::process::id()))
}

/// Starts a program as a process of NICs with sockets in `dir`.
pub fn start(
    dir: &Path,
    program: impl AsRef<std::ffi::OsStr>,
    boards: &[&str],
    arguments: &[&str],
) -> Running {
    Running(command(dir, program, boards, arguments).spawn().unwrap())
}

/// Returns the command of a program as a process of NICs with sockets in `dir`.
fn command(
    dir: &Path,
    program: impl AsRef<std::ffi::OsStr>,
    boards: &[&str],
    arguments: &[&str],
) -> Command {
    let sockets: Vec<String> =
        boards.iter().map(|board| dir.join(board).display().to_string()).collect();
    let mut command = Command::new(program);
    command.args(arguments).env("CAUSEWAY_MX", sockets.join(":")).stdout(Stdio::piped());
    command
}

impl Drop for Host {
    fn drop(&mut self) {
        self.handle.stop();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A process, which is killed when dropped.
pub struct Running(pub Child);

impl Running {
    /// Waits for success. Returns the output.
    pub fn end(self) -> String {
        let (status, said) = self.ended();
        assert!(status.success(), "{status}: {said}");
        said
    }

    /// Waits for failure. Returns the output.
    pub fn fails(self) -> String {
        let (status, said) = self.ended();
        assert!(!status.success(), "{said}");
        said
    }

    fn ended(mut self) -> (ExitStatus, String) {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            if since.elapsed() > PATIENCE {
                self.0.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut said = String::new();
        use std::io::Read as _;
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        (status, said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
