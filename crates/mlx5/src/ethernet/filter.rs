//! The addresses that the virtual port receives.
//!
//! Unicast frames pass to the port's own address and to addresses of the driver's list, broadcast
//! frames always, multicast frames to addresses of the driver's list; in the promiscuous modes, all
//! of the kind. A driver with more multicast addresses than the list holds truncates the list, so a
//! full list passes all multicast frames: the driver's flow tables then decide. A full list of
//! unicast addresses passes its own addresses only. The limits are those of `crate::vport`. VLANs
//! are filtered by flow tables alone. `super::receive` asks, in the dispatcher's turn, for each
//! frame that is offered to the adapter, and drops the others and counts them as filtered.

use causeway_wire::ethernet::{BROADCAST, is_group};

use crate::limits::VPORT_ADDRESSES_MAX;
use crate::vport::Vport;

/// Returns whether the port receives frames to an address.
pub(crate) fn accepts(vport: &Vport, destination: [u8; 6]) -> bool {
    let context = &vport.context;
    if destination == context.permanent_mac || context.is_promiscuous || destination == BROADCAST {
        return true;
    }
    if is_group(destination) {
        context.is_promiscuous_multicast
            || vport.multicast.len() >= VPORT_ADDRESSES_MAX
            || vport.multicast.contains(&destination)
    } else {
        context.is_promiscuous_unicast || vport.unicast.contains(&destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_filter_follows_lists_and_modes() {
        let own = [2, 0, 0, 0, 0, 1];
        let (other, group) = ([2, 0, 0, 0, 0, 9], [1, 0, 0x5e, 0, 0, 1]);
        let mut port = Vport::new(own, 1500);
        let all = |port: &Vport| [own, BROADCAST, other, group].map(|to| accepts(port, to));
        assert_eq!(all(&port), [true, true, false, false]);
        port.multicast = vec![group];
        assert_eq!(all(&port), [true, true, false, true]);
        port.multicast = vec![[3; 6]; VPORT_ADDRESSES_MAX];
        assert_eq!(all(&port), [true, true, false, true]);
        port.multicast.clear();
        port.unicast = vec![other];
        assert_eq!(all(&port), [true, true, true, false]);
        port.unicast.clear();
        port.context.is_promiscuous_multicast = true;
        assert_eq!(all(&port), [true, true, false, true]);
        port.context.is_promiscuous = true;
        assert_eq!(all(&port), [true; 4]);
    }
}
