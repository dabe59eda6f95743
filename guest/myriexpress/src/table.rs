//! The endpoints of this process: their handles, and the lock of each.
//!
//! A handle is the address of a place in a table that is never freed, so a wrong one is found out
//! and not followed.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::address::Own;
use crate::code::Return;
use crate::endpoint::Endpoint;
use crate::limits::ENDPOINTS_MAX;

/// A place, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub struct Slot {
    inner: Mutex<Inner>,
}

/// What a place holds.
#[derive(Debug)]
pub struct Inner {
    /// How often it was used.
    pub turn: u32,
    pub endpoint: Option<Box<Endpoint>>,
}

static SLOTS: [Slot; ENDPOINTS_MAX] =
    [const { Slot { inner: Mutex::new(Inner { turn: 0, endpoint: None }) } }; ENDPOINTS_MAX];

/// An endpoint that is open, with its lock held.
#[derive(Debug)]
pub struct Locked {
    slot: &'static Slot,
    turn: u32,
    guard: MutexGuard<'static, Inner>,
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
    #[inline]
    fn lock(&'static self) -> MutexGuard<'static, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its endpoint.
    #[inline]
    pub fn locked(&'static self) -> Result<Locked, Return> {
        let guard = self.lock();
        if guard.endpoint.is_none() {
            return Err(Return::BadEndpoint);
        }
        Ok(Locked { slot: self, turn: guard.turn, guard })
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
    for (at, slot) in SLOTS.iter().enumerate() {
        // A place whose lock is held is in use.
        let Ok(mut guard) = slot.inner.try_lock() else { continue };
        if guard.endpoint.is_some() {
            continue;
        }
        guard.turn = guard.turn.wrapping_add(1);
        let number = u16::try_from(at).map_err(|_| Return::NoResources)?;
        guard.endpoint = Some(Box::new(make(Own { slot: number, turn: guard.turn })?));
        return Ok(slot.handle());
    }
    Err(Return::NoResources)
}

impl Locked {
    /// The endpoint.
    #[inline]
    pub fn endpoint(&mut self) -> Result<&mut Endpoint, Return> {
        self.guard.endpoint.as_deref_mut().ok_or(Return::BadEndpoint)
    }

    /// Does something without the lock. Fails if the endpoint was closed meanwhile.
    pub fn unlocked<T>(self, run: impl FnOnce() -> T) -> Result<(Self, T), Return> {
        let Self { slot, turn, guard } = self;
        drop(guard);
        let value = run();
        let locked = slot.locked()?;
        if locked.turn == turn { Ok((locked, value)) } else { Err(Return::BadEndpoint) }
    }

    /// Takes the endpoint out of its place.
    pub fn remove(mut self) -> Option<Box<Endpoint>> {
        self.guard.endpoint.take()
    }
}
