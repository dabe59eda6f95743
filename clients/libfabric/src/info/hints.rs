//! Reads the hints of an application from C structures into values. It judges none of them;
//! [`offer`](super::offer) does.
//!
//! Zero and NULL stand for "any". Only fields of libfabric 1.17 are read, because an older core
//! passes no others; fields of later versions are ignored. Strings that are not UTF-8 are read with
//! replacement characters. The caller guarantees valid pointers; nothing is kept that refers to the
//! application's memory.
//!
//! `info` calls [`read`] for `fi_getinfo` and for a chosen `fi_info`; `shell::endpoint` calls
//! [`read_address`]. Both run in the thread of the application's call. Each call reads anew;
//! nothing can fail.

use std::ffi::{CStr, c_char, c_void};

use crate::abi::{
    FI_SOURCE, FiDomainAttr, FiEpAttr, FiFabricAttr, FiInfo, FiRxAttr, FiTxAttr, version,
};
use crate::address::{self, Address, BYTES};

/// Declares the fields that are read of a structure. Zero stands for "any", so a default value
/// requests nothing. Only fields of libfabric 1.17 are read, because an older core passes no
/// others.
macro_rules! hint_structs {
    ($($(#[$doc:meta])* $name:ident of $from:ident { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
            pub struct $name {
                $(pub $field: $type,)*
            }

            impl $name {
                /// Reads the structure; NULL requests nothing.
                ///
                /// # Safety
                /// `from` is NULL, or a structure that the core accepted.
                unsafe fn read(from: *const $from) -> Self {
                    if from.is_null() {
                        return Self::default();
                    }
                    // SAFETY: the caller guarantees the structure; only these fields of it are
                    // read.
                    unsafe { Self { $($field: (&raw const (*from).$field).read(),)* } }
                }
            }
        )*
    };
}

hint_structs! {
    /// Hints on the transmit side.
    TxHints of FiTxAttr {
        caps: u64, op_flags: u64, msg_order: u64, comp_order: u64, inject_size: usize,
        size: usize, iov_limit: usize, rma_iov_limit: usize,
    }

    /// Hints on the receive side.
    RxHints of FiRxAttr {
        caps: u64, op_flags: u64, msg_order: u64, comp_order: u64, total_buffered_recv: usize,
        size: usize, iov_limit: usize,
    }

    /// Hints on the endpoint.
    EpHints of FiEpAttr {
        kind: u32, protocol: u32, protocol_version: u32, max_msg_size: usize,
        msg_prefix_size: usize, max_order_raw_size: usize, max_order_war_size: usize,
        max_order_waw_size: usize, mem_tag_format: u64, tx_ctx_cnt: usize, rx_ctx_cnt: usize,
        auth_key_size: usize,
    }

    /// Hints on the domain.
    DomainHints of FiDomainAttr {
        threading: u32, control_progress: u32, data_progress: u32, resource_mgmt: u32,
        av_type: u32, mr_mode: i32, mr_key_size: usize, cq_data_size: usize, cq_cnt: usize,
        ep_cnt: usize, tx_ctx_cnt: usize, rx_ctx_cnt: usize, max_ep_tx_ctx: usize,
        max_ep_rx_ctx: usize, max_ep_stx_ctx: usize, max_ep_srx_ctx: usize, cntr_cnt: usize,
        mr_iov_limit: usize, caps: u64, auth_key_size: usize, max_err_data: usize, mr_cnt: usize,
    }
}

/// An address in the hints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AddressHint {
    /// No address.
    #[default]
    Any,
    /// This address.
    Is(Address),
    /// An address of another length, which is thus of another provider.
    Foreign,
}

impl AddressHint {
    /// Returns the service in the address, or 0.
    pub fn service(&self) -> u32 {
        match self {
            Self::Is(address) => address::service(address),
            _ => 0,
        }
    }
}

/// All hints, with the arguments of `fi_getinfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// The version of the interface that the application was built for.
    pub version: u32,
    /// Requested capabilities; 0 for all.
    pub caps: u64,
    /// Format of addresses.
    pub addr_format: u32,
    /// Address of the endpoint to open.
    pub source: AddressHint,
    /// Address of the peer.
    pub destination: AddressHint,
    pub tx: TxHints,
    pub rx: RxHints,
    pub ep: EpHints,
    pub domain: DomainHints,
    /// The name of a fabric.
    pub fabric_name: Option<String>,
    /// The name of a NIC.
    pub domain_name: Option<String>,
    /// The names of providers that the application selects, as in `FI_PROVIDER`.
    pub provider: Option<String>,
    /// The node that `fi_getinfo` got.
    pub node: Option<String>,
    /// The service that `fi_getinfo` got.
    pub service: Option<String>,
    /// Whether node and service name the source (`FI_SOURCE`) instead of the destination.
    pub is_source: bool,
}

impl Hints {
    /// Returns whether the application's version predates the modes of memory registration.
    pub fn predates_mr_modes(&self) -> bool {
        self.version < version(1, 5)
    }
}

/// Reads a string of the application.
///
/// # Safety
/// `from` is NULL or a C string.
unsafe fn text(from: *const c_char) -> Option<String> {
    if from.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees a C string.
    Some(unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned())
}

/// Reads an address of the application.
///
/// # Safety
/// `from` is NULL or has `len` bytes.
pub unsafe fn read_address(from: *const c_void, len: usize) -> AddressHint {
    if from.is_null() {
        return AddressHint::Any;
    }
    if len != BYTES {
        return AddressHint::Foreign;
    }
    // SAFETY: the caller guarantees the bytes; no alignment is assumed.
    AddressHint::Is(unsafe { from.cast::<Address>().read_unaligned() })
}

/// Reads the arguments of `fi_getinfo`.
///
/// # Safety
/// Pointers are NULL or as the interface requires.
pub unsafe fn read(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    info: *const FiInfo,
) -> Hints {
    // SAFETY: guaranteed by the caller.
    let (node, service) = unsafe { (text(node), text(service)) };
    let is_source = flags & FI_SOURCE != 0;
    let hints = Hints { version, node, service, is_source, ..Hints::default() };
    if info.is_null() {
        return hints;
    }
    // SAFETY: guaranteed by the caller; the structure is only read, and no other thread writes it.
    let info = unsafe { &*info };
    let fabric: *const FiFabricAttr = info.fabric_attr;
    let domain: *const FiDomainAttr = info.domain_attr;
    // SAFETY: the caller guarantees that pointers in the hints are NULL or valid; of the domain's
    // attributes, only fields that all cores have are read.
    unsafe {
        Hints {
            caps: info.caps,
            addr_format: info.addr_format,
            source: read_address(info.src_addr, info.src_addrlen),
            destination: read_address(info.dest_addr, info.dest_addrlen),
            tx: TxHints::read(info.tx_attr),
            rx: RxHints::read(info.rx_attr),
            ep: EpHints::read(info.ep_attr),
            domain: DomainHints::read(domain),
            fabric_name: fabric.as_ref().and_then(|fabric| text(fabric.name)),
            provider: fabric.as_ref().and_then(|fabric| text(fabric.prov_name)),
            domain_name: match domain.is_null() {
                true => None,
                false => text((&raw const (*domain).name).read()),
            },
            ..hints
        }
    }
}
