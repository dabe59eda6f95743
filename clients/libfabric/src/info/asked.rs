//! What an application asks for, read from where it says so.

use std::ffi::{CStr, c_char, c_void};

use crate::abi::{
    FI_SOURCE, FiDomainAttr, FiEpAttr, FiFabricAttr, FiInfo, FiRxAttr, FiTxAttr, version,
};
use crate::address::{self, Address, BYTES};

/// Declares what is read of a structure. Zero is what anything fits; so no structure is all zero.
/// Read are only fields that libfabric 1.17 had: a core may hand over no more.
macro_rules! asked {
    ($($(#[$doc:meta])* $name:ident of $from:ident { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
            pub struct $name {
                $(pub $field: $type,)*
            }

            impl $name {
                /// NULL asks for nothing.
                ///
                /// # Safety
                /// It is NULL, or a structure that the core took for one.
                unsafe fn read(from: *const $from) -> Self {
                    if from.is_null() {
                        return Self::default();
                    }
                    // SAFETY: the caller says that the structure is there; of it only these fields
                    // are looked at.
                    unsafe { Self { $($field: (&raw const (*from).$field).read(),)* } }
                }
            }
        )*
    };
}

asked! {
    /// Of the sending side.
    Tx of FiTxAttr {
        caps: u64, op_flags: u64, msg_order: u64, comp_order: u64, inject_size: usize,
        size: usize, iov_limit: usize, rma_iov_limit: usize,
    }

    /// Of the receiving side.
    Rx of FiRxAttr {
        caps: u64, op_flags: u64, msg_order: u64, comp_order: u64, total_buffered_recv: usize,
        size: usize, iov_limit: usize,
    }

    /// Of the endpoint.
    Ep of FiEpAttr {
        kind: u32, protocol: u32, protocol_version: u32, max_msg_size: usize,
        msg_prefix_size: usize, max_order_raw_size: usize, max_order_war_size: usize,
        max_order_waw_size: usize, mem_tag_format: u64, tx_ctx_cnt: usize, rx_ctx_cnt: usize,
        auth_key_size: usize,
    }

    /// Of the domain.
    Domain of FiDomainAttr {
        threading: u32, control_progress: u32, data_progress: u32, resource_mgmt: u32,
        av_type: u32, mr_mode: i32, mr_key_size: usize, cq_data_size: usize, cq_cnt: usize,
        ep_cnt: usize, tx_ctx_cnt: usize, rx_ctx_cnt: usize, max_ep_tx_ctx: usize,
        max_ep_rx_ctx: usize, max_ep_stx_ctx: usize, max_ep_srx_ctx: usize, cntr_cnt: usize,
        mr_iov_limit: usize, caps: u64, auth_key_size: usize, max_err_data: usize, mr_cnt: usize,
    }
}

/// An address that an application names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// It names none.
    #[default]
    Any,
    /// This.
    Is(Address),
    /// One that cannot be ours.
    Strange,
}

impl Place {
    /// Returns the service in the address, or 0.
    pub fn service(&self) -> u32 {
        match self {
            Self::Is(address) => address::service(address),
            _ => 0,
        }
    }
}

/// All that it asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Of the interface, as the application was built.
    pub version: u32,
    pub caps: u64,
    pub addr_format: u32,
    pub source: Place,
    pub destination: Place,
    pub tx: Tx,
    pub rx: Rx,
    pub ep: Ep,
    pub domain: Domain,
    pub fabric_name: Option<String>,
    pub domain_name: Option<String>,
    /// The provider, or several.
    pub provider: Option<String>,
    /// Node and service, and whether they are the source.
    pub node: Option<String>,
    pub service: Option<String>,
    pub is_source: bool,
}

impl Asked {
    /// Whether memory is registered as it was before there were modes of it.
    pub fn is_before_modes(&self) -> bool {
        self.version < version(1, 5)
    }
}

/// A text of the application's.
///
/// # Safety
/// It is NULL, or ends with a zero.
unsafe fn text(from: *const c_char) -> Option<String> {
    if from.is_null() {
        return None;
    }
    // SAFETY: the caller says that it ends with a zero.
    Some(unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned())
}

/// An address of the application's.
///
/// # Safety
/// It is NULL, or has that length.
pub unsafe fn place(from: *const c_void, len: usize) -> Place {
    if from.is_null() {
        return Place::Any;
    }
    if len != BYTES {
        return Place::Strange;
    }
    // SAFETY: the caller says that so many bytes are there; no alignment is assumed.
    Place::Is(unsafe { from.cast::<Address>().read_unaligned() })
}

/// Reads what `getinfo` was called with.
///
/// # Safety
/// Pointers are NULL, or what the interface says of them.
pub unsafe fn read(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const FiInfo,
) -> Asked {
    // SAFETY: as the caller says.
    let (node, service) = unsafe { (text(node), text(service)) };
    let is_source = flags & FI_SOURCE != 0;
    let asked = Asked { version, node, service, is_source, ..Asked::default() };
    if hints.is_null() {
        return asked;
    }
    // SAFETY: as the caller says; the structure is only read, and no other thread writes it.
    let hints = unsafe { &*hints };
    let fabric: *const FiFabricAttr = hints.fabric_attr;
    let domain: *const FiDomainAttr = hints.domain_attr;
    // SAFETY: what hints point to is NULL or there, as the caller says; of the domain's attributes
    // only those are looked at that all cores have.
    unsafe {
        Asked {
            caps: hints.caps,
            addr_format: hints.addr_format,
            source: place(hints.src_addr, hints.src_addrlen),
            destination: place(hints.dest_addr, hints.dest_addrlen),
            tx: Tx::read(hints.tx_attr),
            rx: Rx::read(hints.rx_attr),
            ep: Ep::read(hints.ep_attr),
            domain: Domain::read(domain),
            fabric_name: fabric.as_ref().and_then(|fabric| text(fabric.name)),
            provider: fabric.as_ref().and_then(|fabric| text(fabric.prov_name)),
            domain_name: match domain.is_null() {
                true => None,
                false => text((&raw const (*domain).name).read()),
            },
            ..asked
        }
    }
}
