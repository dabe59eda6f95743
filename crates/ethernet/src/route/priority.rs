//! Route priorities: VNET/P's `priority_map`.
//!
//! `RouteTable` computes the priority of a route when the route enters the table. The priority
//! depends on the kinds of source and destination only, not on the ingress or the order of the
//! routes, and the operator cannot set it. It is 3 to 8, the highest for a route with one source
//! address and with any destination or one destination address, and [`NEVER`] (-1) for a route
//! whose source or destination is `none`. The module matches addresses; it resolves no egress. All
//! of it runs in the dispatcher's thread of the group.

use causeway_model::MacMatch;
use causeway_wire::ethernet;

/// Priority of a route that never applies.
pub const NEVER: i8 = -1;

/// Returns the priority of a route by the kinds of its source and destination. The highest applies;
/// equal priorities apply together (VNET/P, `vnet_core.c`).
pub const fn priority(source: &MacMatch, destination: &MacMatch) -> i8 {
    use MacMatch::{Any, None, Not, Only};
    match (source, destination) {
        (None, _) | (_, None) => NEVER,
        (Not(_), Not(_)) => 3,
        (Not(_), Any) | (Any, Not(_)) => 5,
        (Any, Any | Only(_)) => 6,
        (Not(_), Only(_)) | (Only(_), Not(_)) => 7,
        (Only(_), Any | Only(_)) => 8,
    }
}

/// One side of a route, compared with addresses as numbers ([`ethernet::number`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressMatch {
    /// Every address.
    Any,
    /// No address.
    Never,
    /// Every address except this.
    Not(u64),
    /// Only this address.
    Only(u64),
}

impl AddressMatch {
    /// Returns whether an address matches.
    pub const fn fits(self, address: u64) -> bool {
        match self {
            Self::Any => true,
            Self::Never => false,
            Self::Not(not) => not != address,
            Self::Only(only) => only == address,
        }
    }
}

impl From<&MacMatch> for AddressMatch {
    fn from(mac: &MacMatch) -> Self {
        match mac {
            MacMatch::Any => Self::Any,
            MacMatch::None => Self::Never,
            MacMatch::Not(mac) => Self::Not(ethernet::number(mac.0)),
            MacMatch::Only(mac) => Self::Only(ethernet::number(mac.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use causeway_model::Mac;

    use super::*;

    #[test]
    fn priorities_are_vnet_ps() {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let kinds = [MacMatch::None, MacMatch::Not(mac), MacMatch::Any, MacMatch::Only(mac)];
        let table = [[-1, -1, -1, -1], [-1, 3, 5, 7], [-1, 5, 6, 6], [-1, 7, 8, 8]];
        for (source, row) in kinds.iter().zip(table) {
            for (destination, expected) in kinds.iter().zip(row) {
                assert_eq!(priority(source, destination), expected, "{source} {destination}");
            }
        }
    }

    #[test]
    fn route_sides_match_their_addresses() {
        assert!(AddressMatch::Any.fits(7) && !AddressMatch::Never.fits(7));
        assert!(AddressMatch::Only(7).fits(7) && !AddressMatch::Only(7).fits(8));
        assert!(!AddressMatch::Not(7).fits(7) && AddressMatch::Not(7).fits(8));
    }
}
