//! Protection domains, and memory that an adapter may access.
//!
//! Registered pages are pinned, and count to `ulimit -l` unless the user is privileged. The owner
//! of a key may read and write all of the memory; nothing here narrows that.
//! [`Registration::revoke`] and the drop end the access before they return. `adapter` and `staging`
//! of the endpoint crate register rings, slabs and buffers of the application.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use causeway_memory::View;

use crate::abi;
use crate::adapter::{Adapter, Creator, Opened};
use crate::error::Error;

/// A protection domain of the library.
#[derive(Debug)]
pub(crate) struct Domain {
    pub opened: Arc<Opened>,
    pub pd: NonNull<abi::Pd>,
    creator: Creator,
}

// SAFETY: libibverbs permits calls for an object from any thread.
unsafe impl Send for Domain {}
// SAFETY: as for Send.
unsafe impl Sync for Domain {}

impl Drop for Domain {
    fn drop(&mut self) {
        if self.creator.is_here() {
            // SAFETY: the domain was allocated once; its queue pairs and registrations hold this
            // owner.
            unsafe { (self.opened.library.dealloc_pd)(self.pd.as_ptr()) };
        }
    }
}

/// A protection domain: the queue pairs and registrations that may be used together.
#[derive(Debug, Clone)]
pub struct ProtectionDomain(pub(crate) Arc<Domain>);

impl ProtectionDomain {
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn new(adapter: &Adapter) -> Result<Self, Error> {
        let opened = Arc::clone(&adapter.0);
        // SAFETY: the context lives.
        let pd = unsafe { (opened.library.alloc_pd)(opened.context.as_ptr()) };
        let pd = NonNull::new(pd).ok_or_else(|| opened.error("ibv_alloc_pd"))?;
        Ok(Self(Arc::new(Domain { opened, pd, creator: Creator::now() })))
    }

    /// Registers memory for reads and writes of the adapter and of remote peers. The mapping stays
    /// until the registration is dropped.
    ///
    /// # Errors
    /// [`Error::Call`]; `ENOMEM` often means that `ulimit -l` or the adapter's limit is reached.
    pub fn register(&self, memory: View) -> Result<Registration, Error> {
        let start = memory.as_ptr().expose_provenance();
        let range = start..start.saturating_add(memory.len());
        // SAFETY: the view's bytes are mapped while it lives, which `Registration` holds until the
        // memory is deregistered; no reference to them exists, so that the adapter may write them.
        let mut registration = unsafe { self.register_range(range) }?;
        registration.memory = Some(memory);
        Ok(registration)
    }

    /// Registers a range of addresses, as [`Self::register`] does. If the range is unmapped
    /// meanwhile, the adapter still reaches the pages that were there.
    ///
    /// # Errors
    /// As [`Self::register`]; also if a part of the range is not mapped, or not writable.
    ///
    /// # Safety
    /// A peer may read and write the bytes until the registration is dropped or revoked. The caller
    /// grants this to a peer only for bytes that no reference covers meanwhile.
    pub unsafe fn register_range(&self, range: Range<usize>) -> Result<Registration, Error> {
        let rights = abi::ACCESS_LOCAL_WRITE | abi::ACCESS_REMOTE_WRITE | abi::ACCESS_REMOTE_READ;
        let opened = &self.0.opened;
        let start = std::ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: the kernel checks that the range is mapped, and the caller permits the access.
        let mr = unsafe { (opened.library.reg_mr)(self.0.pd.as_ptr(), start, range.len(), rights) };
        let mr = NonNull::new(mr).ok_or_else(|| opened.error("ibv_reg_mr"))?;
        // SAFETY: the library returned a valid object.
        let (lkey, rkey) = unsafe { ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey) };
        let domain = Arc::clone(&self.0);
        let mr = AtomicPtr::new(mr.as_ptr());
        let creator = Creator::now();
        Ok(Registration { mr, domain, lkey, rkey, memory: None, range, creator })
    }
}

/// Memory that the adapter may read and write; deregistered when dropped.
#[derive(Debug)]
pub struct Registration {
    /// The library's object; null once it is deregistered.
    mr: AtomicPtr<abi::Mr>,
    domain: Arc<Domain>,
    pub(crate) lkey: u32,
    rkey: u32,
    /// Holds the memory, unless the application does.
    memory: Option<View>,
    /// Addresses of the memory.
    range: Range<usize>,
    creator: Creator,
}

// SAFETY: libibverbs permits calls for an object from any thread; the memory is reached by copies
// only.
unsafe impl Send for Registration {}
// SAFETY: as for Send.
unsafe impl Sync for Registration {}

impl Registration {
    /// Returns the key by which a peer reaches the memory.
    pub fn remote_key(&self) -> u32 {
        self.rkey
    }

    /// Returns the address of the first byte, as peers name it.
    pub fn address(&self) -> u64 {
        self.range.start as u64
    }

    /// Returns the length of the memory, in bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns whether the memory has no bytes.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns the memory that the registration holds; `None` for a range of the application. The
    /// adapter may write to it at any time.
    pub fn memory(&self) -> Option<&View> {
        self.memory.as_ref()
    }

    /// Deregisters the memory: when this returns, the adapter accesses it no more, and work
    /// requests that name it fail. Later calls have no effect.
    pub fn revoke(&self) {
        let mr = self.mr.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if self.creator.is_here() && !mr.is_null() {
            // SAFETY: the memory was registered once, and the swap left the object to this call.
            // Work requests that still name it fail from now on, since the adapter checks the key.
            unsafe { (self.domain.opened.library.dereg_mr)(mr) };
        }
    }

    /// Returns an element of a work request for `len` bytes at offset `at`.
    pub(crate) fn element(&self, at: usize, len: usize) -> Result<abi::Sge, Error> {
        let range = Error::Range { at, len };
        let fits = at.checked_add(len).is_some_and(|end| end <= self.range.len());
        match (fits, u32::try_from(len), self.address().checked_add(at as u64)) {
            (true, Ok(length), Some(addr)) => Ok(abi::Sge { addr, length, lkey: self.lkey }),
            _ => Err(range),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.revoke();
    }
}
