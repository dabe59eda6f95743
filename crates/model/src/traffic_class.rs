//! The traffic class of the outer IP headers of a link: DSCP and ECN.
//!
//! A link of a datagram kind has a [`TrafficClass`]; its carrier, in the thread of the group that
//! sends, computes the class of each outer header by [`TrafficClass::outer`], and the receiver
//! combines ECN marks into the inner packet (`causeway_wire::ecn`). Stream and raw links have no
//! outer class. The DSCP of the inner packet is never changed. The module does not classify traffic
//! and sets no priority in queues of this host; a DSCP is up to [`DSCP_MAX`].

use std::fmt;
use std::str::FromStr;

use causeway_wire::ecn::ECN_MASK;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::SpecError;

/// The largest DSCP: it has 6 bits.
pub const DSCP_MAX: u8 = 63;
/// Text of [`Dscp::Inherit`].
const INHERIT: &str = "inherit";

/// The DSCP of outer headers (RFC 2983).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dscp {
    /// The same for all datagrams, 0 to [`DSCP_MAX`]: the pipe model.
    Fixed(u8),
    /// The DSCP of the inner packet: the uniform model on encapsulation. Decapsulation leaves the
    /// inner packet's DSCP unchanged.
    Inherit,
}

impl Default for Dscp {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

impl FromStr for Dscp {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text == INHERIT {
            return Ok(Self::Inherit);
        }
        let number = text.parse().ok().filter(|dscp| *dscp <= DSCP_MAX);
        number.map(Self::Fixed).ok_or_else(|| {
            SpecError(format!("expected {INHERIT:?} or 0 to {DSCP_MAX}, found {text:?}"))
        })
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(dscp) => dscp.fmt(f),
            Self::Inherit => f.write_str(INHERIT),
        }
    }
}

/// A DSCP in JSON: a number or a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum DscpJson {
    Number(u64),
    Word(String),
}

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = match DscpJson::deserialize(from) {
            Ok(DscpJson::Number(number)) => number.to_string(),
            Ok(DscpJson::Word(word)) => word,
            Err(_) => "another type".to_owned(),
        };
        text.parse().map_err(|error| serde::de::Error::custom(format!("dscp: {error}")))
    }
}

impl Serialize for Dscp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(dscp) => to.serialize_u8(*dscp),
            Self::Inherit => to.serialize_str(INHERIT),
        }
    }
}

/// DSCP and ECN of the outer headers of a link that sends datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficClass {
    /// The DSCP.
    #[serde(default)]
    pub dscp: Dscp,
    /// Whether the ECN field is copied from the inner packet (RFC 6040, normal mode) or is Not-ECT
    /// (compatibility mode), for a peer that does not combine both on decapsulation.
    #[serde(default = "ecn_default")]
    pub ecn: bool,
}

/// Returns the default of [`TrafficClass::ecn`].
pub const fn ecn_default() -> bool {
    true
}

impl Default for TrafficClass {
    fn default() -> Self {
        Self { dscp: Dscp::default(), ecn: ecn_default() }
    }
}

impl TrafficClass {
    /// Returns the traffic class of the outer header of a packet of class `inner`.
    #[inline]
    pub const fn outer(self, inner: u8) -> u8 {
        let dscp = match self.dscp {
            Dscp::Fixed(dscp) => dscp << 2,
            Dscp::Inherit => inner & !ECN_MASK,
        };
        if self.ecn { dscp | inner & ECN_MASK } else { dscp }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dscp_reads_and_prints_as_a_number_or_a_word() {
        for (text, json, dscp) in [
            ("0", "0", Dscp::Fixed(0)),
            ("46", "46", Dscp::Fixed(46)),
            ("63", "63", Dscp::Fixed(63)),
            ("inherit", "\"inherit\"", Dscp::Inherit),
        ] {
            assert_eq!(text.parse::<Dscp>().unwrap(), dscp);
            assert_eq!(dscp.to_string(), text);
            assert_eq!(serde_json::to_string(&dscp).unwrap(), json);
            assert_eq!(serde_json::from_str::<Dscp>(json).unwrap(), dscp);
        }
        for text in ["64", "-1", "", "Inherit", "256", "4.5"] {
            let error = text.parse::<Dscp>().unwrap_err().to_string();
            assert!(error.contains("\"inherit\" or 0 to 63"), "{error}");
        }
        for json in ["64", "-1", "\"64\"", "true", "4.5", "null"] {
            let error = serde_json::from_str::<Dscp>(json).unwrap_err().to_string();
            assert!(error.contains("\"inherit\" or 0 to 63"), "{json}: {error}");
        }
    }

    #[test]
    fn outer_headers_have_the_inner_ecn_field_and_the_configured_dscp() {
        let (ef, ect0) = (46 << 2, 0b10);
        let inner = ef | ect0;
        let outer = |dscp, ecn| TrafficClass { dscp, ecn }.outer(inner);
        assert_eq!(TrafficClass::default().outer(inner), ect0);
        assert_eq!(outer(Dscp::Fixed(8), true), 8 << 2 | ect0);
        assert_eq!(outer(Dscp::Inherit, true), inner);
        assert_eq!(outer(Dscp::Inherit, false), ef);
        assert_eq!(outer(Dscp::Fixed(0), false), 0);
    }
}
