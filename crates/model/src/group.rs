//! Groups (tenants): the specification of a group. Traffic never crosses from one group to another.
//!
//! The registry of the fabric keeps the groups; Ethernet reads [`Forwarding`] and [`GroupKind`],
//! dispatchers read the weight. A group must exist before its ports and links. It cannot be
//! changed, and can be deleted only after its ports and links. At most
//! [`GROUPS_MAX`](crate::limits::GROUPS_MAX) groups. A weight divides the time of a dispatcher
//! among busy groups; it reserves nothing and limits nothing while others are idle. The range of
//! the weight is checked when the group is added.

use serde::{Deserialize, Serialize};

use crate::Name;

/// Treatment of frames that no route matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Forwarding {
    /// Forward to the port or link where the destination was learnt; flood if it is unknown, as in
    /// a switch.
    #[default]
    Learn,
    /// Drop, as in VNET/P.
    Routes,
}

/// Treatment of frames of link-layer protocols: those to the addresses 01:80:C2:00:00:00 to 0F,
/// such as spanning tree, LACP, LLDP, 802.1X and PAUSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupKind {
    /// A bridge: drops them (IEEE 802.1Q, 8.6.3).
    #[default]
    Bridge,
    /// A virtual wire, for labs: forwards them as any others.
    Wire,
}

/// A group: its name, and how its frames are forwarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSpec {
    /// Name of the group, unique in the daemon.
    pub name: Name,
    /// Treatment of frames that no route matches.
    #[serde(default)]
    pub forwarding: Forwarding,
    /// Share of a dispatcher's time relative to other busy groups: 1 to
    /// [`WEIGHT_MAX`](crate::limits::WEIGHT_MAX).
    #[serde(default = "weight_default")]
    pub weight: u32,
    /// Treatment of frames of link-layer protocols.
    #[serde(default)]
    pub kind: GroupKind,
}

/// Returns the default weight of a group: 1.
pub fn weight_default() -> u32 {
    1
}

impl From<Name> for GroupSpec {
    fn from(name: Name) -> Self {
        let (forwarding, kind) = Default::default();
        Self { name, forwarding, weight: weight_default(), kind }
    }
}
