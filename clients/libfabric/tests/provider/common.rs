//! A daemon in the test's process, and programs that use libfabric and find the provider.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use causeway_fabric::{Fabric, Handle, Options};
use causeway_model::Command as Control;
use causeway_model::Mac;
use causeway_model::{MxSpec, MxUdp, PortKind, PortSpec};
use causeway_testing::wait::patient;

/// The longest duration of a program, on a machine that is not busy.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The NICs of a group, on a daemon.
pub struct Host {
    handle: Handle,
    _fabric: Fabric,
    pub dir: Folder,
}

/// Returns the address of a NIC.
pub fn nic(board: &str) -> u64 {
    0x0200_0000_0000 | u64::from(board.as_bytes()[0])
}

impl Host {
    pub fn new(boards: &[&str]) -> Self {
        Self::with(boards, |local| local)
    }

    /// Starts a daemon with a NIC on an interface, in direct mode or not.
    #[allow(dead_code, reason = "for tests of two hosts")]
    pub fn on(interface: &str, board: &str, bypass: bool) -> Self {
        let interface = Some(interface.to_owned());
        Self::with(&[board], |local| MxSpec { interface: interface.clone(), bypass, ..local })
    }

    /// Starts a daemon with its sockets in a directory that remains, where another daemon may have
    /// had them.
    #[allow(dead_code, reason = "for tests of daemons that are killed")]
    pub fn at(dir: &Path, boards: &[&str]) -> Self {
        boards.iter().for_each(|board| drop(std::fs::remove_file(dir.join(board))));
        Self::over(Folder::lent(dir), boards, |local| local)
    }

    /// As [`Self::at`], with a NIC that another host reaches by datagrams.
    #[allow(dead_code, reason = "for tests of daemons that are killed")]
    pub fn carried(dir: &Path, board: &str, udp: &MxUdp) -> Self {
        drop(std::fs::remove_file(dir.join(board)));
        let carried = |local| MxSpec { udp: Some(udp.clone()), ..local };
        Self::over(Folder::lent(dir), &[board], carried)
    }

    fn with(boards: &[&str], make: impl Fn(MxSpec) -> MxSpec) -> Self {
        Self::over(Folder::new(), boards, make)
    }

    fn over(dir: Folder, boards: &[&str], make: impl Fn(MxSpec) -> MxSpec) -> Self {
        let fabric = Fabric::start(&[causeway_mx::SERVICE], Options::default()).unwrap();
        let host = Self { handle: fabric.handle(), _fabric: fabric, dir };
        let group: causeway_model::Name = "red".parse().unwrap();
        host.handle.call(Control::GroupAdd(group.into())).unwrap();
        for board in boards {
            let [_, _, mac @ ..] = nic(board).to_be_bytes();
            let kind = PortKind::of(make(MxSpec::local(Mac(mac), format!("{board}:0"))));
            let (name, group) = (board.parse().unwrap(), "red".parse().unwrap());
            let socket = host.dir.0.join(board);
            host.handle
                .call(Control::PortAdd(PortSpec {
                    name,
                    group,
                    socket,
                    access: Default::default(),
                    memory_max: None,
                    kind,
                }))
                .unwrap();
        }
        host
    }

    /// Returns the paths of the NICs' sockets in the form of `CAUSEWAY_MX`.
    pub fn sockets(&self, boards: &[&str]) -> String {
        let paths = boards.iter().map(|board| self.dir.0.join(board).display().to_string());
        paths.collect::<Vec<_>>().join(":")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.handle.stop();
    }
}

/// A directory of a test.
pub struct Folder(pub PathBuf, bool);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("causeway-fi-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path, true)
    }

    /// Refers to a directory that remains.
    #[allow(dead_code, reason = "for tests of daemons that are killed")]
    fn lent(path: &Path) -> Self {
        Self(path.to_owned(), false)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.1 {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// Returns a directory with the provider under the name that the core searches.
pub fn provider() -> Folder {
    let test = std::env::current_exe().unwrap();
    let here = test.parent().unwrap();
    let library = |path: &Path| path.join("libcauseway_provider.so");
    let found = [here, here.parent().unwrap()].into_iter().map(library).find(|path| path.exists());
    let folder = Folder::new();
    let found = found.expect("cargo built the library");
    std::os::unix::fs::symlink(found, folder.0.join("libcauseway-fi.so")).unwrap();
    folder
}

/// Returns the directories that `scripts/mpi.sh` filled, below the target directory of this test.
pub fn fetched() -> Vec<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let folders = test.ancestors().skip(3).filter_map(|target| target.join("mpi").read_dir().ok());
    let mut found: Vec<PathBuf> = folders.flatten().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Returns the libraries of libfabric to test: the system's, the 2.x of MPICH of the Python index,
/// and those in the directories that `CAUSEWAY_LIBFABRIC` lists.
pub fn cores() -> Vec<Option<PathBuf>> {
    let brought = fetched().into_iter().map(|place| place.join("lib/mpich"));
    let brought = brought.filter(|folder| folder.join("libfabric.so.1").exists());
    let more = std::env::var_os("CAUSEWAY_LIBFABRIC").unwrap_or_default();
    let more = std::env::split_paths(&more).filter(|path| !path.as_os_str().is_empty());
    std::iter::once(None).chain(brought.chain(more).map(Some)).collect()
}

/// Returns whether a program of libfabric is installed.
pub fn is_installed(program: &str) -> bool {
    let there = Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there {
        eprintln!("{program} is not installed (libfabric-bin): nothing is tested");
    }
    there
}

/// The output of a program, and whether it succeeded.
#[derive(Debug)]
pub struct Output {
    pub out: String,
    pub err: String,
    pub good: bool,
}

/// Returns a command that uses the provider, without the variables of libfabric from the
/// environment.
pub fn command(program: &str, provider: &Folder, core: Option<&Path>, boards: &str) -> Command {
    let mut command = Command::new(program);
    for name in ["FI_PROVIDER", "FI_LOG_LEVEL", "FI_LOG_PROV", "FI_LOG_SUBSYS"] {
        command.env_remove(name);
    }
    command.env("FI_PROVIDER_PATH", &provider.0).env("CAUSEWAY_MX", boards);
    if let Some(core) = core {
        command.env("LD_LIBRARY_PATH", core);
    }
    command
}

/// Runs a command to its end, or kills it after a time-out.
pub fn run(command: &mut Command) -> Output {
    let folder = Folder::new();
    let files = ["out", "err"].map(|name| folder.0.join(name));
    let [out, err] = files.each_ref().map(|path| std::fs::File::create(path).unwrap());
    let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap();
    let status = wait(child);
    let [out, err] =
        files.map(|path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned());
    Output { out, err, good: status.is_some_and(|status| status.success()) }
}

fn wait(mut child: Child) -> Option<std::process::ExitStatus> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if since.elapsed() > patient(PATIENCE) {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Compiles a program of `tests/c`. Returns `None` if libfabric's headers are not installed.
pub fn compile(name: &str) -> Option<Folder> {
    let preprocessed = Command::new("cc")
        .args(["-E", "-include", "rdma/fabric.h", "-x", "c", "/dev/null", "-o", "/dev/null"])
        .stderr(Stdio::null())
        .status();
    if !preprocessed.unwrap().success() {
        eprintln!("libfabric's headers are not installed (libfabric-dev): nothing is tested");
        return None;
    }
    let folder = Folder::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name);
    let done = Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .args([folder.0.join("program"), source])
        .args(["-pthread", "-lfabric"])
        .status();
    assert!(done.unwrap().success(), "{name} compiles");
    Some(folder)
}
