//! The description of a provider, its version numbers, and contexts of applications: layouts only,
//! as in `fi_provider(7)`.
//!
//! libfabric's core loads the library and reads the description once, from `fi_prov_ini`; the
//! module `provider` of the crate fills it. The core calls its functions in the application's
//! threads. A core skips a provider with an older interface version by itself; nothing is checked
//! here.

use std::ffi::{c_char, c_int, c_void};

use super::fabric::{FiFabricAttr, FiInfo, FidFabric};

/// Returns a version in the interface's encoding: `FI_VERSION(major, minor)`.
pub const fn version(major: u16, minor: u16) -> u32 {
    (major as u32) << 16 | minor as u32
}

/// `struct fi_context`: memory of the application that an operation may use.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiContext {
    pub internal: [*mut c_void; 4],
}

/// `struct fi_context2`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiContext2 {
    pub internal: [*mut c_void; 8],
}

/// `struct fi_recv_context`: the context of a completion with `FI_MULTI_RECV`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiRecvContext {
    pub ep: *mut c_void,
    pub context: *mut c_void,
}

/// `struct fi_provider`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiProvider {
    pub version: u32,
    pub fi_version: u32,
    /// Belongs to the core.
    pub context: FiContext,
    pub name: *const c_char,
    pub getinfo: unsafe extern "C" fn(
        u32,
        *const c_char,
        *const c_char,
        u64,
        *const FiInfo,
        *mut *mut FiInfo,
    ) -> c_int,
    pub fabric: unsafe extern "C" fn(*mut FiFabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
    pub cleanup: unsafe extern "C" fn(),
}
