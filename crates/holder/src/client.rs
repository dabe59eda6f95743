//! causewayd's side of the control connection: starts the holder and registers ports.
//!
//! `daemon::held_ports` calls it in causewayd: at start, when a port is added, when a held port is
//! deleted, when a held port with a list of users is shown ([`Client::refused_users`]), and at the
//! end. In the holder's process, only [`make_dir`] and `lock` run, at its start. Requests go one at
//! a time ([`crate::protocol`]); a call blocks for at most [`CONTROL_START_TIMEOUT`] (30 s) for
//! its answer, and for [`CONTROL_TIMEOUT`] (5 s) after [`Client::end_start`]; [`START_TIMEOUT`]
//! (10 s) more while the holder starts. A dispatcher must not call it. After an error of the
//! connection or a mismatched answer the client is unusable; the caller connects again and adds all
//! ports again. After [`HolderError::Refused`] it stays usable.
//!
//! While the connection is open, the holder routes the frontends of ports that were added on it to
//! this causewayd; when it closes, frontends wait for the next. The module sees no frontend and no
//! vhost-user message, does not restart a holder that ends (`daemon::held_ports` does, at the next
//! addition of a port), and trusts the run directory only if no other user can write to it
//! ([`make_dir`]).
//!
//! The holder refuses ([`HolderError::Refused`], with its reason as text)
//!
//! - the connection: another causewayd is connected, this process belongs to another user than the
//!   holder's and not to root, the holder cannot open a pidfd of this process, or the releases of
//!   the two use different versions of the protocol,
//! - a port: 1,024 ports are held, or its public socket cannot be bound,
//! - a query for a port that is not held.
//!
//! It refuses no other request of a client that [`Client::over`] returned: neither a deletion nor
//! [`Client::synced`] or [`Client::let_go`].
//!
//! Calls may come from any thread of causewayd that may block; `daemon::held_ports` serialises them
//! by a mutex. Only [`start`] runs in a thread of its own there, outside of the sandbox.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
};

use crate::directory::CONTROL;
use crate::limits::{CONTROL_START_TIMEOUT, CONTROL_TIMEOUT, START_PAUSE, START_TIMEOUT};
use crate::protocol::{Answer, HeldPort, ProtocolError, Request, VERSION, receive, send};

/// Name of the log file of a holder started by causewayd, in the holder's directory.
pub const LOG: &str = "holder.log";

/// Why the holder cannot be reached, or refused a request.
#[derive(Debug, thiserror::Error)]
pub enum HolderError {
    /// The directory cannot be created.
    #[error("cannot make directory {path}: {error}")]
    Dir {
        /// The directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The directory belongs to another user, or other users can write to it.
    #[error(
        "directory {0} must belong to the holder's user and be writable for no other; remove it, \
         or give another run_dir"
    )]
    Unsafe(PathBuf),
    /// The program cannot be started.
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
    /// The holder was started and does not listen.
    #[error("the holder does not listen on {0}: see holder.log in that directory")]
    Silent(PathBuf),
    /// The control connection failed, or no answer arrived within [`CONTROL_TIMEOUT`] (5 s), or
    /// [`CONTROL_START_TIMEOUT`] (30 s) during a start: the client is unusable.
    #[error("the holder: {0}")]
    Conversation(#[from] ProtocolError),
    /// The holder refused the request.
    #[error("the holder: {0}")]
    Refused(String),
    /// The answer does not match the request.
    #[error("the holder's answer does not match the request")]
    Garbled,
    /// A system call failed.
    #[error("{0}")]
    System(#[from] Errno),
}

/// The control connection to a holder. While it is open, the holder routes frontends to this
/// process.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    /// The holder's process identifier.
    pid: u32,
}

impl Client {
    /// Connects to the holder of `dir`; if none runs, calls `begin` to start it (see [`start`]),
    /// and tries every [`START_PAUSE`] (5 ms) until it listens.
    ///
    /// # Errors
    /// The directory is unusable, or the holder cannot be started, does not listen within
    /// [`START_TIMEOUT`] (10 s), or refuses this process: another causewayd is connected, the
    /// holder belongs to another user, or has another protocol version.
    pub fn reach(
        dir: &Path,
        begin: impl FnOnce(&Path) -> Result<(), HolderError>,
    ) -> Result<Self, HolderError> {
        make_dir(dir)?;
        match Self::connect(dir) {
            Err(HolderError::System(Errno::NOENT | Errno::CONNREFUSED)) => {}
            other => return other,
        }
        begin(dir)?;
        let since = Instant::now();
        while since.elapsed() < START_TIMEOUT {
            match Self::connect(dir) {
                Err(HolderError::System(Errno::NOENT | Errno::CONNREFUSED)) => {
                    thread::sleep(START_PAUSE);
                }
                other => return other,
            }
        }
        Err(HolderError::Silent(dir.join(CONTROL)))
    }

    /// Connects to the holder of `dir`.
    ///
    /// # Errors
    /// No holder listens (`NOENT`, `CONNREFUSED`), or it refuses this process
    /// ([`HolderError::Refused`]), for example because another causewayd is connected.
    pub fn connect(dir: &Path) -> Result<Self, HolderError> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(CONTROL_START_TIMEOUT))?;
        set_socket_timeout(&socket, Timeout::Send, Some(CONTROL_START_TIMEOUT))?;
        connect(&socket, &SocketAddrUnix::new(dir.join(CONTROL))?)?;
        Self::over(socket)
    }

    /// Begins the conversation over a socket that is connected to a holder. The holder keeps a
    /// pidfd of the process that connected the socket: after the connection closed, frontends pass
    /// to another causewayd only when that process has ended, because guest memory is in use until
    /// then ([`crate::process`]).
    ///
    /// # Errors
    /// The holder refuses it ([`HolderError::Refused`]), or does not answer.
    pub fn over(socket: OwnedFd) -> Result<Self, HolderError> {
        let mut client = Self { socket, pid: 0 };
        let hello = Request::Hello { version: VERSION, pid: std::process::id() };
        match client.ask(&hello)? {
            Answer::Hello { version: VERSION, pid } => client.pid = pid,
            Answer::Refused(why) => return Err(HolderError::Refused(why)),
            _ => return Err(HolderError::Garbled),
        }
        Ok(client)
    }

    /// Limits the wait of later requests to [`CONTROL_TIMEOUT`] (5 s): the start of causewayd is
    /// over, and its operators wait for the calls.
    ///
    /// # Errors
    /// The system call failed.
    pub fn end_start(&mut self) -> Result<(), HolderError> {
        set_socket_timeout(&self.socket, Timeout::Recv, Some(CONTROL_TIMEOUT))?;
        set_socket_timeout(&self.socket, Timeout::Send, Some(CONTROL_TIMEOUT))?;
        Ok(())
    }

    /// Returns the holder's process identifier.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns whether the connection is open. The holder sends no unsolicited messages.
    pub fn is_there(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&none)).is_ok_and(|ready| ready == 0)
    }

    /// Sends a request and returns its answer.
    fn ask(&mut self, request: &Request) -> Result<Answer, HolderError> {
        send(&self.socket, request)?;
        Ok(receive(&self.socket, RecvFlags::empty())?)
    }

    /// Sends a request that the holder must execute.
    fn request(&mut self, request: &Request) -> Result<(), HolderError> {
        match self.ask(request)? {
            Answer::Done => Ok(()),
            Answer::Refused(why) => Err(HolderError::Refused(why)),
            Answer::Hello { .. } | Answer::RefusedUsers { .. } => Err(HolderError::Garbled),
        }
    }

    /// Returns the number of frontends of a port that were refused for their user, and the last
    /// user. Only for ports with a list of users: earlier holders know neither.
    ///
    /// # Errors
    /// The holder does not answer, or does not hold the port.
    pub fn refused_users(&mut self, port: &str) -> Result<(u64, Option<u32>), HolderError> {
        match self.ask(&Request::RefusedUsers { name: port.to_owned() })? {
            Answer::RefusedUsers { total, user } => Ok((total, user)),
            Answer::Refused(why) => Err(HolderError::Refused(why)),
            Answer::Done | Answer::Hello { .. } => Err(HolderError::Garbled),
        }
    }

    /// Holds a port whose inner socket is served from now on. A port that is held already keeps its
    /// frontend if the public socket, [`HeldPort::device`], the protocol, the queues and the ring
    /// size are the same, and nobody replaced the socket's file; otherwise the frontend is
    /// disconnected. The inner socket may be another one.
    ///
    /// # Errors
    /// The connection failed, or the holder refused: it holds 1,024 ports, or cannot bind the
    /// public socket. After a refusal a held port of the same name that it should replace is gone.
    pub fn add(&mut self, port: HeldPort) -> Result<(), HolderError> {
        self.request(&Request::Add(port))
    }

    /// Releases a port: its frontend is disconnected. An unknown name has no effect.
    ///
    /// # Errors
    /// The connection failed.
    pub fn delete(&mut self, name: &str) -> Result<(), HolderError> {
        self.request(&Request::Delete { name: name.into() })
    }

    /// Releases all ports that were not added on this connection.
    ///
    /// # Errors
    /// The connection failed.
    pub fn synced(&mut self) -> Result<(), HolderError> {
        self.request(&Request::Synced)
    }

    /// Releases all ports, whose frontends are disconnected, and makes the holder exit, unless it
    /// runs with `HolderOptions::stay`.
    ///
    /// # Errors
    /// The connection failed.
    pub fn let_go(mut self) -> Result<(), HolderError> {
        self.request(&Request::LetGo)
    }
}

/// Creates a holder's directory with mode 0700, or accepts an existing one of this user or root
/// that no other user can write to.
///
/// # Errors
/// It cannot be created, belongs to another user, or other users can write to it.
pub fn make_dir(dir: &Path) -> Result<(), HolderError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    let wrong = |error| HolderError::Dir { path: dir.to_owned(), error };
    made.map_err(wrong)?;
    let meta = std::fs::symlink_metadata(dir).map_err(wrong)?;
    let own = rustix::process::geteuid().as_raw();
    if !meta.is_dir() || (meta.uid() != own && meta.uid() != 0) || meta.mode() & 0o022 != 0 {
        return Err(HolderError::Unsafe(dir.to_owned()));
    }
    Ok(())
}

/// Starts a holder that outlives this process; its program begins a session of its own. The holder
/// logs to a file, [`LOG`], which is emptied first, because standard error of this process may be a
/// pipe that ends with the process. A
/// thread of this process waits for the holder's end, so that it does not become a zombie.
///
/// # Errors
/// The program cannot be started, or its log file cannot be opened.
pub fn start(dir: &Path, program: &Path) -> Result<(), HolderError> {
    let wrong = |error| HolderError::Start { program: program.to_owned(), error };
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
    // Reaps the holder if it ends before us.
    let wait = move || drop(child.wait());
    thread::Builder::new().name("holder".into()).spawn(wait).map_err(wrong)?;
    Ok(())
}
