//! Registrations of application memory: long messages of a process behind an adapter leave from,
//! and arrive in, the memory of the application, without a copy in the process.
//!
//! A registration covers whole pages, and serves one message at a time. It costs a system call, a
//! command of the adapter and an answer of the daemon, so it is kept for the next message from the
//! same memory (`TUNED` of Xen2MX), or ends with its message (`PLAIN`). `MX_RCACHE` chooses:
//!
//! | value | registrations | ended by |
//! |---|---|---|
//! | 0 | one for each message | the message |
//! | 2 | kept | `mx__regcache_clean`, and a change that the kernel reports |
//! | otherwise | kept, if the kernel reports changes of memory | such a change, and `mx__regcache_clean` |
//! | otherwise | one for each message, where the kernel reports none ([`CacheCounters::unwatched`]) | the message |
//!
//! A registration that ends with its message serves only the message for which it was made: another
//! may have other pages at the same address.
//!
//! # Limits
//! At most [`REGISTRATIONS_MAX`] (32) registrations of [`REGISTERED_BYTES_MAX`] (256 MiB) in total,
//! or of a quarter of `ulimit -l` if that is less and the user is not root: the rest is for rings
//! and slabs. The registration that was not used for the longest time makes room. Pages of a
//! registration that is kept stay allocated after `munmap` until the next long message. If the
//! kernel or the daemon refuses the memory of a message, or there is no room for it, the message
//! goes through a slab. After a refusal of the daemon the next [`REFUSED_PAUSE`] (256)
//! messages use slabs; a message that waits for a slab counts once.
//!
//! # Place
//! [`super::StagingSlabs`] owns the cache of an endpoint behind an adapter and queues its commands.
//! The matching engine decides which messages are long. All calls but [`clean`] run under the lock
//! of the endpoint.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_ibverbs::{ProtectionDomain, Registration};
use causeway_message::library::TransportError;
use causeway_message::split::{RegionId, Token, Window};
use causeway_wire::local::ClientMessage;
use rustix::process::{Resource, geteuid, getrlimit};

use super::StagingCommand;
use super::watch::{MemoryWatch, WatchedRange};
use crate::connection::Grant;
use crate::limits::{PAGE_BYTES, REFUSED_PAUSE, REGISTERED_BYTES_MAX, REGISTRATIONS_MAX};

/// Number of calls of [`clean`].
static CLEANED: AtomicU64 = AtomicU64::new(0);

/// Marks all registrations of application memory, of all endpoints of this process: those in use
/// end with their message, the others before the next long message of their endpoint. Does not
/// block. `mx__regcache_clean` calls this before the application unmaps memory.
pub fn clean() {
    CLEANED.fetch_add(1, Ordering::SeqCst);
}

/// Access of the adapter to memory of this process.
pub(super) trait Registrar: Debug {
    /// A registration.
    type Memory: Debug;

    /// Registers a range of whole pages; `None` if the adapter or the kernel refuses.
    fn register(&self, range: &Range<usize>) -> Option<Arc<Self::Memory>>;

    /// Ends the access at once.
    fn revoke(memory: &Self::Memory);

    /// Returns the grant of a registration to the daemon, or the end of the grant.
    fn grant(memory: Arc<Self::Memory>, ends: bool) -> Grant;
}

impl Registrar for ProtectionDomain {
    type Memory = Registration;

    fn register(&self, range: &Range<usize>) -> Option<Arc<Registration>> {
        // SAFETY: the memory is that of a message which the application lends until the message
        // ends. Before the application gets it back, the daemon has ended its access, or the
        // registration is revoked.
        let registered = unsafe { self.register_range(range.clone()) };
        registered.ok().map(Arc::new)
    }

    fn revoke(memory: &Registration) {
        memory.revoke();
    }

    fn grant(memory: Arc<Registration>, ends: bool) -> Grant {
        if ends { Grant::Ended(memory) } else { Grant::Memory(memory) }
    }
}

/// The use of registrations after their message.
#[derive(Debug, Clone)]
pub(super) enum Policy {
    /// A registration ends with its message.
    Plain,
    /// Registrations are kept until the watch reports a change.
    Watched(Arc<MemoryWatch>),
    /// As [`Self::Plain`], because the kernel reports no changes.
    Unwatched,
    /// Registrations are kept until the application reports a change.
    Trusting,
}

impl Policy {
    /// Returns the policy that `MX_RCACHE` chooses.
    pub fn chosen() -> Self {
        let value = std::env::var_os("MX_RCACHE");
        if value.as_ref().is_some_and(|value| value == "0") {
            return Self::Plain;
        }
        let otherwise = match value.is_some_and(|value| value == "2") {
            true => Self::Trusting,
            false => Self::Unwatched,
        };
        MemoryWatch::of_process().map_or(otherwise, Self::Watched)
    }

    /// Begins the watch of a range, if registrations are kept until a change. Returns it, and whether a
    /// registration of the range is kept.
    fn watch(&self, range: &Range<usize>) -> (Option<WatchedRange>, bool) {
        match self {
            Self::Watched(watch) => {
                let watched = WatchedRange::new(watch, range.clone());
                let is_kept = watched.is_some();
                (watched, is_kept)
            }
            Self::Plain | Self::Unwatched => (None, false),
            Self::Trusting => (None, true),
        }
    }
}

/// Counters of a cache, since the endpoint was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Registrations that were made.
    pub registered: u64,
    /// Messages that used a registration of an earlier message.
    pub reused: u64,
    /// Registrations that ended because their memory changed, or might have.
    pub invalidated: u64,
    /// Registrations that are not kept because the kernel does not report changes of their memory: Linux
    /// before 5.19, a policy that forbids `userfaultfd(2)` (as that of a container), or memory of a file.
    pub unwatched: u64,
    /// Long contiguous messages that went through a slab.
    pub copied: u64,
}

/// A registration.
#[derive(Debug)]
struct Entry<M> {
    /// Tag of the command by which the daemon was asked to accept the memory.
    tag: u32,
    /// Region number of the daemon, once it has answered.
    region: Option<RegionId>,
    /// Addresses of the memory.
    range: Range<usize>,
    memory: Arc<M>,
    /// The message for which the registration was made.
    token: Token,
    /// Other messages use the registration too, and it outlives them.
    is_kept: bool,
    /// Watch of the memory; `None` if nothing is watched.
    watched: Option<WatchedRange>,
    /// Value of [`CLEANED`] at the registration.
    cleaned: u64,
    /// A message uses the memory.
    is_lent: bool,
    /// A message has used the memory.
    is_used: bool,
    /// Number of the last use.
    last_use: u64,
}

impl<M> Entry<M> {
    /// Returns whether the memory may have changed since the registration.
    fn is_stale(&self) -> bool {
        self.cleaned != CLEANED.load(Ordering::SeqCst)
            || self.watched.as_ref().is_some_and(WatchedRange::has_changed)
    }

    /// Returns whether no message uses the memory, and the daemon knows it.
    fn is_idle(&self) -> bool {
        !self.is_lent && self.region.is_some()
    }
}

/// The registrations of an endpoint.
#[derive(Debug)]
pub(super) struct RegistrationCache<R: Registrar> {
    registrar: R,
    policy: Policy,
    /// Number of the endpoint, for commands.
    endpoint: u8,
    entries: Vec<Entry<R::Memory>>,
    /// Most bytes of all registrations.
    bytes_max: usize,
    /// Number of uses.
    uses: u64,
    /// Registrations that will be skipped because the daemon has refused memory.
    pause: u32,
    /// Counters.
    pub counters: CacheCounters,
}

/// Returns the most bytes that an endpoint registers: registered memory is locked memory.
fn bytes_max() -> usize {
    let limit = getrlimit(Resource::Memlock).current.filter(|_| !geteuid().is_root());
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit / 4).unwrap_or(usize::MAX));
    limit.min(REGISTERED_BYTES_MAX)
}

/// Returns the pages that contain a range.
fn pages_of(range: &Range<usize>) -> Option<Range<usize>> {
    let end = range.end.checked_next_multiple_of(PAGE_BYTES)?;
    Some(range.start & !PAGE_BYTES.wrapping_sub(1)..end)
}

impl<R: Registrar> RegistrationCache<R> {
    /// Returns the empty cache of an endpoint.
    pub fn new(endpoint: u8, registrar: R, policy: Policy) -> Self {
        let (entries, counters) = (Vec::new(), CacheCounters::default());
        let bytes_max = bytes_max();
        Self { registrar, policy, endpoint, entries, bytes_max, uses: 0, pause: 0, counters }
    }

    /// Returns whether an answer of the daemon is pending.
    pub fn awaits_answer(&self) -> bool {
        self.entries.iter().any(|entry| entry.region.is_none())
    }

    /// Returns a window onto memory of the application, for the message with a token, or `None` if the
    /// message must go through a slab; the caller calls [`Self::count_copy`] once it has one. `tag` is that of the last command.
    ///
    /// # Errors
    /// [`TransportError::Full`] until the daemon has accepted the memory.
    pub fn lend(
        &mut self,
        (memory, token): (Range<usize>, Token),
        tag: &mut u32,
        commands: &mut VecDeque<StagingCommand>,
    ) -> Result<Option<Window>, TransportError> {
        self.end_stale(commands);
        let covers = |entry: &Entry<R::Memory>| {
            let of = &entry.range;
            let is_usable = !entry.is_lent && (entry.is_kept || entry.token == token);
            is_usable && of.start <= memory.start && memory.end <= of.end
        };
        while let Some(at) = self.entries.iter().position(covers) {
            let Some(entry) = self.entries.get_mut(at) else { break };
            let Some(region) = entry.region else { return Err(TransportError::Full) };
            let page = memory.start & !PAGE_BYTES.wrapping_sub(1);
            if entry.watched.as_ref().is_some_and(|watched| !watched.is_unchanged(page)) {
                self.counters.invalidated = self.counters.invalidated.wrapping_add(1);
                self.end(at, commands);
                continue;
            }
            self.uses = self.uses.wrapping_add(1);
            self.counters.reused = self.counters.reused.wrapping_add(u64::from(entry.is_used));
            (entry.is_lent, entry.is_used, entry.last_use) = (true, true, self.uses);
            let offset = memory.start.saturating_sub(entry.range.start) as u64;
            let len = u32::try_from(memory.len()).unwrap_or(u32::MAX);
            return Ok(Some(Window { region, offset, len }));
        }
        match self.register((&memory, token), tag, commands) {
            Some(()) => Err(TransportError::Full),
            None => Ok(None),
        }
    }

    /// Counts a message that goes through a slab because [`Self::lend`] returned no window.
    pub fn count_copy(&mut self) {
        self.counters.copied = self.counters.copied.wrapping_add(1);
        self.pause = self.pause.saturating_sub(1);
    }

    /// Registers memory and asks the daemon to accept it. Returns `None` if the memory cannot be
    /// registered, or there is no room.
    fn register(
        &mut self,
        (memory, token): (&Range<usize>, Token),
        tag: &mut u32,
        commands: &mut VecDeque<StagingCommand>,
    ) -> Option<()> {
        if self.pause > 0 {
            return None;
        }
        let range = pages_of(memory)?;
        self.make_room(range.len(), commands)?;
        let cleaned = CLEANED.load(Ordering::SeqCst);
        // Watched first: a change during the registration is seen.
        let (watched, is_kept) = self.policy.watch(&range);
        let registered = self.registrar.register(&range)?;
        *tag = tag.wrapping_add(1);
        let ask =
            ClientMessage::Region { tag: *tag, endpoint: self.endpoint, len: range.len() as u64 };
        commands.push_back((ask, R::grant(Arc::clone(&registered), false)));
        let counters = &mut self.counters;
        counters.registered = counters.registered.wrapping_add(1);
        let is_unwatched = !is_kept && !matches!(self.policy, Policy::Plain);
        counters.unwatched = counters.unwatched.wrapping_add(u64::from(is_unwatched));
        self.entries.push(Entry {
            tag: *tag,
            region: None,
            range,
            memory: registered,
            token,
            is_kept,
            watched,
            cleaned,
            is_lent: false,
            is_used: false,
            last_use: self.uses,
        });
        Some(())
    }

    /// Ends idle registrations until there is room for `len` more bytes; `None` if there will be
    /// none.
    fn make_room(&mut self, len: usize, commands: &mut VecDeque<StagingCommand>) -> Option<()> {
        loop {
            let bytes =
                self.entries.iter().fold(len, |sum, entry| sum.saturating_add(entry.range.len()));
            if self.entries.len() < REGISTRATIONS_MAX && bytes <= self.bytes_max {
                return Some(());
            }
            let idle = self.entries.iter().enumerate().filter(|(_, entry)| entry.is_idle());
            let (oldest, _) = idle.min_by_key(|(_, entry)| entry.last_use)?;
            self.end(oldest, commands);
        }
    }

    /// Ends the registrations of memory that may have changed.
    fn end_stale(&mut self, commands: &mut VecDeque<StagingCommand>) {
        let stale = |entry: &Entry<R::Memory>| entry.is_idle() && entry.is_stale();
        while let Some(at) = self.entries.iter().position(stale) {
            self.counters.invalidated = self.counters.invalidated.wrapping_add(1);
            self.end(at, commands);
        }
    }

    /// Ends all idle registrations. Returns whether there were any.
    pub fn end_idle(&mut self, commands: &mut VecDeque<StagingCommand>) -> bool {
        let before = self.entries.len();
        while let Some(at) = self.entries.iter().position(Entry::is_idle) {
            self.end(at, commands);
        }
        self.entries.len() < before
    }

    /// As [`Self::end_idle`], and ends the access at once, since locked memory is short: the memory is
    /// unlocked on return.
    pub fn release_idle(&mut self, commands: &mut VecDeque<StagingCommand>) -> bool {
        let idle = self.entries.iter().filter(|entry| entry.is_idle());
        idle.for_each(|entry| R::revoke(&entry.memory));
        self.end_idle(commands)
    }

    /// Ends a registration that the daemon knows.
    fn end(&mut self, at: usize, commands: &mut VecDeque<StagingCommand>) {
        let entry = self.entries.swap_remove(at);
        if let Some(region) = entry.region {
            let ask = ClientMessage::Unregion { endpoint: self.endpoint, region: region.0 };
            commands.push_back((ask, R::grant(entry.memory, true)));
        }
    }

    /// Records the daemon's answer; `None` is a refusal. Returns whether the tag is of this cache.
    pub fn record_answer(&mut self, tag: u32, region: Option<RegionId>) -> bool {
        let Some(at) = self.entries.iter().position(|entry| entry.tag == tag) else {
            return false;
        };
        match (region, self.entries.get_mut(at)) {
            (Some(region), Some(entry)) => entry.region = Some(region),
            _ => {
                self.entries.swap_remove(at);
                self.pause = REFUSED_PAUSE;
            }
        }
        true
    }

    /// Returns the index of the registration of a region that is lent.
    fn lent(&self, region: RegionId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.is_lent && entry.region == Some(region))
    }

    /// Ends the access to memory that is lent, because its bytes may change: nothing more is read
    /// from or written to it. [`Self::give`] follows.
    pub fn take_back(&mut self, region: RegionId) {
        if let Some(entry) = self.lent(region).and_then(|at| self.entries.get_mut(at)) {
            R::revoke(&entry.memory);
            // No later message uses the registration.
            entry.cleaned = u64::MAX;
        }
    }

    /// Ends the use of memory by a message. Returns whether it is of this cache.
    pub fn give(&mut self, region: RegionId, commands: &mut VecDeque<StagingCommand>) -> bool {
        let Some(at) = self.lent(region) else { return false };
        let Some(entry) = self.entries.get_mut(at) else { return false };
        entry.is_lent = false;
        let is_stale = entry.is_stale();
        if is_stale || !entry.is_kept {
            let count = &mut self.counters.invalidated;
            *count = count.wrapping_add(u64::from(is_stale));
            self.end(at, commands);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::MutexGuard;
    use std::sync::atomic::AtomicUsize;

    use super::super::watch::tests::ALONE;
    use super::*;

    /// An adapter that accepts ranges up to a length, and counts those that are revoked.
    #[derive(Debug)]
    struct Fake(usize);

    impl Registrar for Fake {
        type Memory = AtomicUsize;

        fn register(&self, range: &Range<usize>) -> Option<Arc<AtomicUsize>> {
            (range.len() <= self.0).then(Arc::default)
        }

        fn revoke(memory: &AtomicUsize) {
            memory.fetch_add(1, Ordering::SeqCst);
        }

        fn grant(_memory: Arc<AtomicUsize>, _ends: bool) -> Grant {
            Grant::Nothing
        }
    }

    /// A cache with its commands, and a daemon that answers with the tag as region.
    struct Rig {
        cache: RegistrationCache<Fake>,
        tag: u32,
        commands: VecDeque<StagingCommand>,
        _alone: MutexGuard<'static, ()>,
    }

    impl Rig {
        fn new(policy: Policy) -> Self {
            let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let cache = RegistrationCache::new(3, Fake(1 << 20), policy);
            Self { cache, tag: 0, commands: VecDeque::new(), _alone: alone }
        }

        fn lend(&mut self, memory: Range<usize>) -> Result<Option<Window>, TransportError> {
            self.lend_to(Token(1), memory)
        }

        fn lend_to(
            &mut self,
            token: Token,
            memory: Range<usize>,
        ) -> Result<Option<Window>, TransportError> {
            self.cache.lend((memory, token), &mut self.tag, &mut self.commands)
        }

        /// Registers memory and returns its window.
        fn lent(&mut self, memory: Range<usize>) -> Window {
            assert_eq!(self.lend(memory.clone()), Err(TransportError::Full));
            assert_eq!(self.lend(memory.clone()), Err(TransportError::Full), "asked once");
            let asked = self.commands.pop_back().unwrap().0;
            assert!(matches!(asked, ClientMessage::Region { endpoint: 3, .. }), "{asked:?}");
            assert!(self.cache.awaits_answer());
            assert!(self.cache.record_answer(self.tag, Some(RegionId(self.tag as u8))));
            assert!(!self.cache.awaits_answer());
            self.lend(memory).unwrap().unwrap()
        }

        fn give(&mut self, window: Window) {
            assert!(self.cache.give(window.region, &mut self.commands));
        }

        /// Returns the regions that ended.
        fn ended(&mut self) -> Vec<u8> {
            let region = |(ask, _): StagingCommand| match ask {
                ClientMessage::Unregion { endpoint: 3, region } => region,
                other => panic!("{other:?}"),
            };
            self.commands.drain(..).map(region).collect()
        }
    }

    const BUFFER: Range<usize> = 0x10_0010..0x12_0010;

    #[test]
    fn staging_cache_registers_pages_once_and_one_message_uses_them_at_a_time() {
        let mut rig = Rig::new(Policy::Trusting);
        let window = rig.lent(BUFFER);
        assert_eq!((window.offset, window.len as usize), (0x10, BUFFER.len()));
        // A second message from the same memory has a registration of its own.
        let second = rig.lent(BUFFER.start..BUFFER.start + 100);
        assert_ne!(second.region, window.region);
        rig.give(second);
        rig.give(window);
        assert_eq!(rig.ended(), []);
        let part = 0x11_0000..0x11_8000;
        let again = rig.lend(part).unwrap().unwrap();
        assert_eq!((again.region, again.offset), (window.region, 0x1_0000));
        let counted = rig.cache.counters;
        assert_eq!((counted.registered, counted.reused, counted.copied), (2, 1, 0));
    }

    #[test]
    fn staging_cache_ends_plain_registrations_with_their_message() {
        let mut rig = Rig::new(Policy::Plain);
        let window = rig.lent(BUFFER);
        rig.give(window);
        assert_eq!(rig.ended(), [window.region.0]);
        let window = rig.lent(BUFFER);
        rig.give(window);
        assert_eq!((rig.cache.counters.registered, rig.cache.counters.reused), (2, 0));
        assert_eq!(rig.cache.counters.unwatched, 0, "the application wants it");
    }

    #[test]
    fn staging_cache_without_reports_of_the_kernel_registers_for_each_message_and_counts_it() {
        let mut rig = Rig::new(Policy::Unwatched);
        let window = rig.lent(BUFFER);
        rig.give(window);
        assert_eq!(rig.ended(), [window.region.0]);
        let counted = rig.cache.counters;
        assert_eq!((counted.registered, counted.unwatched, counted.copied), (1, 1, 0));
        // The message was cancelled before the daemon answered; its memory may be other memory now.
        assert_eq!(rig.lend_to(Token(2), BUFFER), Err(TransportError::Full));
        let _ = rig.commands.pop_back();
        assert!(rig.cache.record_answer(rig.tag, Some(RegionId(70))));
        assert_eq!(
            rig.lend_to(Token(3), BUFFER),
            Err(TransportError::Full),
            "its own registration"
        );
        let _ = rig.commands.pop_back();
        assert!(rig.cache.record_answer(rig.tag, Some(RegionId(71))));
        let window = rig.lend_to(Token(3), BUFFER).unwrap().unwrap();
        assert_eq!(window.region, RegionId(71));
        rig.give(window);
        assert!(rig.cache.end_idle(&mut rig.commands), "the registration of the cancelled message");
        assert_eq!(rig.ended(), [71, 70]);
    }

    #[test]
    fn staging_cache_does_not_keep_memory_that_the_kernel_does_not_watch() {
        let Some(watch) = MemoryWatch::of_process() else {
            eprintln!("skipped: the kernel refuses userfaultfd(2)");
            return;
        };
        let mut rig = Rig::new(Policy::Watched(watch));
        // No memory is mapped there.
        let window = rig.lent(0x1000..0x11_000);
        rig.give(window);
        assert_eq!(rig.ended(), [window.region.0]);
        assert_eq!((rig.cache.counters.registered, rig.cache.counters.unwatched), (1, 1));
    }

    #[test]
    fn staging_cache_ends_what_the_application_cleans_or_a_message_withdraws() {
        let mut rig = Rig::new(Policy::Trusting);
        let (idle, used) = (rig.lent(BUFFER), rig.lent(0x20_0000..0x21_0000));
        let withdrawn = rig.lent(0x30_0000..0x31_0000);
        let memory = Arc::clone(&rig.cache.entries[2].memory);
        rig.give(idle);
        rig.cache.take_back(withdrawn.region);
        assert_eq!(memory.load(Ordering::SeqCst), 1);
        rig.give(withdrawn);
        assert_eq!(rig.ended(), [withdrawn.region.0]);
        clean();
        assert_eq!(rig.lend(0x40_0000..0x41_0000), Err(TransportError::Full));
        let _ = rig.commands.pop_back();
        assert_eq!(rig.ended(), [idle.region.0], "a message uses the other");
        rig.give(used);
        assert_eq!(rig.ended(), [used.region.0]);
        assert_eq!(rig.cache.counters.invalidated, 3);
        // A slab needs the memory.
        assert!(!rig.cache.end_idle(&mut rig.commands), "the daemon has not answered");
        assert!(rig.cache.record_answer(rig.tag, Some(RegionId(77))));
        assert!(rig.cache.end_idle(&mut rig.commands));
        assert_eq!(rig.ended(), [77]);
        // Locked memory is short: the memory of idle registrations is unlocked at once.
        let (idle, used) = (rig.lent(BUFFER), rig.lent(0x20_0000..0x21_0000));
        let memories = [0, 1].map(|at| Arc::clone(&rig.cache.entries[at].memory));
        rig.give(idle);
        assert!(rig.cache.release_idle(&mut rig.commands));
        assert_eq!(memories.map(|memory| memory.load(Ordering::SeqCst)), [1, 0]);
        assert_eq!(rig.ended(), [idle.region.0]);
        rig.give(used);
    }

    #[test]
    fn staging_cache_is_bounded_and_refused_memory_is_copied() {
        let mut rig = Rig::new(Policy::Trusting);
        assert_eq!(rig.lend(0..2 << 20), Ok(None), "the adapter refuses");
        let all: Vec<Window> =
            (1..=REGISTRATIONS_MAX).map(|at| rig.lent(at << 16..(at << 16) + 0x9000)).collect();
        assert_eq!(rig.lend(0xff_0000..0xff_9000), Ok(None), "all are in use");
        rig.give(all[5]);
        rig.give(all[4]);
        let next = rig.lent(0xff_0000..0xff_9000);
        assert_eq!(rig.ended(), [all[4].region.0], "the least recently used one");
        rig.give(next);
        // The daemon refuses; the next messages are copied.
        rig.give(all[7]);
        assert_eq!(rig.lend(0xee_0000..0xee_9000), Err(TransportError::Full));
        assert!(rig.cache.record_answer(rig.tag, None));
        // A message asks again while it waits for a slab.
        for _ in 0..2 * REFUSED_PAUSE {
            assert_eq!(rig.lend(0xee_0000..0xee_9000), Ok(None));
        }
        for _ in 0..REFUSED_PAUSE {
            assert_eq!(rig.lend(0xee_0000..0xee_9000), Ok(None));
            rig.cache.count_copy();
        }
        assert_eq!(rig.cache.counters.copied, u64::from(REFUSED_PAUSE));
        assert_eq!(rig.lend(0xee_0000..0xee_9000), Err(TransportError::Full), "asked again");
        assert!(
            !rig.cache.record_answer(9999, None)
                && !rig.cache.give(RegionId(200), &mut rig.commands)
        );
    }

    #[test]
    fn staging_cache_drops_memory_that_was_unmapped() {
        let Some(watch) = MemoryWatch::of_process() else {
            eprintln!("skipped: the kernel refuses userfaultfd(2)");
            return;
        };
        let mut rig = Rig::new(Policy::Watched(watch));
        let map = || {
            let mapping = Arc::new(causeway_memory::Mapping::private(1 << 18).unwrap());
            causeway_memory::View::new(mapping, 0, 1 << 18).unwrap()
        };
        let first = map();
        let start = first.as_ptr().expose_provenance();
        let window = rig.lent(start..start + (1 << 18));
        rig.give(window);
        let again = rig.lend(start..start + (1 << 18)).unwrap().unwrap();
        assert_eq!(again.region, window.region);
        rig.give(again);
        drop(first);
        let second = map();
        let start = second.as_ptr().expose_provenance();
        assert_eq!(rig.lend(start..start + (1 << 18)), Err(TransportError::Full));
        let _ = rig.commands.pop_back();
        assert_eq!(rig.ended(), [window.region.0]);
        assert_eq!(rig.cache.counters.invalidated, 1);
    }
}
