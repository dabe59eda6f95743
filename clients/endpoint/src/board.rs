//! Boards of this host: where their sockets are, and how the daemon is asked.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Instant;

use causeway_attach::local::{Ended, Local, Received};
use causeway_host::ReceivedFd;
use causeway_wire::local::{Ask, Name, Tell, VERSION};
use rustix::event::{PollFd, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::direct;
use crate::ears::Awaited;
use crate::error::Error;
use crate::limits::{ANSWER_MAX, BOARDS_MAX};
use crate::lock::Guarded;

/// Where sockets are looked for, unless `CAUSEWAY_MX` says so.
const DIRECTORY: &str = "/run/causeway";

/// A board.
#[derive(Debug, Clone)]
pub struct Board {
    /// Its address.
    pub nic: u64,
    /// Its name.
    pub name: String,
}

/// What is known of this host's boards.
#[derive(Debug)]
struct Known {
    /// Their sockets, as they were when they were looked for.
    sockets: Option<Vec<PathBuf>>,
    /// Those that answered once, by number.
    boards: Vec<Option<Board>>,
}

static KNOWN: Guarded<Known> = Guarded::new(Known { sockets: None, boards: Vec::new() });

/// Keeps other threads out of the list of boards while this process has a child.
pub fn before_fork() {
    KNOWN.lock_for_fork();
}

/// Ends [`before_fork`], in the parent or in the child.
///
/// # Safety
/// [`before_fork`] was called by the thread that calls this, or by that which had this process.
pub unsafe fn after_fork() {
    // SAFETY: as the caller says.
    unsafe { KNOWN.unlock_after_fork() };
}

/// The sockets of this host's boards, by board number: as they were when the library was
/// initialised, so that numbers stay.
pub fn sockets() -> Vec<PathBuf> {
    KNOWN.with(|known| known.sockets.clone()).unwrap_or_else(look)
}

/// Looks which boards there are, until they are forgotten.
pub fn find_all() {
    let found = look();
    KNOWN.with(|known| known.sockets = Some(found));
}

fn look() -> Vec<PathBuf> {
    if let Some(paths) = std::env::var_os("CAUSEWAY_MX") {
        return std::env::split_paths(&paths)
            .filter(|path| !path.as_os_str().is_empty())
            .take(BOARDS_MAX)
            .collect();
    }
    let is_board = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("mx") && name.ends_with(".sock"))
    };
    let entries = std::fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_board).collect();
    paths.sort();
    paths.truncate(BOARDS_MAX);
    paths
}

/// A conversation with the daemon.
#[derive(Debug)]
pub struct Conversation {
    local: Local,
    /// The socket of the board.
    path: Option<PathBuf>,
    /// Whose it is.
    pub board: Board,
}

impl Conversation {
    /// With the daemon of a board.
    pub fn new(number: u32) -> Result<Self, Error> {
        let sockets = sockets();
        if sockets.is_empty() {
            return Err(Error::NoBoard);
        }
        let path = sockets.get(number as usize).ok_or(Error::UnknownBoard)?;
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => Error::NoPermission,
            _ => Error::NoDaemon,
        })?;
        Self::over(stream, number)
    }

    /// By the socket of a board.
    pub fn over(stream: UnixStream, number: u32) -> Result<Self, Error> {
        let board = Board { nic: 0, name: String::new() };
        let path = sockets().get(number as usize).cloned();
        let mut conversation = Self { local: Local::new(stream.into()), path, board };
        conversation.greet()?;
        let (Tell::Welcome { version, nic, name, .. }, _) = conversation.wait()? else {
            return Err(Error::NoDaemon);
        };
        if version != VERSION {
            return Err(Error::Version);
        }
        conversation.board = Board { nic, name: name.as_str().to_owned() };
        KNOWN.with(|known| {
            let place = number as usize;
            if known.boards.len() <= place {
                known.boards.resize(place.saturating_add(1), None);
            }
            if let Some(place) = known.boards.get_mut(place) {
                *place = Some(conversation.board.clone());
            }
        });
        Ok(conversation)
    }

    fn greet(&mut self) -> Result<(), Error> {
        self.ask(Ask::Hello { version: VERSION, direct: u8::from(direct::is_wanted()) })
    }

    /// Begins a conversation with the daemon that listens at the same socket now, without waiting
    /// for it: its [`Tell::Welcome`] is heard first.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn again(&self) -> Result<Self, Error> {
        let path = self.path.clone().ok_or(Error::NoDaemon)?;
        let failed = |_: rustix::io::Errno| Error::NoDaemon;
        let address = SocketAddrUnix::new(&path).map_err(failed)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.map_err(failed)?;
        connect(&socket, &address).map_err(failed)?;
        let local = Local::new(socket);
        let mut again = Self { local, path: Some(path), board: self.board.clone() };
        again.greet()?;
        Ok(again)
    }

    /// Asks. The answer is heard.
    pub fn ask(&mut self, ask: Ask) -> Result<(), Error> {
        self.ask_with(ask, Vec::new())
    }

    /// Asks, with what belongs to the question.
    pub fn ask_with(&mut self, ask: Ask, fds: Vec<OwnedFd>) -> Result<(), Error> {
        self.local.send(ask.emit(), fds).map_err(|_| Error::DaemonGone)
    }

    /// What the daemon told, if it did.
    pub fn hear(&mut self) -> Result<Option<(Tell, Vec<OwnedFd>)>, Error> {
        let _ = self.local.flush();
        match self.local.receive() {
            Ok(Some(Received { bytes, fds })) => match Tell::parse(&bytes) {
                // The daemon's, whom processes trust.
                Ok(tell) => Ok(Some((tell, fds.into_iter().map(ReceivedFd::into_fd).collect()))),
                Err(_) => Err(Error::DaemonGone),
            },
            Ok(None) => Ok(None),
            Err(Ended::Closed) => Err(Error::DaemonGone),
            Err(_) => Err(Error::DaemonGone),
        }
    }

    /// What it waits for.
    pub fn awaited(&self) -> Awaited {
        match self.local.backlog() {
            0 => Awaited::Words,
            _ if self.local.is_stuck() => Awaited::Descriptors,
            _ => Awaited::Room,
        }
    }

    /// Waits until the daemon tells something.
    pub fn wait(&mut self) -> Result<(Tell, Vec<OwnedFd>), Error> {
        let since = Instant::now();
        loop {
            if let Some(told) = self.hear()? {
                return Ok(told);
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

/// A board of this host, by number.
pub fn of(number: u32) -> Result<Board, Error> {
    if sockets().len() <= number as usize {
        return Err(Error::UnknownBoard);
    }
    match KNOWN.with(|known| known.boards.get(number as usize).cloned().flatten()) {
        Some(board) => Ok(board),
        None => Ok(Conversation::new(number)?.board),
    }
}

/// Forgets them: sockets may be elsewhere next time.
pub fn forget() {
    KNOWN.with(|known| *known = Known { sockets: None, boards: Vec::new() });
}

/// How many boards this host has.
pub fn count() -> u32 {
    u32::try_from(sockets().len()).unwrap_or(0)
}

/// Asks the boards one after the other until one knows.
fn ask_all(ask: &dyn Fn() -> Option<Ask>) -> Result<(u64, String), Error> {
    let mut last = Error::NoBoard;
    for number in 0..count() {
        last = Error::HostUnknown;
        let Ok(mut conversation) = Conversation::new(number) else { continue };
        conversation.ask(ask().ok_or(Error::HostName)?)?;
        if let (Tell::Host { known: 1, nic, name, .. }, _) = conversation.wait()? {
            return Ok((nic, name.as_str().to_owned()));
        }
    }
    Err(last)
}

/// The address of a board, by its name.
pub fn find(name: &str) -> Result<u64, Error> {
    let name = if name == "localhost" { of(0)?.name } else { name.to_owned() };
    ask_all(&|| Some(Ask::Find { tag: 0, name: Name::new(&name)? })).map(|(nic, _)| nic)
}

/// The name of a board, by its address.
pub fn name(nic: u64) -> Result<String, Error> {
    match ask_all(&|| Some(Ask::Name { tag: 0, nic })) {
        Ok((_, name)) if !name.is_empty() => Ok(name),
        _ => Err(Error::NicUnknown),
    }
}
