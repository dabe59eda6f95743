//! The object of a fabric, which counts the objects that hold it.
//!
//! [`fabric`](super::fabric) opens and closes the object; domains and event queues hold it by
//! [`HeldFabric`], and it refuses to close meanwhile. The functions trust the pointer. They may run
//! in any thread.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::FidFabric;

/// A fabric that an application opened.
#[derive(Debug)]
#[repr(C)]
pub struct FabricObject {
    /// The structure of the interface; must be first.
    fid: FidFabric,
    /// Objects that were opened from it and are not closed.
    children: AtomicUsize,
}

impl FabricObject {
    /// Returns the object of a fabric that no other object holds.
    pub fn new(fid: FidFabric) -> Self {
        Self { fid, children: AtomicUsize::new(0) }
    }

    /// Returns whether an object holds the fabric.
    pub fn is_held(&self) -> bool {
        self.children.load(Ordering::Acquire) != 0
    }
}

/// A fabric that stays open while this value lives.
#[derive(Debug)]
pub struct HeldFabric(*const FabricObject);

impl HeldFabric {
    /// Holds a fabric.
    ///
    /// # Safety
    /// The fabric was opened here, and the application closes it only by `fi_close`.
    pub unsafe fn new(fabric: *mut FidFabric) -> Self {
        let fabric = fabric.cast::<FabricObject>().cast_const();
        // SAFETY: guaranteed by the caller; a fabric begins with its fid.
        unsafe { &*fabric }.children.fetch_add(1, Ordering::Relaxed);
        Self(fabric)
    }
}

impl Drop for HeldFabric {
    fn drop(&mut self) {
        // SAFETY: the fabric does not close while it is held.
        unsafe { &*self.0 }.children.fetch_sub(1, Ordering::Release);
    }
}
