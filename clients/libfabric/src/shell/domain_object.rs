//! The object of a domain, from which the functions that open objects get the domain's state.
//!
//! [`domain`](super::domain) opens and closes the object; this module trusts the pointer. The object
//! holds the fabric until it is dropped.

use std::sync::Arc;

use super::fabric_object::HeldFabric;
use crate::abi::FidDomain;
use crate::domain::DomainShared;

/// A domain that an application opened.
#[derive(Debug)]
#[repr(C)]
pub struct DomainObject {
    /// The structure of the interface; must be first.
    fid: FidDomain,
    /// The part that all objects share.
    shared: Arc<DomainShared>,
    /// Released last.
    fabric: HeldFabric,
}

impl DomainObject {
    /// Returns the object of a domain.
    pub fn new(fid: FidDomain, shared: Arc<DomainShared>, fabric: HeldFabric) -> Self {
        Self { fid, shared, fabric }
    }

    /// Returns the part that all objects of the domain share.
    pub fn shared(&self) -> &Arc<DomainShared> {
        &self.shared
    }
}

/// Returns the shared state of a domain.
///
/// # Safety
/// The domain was opened here and is open.
pub unsafe fn domain_of(domain: *mut FidDomain) -> Arc<DomainShared> {
    // SAFETY: guaranteed by the caller.
    Arc::clone(&unsafe { &*domain.cast::<DomainObject>() }.shared)
}
