//! causewayd's side: finding or starting the holder, and telling it what to hold.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
};

use crate::holder::CONTROL;
use crate::limits::{CONTROL_TIMEOUT, START_PAUSE, START_TIMEOUT};
use crate::protocol::{Answer, HeldPort, PacketError, Request, VERSION, receive, send};

/// The log of a holder that causewayd started, in the holder's directory.
pub const LOG: &str = "holder.log";

/// Why the holder cannot be had, or did not do as told.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// Its directory cannot be made.
    #[error("cannot make directory {path}: {error}")]
    Dir {
        /// The directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Its directory is not this user's alone.
    #[error(
        "directory {0} must belong to the holder's user and be writable for no other; remove it, \
         or give another run_dir"
    )]
    Unsafe(PathBuf),
    /// It cannot be started.
    #[error(
        "cannot start {program}: {error}; install it beside causewayd, or set hold = \"none\" in \
         [daemon]"
    )]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It was started and does not listen.
    #[error("the holder does not listen on {0}; its log is beside that")]
    Silent(PathBuf),
    /// The conversation failed.
    #[error("the holder: {0}")]
    Conversation(#[from] PacketError),
    /// It said no.
    #[error("the holder: {0}")]
    Refused(String),
    /// It answered what was not asked.
    #[error("the holder answers rubbish")]
    Garbled,
    /// A system call failed.
    #[error("{0}")]
    System(#[from] Errno),
}

/// The control connection to a holder; while it is open, the holder knows that we are there.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    pid: u32,
}

impl Client {
    /// Reaches the holder of `dir`; if there is none, has it started by `begin` (see [`start`]).
    pub fn reach(
        dir: &Path,
        begin: impl FnOnce(&Path) -> Result<(), HoldError>,
    ) -> Result<Self, HoldError> {
        make_dir(dir)?;
        match Self::connect(dir) {
            Err(HoldError::System(Errno::NOENT | Errno::CONNREFUSED)) => {}
            other => return other,
        }
        begin(dir)?;
        let since = Instant::now();
        while since.elapsed() < START_TIMEOUT {
            match Self::connect(dir) {
                Err(HoldError::System(Errno::NOENT | Errno::CONNREFUSED)) => {
                    thread::sleep(START_PAUSE);
                }
                other => return other,
            }
        }
        Err(HoldError::Silent(dir.join(CONTROL)))
    }

    /// Reaches the holder of `dir`.
    pub fn connect(dir: &Path) -> Result<Self, HoldError> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(CONTROL_TIMEOUT))?;
        set_socket_timeout(&socket, Timeout::Send, Some(CONTROL_TIMEOUT))?;
        connect(&socket, &SocketAddrUnix::new(dir.join(CONTROL))?)?;
        let mut client = Self { socket, pid: 0 };
        let hello = Request::Hello { version: VERSION, pid: std::process::id() };
        match client.ask(&hello)? {
            Answer::Hello { version: VERSION, pid } => client.pid = pid,
            Answer::Refused(why) => return Err(HoldError::Refused(why)),
            _ => return Err(HoldError::Garbled),
        }
        Ok(client)
    }

    /// The holder's process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has not hung up. It never speaks first.
    pub fn is_there(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&none)).is_ok_and(|ready| ready == 0)
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, HoldError> {
        send(&self.socket, request)?;
        Ok(receive(&self.socket, RecvFlags::empty())?)
    }

    fn tell(&mut self, request: &Request) -> Result<(), HoldError> {
        match self.ask(request)? {
            Answer::Done => Ok(()),
            Answer::Refused(why) => Err(HoldError::Refused(why)),
            Answer::Hello { .. } => Err(HoldError::Garbled),
        }
    }

    /// Has it hold a port whose inner socket is served from now on.
    pub fn add(&mut self, port: HeldPort) -> Result<(), HoldError> {
        self.tell(&Request::Add(port))
    }

    /// Has it let go of a port.
    pub fn delete(&mut self, name: &str) -> Result<(), HoldError> {
        self.tell(&Request::Delete { name: name.into() })
    }

    /// Has it let go of ports that were not added.
    pub fn synced(&mut self) -> Result<(), HoldError> {
        self.tell(&Request::Synced)
    }

    /// Has it let go of everything and leave.
    pub fn let_go(mut self) -> Result<(), HoldError> {
        self.tell(&Request::LetGo)
    }
}

/// Makes a holder's directory, for this user alone.
pub fn make_dir(dir: &Path) -> Result<(), HoldError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    let wrong = |error| HoldError::Dir { path: dir.to_owned(), error };
    made.map_err(wrong)?;
    let meta = std::fs::symlink_metadata(dir).map_err(wrong)?;
    let own = rustix::process::geteuid().as_raw();
    if !meta.is_dir() || (meta.uid() != own && meta.uid() != 0) || meta.mode() & 0o022 != 0 {
        return Err(HoldError::Unsafe(dir.to_owned()));
    }
    Ok(())
}

/// Starts a holder that outlives us. It makes a session of its own; its log is a file, because
/// ours may be a pipe that ends with us.
///
/// # Errors
/// The program or its log cannot be started or opened.
pub fn start(dir: &Path, program: &Path) -> Result<(), HoldError> {
    let wrong = |error| HoldError::Start { program: program.to_owned(), error };
    let log = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(dir.join(LOG))
        .map_err(wrong)?;
    let mut child = Command::new(program)
        .arg("--dir")
        .arg(dir)
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_PID")
        .env_remove("WATCHDOG_USEC")
        .env_remove("JOURNAL_STREAM")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(wrong)?;
    // Collects it when it ends before us.
    let wait = move || drop(child.wait());
    thread::Builder::new().name("holder".into()).spawn(wait).map_err(wrong)?;
    Ok(())
}

/// Takes the lock at `path`, or says that another has it.
pub(crate) fn lock(path: &Path) -> io::Result<OwnedFd> {
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file.into()),
        Err(Errno::WOULDBLOCK) => {
            let text = format!("{}: another holder has this directory", path.display());
            Err(io::Error::new(io::ErrorKind::AddrInUse, text))
        }
        Err(errno) => Err(errno.into()),
    }
}
