//! The attributes of endpoints, and the numbers in the attributes of `struct fi_info`: layouts only,
//! as in `fi_endpoint(3)` and `fi_getinfo(3)`.
//!
//! Hints of an application and answers of the provider have the same form. `info::hints` reads the
//! hints, `info::offer` decides which numbers are supported, and `info::info_list` writes the
//! answers. The module checks no value.

/// `struct fi_tx_attr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct FiTxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    pub rma_iov_limit: usize,
    pub tclass: u32,
}

/// `struct fi_rx_attr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct FiRxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
    pub iov_limit: usize,
}

/// `struct fi_ep_attr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiEpAttr {
    pub kind: u32,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub msg_prefix_size: usize,
    pub max_order_raw_size: usize,
    pub max_order_war_size: usize,
    pub max_order_waw_size: usize,
    pub mem_tag_format: u64,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
}

// Formats of addresses.
pub const FI_FORMAT_UNSPEC: u32 = 0;
pub const FI_SOCKADDR: u32 = 1;
pub const FI_SOCKADDR_IN: u32 = 2;
pub const FI_ADDR_STR: u32 = 9;

// Kinds of endpoints.
pub const FI_EP_UNSPEC: u32 = 0;
pub const FI_EP_MSG: u32 = 1;
pub const FI_EP_DGRAM: u32 = 2;
pub const FI_EP_RDM: u32 = 3;

/// Marks numbers that a provider defines.
pub const FI_PROV_SPECIFIC: u32 = 1 << 31;
pub const FI_PROTO_UNSPEC: u32 = 0;

/// A count that requests a context shared by endpoints.
pub const FI_SHARED_CONTEXT: usize = usize::MAX;

// Threading models: the calls that may be concurrent.
pub const FI_THREAD_UNSPEC: u32 = 0;
pub const FI_THREAD_SAFE: u32 = 1;
pub const FI_THREAD_FID: u32 = 2;
pub const FI_THREAD_DOMAIN: u32 = 3;
pub const FI_THREAD_COMPLETION: u32 = 4;
pub const FI_THREAD_ENDPOINT: u32 = 5;

// Progress models.
pub const FI_PROGRESS_UNSPEC: u32 = 0;
pub const FI_PROGRESS_AUTO: u32 = 1;
pub const FI_PROGRESS_MANUAL: u32 = 2;
/// Since 1.21: control progress together with data progress.
pub const FI_PROGRESS_CONTROL_UNIFIED: u32 = 3;

pub const FI_RM_UNSPEC: u32 = 0;
pub const FI_RM_DISABLED: u32 = 1;
pub const FI_RM_ENABLED: u32 = 2;

// Classes of traffic.
pub const FI_TC_UNSPEC: u32 = 0;
pub const FI_TC_BEST_EFFORT: u32 = 0x200;
