//! An endpoint for fuzz targets, over any daemon: the target chooses the application's calls, and
//! guard bytes show whether a peer wrote outside the buffers.
//!
//! The module exists only with the feature `scenario` and is no part of the library. It contains no
//! check of its own: the target compares. It uses `rdm` without `shell`, so neither queues nor
//! locks are exercised. Buffers are never freed before the endpoint, so a run must be short.
//! Methods that start or cancel an operation return whether `rdm` accepted the call; the reason of
//! a refusal is not returned.
//!
//! `fuzz/src/fi.rs` makes the calls and plays the daemon and the peers at the other end of the
//! socket.

use std::os::unix::net::UnixStream;

use causeway_endpoint::Endpoint;
use causeway_endpoint::limits::ENDPOINT_ANY;
use causeway_endpoint::nic::Conversation;

use crate::abi::{
    FI_ADDR_UNSPEC, FI_MSG, FI_MULTI_RECV, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND,
    FI_TAGGED,
};
use crate::rdm::{
    AddressVector, AppSpan, AtomicRequest, DomainEnv, EndpointName, Message, OpCompletion, Payload,
    Rdm, ReceiveSpec, RegionTable, RegisteredRegion, RemoteMemory, ReportTemplate,
};

/// The key of a connect.
pub use crate::rdm::KEY;

/// Guard bytes around each buffer.
const GUARD: usize = 64;
/// The initial value of all bytes.
const UNTOUCHED: u8 = 0xa5;
/// Length of the registered memory, in bytes.
pub const REGISTERED: usize = 8192;

/// A completion that the application got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScenarioCompletion {
    /// The context of the operation.
    pub context: usize,
    /// The error, or 0.
    pub err: i32,
    /// The flags of the completion.
    pub flags: u64,
    /// Received bytes.
    pub len: usize,
    /// Whether a multi-receive buffer was released.
    pub last: bool,
}

/// A buffer of the application between guard bytes.
#[derive(Debug)]
struct Memory(Box<[u8]>);

impl Memory {
    fn new(len: usize) -> Self {
        Self(vec![UNTOUCHED; len.saturating_add(GUARD).saturating_add(GUARD)].into())
    }

    /// Returns the buffer without its guards.
    ///
    /// # Safety
    /// The memory must outlive the span, and no other code may access it during a call of the
    /// endpoint.
    unsafe fn piece(&mut self) -> AppSpan {
        let len = self.0.len().saturating_sub(GUARD).saturating_sub(GUARD);
        // SAFETY: the buffer has these bytes; the rest is guaranteed by the caller.
        unsafe { AppSpan::new(self.0.as_mut_ptr().wrapping_add(GUARD), len) }
    }

    fn is_guarded(&self) -> bool {
        let untouched = |guard: Option<&[u8]>| {
            guard.is_some_and(|guard| guard.iter().all(|byte| *byte == UNTOUCHED))
        };
        untouched(self.0.get(..GUARD))
            && untouched(self.0.get(self.0.len().saturating_sub(GUARD)..))
    }
}

/// An endpoint with the tables of a domain.
#[derive(Debug)]
pub struct ScenarioEndpoint {
    rdm: Rdm,
    vector: AddressVector,
    regions: RegionTable,
    /// The memory that peers may access.
    registered: Memory,
    /// The buffers of all operations, which must outlive them.
    memory: Vec<Memory>,
    /// Completions that the target has not taken.
    completions: Vec<ScenarioCompletion>,
}

impl ScenarioEndpoint {
    /// Opens an endpoint. Returns `None` if the daemon violates the protocol.
    pub fn open(stream: UnixStream) -> Option<Self> {
        let conversation = Conversation::over(stream, 0).ok()?;
        let opened = Endpoint::open_over(conversation, ENDPOINT_ANY, Rdm::OPENING).ok()?;
        let (vector, regions) = (AddressVector::default(), RegionTable::default());
        let registered = Memory::new(REGISTERED);
        let (memory, completions) = (Vec::new(), Vec::new());
        Some(Self { rdm: Rdm::new(opened), vector, regions, registered, memory, completions })
    }

    /// Runs `run` with the endpoint and the tables of its domain.
    fn with<R>(&mut self, run: impl FnOnce(&mut Rdm, DomainEnv<'_>) -> R) -> R {
        run(&mut self.rdm, DomainEnv { vector: &self.vector, regions: &self.regions })
    }

    /// Returns a new buffer of `len` bytes between guard bytes.
    fn payload(&mut self, len: usize) -> Payload {
        let mut memory = Memory::new(len);
        // SAFETY: all buffers outlive the endpoint, and are accessed between its calls only.
        let payload = Payload::One(unsafe { memory.piece() });
        self.memory.push(memory);
        payload
    }

    /// Inserts an address; returns its index if it is valid.
    pub fn knows(&mut self, name: &[u8; 24]) -> Option<u64> {
        self.vector.insert(EndpointName::parse(name)?).ok()
    }

    /// Polls, and handles messages of the daemon as a sleeper does.
    pub fn go_on(&mut self) {
        self.rdm.endpoint.look();
        // As a queue is read.
        self.collect();
        match self.with(|rdm, env| rdm.receive_fast(env)) {
            Ok((done, _)) => self.record(&done),
            Err(_) => drop(self.with(|rdm, env| rdm.progress(env))),
        }
        self.collect();
    }

    /// Takes the completions.
    fn collect(&mut self) {
        for done in std::mem::take(&mut self.rdm.completions) {
            self.record(&done);
        }
    }

    /// Records a completion for the target.
    fn record(&mut self, done: &OpCompletion) {
        self.completions.push(ScenarioCompletion {
            context: done.report.context,
            err: done.failure.map_or(0, |failure| failure.err),
            flags: done.report.flags,
            len: done.len,
            last: done.report.flags & FI_MULTI_RECV != 0,
        });
    }

    /// Returns the completions since the last call.
    pub fn told(&mut self) -> Vec<ScenarioCompletion> {
        self.collect();
        std::mem::take(&mut self.completions)
    }

    /// Sets whether the queue for completions of peers' operations is full.
    pub fn hold(&mut self, held: bool) {
        self.rdm.is_cq_full = held;
    }

    /// Registers the memory under a key if `whether` is true, else deregisters it.
    pub fn register(&mut self, key: u64, whether: bool) {
        if !whether {
            self.rdm.release(key);
            self.regions.remove(key);
            return;
        }
        // SAFETY: the memory outlives the endpoint, and is accessed between its calls only.
        let pieces = Box::new([unsafe { self.registered.piece() }]);
        let region = RegisteredRegion::new(pieces, FI_REMOTE_READ | FI_REMOTE_WRITE, 0);
        let _ = self.regions.insert(key, region);
    }

    /// Posts a receive of a message: from one sender or any, with a tag and its ignored bits or
    /// without a tag, of `len` bytes. `many` makes the buffer a multi-receive buffer. Returns
    /// whether it was posted.
    pub fn receive(
        &mut self,
        from: Option<u64>,
        tag: Option<(u64, u64)>,
        context: usize,
        (len, many): (usize, bool),
    ) -> bool {
        let wanted = wanted(from, tag, context);
        let payload = self.payload(len);
        let posted = self.with(|rdm, env| {
            if many {
                rdm.receive_many(env, wanted, payload)
            } else {
                rdm.receive(env, wanted, payload)
            }
        });
        posted.is_ok()
    }

    /// Peeks at a message; `how`: whether to claim and whether to discard it.
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

    /// Receives the message that the context claimed into `len` bytes, or discards it for `None`.
    pub fn claimed(&mut self, context: usize, len: Option<usize>) -> bool {
        let report = wanted(None, Some((0, 0)), context).report;
        let payload = len.map(|len| self.payload(len));
        let taken = self.with(|rdm, env| match payload {
            Some(payload) => rdm.receive_claimed(env, report, payload),
            None => rdm.discard_claimed(env, report),
        });
        taken.is_ok()
    }

    /// Cancels a receive.
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
        let payload = self.payload(len);
        let report = ReportTemplate {
            context,
            flags: FI_TAGGED | FI_SEND,
            tag,
            len,
            ..ReportTemplate::default()
        };
        let message = Message { to, report, payload, data: Some(1), inject: false, delivered };
        self.with(|rdm, env| rdm.send(env, message)).is_ok()
    }

    /// Reads or writes remote memory.
    pub fn reach(&mut self, to: u64, context: usize, len: usize, writes: bool) -> bool {
        let payload = self.payload(len);
        let remote = RemoteMemory { to, key: 1, address: 0 };
        let report = ReportTemplate { context, len, ..ReportTemplate::default() };
        let asked = self.with(|rdm, env| {
            if writes {
                rdm.write(env, remote, report, payload, Some(1))
            } else {
                rdm.read(env, remote, report, payload)
            }
        });
        asked.is_ok()
    }

    /// Starts an atomic operation that fetches the previous values.
    pub fn change(&mut self, to: u64, context: usize, operands: &[u8]) -> bool {
        let len = operands.len();
        let result = Some(self.payload(len));
        let remote = RemoteMemory { to, key: 1, address: 0 };
        let report = ReportTemplate { context, len, ..ReportTemplate::default() };
        let (operands, compare) = (operands.to_vec(), None);
        let atomic = AtomicRequest { datatype: 0, operation: 0, operands, compare, result, len };
        self.with(|rdm, env| rdm.atomic(env, remote, report, atomic)).is_ok()
    }

    /// Returns the statistics of the endpoint.
    pub fn account(&self) -> Vec<(&'static str, u64)> {
        self.rdm.stats_report().rows
    }

    /// Returns the number of operations in progress.
    pub fn operations(&self) -> usize {
        self.rdm.operations()
    }

    /// Returns the counts of sends, of calls and of peers' operations in progress, which are all 0
    /// if no operation is in progress.
    pub fn counted(&self) -> [usize; 3] {
        self.rdm.counted()
    }

    /// Returns whether all guard bytes are intact.
    pub fn is_guarded(&self) -> bool {
        self.registered.is_guarded() && self.memory.iter().all(Memory::is_guarded)
    }

    /// Returns whether registered memory was written.
    pub fn is_written(&self) -> bool {
        self.registered.0.iter().any(|byte| *byte != UNTOUCHED)
    }
}

/// Returns the specification of a receive.
fn wanted(from: Option<u64>, tag: Option<(u64, u64)>, context: usize) -> ReceiveSpec {
    let kind = if tag.is_some() { FI_TAGGED } else { FI_MSG };
    let (tag, ignore) = tag.unwrap_or_default();
    let report =
        ReportTemplate { context, flags: kind | FI_RECV, tag, ..ReportTemplate::default() };
    ReceiveSpec { from: from.unwrap_or(FI_ADDR_UNSPEC), ignore, report }
}
