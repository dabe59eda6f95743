//! The provider's core as fuzz targets play it: an endpoint over any daemon, whose application does
//! what it is told, and whose memory shows whether a partner wrote where it may not.

use std::os::unix::net::UnixStream;

use causeway_endpoint::Endpoint;
use causeway_endpoint::board::Conversation;
use causeway_endpoint::limits::ENDPOINT_ANY;

use crate::abi::{
    FI_ADDR_UNSPEC, FI_MSG, FI_MULTI_RECV, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND,
    FI_TAGGED,
};
use crate::rdm::{
    Atomic, Book, Done, Env, Message, Name, Place, Rdm, Region, Regions, Remote, Report, Span,
    Wanted,
};

/// What others know to connect.
pub use crate::rdm::KEY;

/// Bytes around each piece of memory, which nobody writes.
const GUARD: usize = 64;
/// What is there, and what nothing wrote yet.
const UNTOUCHED: u8 = 0xa5;
/// Bytes of the memory that is registered.
pub const REGISTERED: usize = 8192;

/// What was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Of what.
    pub context: usize,
    /// 0: it went well.
    pub err: i32,
    /// What it was, as the application is told.
    pub flags: u64,
    /// Bytes that came.
    pub len: usize,
    /// The buffer is the application's again, if it was one for many messages.
    pub last: bool,
}

/// Memory of the application, with guards around it.
#[derive(Debug)]
struct Memory(Box<[u8]>);

impl Memory {
    fn new(len: usize) -> Self {
        Self(vec![UNTOUCHED; len.saturating_add(GUARD).saturating_add(GUARD)].into())
    }

    /// Returns the piece within.
    ///
    /// # Safety
    /// The memory is there as long as the piece, and nothing reaches it in a call of the endpoint.
    unsafe fn piece(&mut self) -> Span {
        let len = self.0.len().saturating_sub(GUARD).saturating_sub(GUARD);
        // SAFETY: so many bytes are there, and for the rest as the caller says.
        unsafe { Span::new(self.0.as_mut_ptr().wrapping_add(GUARD), len) }
    }

    fn is_guarded(&self) -> bool {
        let untouched = |guard: Option<&[u8]>| {
            guard.is_some_and(|guard| guard.iter().all(|byte| *byte == UNTOUCHED))
        };
        untouched(self.0.get(..GUARD))
            && untouched(self.0.get(self.0.len().saturating_sub(GUARD)..))
    }
}

/// An endpoint, with what a domain has.
#[derive(Debug)]
pub struct Side {
    rdm: Rdm,
    book: Book,
    regions: Regions,
    registered: Memory,
    /// Of all operations: it must be there longer than they are.
    memory: Vec<Memory>,
    told: Vec<Told>,
}

impl Side {
    /// Opens one. None: the daemon does not play its part.
    pub fn open(stream: UnixStream) -> Option<Self> {
        let conversation = Conversation::over(stream, 0).ok()?;
        let opened = Endpoint::open_over(conversation, ENDPOINT_ANY, Rdm::OPENING).ok()?;
        let (book, regions) = (Book::default(), Regions::default());
        let registered = Memory::new(REGISTERED);
        let (memory, told) = (Vec::new(), Vec::new());
        Some(Self { rdm: Rdm::new(opened), book, regions, registered, memory, told })
    }

    fn with<R>(&mut self, run: impl FnOnce(&mut Rdm, Env<'_>) -> R) -> R {
        run(&mut self.rdm, Env { book: &self.book, regions: &self.regions })
    }

    fn place(&mut self, len: usize) -> Place {
        let mut memory = Memory::new(len);
        // SAFETY: all memory is kept longer than the endpoint, and is looked at between its calls.
        let place = Place::One(unsafe { memory.piece() });
        self.memory.push(memory);
        place
    }

    /// Somebody's name; its number, if it is one.
    pub fn knows(&mut self, name: &[u8; 24]) -> Option<u64> {
        self.book.insert(Name::parse(name)?).ok()
    }

    /// Goes on; who sleeps hears the daemon too.
    pub fn go_on(&mut self) {
        self.rdm.endpoint.look();
        // As a queue is read.
        self.hear();
        match self.with(|rdm, env| rdm.receive_straight(env)) {
            Ok((done, _)) => self.note(&done),
            Err(_) => drop(self.with(|rdm, env| rdm.progress(env))),
        }
        self.hear();
    }

    /// Takes note of what is told.
    fn hear(&mut self) {
        for done in std::mem::take(&mut self.rdm.done) {
            self.note(&done);
        }
    }

    fn note(&mut self, done: &Done) {
        self.told.push(Told {
            context: done.report.context,
            err: done.fault.map_or(0, |fault| fault.err),
            flags: done.report.flags,
            len: done.len,
            last: done.report.flags & FI_MULTI_RECV != 0,
        });
    }

    /// What was told since the last time.
    pub fn told(&mut self) -> Vec<Told> {
        self.hear();
        std::mem::take(&mut self.told)
    }

    /// Nothing more fits where it is told what others do; or it does again.
    pub fn hold(&mut self, held: bool) {
        self.rdm.held = held;
    }

    /// Registers memory under a key, or takes it back.
    pub fn register(&mut self, key: u64, whether: bool) {
        if !whether {
            self.rdm.release(key);
            self.regions.remove(key);
            return;
        }
        // SAFETY: the memory is kept longer than the endpoint, and is looked at between its calls.
        let pieces = Box::new([unsafe { self.registered.piece() }]);
        let region = Region::new(pieces, FI_REMOTE_READ | FI_REMOTE_WRITE, 0);
        let _ = self.regions.insert(key, region);
    }

    /// Receives a message with a tag, or one without; from one alone, if it is named.
    pub fn receive(
        &mut self,
        from: Option<u64>,
        tag: Option<(u64, u64)>,
        context: usize,
        (len, many): (usize, bool),
    ) -> bool {
        let wanted = wanted(from, tag, context);
        let place = self.place(len);
        let posted = self.with(|rdm, env| {
            if many {
                rdm.receive_many(env, wanted, place)
            } else {
                rdm.receive(env, wanted, place)
            }
        });
        posted.is_ok()
    }

    /// Looks for a message, and claims or discards it.
    pub fn peek(
        &mut self,
        from: Option<u64>,
        tag: (u64, u64),
        context: usize,
        how: (bool, bool),
    ) -> bool {
        let wanted = wanted(from, Some(tag), context);
        self.with(|rdm, env| rdm.peek(env, wanted, how)).is_ok()
    }

    /// Receives what was claimed with the context, or throws it away.
    pub fn claimed(&mut self, context: usize, len: Option<usize>) -> bool {
        let report = wanted(None, Some((0, 0)), context).report;
        let place = len.map(|len| self.place(len));
        let taken = self.with(|rdm, env| match place {
            Some(place) => rdm.receive_claimed(env, report, place),
            None => rdm.discard_claimed(env, report),
        });
        taken.is_ok()
    }

    /// Takes a receive back.
    pub fn cancel(&mut self, context: usize) -> bool {
        self.rdm.cancel(context).is_ok()
    }

    /// Sends a message.
    pub fn send(
        &mut self,
        to: u64,
        tag: u64,
        context: usize,
        (len, delivered): (usize, bool),
    ) -> bool {
        let place = self.place(len);
        let report = Report { context, flags: FI_TAGGED | FI_SEND, tag, len, ..Report::default() };
        let message = Message { to, report, place, data: Some(1), inject: false, delivered };
        self.with(|rdm, env| rdm.send(env, message)).is_ok()
    }

    /// Reads or writes another's memory.
    pub fn reach(&mut self, to: u64, context: usize, len: usize, writes: bool) -> bool {
        let place = self.place(len);
        let remote = Remote { to, key: 1, address: 0 };
        let report = Report { context, len, ..Report::default() };
        let asked = self.with(|rdm, env| {
            if writes {
                rdm.write(env, remote, report, place, Some(1))
            } else {
                rdm.read(env, remote, report, place)
            }
        });
        asked.is_ok()
    }

    /// Changes another's memory, and wants to know what was there.
    pub fn change(&mut self, to: u64, context: usize, operands: &[u8]) -> bool {
        let len = operands.len();
        let result = Some(self.place(len));
        let remote = Remote { to, key: 1, address: 0 };
        let report = Report { context, len, ..Report::default() };
        let (operands, compare) = (operands.to_vec(), None);
        let atomic = Atomic { datatype: 0, operation: 0, operands, compare, result, len };
        self.with(|rdm, env| rdm.atomic(env, remote, report, atomic)).is_ok()
    }

    /// What the core itself counts.
    pub fn account(&self) -> Vec<(&'static str, u64)> {
        self.rdm.account().rows
    }

    /// Operations that have not ended.
    pub fn operations(&self) -> usize {
        self.rdm.operations()
    }

    /// What is counted of them, which is all 0 when none is left.
    pub fn counted(&self) -> [usize; 3] {
        self.rdm.counted()
    }

    /// Nothing was written but where it may be.
    pub fn is_guarded(&self) -> bool {
        self.registered.is_guarded() && self.memory.iter().all(Memory::is_guarded)
    }

    /// Whether any of the registered memory was written.
    pub fn is_written(&self) -> bool {
        self.registered.0.iter().any(|byte| *byte != UNTOUCHED)
    }
}

fn wanted(from: Option<u64>, tag: Option<(u64, u64)>, context: usize) -> Wanted {
    let kind = if tag.is_some() { FI_TAGGED } else { FI_MSG };
    let (tag, ignore) = tag.unwrap_or_default();
    let report = Report { context, flags: kind | FI_RECV, tag, ..Report::default() };
    Wanted { from: from.unwrap_or(FI_ADDR_UNSPEC), ignore, report }
}
