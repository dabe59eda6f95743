//! Groups (tenants): the specification of a group. Traffic never crosses from one group to another.
//!
//! The registry of the fabric keeps the groups; Ethernet reads [`Forwarding`] and [`GroupKind`],
//! dispatchers read the weight. A group must exist before its ports and links. It cannot be
//! changed, and can be deleted only after its ports and links. At most
//! [`GROUPS_MAX`](crate::limits::GROUPS_MAX) (1,024) groups; a further one is refused. A weight
//! divides the time of a dispatcher among busy groups; it reserves nothing and limits nothing while
//! others are idle. The range of the weight is checked when the group is added.

use serde::{Deserialize, Serialize};

use crate::Name;
use crate::limits::WEIGHT_MAX;
use crate::schema::{DefaultValue, Form, ValueType, parses, table};

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

impl Forwarding {
    /// The names, as operators write them.
    pub const NAMES: [&'static str; 2] = ["learn", "routes"];
}

impl GroupKind {
    /// The names, as operators write them.
    pub const NAMES: [&'static str; 2] = ["bridge", "wire"];
}

table! {
    /// A group: its name, and how its frames are forwarded.
    pub struct GroupSpec, pub const GROUP_FIELDS {
        /// Name of the group, unique in the daemon.
        name: Name => ValueType::Text(Form { placeholder: "NAME", check: group_name }),
            DefaultValue::Required("expected name = \"blue\", say");
        /// Frames that no route matches: learn (forward as a switch) or routes (drop).
        #[serde(default)]
        forwarding: Forwarding => ValueType::Word(&Forwarding::NAMES), DefaultValue::Text("learn");
        /// Share of a dispatcher's time while other groups are busy: 2 gets twice as much as 1.
        #[serde(default = "weight_default")]
        weight: u32 => ValueType::Integer { min: 1, max: WEIGHT_MAX as u64, unit: "N" },
            DefaultValue::Number(weight_default() as u64);
        /// Frames to 01:80:C2:00:00:00-0F (BPDU, LACP, LLDP, PAUSE): bridge (drop) or wire
        /// (forward).
        #[serde(default)]
        kind: GroupKind => ValueType::Word(&GroupKind::NAMES), DefaultValue::Text("bridge");
    }
}

/// Checks the name of a group.
fn group_name(text: &str) -> Result<(), String> {
    if text == "host" {
        return Err("in rules \"host\" is the host itself: expected another name".into());
    }
    parses::<Name>(text)
}

/// Returns the default weight of a group: 1.
pub const fn weight_default() -> u32 {
    1
}

impl From<Name> for GroupSpec {
    fn from(name: Name) -> Self {
        let (forwarding, kind) = Default::default();
        Self { name, forwarding, weight: weight_default(), kind }
    }
}
