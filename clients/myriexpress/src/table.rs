//! The endpoints of this process: handles and locks.
//!
//! A handle is the address of a slot in a static table of [`ENDPOINTS_MAX`] (1,024) slots; with all
//! of them in use an endpoint cannot be opened (`MX_NO_RESOURCES`). Handles are compared with the
//! table and not dereferenced, so that invalid handles are detected. If the slot of a closed
//! endpoint is used again, the old handle refers to the new endpoint; addresses and requests have a
//! use count and do not (`address`).
//!
//! Each slot has one lock, which every call on the endpoint takes; calls on different endpoints run
//! in parallel. Handlers run without it ([`LockedEndpoint::unlocked`]). Opening endpoints has
//! another lock, which is held while the daemon answers: threads that open endpoints take turns.
//! The lock of the new slot is held as well, so that counters of all endpoints and a fork wait too.
//! The table is never freed. Used by the functions of `call` that concern endpoints, by `wait` and
//! `fork`. An endpoint does not know the table: it gets its number and the room of its followers at
//! the opening.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::address::LocalEndpoint;
use crate::code::Return;
use crate::endpoint::MxEndpoint;
use crate::limits::ENDPOINTS_MAX;
use causeway_endpoint::lock::{Lock, Room};

/// A slot of the table, on its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub struct EndpointSlot {
    lock: Lock,
    /// Followers: threads that wait while another thread sleeps on the doorbell.
    room: Room,
    inner: UnsafeCell<SlotContent>,
}

// SAFETY: `inner` is accessed only through `SlotGuard`, whose owner holds the lock. Endpoints may
// be moved between threads, as `may_be_sent` checks.
unsafe impl Sync for EndpointSlot {}

const fn may_be_sent<T: Send>() {}
const _: () = may_be_sent::<SlotContent>();

/// Content of a slot.
#[derive(Debug)]
struct SlotContent {
    /// How often the slot was used, openings that failed included.
    turn: u32,
    /// The open endpoint; `None` while the slot is free.
    endpoint: Option<Box<MxEndpoint>>,
}

static SLOTS: [EndpointSlot; ENDPOINTS_MAX] = [const {
    let inner = UnsafeCell::new(SlotContent { turn: 0, endpoint: None });
    EndpointSlot { lock: Lock::new(), room: Room::new(), inner }
}; ENDPOINTS_MAX];
/// Lock for opening endpoints.
static OPENING: Lock = Lock::new();
/// One more than the highest used slot.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A slot whose lock is held.
#[derive(Debug)]
struct SlotGuard(&'static EndpointSlot);

impl Drop for SlotGuard {
    #[inline]
    fn drop(&mut self) {
        self.0.lock.give();
    }
}

impl SlotGuard {
    #[inline]
    fn inner(&mut self) -> &mut SlotContent {
        // SAFETY: the lock is held, and `self` is its only owner.
        unsafe { &mut *self.0.inner.get() }
    }
}

/// An open endpoint whose lock is held. Two words, so that it is passed in registers.
#[derive(Debug)]
pub struct LockedEndpoint {
    endpoint: std::ptr::NonNull<MxEndpoint>,
    guard: SlotGuard,
}

/// Returns a slot by number.
pub fn slot(at: u16) -> Option<&'static EndpointSlot> {
    SLOTS.get(usize::from(at))
}

#[inline]
fn place(handle: *mut c_void) -> Option<&'static EndpointSlot> {
    let offset = handle.addr().wrapping_sub(SLOTS.as_ptr().addr());
    const SIZE: usize = size_of::<EndpointSlot>();
    SLOTS.get(offset / SIZE).filter(|_| offset.is_multiple_of(SIZE))
}

impl EndpointSlot {
    /// Locks the endpoint of the slot.
    #[inline]
    pub fn locked(&'static self) -> Result<LockedEndpoint, Return> {
        self.lock.take();
        let mut guard = SlotGuard(self);
        let endpoint = guard.inner().endpoint.as_deref_mut().ok_or(Return::BadEndpoint)?.into();
        Ok(LockedEndpoint { endpoint, guard })
    }

    /// Returns the handle for the application.
    fn handle(&'static self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// Locks the endpoint of a handle.
#[inline]
pub fn lock(handle: *mut c_void) -> Result<LockedEndpoint, Return> {
    place(handle).ok_or(Return::BadEndpoint)?.locked()
}

/// Stores a new endpoint in a free slot. `make` gets its number and the room of its followers.
/// Returns its handle.
pub fn insert(
    make: impl FnOnce(LocalEndpoint, &'static Room) -> Result<MxEndpoint, Return>,
) -> Result<*mut c_void, Return> {
    OPENING.take();
    let inserted = insert_one(make);
    OPENING.give();
    inserted
}

fn insert_one(
    make: impl FnOnce(LocalEndpoint, &'static Room) -> Result<MxEndpoint, Return>,
) -> Result<*mut c_void, Return> {
    for (at, slot) in SLOTS.iter().enumerate() {
        // A slot whose lock is held is in use.
        if !slot.lock.try_take() {
            continue;
        }
        let mut guard = SlotGuard(slot);
        let inner = guard.inner();
        if inner.endpoint.is_some() {
            continue;
        }
        inner.turn = inner.turn.wrapping_add(1);
        USED.fetch_max(at.saturating_add(1), Ordering::AcqRel);
        let number = u16::try_from(at).map_err(|_| Return::NoResources)?;
        let own = LocalEndpoint { slot: number, turn: inner.turn };
        inner.endpoint = Some(Box::new(make(own, &slot.room)?));
        return Ok(slot.handle());
    }
    Err(Return::NoResources)
}

/// Returns the slots that were ever used.
fn used() -> impl Iterator<Item = &'static EndpointSlot> {
    SLOTS.iter().take(USED.load(Ordering::Acquire))
}

/// Calls `run` for each endpoint of this process. The caller must not hold a lock.
pub fn each(mut run: impl FnMut(&mut MxEndpoint)) {
    for mut locked in used().filter_map(|slot| slot.locked().ok()) {
        run(locked.endpoint());
    }
}

/// Takes all locks before a fork, so that the child gets a consistent copy. The same thread must
/// call [`give_all`] or [`abandon_all`] afterwards.
pub fn take_all() {
    OPENING.take();
    used().for_each(|slot| slot.lock.take());
}

/// Releases all locks in the parent process.
///
/// # Safety
/// The calling thread must have called [`take_all`], and must hold no [`LockedEndpoint`] since.
pub unsafe fn give_all() {
    used().for_each(|slot| slot.lock.give());
    OPENING.give();
}

/// Drops the endpoints of the parent in a child process, without closing them, and releases all
/// locks.
///
/// # Safety
/// The forking thread must have called [`take_all`], and the caller must be its copy.
pub unsafe fn abandon_all() {
    for slot in used() {
        if let Some(endpoint) = SlotGuard(slot).inner().endpoint.take() {
            endpoint.abandon();
        }
    }
    OPENING.give();
}

impl LockedEndpoint {
    /// Returns the endpoint.
    #[inline]
    pub fn endpoint(&mut self) -> &mut MxEndpoint {
        // SAFETY: the endpoint stays in the slot until `remove`, which consumes `self`. The lock is
        // held, and no other reference exists while `self` does.
        unsafe { self.endpoint.as_mut() }
    }

    /// Calls `run` without the lock. Fails if the endpoint was closed meanwhile.
    pub fn unlocked<T>(self, run: impl FnOnce() -> T) -> Result<(Self, T), Return> {
        let Self { mut guard, .. } = self;
        let (slot, turn) = (guard.0, guard.inner().turn);
        drop(guard);
        let value = run();
        let mut locked = slot.locked()?;
        let same = locked.guard.inner().turn == turn;
        if same { Ok((locked, value)) } else { Err(Return::BadEndpoint) }
    }

    /// Returns the followers of the endpoint.
    pub fn room(&self) -> &'static Room {
        &self.guard.0.room
    }

    /// Removes the endpoint from its slot.
    pub fn remove(mut self) -> Option<Box<MxEndpoint>> {
        self.guard.inner().endpoint.take()
    }
}
