//! The virtual port: values that the driver set, and the GID table.
//!
//! The function owns one value; the dispatcher's thread alone uses it. The permanent Ethernet
//! address is the operator's and cannot be changed. Each list of addresses has at most 16 entries
//! ([`crate::limits::VPORT_ADDRESSES_MAX`]), the GID table 256 ([`crate::limits::GIDS_MAX`]);
//! `command::vport` refuses more. GIDs of the table are not used to find a destination, and are not
//! checked: they only appear as sources in received network headers. The Ethernet address of a GID
//! table entry must be the port's own, unless the entry deletes, else the command is refused.
//!
//! `command::vport` changes the values; `ethernet::filter` decides by the lists and promiscuous
//! modes which frames are received, and `queues` reads GIDs. The list of VLANs, of as many entries,
//! is kept for queries and filters nothing. The MTU that the driver sets bounds received frames
//! (`ethernet::receive`), not sent ones. The link is always up. A reset of the function restores
//! the values after power-on.

use causeway_wire::mlx5::vport::{INLINE_L2, MTU_OVERHEAD, NicVportContext, RoceAddress};

use crate::limits::GIDS_MAX;

/// MTU of the interface after power-on.
const MTU_DEFAULT: u16 = 1500;

/// The virtual port.
#[derive(Debug)]
pub(crate) struct Vport {
    /// Present context. Its list type and list length are void.
    pub context: NicVportContext,
    /// Unicast addresses that the driver asks for.
    pub unicast: Vec<[u8; 6]>,
    /// Multicast addresses that the driver asks for.
    pub multicast: Vec<[u8; 6]>,
    /// VLANs that the driver asks for.
    pub vlans: Vec<u16>,
    /// Largest MTU of the interface.
    mtu_max: u16,
    gids: Vec<RoceAddress>,
}

impl Vport {
    /// Returns the port after power-on.
    pub fn new(mac: [u8; 6], mtu_max: u16) -> Self {
        let mtu_max = mtu_max.min(u16::MAX.wrapping_sub(MTU_OVERHEAD));
        let guid = guid(mac);
        let context = NicVportContext {
            min_inline_mode: INLINE_L2,
            has_roce: true,
            mtu: MTU_DEFAULT.min(mtu_max).saturating_add(MTU_OVERHEAD),
            system_guid: guid,
            port_guid: guid,
            node_guid: guid,
            permanent_mac: mac,
            ..NicVportContext::default()
        };
        let (unicast, multicast, vlans) = (Vec::new(), Vec::new(), Vec::new());
        Self { context, unicast, multicast, vlans, mtu_max, gids: Vec::new() }
    }

    /// Returns the largest value of [`NicVportContext::mtu`].
    pub fn mtu_max(&self) -> u16 {
        self.mtu_max.saturating_add(MTU_OVERHEAD)
    }

    /// Returns an entry of the GID table; zeros if it is not set.
    pub fn gid(&self, index: u8) -> RoceAddress {
        self.gids.get(usize::from(index)).copied().unwrap_or_default()
    }

    /// Sets an entry of the GID table. Returns false if the index is out of range.
    pub fn set_gid(&mut self, index: u16, address: RoceAddress) -> bool {
        let index = usize::from(index);
        if index >= GIDS_MAX {
            return false;
        }
        if index >= self.gids.len() {
            self.gids.resize(index.saturating_add(1), RoceAddress::default());
        }
        if let Some(entry) = self.gids.get_mut(index) {
            *entry = address;
        }
        true
    }
}

/// Returns the EUI-64 of an Ethernet address.
fn guid([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}
