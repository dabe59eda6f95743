//! Builds a list of `struct fi_info` that the core can free: each part is a separate allocation of
//! the C library.
//!
//! Each structure has [`LATER`] (128) zeroed bytes after it, for fields that a newer core may read.
//! Optional parts (NIC attributes, authorisation keys) are NULL. Without memory the list under
//! construction is freed, and `fi_getinfo` fails with `FI_ENOMEM`. The values come from
//! [`ProviderOffer`] and the limits: nothing is decided here.
//!
//! `info` appends the NICs in the thread of the application's `fi_getinfo`, and passes the list to
//! the core, which owns it from then on.

use std::ffi::{CString, c_char, c_void};
use std::ptr::NonNull;

use super::offer::{
    COMPLETION_ORDER, FABRIC, ORDER, PROTOCOL, PROTOCOL_VERSION, ProviderOffer, TAG_FORMAT,
};
use crate::abi::*;
use crate::address::{self, Address};
use crate::limits::{
    DATA_BYTES, ENDPOINTS_MAX, INJECT_MAX, KEY_BYTES, MESSAGE_MAX, OBJECTS_MAX, OPERATIONS_MAX,
    ORDERED_MAX, REMOTE_SEGMENTS_MAX, SEGMENTS_MAX,
};
use crate::nics::LocalNic;

/// Zeroed bytes behind each structure, for fields that a newer core may read.
const LATER: usize = 128;

/// The C library has no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMemory;

/// A list under construction. Dropping it frees the entries.
#[derive(Debug)]
pub struct InfoList {
    /// The first entry; NULL while the list is empty.
    first: *mut FiInfo,
    /// The last entry; NULL while the list is empty.
    last: *mut FiInfo,
}

impl InfoList {
    /// Returns an empty list.
    pub const fn new() -> Self {
        Self { first: std::ptr::null_mut(), last: std::ptr::null_mut() }
    }

    /// Appends the entry of a NIC.
    ///
    /// # Errors
    /// The C library has no memory.
    pub fn push(
        &mut self,
        nic: &LocalNic,
        offer: &ProviderOffer,
        version: u32,
    ) -> Result<(), NoMemory> {
        let info = allocate::<FiInfo>()?;
        match NonNull::new(self.last) {
            // SAFETY: the pointer is an entry that was appended before.
            Some(mut last) => unsafe { last.as_mut() }.next = info,
            None => self.first = info,
        }
        self.last = info;
        // SAFETY: the entry was allocated in full length as zeroes, which are valid for all its
        // fields; no other code refers to it.
        let info = unsafe { &mut *info };
        fill(info, nic, offer, version)
    }

    /// Returns the first entry; the list belongs to the caller.
    pub fn take(mut self) -> *mut FiInfo {
        std::mem::replace(&mut self.first, std::ptr::null_mut())
    }
}

impl Drop for InfoList {
    fn drop(&mut self) {
        while let Some(info) = NonNull::new(self.first) {
            // SAFETY: the entry and its parts were allocated here and not given away; absent parts
            // are NULL.
            unsafe {
                let info = info.as_ptr();
                self.first = (*info).next;
                if let Some(domain) = (*info).domain_attr.as_ref() {
                    libc::free(domain.name.cast());
                }
                if let Some(fabric) = (*info).fabric_attr.as_ref() {
                    libc::free(fabric.name.cast());
                }
                for part in [
                    (*info).src_addr,
                    (*info).dest_addr,
                    (*info).tx_attr.cast(),
                    (*info).rx_attr.cast(),
                    (*info).ep_attr.cast(),
                    (*info).domain_attr.cast(),
                    (*info).fabric_attr.cast(),
                    info.cast(),
                ] {
                    libc::free(part);
                }
            }
        }
    }
}

/// Allocates zeroed memory for a structure.
fn allocate<T>() -> Result<*mut T, NoMemory> {
    let bytes = const { size_of::<T>().saturating_add(LATER) };
    // SAFETY: the call only allocates; the result is aligned for any type.
    let memory = unsafe { libc::calloc(1, bytes) }.cast::<T>();
    if memory.is_null() { Err(NoMemory) } else { Ok(memory) }
}

/// Allocates a structure with this value.
fn put<T>(value: T) -> Result<*mut T, NoMemory> {
    let memory = allocate::<T>()?;
    // SAFETY: the memory was allocated for such a value.
    unsafe { memory.write(value) };
    Ok(memory)
}

/// Copies a text to memory of the C library.
fn put_text(text: &str) -> Result<*mut c_char, NoMemory> {
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: the text ends with a zero.
    let copy = unsafe { libc::strdup(text.as_ptr()) };
    if copy.is_null() { Err(NoMemory) } else { Ok(copy) }
}

/// Copies an address to memory of the C library.
fn put_address(address: &Address) -> Result<*mut c_void, NoMemory> {
    Ok(put(*address)?.cast())
}

/// Fills an entry. Each part is stored as soon as it is allocated, so that it is freed if the next
/// allocation fails.
fn fill(
    info: &mut FiInfo,
    nic: &LocalNic,
    offer: &ProviderOffer,
    version: u32,
) -> Result<(), NoMemory> {
    info.caps = offer.caps;
    info.addr_format = FI_FORMAT_UNSPEC;
    info.src_addr = put_address(&address::of_service(nic.address, offer.service))?;
    info.src_addrlen = address::BYTES;
    if let Some(destination) = &offer.destination {
        info.dest_addr = put_address(destination)?;
        info.dest_addrlen = address::BYTES;
    }
    info.tx_attr = put(tx(offer))?;
    info.rx_attr = put(rx(offer))?;
    info.ep_attr = put(ep())?;
    info.domain_attr = put(domain(offer))?;
    info.fabric_attr = put(FiFabricAttr {
        fabric: std::ptr::null_mut(),
        name: std::ptr::null_mut(),
        // The core fills this in.
        prov_name: std::ptr::null_mut(),
        prov_version: crate::identity::VERSION,
        api_version: version,
    })?;
    let (domain, fabric) = (put_text(&nic.name), put_text(FABRIC));
    // SAFETY: both parts were stored above, and no other code refers to them.
    unsafe {
        (*info.domain_attr).name = domain.unwrap_or(std::ptr::null_mut());
        (*info.fabric_attr).name = fabric.unwrap_or(std::ptr::null_mut());
    }
    domain.and(fabric).map(|_| ())
}

/// Returns the attributes of the transmit side.
fn tx(offer: &ProviderOffer) -> FiTxAttr {
    FiTxAttr {
        caps: offer.tx_caps,
        mode: 0,
        op_flags: offer.tx_flags,
        msg_order: ORDER,
        comp_order: COMPLETION_ORDER,
        inject_size: INJECT_MAX,
        size: OPERATIONS_MAX,
        iov_limit: SEGMENTS_MAX,
        rma_iov_limit: REMOTE_SEGMENTS_MAX,
        tclass: FI_TC_UNSPEC,
    }
}

/// Returns the attributes of the receive side.
fn rx(offer: &ProviderOffer) -> FiRxAttr {
    FiRxAttr {
        caps: offer.rx_caps,
        mode: 0,
        op_flags: offer.rx_flags,
        msg_order: ORDER,
        comp_order: COMPLETION_ORDER,
        total_buffered_recv: 0,
        size: OPERATIONS_MAX,
        iov_limit: SEGMENTS_MAX,
    }
}

/// Returns the attributes of the endpoint.
fn ep() -> FiEpAttr {
    FiEpAttr {
        kind: FI_EP_RDM,
        protocol: PROTOCOL,
        protocol_version: PROTOCOL_VERSION,
        max_msg_size: MESSAGE_MAX,
        msg_prefix_size: 0,
        max_order_raw_size: ORDERED_MAX,
        max_order_war_size: ORDERED_MAX,
        max_order_waw_size: ORDERED_MAX,
        mem_tag_format: TAG_FORMAT,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        auth_key_size: 0,
        auth_key: std::ptr::null_mut(),
    }
}

/// Returns the attributes of the domain.
fn domain(offer: &ProviderOffer) -> FiDomainAttr {
    FiDomainAttr {
        domain: std::ptr::null_mut(),
        name: std::ptr::null_mut(),
        threading: offer.threading,
        control_progress: offer.control_progress,
        data_progress: offer.data_progress,
        resource_mgmt: FI_RM_ENABLED,
        av_type: offer.av_type,
        mr_mode: offer.mr_mode,
        mr_key_size: KEY_BYTES,
        cq_data_size: DATA_BYTES,
        cq_cnt: OBJECTS_MAX,
        ep_cnt: ENDPOINTS_MAX,
        tx_ctx_cnt: ENDPOINTS_MAX,
        rx_ctx_cnt: ENDPOINTS_MAX,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        max_ep_stx_ctx: 0,
        max_ep_srx_ctx: 0,
        cntr_cnt: OBJECTS_MAX,
        mr_iov_limit: SEGMENTS_MAX,
        caps: FI_LOCAL_COMM | FI_REMOTE_COMM,
        mode: 0,
        auth_key: std::ptr::null_mut(),
        auth_key_size: 0,
        max_err_data: 0,
        mr_cnt: OBJECTS_MAX,
        tclass: FI_TC_UNSPEC,
        max_ep_auth_key: 0,
        max_group_id: 0,
        max_cntr_value: u64::MAX,
        max_err_cntr_value: u64::MAX,
        max_xpu_ctx_cnt: 0,
    }
}
