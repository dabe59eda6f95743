//! Runs `causewayd` for guests, in its own run directory.
//!
//! Tests, the demo, the matrix and [`crate::rdma`] start a [`Daemon`] with the ports of a
//! [`Setup`]. The daemon is a child process, as `nobody` if the test is root, with no capability
//! but CAP_NET_RAW where a NIC has an interface; causewayd starts its holder itself. The log goes
//! to a console, which keeps its end. The sockets of the setup must exist within 15 s (times
//! `CAUSEWAY_PATIENCE`) of the start, before which the programs may be built; a stop may take 5 s
//! before the process is killed. A daemon that ends by itself is an error of [`Daemon::check`], or
//! of a start, with the end of its log; nothing restarts it. The process and the run directory are
//! gone after the drop; the holder has a session of its own, and ends later by itself.

use crate::console::Console;
use crate::error::{Error, Result};
use crate::limits::{CHECK, DAEMON_READY, DAEMON_STOP, patient};
use crate::process::{self, Process};
use crate::rundir::RunDir;
use crate::spec::{Nic, NicBackend};
use crate::{GuestSpec, bridge, build};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

pub use crate::setup::{Adapter, Member, MxNic, SNAPSHOT_CID, SNAPSHOT_MAC, Setup};

/// User and group `nobody`, used for the daemon when this process is root.
pub(crate) const NOBODY: u32 = 65534;
/// The holder's program.
const HOLDER: &str = "causeway-holder";
/// The CID of the host.
pub const HOST_CID: u32 = 2;

/// A running causewayd.
#[derive(Debug)]
pub struct Daemon {
    process: Process,
    log: Console,
    dir: RunDir,
    cli: PathBuf,
    program: PathBuf,
    setup: Setup,
}

impl Daemon {
    /// Starts a daemon with two ports for each member and returns when all its sockets exist. When
    /// this process is root, the daemon runs as `nobody`.
    ///
    /// # Errors
    /// When the daemon cannot be built or started, exits, or is not ready in time.
    pub fn start(members: &[Member]) -> Result<Self> {
        Self::with(Setup::new(members))
    }

    /// Starts a daemon with `setup`.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn with(setup: Setup) -> Result<Self> {
        let (program, cli) = build::daemon()?;
        let dir = if setup.in_memory { RunDir::in_memory()? } else { RunDir::new()? };
        let config = dir.join("causeway.toml");
        write(&config, setup.configuration(dir.path()).as_bytes())?;
        let program = if rustix::process::geteuid().is_root() {
            // The build may lie in a home directory that `nobody` cannot enter.
            let copy = dir.join("causewayd");
            fs::copy(&program, &copy).map_err(Error::io(format!("copy {}", program.display())))?;
            // The daemon expects its holder in its own folder.
            let holder = program.with_file_name(HOLDER);
            fs::copy(&holder, dir.join(HOLDER))
                .map_err(Error::io(format!("copy {}", holder.display())))?;
            chown(dir.path(), Some(NOBODY), Some(NOBODY))
                .map_err(Error::io(format!("give {} to nobody", dir.path().display())))?;
            copy
        } else {
            program
        };
        let log = Console::default();
        let process = launch(&program, &dir, &log, &setup)?;
        let mut daemon = Self { process, log, dir, cli, program, setup };
        daemon.await_ready()?;
        Ok(daemon)
    }

    /// Kills the daemon with SIGKILL and starts another, which is ready on return.
    ///
    /// # Errors
    /// When the new daemon is not ready in time.
    pub fn replace(&mut self) -> Result<()> {
        self.kill();
        self.resume()
    }

    /// Kills the daemon with SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
        // A stale socket would be taken for the next daemon's.
        let _ = fs::remove_file(self.control_socket());
    }

    /// Removes the records from which the next daemon continues adapters. Errors are ignored.
    pub fn remove_records(&self) {
        let files = fs::read_dir(self.dir.join("held")).into_iter().flatten().flatten();
        for file in files.filter(|file| file.path().extension().is_some_and(|e| e == "hca")) {
            let _ = fs::remove_file(file.path());
        }
    }

    /// Starts a daemon in place of one that was killed ([`Self::kill`]); it is ready on return.
    ///
    /// # Errors
    /// When the daemon is not ready in time.
    pub fn resume(&mut self) -> Result<()> {
        self.process = launch(&self.program, &self.dir, &self.log, &self.setup)?;
        self.await_ready()
    }

    /// Waits until all sockets of the daemon exist.
    fn await_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        loop {
            let missing = self.sockets().into_iter().find(|s| !s.exists());
            let Some(missing) = missing else { return Ok(()) };
            self.check()?;
            if start.elapsed() > patient(DAEMON_READY) {
                return Err(self
                    .error(format!("{} does not exist within the time limit", missing.display())));
            }
            thread::sleep(CHECK);
        }
    }

    /// Returns the paths of all sockets.
    fn sockets(&self) -> Vec<PathBuf> {
        let of = |m: &Member| [self.net_socket(m), self.vsock_socket(m), self.host_socket(m)];
        let mut all: Vec<PathBuf> = self.setup.members.iter().flat_map(of).collect();
        all.extend(self.setup.nics.iter().map(|nic| self.nic_socket(&nic.name)));
        all.extend(self.setup.adapters.iter().map(|a| self.adapter_socket(&a.name)));
        all.push(self.control_socket());
        all
    }

    /// Checks that the daemon runs.
    ///
    /// # Errors
    /// When the daemon has exited, with the end of its log.
    pub fn check(&mut self) -> Result<()> {
        match self.process.ended() {
            Some(status) => {
                thread::sleep(std::time::Duration::from_millis(50));
                Err(self.error(format!("ended: {status}")))
            }
            None => Ok(()),
        }
    }

    /// Returns the member of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn member(&self, name: &str) -> Result<&Member> {
        let found = self.setup.members.iter().find(|m| m.name == name);
        found.ok_or_else(|| self.error(format!("has no guest {name}")))
    }

    /// Returns the spec of a guest attached to a member's two ports.
    #[must_use]
    pub fn guest(&self, member: &Member) -> GuestSpec {
        let nic = Nic {
            backend: NicBackend::VhostUser(self.net_socket(member)),
            mac: member.guest_mac(),
            address: format!("{}/24", member.ip()),
            mtu: member.mtu,
        };
        GuestSpec::new(&member.name).nic(nic).vsock(self.vsock_socket(member))
    }

    /// Returns the operator's tool.
    #[must_use]
    pub fn tool(&self) -> &Path {
        &self.cli
    }

    /// Runs the operator's tool against this daemon.
    ///
    /// # Errors
    /// When the tool fails, with its output.
    pub fn cli(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.cli);
        process::output(command.arg("--control").arg(self.control_socket()).args(arguments))
    }

    /// Sends SIGTERM and waits up to 5 s; `None` when the daemon had to be killed.
    pub fn stop(&mut self) -> Option<ExitStatus> {
        self.process.stop(DAEMON_STOP)
    }

    /// Returns the end of the log.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.tail()
    }

    /// Returns the process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the control socket.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.dir.join("control.sock")
    }

    /// Returns the socket of a member's network port.
    #[must_use]
    pub fn net_socket(&self, member: &Member) -> PathBuf {
        self.dir.join(&format!("{}-net.sock", member.name))
    }

    /// Returns the socket of a member's vsock port.
    #[must_use]
    pub fn vsock_socket(&self, member: &Member) -> PathBuf {
        self.dir.join(&format!("{}-vsock.sock", member.name))
    }

    /// Returns the socket of a NIC, the value of `CAUSEWAY_MX`.
    #[must_use]
    pub fn nic_socket(&self, nic: &str) -> PathBuf {
        self.dir.join(&format!("{nic}.sock"))
    }

    /// Returns the vfio-user socket of a host channel adapter.
    #[must_use]
    pub fn adapter_socket(&self, adapter: &str) -> PathBuf {
        self.dir.join(&format!("{adapter}.sock"))
    }

    /// Returns the socket on which host processes connect to a member; it is also the prefix of the
    /// sockets on which they accept its connections.
    #[must_use]
    pub fn host_socket(&self, member: &Member) -> PathBuf {
        self.dir.join(&format!("{}.vsock", member.name))
    }

    /// Returns the socket on which a host process accepts a member's connections to `port`; see
    /// [`Daemon::open_to_daemon`].
    #[must_use]
    pub fn host_listener(&self, member: &Member, port: u32) -> PathBuf {
        self.dir.join(&format!("{}.vsock_{port}", member.name))
    }

    /// Permits the daemon, another user, to connect to a socket of this process.
    ///
    /// # Errors
    /// When the socket's mode cannot be changed.
    pub fn open_to_daemon(&self, socket: &Path) -> Result<()> {
        fs::set_permissions(socket, fs::Permissions::from_mode(0o666))
            .map_err(Error::io(format!("open {}", socket.display())))
    }

    fn error(&self, what: String) -> Error {
        Error::Daemon { what, log: self.log.tail() }
    }
}

/// Starts causewayd with the configuration in `dir`, in the network namespace of `setup` if that
/// names a process.
fn launch(program: &Path, dir: &RunDir, log: &Console, setup: &Setup) -> Result<Process> {
    let mut prefix = setup.namespace_of.map(bridge::enter).unwrap_or_default();
    if rustix::process::geteuid().is_root() {
        let interfaces = setup.nics.iter().any(|nic| nic.interface.is_some());
        prefix.extend(as_nobody(interfaces));
    }
    let mut command = process::tied_within(&prefix, program);
    command.arg("--config").arg(dir.join("causeway.toml")).current_dir(dir.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start("causewayd", command)?;
    if let Some(stdout) = process.child().stdout.take() {
        log.follow(stdout);
    }
    if let Some(stderr) = process.child().stderr.take() {
        log.follow(stderr);
    }
    Ok(process)
}

/// Returns the prefix that runs a command as `nobody`, with CAP_NET_RAW only where it uses
/// interfaces.
fn as_nobody(interfaces: bool) -> Vec<String> {
    let id = NOBODY.to_string();
    let kept = if interfaces { "-all,+net_raw" } else { "-all" };
    let caps = ["inh-caps", "ambient-caps", "bounding-set"].map(|set| format!("--{set}={kept}"));
    ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups", "--no-new-privs"]
        .into_iter()
        .map(String::from)
        .chain(caps)
        .chain(["--".into()])
        .collect()
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).map_err(Error::io(format!("write {}", path.display())))
}
