//! Groups: the tenants.

use serde::{Deserialize, Serialize};

use crate::Name;

/// What becomes of frames that no route is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Forwarding {
    /// They go where their destination was learnt to be, else everywhere, as in a switch.
    #[default]
    Learn,
    /// They are dropped, as in VNET/P.
    Routes,
}

/// Whether a group forwards frames of the link layer's own protocols: those to the addresses
/// 01:80:C2:00:00:00 to 0F, such as spanning tree, LACP, LLDP, 802.1X and PAUSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupKind {
    /// A bridge: it drops them (IEEE 802.1Q, 8.6.3).
    #[default]
    Bridge,
    /// A virtual wire, for labs: it forwards them as any others.
    Wire,
}

/// What a group is: its name, and how its frames are forwarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSpec {
    /// Its name.
    pub name: Name,
    /// See [`Forwarding`].
    #[serde(default)]
    pub forwarding: Forwarding,
    /// Its share of a dispatcher's time beside other groups that are busy: 1 to
    /// [`WEIGHT_MAX`](crate::limits::WEIGHT_MAX).
    #[serde(default = "weight_default")]
    pub weight: u32,
    /// See [`GroupKind`].
    #[serde(default)]
    pub kind: GroupKind,
}

/// The weight of a group that has none of its own: 1.
pub fn weight_default() -> u32 {
    1
}

impl From<Name> for GroupSpec {
    fn from(name: Name) -> Self {
        let (forwarding, kind) = Default::default();
        Self { name, forwarding, weight: weight_default(), kind }
    }
}
