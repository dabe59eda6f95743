//! Routes: rules that send frames to a port or link (VNET/P, 4.2).
//!
//! An operator adds routes through [`crate::draft::RouteDraft`]; the Ethernet service looks up each
//! frame: routes first, then learnt addresses ([`crate::Forwarding`]). Routes match addresses and
//! the port or link of arrival, and not VLANs, protocols or IP addresses.
//!
//! All matching routes of the highest priority apply, so routes can copy a frame; the priority
//! follows from how specific the match is ([`crate::RouteView::priority`]), and the operator does
//! not choose it. Both ends are in the group of the route. The types check the form of a route; the
//! service checks that its ends exist.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Mac, Name, SpecError};

/// The source or destination addresses that a route matches (VNET/P, 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MacMatch {
    /// Every address.
    Any,
    /// No address: such a route never applies.
    None,
    /// Every address but this one.
    Not(Mac),
    /// This address only.
    Only(Mac),
}

impl FromStr for MacMatch {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let lower = text.to_ascii_lowercase();
        match lower.as_str() {
            "any" => Ok(Self::Any),
            "none" => Ok(Self::None),
            other => match other.strip_prefix("not-") {
                Some(mac) => mac.parse().map(Self::Not),
                Option::None => other.parse().map(Self::Only),
            },
        }
        .map_err(|_: SpecError| {
            SpecError(format!("address {text:?}: expected any, none, a MAC address, or not-MAC"))
        })
    }
}

impl TryFrom<String> for MacMatch {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<MacMatch> for String {
    fn from(mac: MacMatch) -> String {
        mac.to_string()
    }
}

impl fmt::Display for MacMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::None => f.write_str("none"),
            Self::Not(mac) => write!(f, "not-{mac}"),
            Self::Only(mac) => mac.fmt(f),
        }
    }
}

/// An end of a route: a port (VNET's *interface*) or a link (its *edge*). The local network is a
/// link of kind `raw`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "type", content = "name", rename_all = "lowercase")]
pub enum RouteEnd {
    /// A port of the group.
    Interface(Name),
    /// A link of the group.
    Edge(Name),
}

impl fmt::Display for RouteEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => write!(f, "interface {name}"),
            Self::Edge(name) => write!(f, "edge {name}"),
        }
    }
}

/// A rule that sends frames to a port or a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RouteSpec {
    /// Group of the frames.
    pub group: Name,
    /// Source addresses that match.
    pub source: MacMatch,
    /// Destination addresses that match.
    pub destination: MacMatch,
    /// Port or link to which matching frames go.
    pub to: RouteEnd,
    /// Port or link from which frames must have come; `None` is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<RouteEnd>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_address_matches_read_and_print() {
        for text in ["any", "none", "not-02:00:00:00:00:01", "02:00:00:00:00:01"] {
            assert_eq!(text.parse::<MacMatch>().unwrap().to_string(), text);
        }
        assert_eq!("ANY".parse::<MacMatch>().unwrap(), MacMatch::Any);
        for bad in ["", "not-", "not-any", "02:00", "some"] {
            assert!(bad.parse::<MacMatch>().is_err(), "{bad}");
        }
    }
}
