//! Commands of the driver's start: interface versions, adapter identifier, page requests and
//! reserved keys.
//!
//! Guests send the inputs; the device (`mlx5::command::capability` and `trivial`) parses them and
//! emits the outputs. Only lengths are checked here. The device supports version 1 alone ([`ISSI`])
//! and refuses another with *bad parameter*. It never asks for pages: QUERY_PAGES answers zero, and
//! MANAGE_PAGES is accepted without effect. Its reserved local key is
//! [`super::memory_key::RESERVED_LOCAL_KEY`]. The device runs in the dispatcher's turn.

use super::field::{at, layout};

/// Version of the command interface that drivers select (ISSI); bit 1 of the supported versions.
pub const ISSI: u16 = 1;
/// Modifier of QUERY_PAGES: pages for the boot. The others are 2 (initialisation) and 3 (normal
/// operation).
pub const PAGES_BOOT: u16 = 1;
/// Vendor identifier of the adapter (IEEE), as `ibv_devinfo` prints it.
pub const VENDOR_ID: u32 = 0x2c9;

layout! {
    /// The output of QUERY_ISSI.
    pub struct IssiOutput("QUERY_ISSI output", 0x70) {
        /// Selected version.
        current: u16 = at(0x0a, 0, 16),
        /// Bit n is set if version n is supported; versions 0 to 31.
        supported: u32 = at(0x6c, 0, 32),
    }
}

layout! {
    /// The input of SET_ISSI.
    pub struct IssiInput("SET_ISSI input", 16) {
        /// Version to select.
        version: u16 = at(0x0a, 0, 16),
    }
}

layout! {
    /// The output of QUERY_ADAPTER.
    pub struct AdapterOutput("QUERY_ADAPTER output", 0x110) {
        /// Vendor identifier (IEEE).
        vendor: u32 = at(0x29, 0, 24),
        /// Vendor identifier of the specific data that follows.
        data_vendor: u16 = at(0x2e, 0, 16),
        /// Identifier of the board, in ASCII.
        board: [u8; 16] = at(0x100, 0, 128),
    }
}

layout! {
    /// The output of QUERY_PAGES.
    pub struct PagesOutput("QUERY_PAGES output", 16) {
        /// Function.
        function: u16 = at(0x0a, 0, 16),
        /// Number of pages that the device asks for; negative if the device returns pages.
        count: u32 = at(0x0c, 0, 32),
    }
}

layout! {
    /// The output of QUERY_SPECIAL_CONTEXTS.
    pub struct SpecialContextsOutput("QUERY_SPECIAL_CONTEXTS output", 0x20) {
        /// Key that discards writes.
        dump_fill_key: u32 = at(0x08, 0, 32),
        /// Reserved local key.
        reserved_key: u32 = at(0x0c, 0, 32),
        /// Key that reads as zero and discards writes.
        null_key: u32 = at(0x10, 0, 32),
    }
}
