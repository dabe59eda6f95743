//! Encoding of endpoint addresses and request handles for the application.
//!
//! | word | bits | content |
//! |---|---|---|
//! | 0 | 0 to 31 | number of the peer |
//! | 0 | 32 to 43 | number of the endpoint in this process |
//! | 0 | 44 to 62 | how often that number was used |
//! | 0 | 63 | 1 |
//! | 1 | 0 to 31 | how often the number of the peer was used |
//! | 1 | 32 to 63 | session of the peer |
//!
//! A request handle is the request number of the engine with the endpoint number in bits 20 to 31.
//! Neither is dereferenced, so that invalid values are detected.
//!
//! With an address of another endpoint of this process, or of a closed endpoint, calls fail with
//! `MX_BAD_ENDPOINT` (`endpoint`). The address of a lost peer decodes, and the engine ends requests
//! to it with `MX_STATUS_ENDPOINT_UNREACHABLE`. The counts wrap (19 bits for endpoints, 32 bits for
//! peers). An address is valid in this process only; applications exchange NIC and endpoint
//! instead. Pure arithmetic, without locks; `call`, `endpoint` and `table` use it.

use std::ffi::c_void;

use causeway_message::library::{Partner, RequestId};
use causeway_message::split::PeerId;

use crate::abi::EndpointAddr;

/// Mask of the use count of an endpoint's number: 19 bits.
const TURN_MASK: u32 = 0x7_ffff;

/// An endpoint of this process: its number, and how often the number was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalEndpoint {
    /// Number of the endpoint: the index of its slot.
    pub slot: u16,
    /// Number of uses of the slot, this one and openings that failed included.
    pub turn: u32,
}

/// Encodes the address of a peer for the application.
#[inline]
pub fn pack(own: LocalEndpoint, partner: Partner, session: u32) -> EndpointAddr {
    let first = u64::from(partner.peer.0)
        | u64::from(own.slot & 0xfff) << 32
        | u64::from(own.turn & TURN_MASK) << 44
        | 1 << 63;
    EndpointAddr([first, u64::from(partner.epoch) | u64::from(session) << 32])
}

/// Decodes an address. Returns `None` if it is invalid.
#[inline]
pub fn unpack(address: EndpointAddr) -> Option<(LocalEndpoint, Partner)> {
    let EndpointAddr([first, second]) = address;
    let own = LocalEndpoint {
        slot: (first >> 32) as u16 & 0xfff,
        turn: (first >> 44) as u32 & TURN_MASK,
    };
    let partner = Partner { peer: PeerId(first as u32), epoch: second as u32 };
    (first >> 63 == 1).then_some((own, partner))
}

impl LocalEndpoint {
    /// Returns whether an address was encoded for this endpoint.
    #[inline]
    pub fn matches(self, other: Self) -> bool {
        self.slot == other.slot && self.turn & TURN_MASK == other.turn
    }

    /// Encodes a request handle for the application.
    #[inline]
    pub fn handle(self, id: RequestId) -> *mut c_void {
        let value = id.0 | u64::from(self.slot) << 20;
        std::ptr::without_provenance_mut(value as usize)
    }

    /// Decodes a request handle. Returns `None` if it belongs to another endpoint.
    #[inline]
    pub fn request(self, handle: *mut c_void) -> Option<RequestId> {
        let value = handle.addr() as u64;
        (slot_of(handle) == self.slot).then_some(RequestId(value & !(0xfff << 20)))
    }
}

/// Returns the endpoint number of a request handle.
#[inline]
pub fn slot_of(handle: *mut c_void) -> u16 {
    (handle.addr() >> 20) as u16 & 0xfff
}
