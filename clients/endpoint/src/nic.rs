//! NICs that this process reaches, and the conversation with the daemon.
//!
//! A NIC has a place ([`Place`]): a Unix stream socket of this host, or an adapter of this machine
//! if it is a guest. `CAUSEWAY_MX` names the places; without the variable they are searched
//! ([`crate::place`]). At most [`NICS_MAX`] (64) are used, further sockets are ignored. The index
//! of a place in this list is the NIC's number. [`find_all`] freezes the list until [`forget`];
//! without it each call searches again, and numbers may change. Addresses and names that daemons
//! reported are cached until [`forget`]. [`recent`] reuses the answer of an adapter's daemon for
//! [`ADAPTER_KNOWN`] (60 s), since each conversation by an adapter is a session with a queue pair.
//!
//! # Limits
//! Only control messages pass here; no MX message does. [`Conversation::wait`], and every function
//! here that queries a daemon, blocks for at most [`ANSWER_MAX`] (10 s) per answer, and as long for
//! the connect, while a daemon accepts nothing and its listen backlog is full.
//! [`Conversation::ask`] and [`Conversation::hear`] do not block, except for commands of an adapter
//! that register or release memory: a command that the daemon does not accept is queued. A
//! conversation does not reconnect by itself, and its caller serialises the calls. [`find`] and
//! [`name`] query the daemons one after the other: they skip a daemon that cannot be reached or
//! does not greet, and fail at the first that ends or is silent after the question ([`name`]
//! reports each of these as [`Error::NicUnknown`]). On a machine with several adapters and no
//! socket, a search queries them in turn until a daemon answers, and remembers that adapter until
//! [`forget`]. The functions may run in any thread; the cache has its own lock, which the handlers
//! of `fork(2)` hold.
//!
//! # Place
//! An [`Endpoint`](crate::Endpoint) owns one [`Conversation`] in its
//! [`Paths`](crate::paths::Paths). The API libraries call the other functions to list NICs and
//! resolve names.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use causeway_ibverbs::ProtectionDomain;
use causeway_wire::local::{
    ClientMessage, DaemonMessage, HELLO_NO_CHANNELS, HELLO_PIDFDS, Name, VERSION,
};
use rustix::event::{PollFd, poll};

use crate::adapter::session::Session;
use crate::connection::socket::SocketConnection;
use crate::connection::{Attached, Connection, Grant};
use crate::error::Error;
use crate::limits::{ADAPTER_KNOWN, ANSWER_MAX, NICS_MAX};
use crate::lock::Guarded;
use crate::place;
use crate::waiter::Awaited;

pub use crate::place::Place;

/// A NIC.
#[derive(Debug, Clone)]
pub struct Nic {
    /// Address: 48 bits.
    pub nic: u64,
    /// Name, as `causeway peer list` shows it.
    pub name: String,
}

/// A NIC that answered.
#[derive(Debug, Clone)]
struct KnownNic {
    nic: Nic,
    /// Its place; `None` for a connection without one.
    place: Option<Place>,
    /// Time of the answer.
    answered: Instant,
}

/// Cache of the NICs.
#[derive(Debug)]
struct NicCache {
    /// Places at the last search.
    places: Option<Vec<Place>>,
    /// The adapter through which the daemon answered, if the machine has several.
    adapter: Option<Place>,
    /// NICs that answered, by number.
    boards: Vec<Option<KnownNic>>,
}

impl NicCache {
    /// Keeps a NIC that answered.
    fn keep(&mut self, number: u32, known: KnownNic) {
        let number = number as usize;
        if number < NICS_MAX && self.boards.len() <= number {
            self.boards.resize(number.saturating_add(1), None);
        }
        if let Some(place) = self.boards.get_mut(number) {
            *place = Some(known);
        }
    }

    /// Returns the NIC behind an adapter if its daemon answered lately.
    fn recent(&self, number: u32, place: &Place) -> Option<Nic> {
        let known = self.boards.get(number as usize)?.as_ref()?;
        let is_usable = matches!(place, Place::Adapter { .. })
            && known.place.as_ref() == Some(place)
            && known.answered.elapsed() < ADAPTER_KNOWN;
        is_usable.then(|| known.nic.clone())
    }

    /// Has [`Self::recent`] ask the daemon again, whose NIC stays known to others.
    fn forget_recent(&mut self, number: u32) {
        if let Some(Some(known)) = self.boards.get_mut(number as usize) {
            known.place = None;
        }
    }
}

/// Nothing is known.
const EMPTY: NicCache = NicCache { places: None, adapter: None, boards: Vec::new() };
/// The cache of this process.
static CACHE: Guarded<NicCache> = Guarded::new(EMPTY);

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

/// Returns the places of NICs, by NIC number: those of the last [`find_all`], so that numbers are
/// stable, or else of a search now.
pub fn places() -> Vec<Place> {
    CACHE.with(|cache| cache.places.clone()).unwrap_or_else(search)
}

/// Searches for NICs and keeps the result until [`forget`].
pub fn find_all() {
    let found = search();
    CACHE.with(|cache| cache.places = Some(found));
}

/// Returns the places that `CAUSEWAY_MX` names, or the sockets of this host, or the active
/// adapters: of several only the first through which a daemon answers, or all if none does.
fn search() -> Vec<Place> {
    if let Some(value) = std::env::var_os("CAUSEWAY_MX") {
        return place::named(&value);
    }
    let sockets = place::sockets();
    if !sockets.is_empty() {
        return sockets;
    }
    let adapters = place::adapters();
    if adapters.len() < 2 {
        return adapters;
    }
    if let Some(known) = CACHE.with(|cache| cache.adapter.clone()) {
        return vec![known];
    }
    // The place that answers is the only one, with the number 0.
    let answers = |place: &&Place| Conversation::greeted(connect(place), (0, Some(place))).is_ok();
    let Some(place) = adapters.iter().find(answers).cloned() else { return adapters };
    CACHE.with(|cache| cache.adapter = Some(place.clone()));
    vec![place]
}

/// Connects to the daemon of a place.
fn connect(place: &Place) -> Result<Box<dyn Connection>, Error> {
    match place {
        Place::Socket(path) => Ok(Box::new(SocketConnection::open(path, ANSWER_MAX)?)),
        Place::Adapter { device, port } => Ok(Box::new(Session::open(device.as_deref(), *port)?)),
    }
}

/// Returns whether the process accepts channels to other processes of this host. Without them its
/// messages go through the daemon (`CAUSEWAY_MX_CHANNELS=0`).
fn wants_channels() -> bool {
    std::env::var_os("CAUSEWAY_MX_CHANNELS").is_none_or(|value| value != "0")
}

/// A connection to the daemon of a NIC.
#[derive(Debug)]
pub struct Conversation {
    connection: Box<dyn Connection>,
    /// The NIC.
    pub board: Nic,
}

impl Conversation {
    /// Connects to the daemon of a NIC. Blocks for the connect and the answer, at most
    /// [`ANSWER_MAX`] (10 s) each; behind an adapter, for its commands and the answer.
    ///
    /// # Errors
    /// [`Error::NoNic`] without any place, [`Error::UnknownNic`], [`Error::NoPermission`],
    /// [`Error::NoDaemon`] if the socket refuses, [`Error::NoSession`] if the daemon behind an
    /// adapter serves no messages, or another error of the adapter; otherwise those of
    /// [`Self::over`].
    pub fn new(number: u32) -> Result<Self, Error> {
        let places = places();
        if places.is_empty() {
            return Err(Error::NoNic);
        }
        let place = places.get(number as usize).ok_or(Error::UnknownNic)?;
        let greeted = Self::greeted(connect(place), (number, Some(place)));
        greeted.map_err(|error| {
            CACHE.with(|cache| cache.forget_recent(number));
            match (place, error) {
                // The adapter exists, and its daemon serves no sessions.
                (Place::Adapter { .. }, Error::NoDaemon | Error::DaemonGone) => Error::NoSession,
                (_, error) => error,
            }
        })
    }

    /// Uses a connected socket of a NIC.
    ///
    /// # Errors
    /// [`Error::NoDaemon`] without a valid answer, [`Error::Version`] for another protocol version,
    /// [`Error::DaemonGone`] after a close.
    pub fn over(stream: UnixStream, number: u32) -> Result<Self, Error> {
        let path = match places().get(number as usize) {
            Some(Place::Socket(path)) => Some(path.clone()),
            _ => None,
        };
        Self::greeted(Ok(Box::new(SocketConnection::over(stream, path))), (number, None))
    }

    /// Greets the daemon over a connection, and caches its NIC under a number, with its place.
    fn greeted(
        connection: Result<Box<dyn Connection>, Error>,
        (number, place): (u32, Option<&Place>),
    ) -> Result<Self, Error> {
        let board = Nic { nic: 0, name: String::new() };
        let mut conversation = Self { connection: connection?, board };
        conversation.greet()?;
        let (DaemonMessage::Welcome { version, nic, name, .. }, _) = conversation.wait()? else {
            return Err(Error::NoDaemon);
        };
        if version != VERSION {
            return Err(Error::Version);
        }
        let nic = Nic { nic, name: name.as_str().to_owned() };
        conversation.board = nic.clone();
        let known = KnownNic { nic, place: place.cloned(), answered: Instant::now() };
        CACHE.with(|cache| cache.keep(number, known));
        Ok(conversation)
    }

    /// Sends the first command, with the protocol version and whether direct reads are enabled.
    fn greet(&mut self) -> Result<(), Error> {
        let pidfds = if self.connection.permits_direct_reads() { HELLO_PIDFDS } else { 0 };
        let channels = if wants_channels() { 0 } else { HELLO_NO_CHANNELS };
        self.ask(ClientMessage::Hello { version: VERSION, direct: pidfds | channels })
    }

    /// Connects to the daemon that serves the same place now, without waiting for its
    /// [`DaemonMessage::Welcome`].
    ///
    /// # Errors
    /// [`Error::NoDaemon`] if no process accepts the connection now, or an error of the adapter.
    pub fn reconnect(&self) -> Result<Self, Error> {
        let mut again = Self { connection: self.connection.again()?, board: self.board.clone() };
        again.greet()?;
        Ok(again)
    }

    /// Sends a command, or queues it while the daemon accepts no more.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] if the connection is closed or too many commands are queued,
    /// [`Error::NoResources`] if memory for rings is missing.
    pub fn ask(&mut self, ask: ClientMessage) -> Result<(), Error> {
        self.ask_with(ask, Grant::Nothing)
    }

    /// Sends a command with memory, as [`Self::ask`] does.
    ///
    /// # Errors
    /// Those of [`Self::ask`]; [`Error::NoResources`] also for memory of the wrong kind.
    pub fn ask_with(&mut self, ask: ClientMessage, grant: Grant) -> Result<(), Error> {
        self.connection.send(ask, grant)
    }

    /// Returns the next message of the daemon with what belongs to it, or `None` if there is none.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] if the connection is closed or a message is invalid.
    pub fn hear(&mut self) -> Result<Option<(DaemonMessage, Attached)>, Error> {
        self.connection.receive()
    }

    /// Returns the condition for which the connection waits: a message, and also room if commands
    /// are queued.
    pub fn awaited(&self) -> Awaited {
        self.connection.awaited()
    }

    /// Prepares a sleep on the descriptor. Returns false if a message is there; [`Self::disarm`]
    /// must follow in either case.
    pub fn arm(&mut self) -> bool {
        self.connection.arm()
    }

    /// Ends a sleep.
    pub fn disarm(&mut self) {
        self.connection.disarm();
    }

    /// Waits until the daemon has executed all commands, behind an adapter for about 1 s at most;
    /// at a socket it returns at once. No command may follow.
    pub fn finish(&mut self) {
        self.connection.finish();
    }

    /// Returns the domain in which memory for the daemon must be registered; `None` for files.
    pub fn domain(&self) -> Option<ProtectionDomain> {
        self.connection.domain()
    }

    /// Waits for the next message of the daemon, at most [`ANSWER_MAX`] (10 s).
    ///
    /// # Errors
    /// [`Error::NoDaemon`] after that time, [`Error::DaemonGone`] if the connection is closed or a
    /// message is invalid.
    pub fn wait(&mut self) -> Result<(DaemonMessage, Attached), Error> {
        let since = Instant::now();
        loop {
            if let Some(message) = self.hear()? {
                return Ok(message);
            }
            let left = ANSWER_MAX.checked_sub(since.elapsed()).ok_or(Error::NoDaemon)?;
            if self.arm() {
                self.sleep(left)?;
            }
            self.disarm();
        }
    }

    /// Sleeps until the connection is readable, at most `limit`.
    fn sleep(&self, limit: Duration) -> Result<(), Error> {
        let (wanted, limit) = self.awaited().poll(limit);
        let limit = rustix::event::Timespec::try_from(limit).map_err(|_| Error::NoDaemon)?;
        let _ = poll(&mut [PollFd::new(self, wanted)], Some(&limit));
        Ok(())
    }
}

impl AsFd for Conversation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.descriptor()
    }
}

/// Returns a NIC of this host.
///
/// # Errors
/// [`Error::UnknownNic`], or those of [`Conversation::new`].
pub fn of(number: u32) -> Result<Nic, Error> {
    if places().len() <= number as usize {
        return Err(Error::UnknownNic);
    }
    match CACHE.with(|cache| cache.boards.get(number as usize).cloned().flatten()) {
        Some(known) => Ok(known.nic),
        None => Ok(Conversation::new(number)?.board),
    }
}

/// Returns the NIC of a place, with its number in [`places`]. The answer of an adapter's daemon is
/// reused for [`ADAPTER_KNOWN`] (60 s), or until a conversation with it fails; the daemon of a socket is
/// asked each time.
///
/// # Errors
/// Those of [`Conversation::new`].
pub fn recent(number: u32, place: &Place) -> Result<Nic, Error> {
    match CACHE.with(|cache| cache.recent(number, place)) {
        Some(nic) => Ok(nic),
        None => Ok(Conversation::new(number)?.board),
    }
}

/// Drops the cache; the next search may find other places.
pub fn forget() {
    CACHE.with(|cache| *cache = EMPTY);
}

/// Returns the number of NICs.
pub fn count() -> u32 {
    u32::try_from(places().len()).unwrap_or(0)
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

/// Returns the address of a NIC by its name; `localhost` is the first NIC. Asks the daemons one
/// after the other, and blocks as [`Conversation::new`] does for each.
///
/// # Errors
/// [`Error::NoNic`] without any place ([`Error::UnknownNic`] for `localhost`), [`Error::HostName`]
/// if the name is invalid, [`Error::HostUnknown`] if no daemon knows it, or those of the
/// conversation.
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
    use super::*;

    #[test]
    fn nic_of_an_adapter_is_known_until_a_conversation_fails_or_time_passes() {
        let adapter = |device: &str| Place::Adapter { device: Some(device.into()), port: None };
        let socket = Place::Socket("/x/mx0.sock".into());
        let known = |place: &Place, answered| KnownNic {
            nic: Nic { nic: 7, name: "vm1:0".into() },
            place: Some(place.clone()),
            answered,
        };
        let now = Instant::now();
        let mut cache = EMPTY;
        assert!(cache.recent(0, &adapter("mlx5_0")).is_none());
        cache.keep(0, known(&adapter("mlx5_0"), now));
        assert_eq!(cache.recent(0, &adapter("mlx5_0")).map(|nic| nic.nic), Some(7));
        assert!(cache.recent(0, &adapter("mlx5_1")).is_none(), "another adapter has the number");
        assert!(cache.recent(1, &adapter("mlx5_0")).is_none());
        cache.forget_recent(0);
        assert!(cache.recent(0, &adapter("mlx5_0")).is_none(), "the conversation failed");
        assert!(cache.boards[0].is_some(), "names and addresses stay");
        if let Some(before) = now.checked_sub(ADAPTER_KNOWN) {
            cache.keep(0, known(&adapter("mlx5_0"), before));
            assert!(cache.recent(0, &adapter("mlx5_0")).is_none(), "its time has passed");
        }
        // The daemon of a socket is asked each time.
        cache.keep(1, known(&socket, now));
        assert!(cache.recent(1, &socket).is_none());
    }
}
