//! Addresses and requests as the application holds them.
//!
//! | word | bits | what |
//! |---|---|---|
//! | 0 | 0 to 31 | partner's number |
//! | 0 | 32 to 43 | number of the endpoint in this process |
//! | 0 | 44 to 62 | how often that number was used |
//! | 0 | 63 | one |
//! | 1 | 0 to 31 | how often the partner's number was used |
//! | 1 | 32 to 63 | the partner's session |
//!
//! A request is its name in the engine, with the endpoint's number in bits 20 to 31. Neither is
//! ever followed as a pointer: a wrong one is found out.

use std::ffi::c_void;

use causeway_message::library::{Partner, RequestId};
use causeway_message::split::PeerId;

use crate::abi::EndpointAddr;

const TURN_MASK: u32 = 0x7_ffff;

/// An endpoint of this process: its number, and how often that was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    pub slot: u16,
    pub turn: u32,
}

/// As the application holds it.
#[inline]
pub fn pack(own: Own, partner: Partner, session: u32) -> EndpointAddr {
    let first = u64::from(partner.peer.0)
        | u64::from(own.slot & 0xfff) << 32
        | u64::from(own.turn & TURN_MASK) << 44
        | 1 << 63;
    EndpointAddr([first, u64::from(partner.epoch) | u64::from(session) << 32])
}

/// Whose it is, and who it is.
#[inline]
pub fn unpack(address: EndpointAddr) -> Option<(Own, Partner)> {
    let EndpointAddr([first, second]) = address;
    let own = Own { slot: (first >> 32) as u16 & 0xfff, turn: (first >> 44) as u32 & TURN_MASK };
    let partner = Partner { peer: PeerId(first as u32), epoch: second as u32 };
    (first >> 63 == 1).then_some((own, partner))
}

impl Own {
    /// Whether an address was made by this endpoint.
    #[inline]
    pub fn made(self, other: Self) -> bool {
        self.slot == other.slot && self.turn & TURN_MASK == other.turn
    }

    /// A request as the application holds it.
    #[inline]
    pub fn handle(self, id: RequestId) -> *mut c_void {
        let value = id.0 | u64::from(self.slot) << 20;
        std::ptr::without_provenance_mut(value as usize)
    }

    /// The request that the application names, if it can be one of this endpoint.
    #[inline]
    pub fn request(self, handle: *mut c_void) -> Option<RequestId> {
        let value = handle.addr() as u64;
        (slot_of(handle) == self.slot).then_some(RequestId(value & !(0xfff << 20)))
    }
}

/// The endpoint of a request.
#[inline]
pub fn slot_of(handle: *mut c_void) -> u16 {
    (handle.addr() >> 20) as u16 & 0xfff
}
