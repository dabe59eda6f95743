//! Protection domains, and memory that an adapter may access.

use std::ptr::NonNull;
use std::sync::Arc;

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
            // SAFETY: the domain was allocated once; its queue pairs and registrations hold this owner.
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

    /// Registers memory for reads and writes of the adapter and of remote peers. The pages stay
    /// allocated until the registration is dropped.
    ///
    /// # Errors
    /// [`Error::Call`]; `ENOMEM` often means that `ulimit -l` or the adapter's limit is reached.
    pub fn register(&self, memory: View) -> Result<Registration, Error> {
        let rights = abi::ACCESS_LOCAL_WRITE | abi::ACCESS_REMOTE_WRITE | abi::ACCESS_REMOTE_READ;
        let opened = &self.0.opened;
        // SAFETY: the view's bytes are mapped while it lives, which `Registration` holds until the memory
        // is deregistered; no reference to them exists, so that the adapter may write them.
        let mr = unsafe {
            (opened.library.reg_mr)(
                self.0.pd.as_ptr(),
                memory.as_ptr().cast(),
                memory.len(),
                rights,
            )
        };
        let mr = NonNull::new(mr).ok_or_else(|| opened.error("ibv_reg_mr"))?;
        // SAFETY: the library returned a valid object.
        let (lkey, rkey) = unsafe { ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey) };
        let domain = Arc::clone(&self.0);
        Ok(Registration { domain, mr, lkey, rkey, memory, creator: Creator::now() })
    }
}

/// Memory that the adapter may read and write; deregistered when dropped.
#[derive(Debug)]
pub struct Registration {
    domain: Arc<Domain>,
    mr: NonNull<abi::Mr>,
    pub(crate) lkey: u32,
    rkey: u32,
    memory: View,
    creator: Creator,
}

// SAFETY: libibverbs permits calls for an object from any thread; the memory is reached by copies only.
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
        self.memory.as_ptr().expose_provenance() as u64
    }

    /// Returns the memory. The adapter may write to it at any time.
    pub fn memory(&self) -> &View {
        &self.memory
    }

    /// Returns an element of a work request for `len` bytes at offset `at`.
    pub(crate) fn element(&self, at: usize, len: usize) -> Result<abi::Sge, Error> {
        let range = Error::Range { at, len };
        let fits = at.checked_add(len).is_some_and(|end| end <= self.memory.len());
        match (fits, u32::try_from(len), self.address().checked_add(at as u64)) {
            (true, Ok(length), Some(addr)) => Ok(abi::Sge { addr, length, lkey: self.lkey }),
            _ => Err(range),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.creator.is_here() {
            // SAFETY: the memory was registered once. Work requests that still name it fail from now on,
            // since the adapter checks the key.
            unsafe { (self.domain.opened.library.dereg_mr)(self.mr.as_ptr()) };
        }
    }
}
