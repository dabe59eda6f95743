//! The endpoints of this process: their handles, and the lock of each.
//!
//! A handle is the address of a place in a table that is never freed, so a wrong one is found out
//! and not followed.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::address::Own;
use crate::code::Return;
use crate::endpoint::Endpoint;
use crate::limits::ENDPOINTS_MAX;
use causeway_endpoint::lock::{Lock, Room};

/// A place, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub struct Slot {
    lock: Lock,
    /// Threads that wait while another looks after the endpoint.
    pub room: Room,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is reached only through `Held`, whose owner has the lock; an endpoint may go from
// one thread to another, as `may_be_sent` checks.
unsafe impl Sync for Slot {}

const fn may_be_sent<T: Send>() {}
const _: () = may_be_sent::<Inner>();

/// What a place holds.
#[derive(Debug)]
struct Inner {
    /// How often it was used.
    turn: u32,
    endpoint: Option<Box<Endpoint>>,
}

static SLOTS: [Slot; ENDPOINTS_MAX] = [const {
    let inner = UnsafeCell::new(Inner { turn: 0, endpoint: None });
    Slot { lock: Lock::new(), room: Room::new(), inner }
}; ENDPOINTS_MAX];
/// Held while an endpoint is opened.
static OPENING: Lock = Lock::new();
/// One past the highest place that was ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A place with its lock held.
#[derive(Debug)]
struct Held(&'static Slot);

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        self.0.lock.give();
    }
}

impl Held {
    #[inline]
    fn inner(&mut self) -> &mut Inner {
        // SAFETY: the lock is held, and `self` is the only one that has it.
        unsafe { &mut *self.0.inner.get() }
    }
}

/// An endpoint that is open, with its lock held. Two words, so that it goes by registers.
#[derive(Debug)]
pub struct Locked {
    endpoint: std::ptr::NonNull<Endpoint>,
    held: Held,
}

/// A place of the table, by number.
pub fn slot(at: u16) -> Option<&'static Slot> {
    SLOTS.get(usize::from(at))
}

#[inline]
fn place(handle: *mut c_void) -> Option<&'static Slot> {
    let offset = handle.addr().wrapping_sub(SLOTS.as_ptr().addr());
    const SIZE: usize = size_of::<Slot>();
    SLOTS.get(offset / SIZE).filter(|_| offset.is_multiple_of(SIZE))
}

impl Slot {
    /// Its endpoint.
    #[inline]
    pub fn locked(&'static self) -> Result<Locked, Return> {
        self.lock.take();
        let mut held = Held(self);
        let endpoint = held.inner().endpoint.as_deref_mut().ok_or(Return::BadEndpoint)?.into();
        Ok(Locked { endpoint, held })
    }

    /// As the application holds it.
    fn handle(&'static self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// The endpoint of a handle.
#[inline]
pub fn lock(handle: *mut c_void) -> Result<Locked, Return> {
    place(handle).ok_or(Return::BadEndpoint)?.locked()
}

/// Puts an endpoint into a free place; gives its handle.
pub fn insert(make: impl FnOnce(Own) -> Result<Endpoint, Return>) -> Result<*mut c_void, Return> {
    OPENING.take();
    let inserted = insert_one(make);
    OPENING.give();
    inserted
}

fn insert_one(make: impl FnOnce(Own) -> Result<Endpoint, Return>) -> Result<*mut c_void, Return> {
    for (at, slot) in SLOTS.iter().enumerate() {
        // A place whose lock is held is in use.
        if !slot.lock.try_take() {
            continue;
        }
        let mut held = Held(slot);
        let inner = held.inner();
        if inner.endpoint.is_some() {
            continue;
        }
        inner.turn = inner.turn.wrapping_add(1);
        USED.fetch_max(at.saturating_add(1), Ordering::AcqRel);
        let number = u16::try_from(at).map_err(|_| Return::NoResources)?;
        inner.endpoint = Some(Box::new(make(Own { slot: number, turn: inner.turn })?));
        return Ok(slot.handle());
    }
    Err(Return::NoResources)
}

/// All places that were ever used.
fn used() -> impl Iterator<Item = &'static Slot> {
    SLOTS.iter().take(USED.load(Ordering::Acquire))
}

/// Does something with each endpoint of this process, one after the other. No lock may be held.
pub fn each(mut run: impl FnMut(&mut Endpoint)) {
    for mut locked in used().filter_map(|slot| slot.locked().ok()) {
        run(locked.endpoint());
    }
}

/// Takes all locks, so that what a child of this process gets is whole. One of the two below
/// comes after it, in the same thread.
pub fn take_all() {
    OPENING.take();
    used().for_each(|slot| slot.lock.take());
}

/// Lets all locks go, in the process that had a child.
///
/// # Safety
/// The calling thread called [`take_all`], and has no [`Locked`] since.
pub unsafe fn give_all() {
    used().for_each(|slot| slot.lock.give());
    OPENING.give();
}

/// Drops the endpoints of the parent in a child process, without ending them, and lets all locks go.
///
/// # Safety
/// The thread that had this process called [`take_all`] before, and this is its copy.
pub unsafe fn abandon_all() {
    for slot in used() {
        if let Some(endpoint) = Held(slot).inner().endpoint.take() {
            endpoint.abandon();
        }
    }
    OPENING.give();
}

impl Locked {
    /// The endpoint.
    #[inline]
    pub fn endpoint(&mut self) -> &mut Endpoint {
        // SAFETY: it is in the place until `remove`, which takes `self`; the lock is held, and
        // nothing else makes a reference while `self` is there.
        unsafe { self.endpoint.as_mut() }
    }

    /// Does something without the lock. Fails if the endpoint was closed meanwhile.
    pub fn unlocked<T>(self, run: impl FnOnce() -> T) -> Result<(Self, T), Return> {
        let Self { mut held, .. } = self;
        let (slot, turn) = (held.0, held.inner().turn);
        drop(held);
        let value = run();
        let mut locked = slot.locked()?;
        let same = locked.held.inner().turn == turn;
        if same { Ok((locked, value)) } else { Err(Return::BadEndpoint) }
    }

    /// Where others wait for this endpoint.
    pub fn room(&self) -> &'static Room {
        &self.held.0.room
    }

    /// Takes the endpoint out of its place.
    pub fn remove(mut self) -> Option<Box<Endpoint>> {
        self.held.inner().endpoint.take()
    }
}
