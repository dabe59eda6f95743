//! Flags: capabilities, modes, orders, and flags of calls. Numbers only.
//!
//! A flag has one meaning for several calls, as in libfabric's headers. `info::offer` decides which
//! capabilities, orders and default flags are supported (modes are ignored); `shell` looks
//! at the flags of a call that have an effect, and ignores the others. This module refuses nothing.
//! A test compares the numbers with the installed headers.

macro_rules! bits {
    ($($name:ident = $bit:literal;)*) => {
        $(pub const $name: u64 = 1 << $bit;)*
    };
}

// Capabilities, and flags of operations.
bits! {
    FI_MSG = 1;
    FI_RMA = 2;
    FI_TAGGED = 3;
    FI_ATOMIC = 4;
    FI_MULTICAST = 5;
    FI_COLLECTIVE = 6;
    FI_READ = 8;
    FI_WRITE = 9;
    FI_RECV = 10;
    FI_SEND = 11;
    FI_REMOTE_READ = 12;
    FI_REMOTE_WRITE = 13;
    FI_MULTI_RECV = 16;
    FI_REMOTE_CQ_DATA = 17;
    FI_MORE = 18;
    FI_PEEK = 19;
    FI_TRIGGER = 20;
    FI_FENCE = 21;
    FI_PRIORITY = 22;
    FI_COMPLETION = 24;
    FI_INJECT = 25;
    FI_INJECT_COMPLETE = 26;
    FI_TRANSMIT_COMPLETE = 27;
    FI_DELIVERY_COMPLETE = 28;
    FI_AFFINITY = 29;
    FI_COMMIT_COMPLETE = 30;
    FI_MATCH_COMPLETE = 31;
    FI_PEER_TRANSFER = 36;
    FI_AV_USER_ID = 41;
    FI_PEER = 43;
    FI_XPU_TRIGGER = 44;
    FI_HMEM_HOST_ALLOC = 45;
    FI_HMEM_DEVICE_ONLY = 46;
    FI_HMEM = 47;
    FI_VARIABLE_MSG = 48;
    FI_RMA_PMEM = 49;
    FI_SOURCE_ERR = 50;
    FI_LOCAL_COMM = 51;
    FI_REMOTE_COMM = 52;
    FI_SHARED_AV = 53;
    FI_PROV_ATTR_ONLY = 54;
    FI_NUMERICHOST = 55;
    FI_RMA_EVENT = 56;
    FI_SOURCE = 57;
    FI_NAMED_RX_CTX = 58;
    FI_DIRECTED_RECV = 59;
}

/// Another name of `FI_SEND`.
pub const FI_TRANSMIT: u64 = FI_SEND;
/// Another name of `FI_COMPLETION` outside of operations.
pub const FI_EVENT: u64 = FI_COMPLETION;

// Flags of a kind of call; other kinds use these bits for other flags.
bits! {
    FI_CLAIM = 59;
    FI_DISCARD = 58;
    FI_SELECTIVE_COMPLETION = 59;
    FI_REG_MR = 59;
    FI_SYMMETRIC = 59;
    FI_SYNC_ERR = 58;
    FI_UNIVERSE = 57;
    FI_FETCH_ATOMIC = 58;
    FI_COMPARE_ATOMIC = 59;
}

// Modes: requirements that an application accepts.
bits! {
    FI_CONTEXT = 59;
    FI_MSG_PREFIX = 58;
    FI_ASYNC_IOV = 57;
    FI_RX_CQ_DATA = 56;
    FI_LOCAL_MR = 55;
    FI_NOTIFY_FLAGS_ONLY = 54;
    FI_RESTRICTED_COMP = 53;
    FI_CONTEXT2 = 52;
    FI_BUFFERED_RECV = 51;
}

/// No order.
pub const FI_ORDER_NONE: u64 = 0;
/// All orders of the first version of the interface.
pub const FI_ORDER_STRICT: u64 = 0x1ff;

// Orders between reads, writes and sends.
bits! {
    FI_ORDER_RAR = 0;
    FI_ORDER_RAW = 1;
    FI_ORDER_RAS = 2;
    FI_ORDER_WAR = 3;
    FI_ORDER_WAW = 4;
    FI_ORDER_WAS = 5;
    FI_ORDER_SAR = 6;
    FI_ORDER_SAW = 7;
    FI_ORDER_SAS = 8;
    FI_ORDER_DATA = 16;
    FI_ORDER_RMA_RAR = 32;
    FI_ORDER_RMA_RAW = 33;
    FI_ORDER_RMA_WAR = 34;
    FI_ORDER_RMA_WAW = 35;
    FI_ORDER_ATOMIC_RAR = 36;
    FI_ORDER_ATOMIC_RAW = 37;
    FI_ORDER_ATOMIC_WAR = 38;
    FI_ORDER_ATOMIC_WAW = 39;
}
