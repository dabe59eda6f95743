//! NICs of this host: their sockets, and the conversation with the daemon.
//!
//! A NIC has one Unix stream socket: each path in `CAUSEWAY_MX`, or, without that variable, each
//! `/run/causeway/mx*.sock` in sorted order; at most [`NICS_MAX`] (64), further sockets are
//! ignored. The index of a socket in this list is the NIC's number. [`find_all`] freezes the list
//! until [`forget`]; without it each call searches again, and numbers may change. Addresses and
//! names that daemons reported are cached until [`forget`].
//!
//! # Limits
//! Only control messages pass here; no MX message does. [`Conversation::wait`], and every function
//! here that queries a daemon, blocks for at most [`ANSWER_MAX`] (10 s) per answer, and as long for the
//! connect, while a daemon accepts nothing and its listen backlog is full. [`Conversation::ask`] and [`Conversation::hear`] do not block: a command that the socket does
//! not accept is queued. A conversation does not reconnect by itself, and its caller serialises the
//! calls. [`find`] and [`name`] query the daemons one after the other: they skip a daemon that
//! cannot be reached or does not greet, and fail at the first that ends or is silent after the
//! question. The other functions may run in any thread; the cache has its own lock, which the
//! handlers of `fork(2)` hold.
//!
//! # Place
//! An [`Endpoint`](crate::Endpoint) owns one [`Conversation`] in its
//! [`Paths`](crate::paths::Paths). The API libraries call the other functions to list NICs and
//! resolve names.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use causeway_attach::local::{LocalAttachment, LocalError, LocalMessage};
use causeway_host::ReceivedFd;
use causeway_wire::local::{
    ClientMessage, DaemonMessage, HELLO_NO_CHANNELS, HELLO_PIDFDS, Name, VERSION,
};
use rustix::event::{PollFd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::error::Error;
use crate::limits::{ANSWER_MAX, NICS_MAX};
use crate::lock::Guarded;
use crate::process_memory;
use crate::waiter::Awaited;

/// Directory of the sockets, unless `CAUSEWAY_MX` lists them.
const DIRECTORY: &str = "/run/causeway";

/// A NIC.
#[derive(Debug, Clone)]
pub struct Nic {
    /// Address: 48 bits.
    pub nic: u64,
    /// Name, as `causeway peer list` shows it.
    pub name: String,
}

/// Cache of this host's NICs.
#[derive(Debug)]
struct NicCache {
    /// Paths of the sockets at the last search.
    sockets: Option<Vec<PathBuf>>,
    /// NICs that answered, by number.
    boards: Vec<Option<Nic>>,
}

/// The cache of this process.
static CACHE: Guarded<NicCache> = Guarded::new(NicCache { sockets: None, boards: Vec::new() });

/// Locks the NIC cache before a fork.
pub fn before_fork() {
    CACHE.lock_for_fork();
}

/// Unlocks the NIC cache after a fork, in the parent and in the child.
///
/// # Safety
/// The calling thread, or its origin in the parent, called [`before_fork`].
pub unsafe fn after_fork() {
    // SAFETY: the caller's promise.
    unsafe { CACHE.unlock_after_fork() };
}

/// Returns the sockets of this host's NICs, by NIC number: those of the last [`find_all`], so that
/// numbers are stable, or else of a search now.
pub fn sockets() -> Vec<PathBuf> {
    CACHE.with(|cache| cache.sockets.clone()).unwrap_or_else(search)
}

/// Searches for NICs and keeps the result until [`forget`].
pub fn find_all() {
    let found = search();
    CACHE.with(|cache| cache.sockets = Some(found));
}

/// Returns the sockets that `CAUSEWAY_MX` lists or the default directory has.
fn search() -> Vec<PathBuf> {
    if let Some(paths) = std::env::var_os("CAUSEWAY_MX") {
        return std::env::split_paths(&paths)
            .filter(|path| !path.as_os_str().is_empty())
            .take(NICS_MAX)
            .collect();
    }
    let is_board = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("mx") && name.ends_with(".sock"))
    };
    let entries = std::fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_board).collect();
    paths.sort();
    paths.truncate(NICS_MAX);
    paths
}

/// Connects to a Unix stream socket. A connect waits while the listen backlog is full, `limit` at most.
fn connect_within(path: &Path, limit: Duration) -> Result<UnixStream, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    connect(&socket, &address)?;
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket.into())
}

/// Returns whether the process accepts channels to other processes of this host. Without them its
/// messages go through the daemon (`CAUSEWAY_MX_CHANNELS=0`).
fn wants_channels() -> bool {
    std::env::var_os("CAUSEWAY_MX_CHANNELS").is_none_or(|value| value != "0")
}

/// A connection to the daemon at the socket of a NIC.
#[derive(Debug)]
pub struct Conversation {
    /// Socket, with the queue of commands that the socket has not accepted yet.
    local: LocalAttachment,
    /// Path of the socket; without it [`Self::reconnect`] fails.
    path: Option<PathBuf>,
    /// The NIC of the socket.
    pub board: Nic,
}

impl Conversation {
    /// Connects to the daemon of a NIC.
    ///
    /// # Errors
    /// [`Error::NoNic`], [`Error::UnknownNic`], [`Error::NoPermission`], or [`Error::NoDaemon`]
    /// if the socket refuses; otherwise those of [`Self::over`].
    pub fn new(number: u32) -> Result<Self, Error> {
        let sockets = sockets();
        if sockets.is_empty() {
            return Err(Error::NoNic);
        }
        let path = sockets.get(number as usize).ok_or(Error::UnknownNic)?;
        let stream = connect_within(path, ANSWER_MAX).map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM => Error::NoPermission,
            _ => Error::NoDaemon,
        })?;
        Self::over(stream, number)
    }

    /// Uses a connected socket of a NIC.
    ///
    /// # Errors
    /// [`Error::NoDaemon`] without a valid answer, [`Error::Version`] for another protocol version,
    /// [`Error::DaemonGone`] after a close.
    pub fn over(stream: UnixStream, number: u32) -> Result<Self, Error> {
        let board = Nic { nic: 0, name: String::new() };
        let path = sockets().get(number as usize).cloned();
        let mut conversation = Self { local: LocalAttachment::new(stream.into()), path, board };
        conversation.greet()?;
        let (DaemonMessage::Welcome { version, nic, name, .. }, _) = conversation.wait()? else {
            return Err(Error::NoDaemon);
        };
        if version != VERSION {
            return Err(Error::Version);
        }
        conversation.board = Nic { nic, name: name.as_str().to_owned() };
        CACHE.with(|cache| {
            let place = number as usize;
            if cache.boards.len() <= place {
                cache.boards.resize(place.saturating_add(1), None);
            }
            if let Some(place) = cache.boards.get_mut(place) {
                *place = Some(conversation.board.clone());
            }
        });
        Ok(conversation)
    }

    /// Sends the first command, with the protocol version and whether direct reads are enabled.
    fn greet(&mut self) -> Result<(), Error> {
        let pidfds = if process_memory::is_wanted() { HELLO_PIDFDS } else { 0 };
        let channels = if wants_channels() { 0 } else { HELLO_NO_CHANNELS };
        self.ask(ClientMessage::Hello { version: VERSION, direct: pidfds | channels })
    }

    /// Connects to the daemon that listens at the same socket now, without waiting for its
    /// [`DaemonMessage::Welcome`].
    ///
    /// # Errors
    /// [`Error::NoDaemon`] if no process listens there.
    pub fn reconnect(&self) -> Result<Self, Error> {
        let path = self.path.clone().ok_or(Error::NoDaemon)?;
        let failed = |_: rustix::io::Errno| Error::NoDaemon;
        let address = SocketAddrUnix::new(&path).map_err(failed)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.map_err(failed)?;
        connect(&socket, &address).map_err(failed)?;
        let local = LocalAttachment::new(socket);
        let mut again = Self { local, path: Some(path), board: self.board.clone() };
        again.greet()?;
        Ok(again)
    }

    /// Sends a command, or queues it while the socket accepts no more.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] if the connection is closed.
    pub fn ask(&mut self, ask: ClientMessage) -> Result<(), Error> {
        self.ask_with(ask, Vec::new())
    }

    /// Sends a command with file descriptors, as [`Self::ask`] does.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] if the connection is closed.
    pub fn ask_with(&mut self, ask: ClientMessage, fds: Vec<OwnedFd>) -> Result<(), Error> {
        self.local.send(ask.emit(), fds).map_err(|_| Error::DaemonGone)
    }

    /// Returns the next message of the daemon with its file descriptors, or `None` if there is
    /// none.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] if the connection is closed or a message is invalid.
    pub fn hear(&mut self) -> Result<Option<(DaemonMessage, Vec<OwnedFd>)>, Error> {
        let _ = self.local.flush();
        match self.local.receive() {
            Ok(Some(LocalMessage { bytes, fds })) => match DaemonMessage::parse(&bytes) {
                // Processes trust the daemon's descriptors.
                Ok(tell) => Ok(Some((tell, fds.into_iter().map(ReceivedFd::into_fd).collect()))),
                Err(_) => Err(Error::DaemonGone),
            },
            Ok(None) => Ok(None),
            Err(LocalError::Closed) => Err(Error::DaemonGone),
            Err(_) => Err(Error::DaemonGone),
        }
    }

    /// Returns the condition for which the connection waits: a message, and also room if commands
    /// are queued.
    pub fn awaited(&self) -> Awaited {
        match self.local.backlog() {
            0 => Awaited::Words,
            _ if self.local.is_at_descriptor_limit() => Awaited::Descriptors,
            _ => Awaited::Room,
        }
    }

    /// Waits for the next message of the daemon, at most [`ANSWER_MAX`] (10 s).
    ///
    /// # Errors
    /// [`Error::NoDaemon`] after that time, [`Error::DaemonGone`] if the connection is closed.
    pub fn wait(&mut self) -> Result<(DaemonMessage, Vec<OwnedFd>), Error> {
        let since = Instant::now();
        loop {
            if let Some(message) = self.hear()? {
                return Ok(message);
            }
            let left = ANSWER_MAX.checked_sub(since.elapsed()).ok_or(Error::NoDaemon)?;
            let (wanted, left) = self.awaited().poll(left);
            let left = rustix::event::Timespec::try_from(left).map_err(|_| Error::NoDaemon)?;
            let _ = poll(&mut [PollFd::new(&self.local, wanted)], Some(&left));
        }
    }
}

impl AsFd for Conversation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.local.as_fd()
    }
}

/// Returns a NIC of this host.
///
/// # Errors
/// [`Error::UnknownNic`], or those of [`Conversation::new`].
pub fn of(number: u32) -> Result<Nic, Error> {
    if sockets().len() <= number as usize {
        return Err(Error::UnknownNic);
    }
    match CACHE.with(|cache| cache.boards.get(number as usize).cloned().flatten()) {
        Some(board) => Ok(board),
        None => Ok(Conversation::new(number)?.board),
    }
}

/// Drops the cache; the next search may find other sockets.
pub fn forget() {
    CACHE.with(|cache| *cache = NicCache { sockets: None, boards: Vec::new() });
}

/// Returns the number of NICs of this host.
pub fn count() -> u32 {
    u32::try_from(sockets().len()).unwrap_or(0)
}

/// Asks the daemon of each NIC until a daemon knows the answer.
fn ask_all(ask: &dyn Fn() -> Option<ClientMessage>) -> Result<(u64, String), Error> {
    let mut last = Error::NoNic;
    for number in 0..count() {
        last = Error::HostUnknown;
        let Ok(mut conversation) = Conversation::new(number) else { continue };
        conversation.ask(ask().ok_or(Error::HostName)?)?;
        if let (DaemonMessage::Host { known: 1, nic, name, .. }, _) = conversation.wait()? {
            return Ok((nic, name.as_str().to_owned()));
        }
    }
    Err(last)
}

/// Returns the address of a NIC by its name; `localhost` is the first NIC.
///
/// # Errors
/// [`Error::HostName`] if the name is invalid, [`Error::HostUnknown`] if no daemon knows it, or
/// those of the conversation.
pub fn find(name: &str) -> Result<u64, Error> {
    let name = if name == "localhost" { of(0)?.name } else { name.to_owned() };
    ask_all(&|| Some(ClientMessage::Find { tag: 0, name: Name::new(&name)? })).map(|(nic, _)| nic)
}

/// Returns the name of a NIC by its address.
///
/// # Errors
/// [`Error::NicUnknown`] if no daemon knows it or answers.
pub fn name(nic: u64) -> Result<String, Error> {
    match ask_all(&|| Some(ClientMessage::Name { tag: 0, nic })) {
        Ok((_, name)) if !name.is_empty() => Ok(name),
        _ => Err(Error::NicUnknown),
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{bind, listen};

    use super::*;

    #[test]
    fn nic_connect_to_a_full_backlog_ends_in_time() {
        let path = std::env::temp_dir().join(format!("causeway-nic-{}", std::process::id()));
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 0).unwrap();
        let limit = Duration::from_millis(50);
        let first = connect_within(&path, limit);
        let since = Instant::now();
        let second = connect_within(&path, limit);
        std::fs::remove_file(&path).unwrap();
        assert!(first.is_ok());
        assert_eq!(second.unwrap_err(), Errno::AGAIN);
        assert!(since.elapsed() >= limit);
    }
}
