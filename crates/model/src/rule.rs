//! Rules: the socket connects that are accepted.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Name, SpecError};

/// What a rule does with a connect that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleAction {
    /// Let it pass.
    Accept,
    /// Answer it with a reset.
    Reject,
}

/// One side of a rule: `GROUP/CID:PORT`, each part a value or `*`; the host is `host`.
///
/// Examples: `blue/3:*`, `*/*:22`, `host:*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(try_from = "String", into = "String")]
pub struct RuleSide {
    /// Whether this side is the host itself (CID 2).
    pub host: bool,
    /// The group, or any.
    pub group: Option<Name>,
    /// The CID, or any guest's and the host's.
    pub cid: Option<u32>,
    /// First and last port, inclusive, or any.
    pub ports: Option<(u32, u32)>,
}

impl FromStr for RuleSide {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = || {
            SpecError(format!(
                "rule side {text:?}: expected GROUP/CID:PORT or host:PORT, each part a value or '*', \
                 PORT also FIRST-LAST"
            ))
        };
        if text == "*" {
            return Ok(Self::default());
        }
        let (who, ports) = text.rsplit_once(':').unwrap_or((text, "*"));
        let ports = match ports {
            "*" => None,
            one => {
                let (first, last) = one.split_once('-').unwrap_or((one, one));
                let first: u32 = first.parse().map_err(|_| wrong())?;
                let last: u32 = last.parse().map_err(|_| wrong())?;
                if first > last {
                    return Err(wrong());
                }
                Some((first, last))
            }
        };
        if who == "host" {
            return Ok(Self { host: true, ports, ..Self::default() });
        }
        let (group, cid) = who.split_once('/').ok_or_else(wrong)?;
        let group = if group == "*" { None } else { Some(group.parse()?) };
        let cid = if cid == "*" { None } else { Some(cid.parse().map_err(|_| wrong())?) };
        Ok(Self { host: false, group, cid, ports })
    }
}

impl TryFrom<String> for RuleSide {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<RuleSide> for String {
    fn from(side: RuleSide) -> String {
        side.to_string()
    }
}

impl fmt::Display for RuleSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host {
            f.write_str("host")?;
        } else {
            match &self.group {
                Some(group) => write!(f, "{group}/")?,
                None => f.write_str("*/")?,
            }
            match self.cid {
                Some(cid) => write!(f, "{cid}")?,
                None => f.write_str("*")?,
            }
        }
        match self.ports {
            None => f.write_str(":*"),
            Some((first, last)) if first == last => write!(f, ":{first}"),
            Some((first, last)) => write!(f, ":{first}-{last}"),
        }
    }
}

/// An ordered rule over connects, in the manner of V4V's viptables: the first match decides,
/// and what no rule matches is accepted within its group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSpec {
    /// What to do.
    pub action: RuleAction,
    /// Who connects.
    #[serde(default)]
    pub from: RuleSide,
    /// To whom.
    #[serde(default)]
    pub to: RuleSide,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_sides_read_and_print() {
        for text in ["blue/3:*", "*/*:22", "host:*", "red/*:1-1024", "*/*:*"] {
            assert_eq!(text.parse::<RuleSide>().unwrap().to_string(), text);
        }
        assert_eq!("*".parse::<RuleSide>().unwrap(), RuleSide::default());
        for bad in ["", "blue", "blue/x:1", "blue/3:9-1", "blue/3:x", "bl ue/3"] {
            assert!(bad.parse::<RuleSide>().is_err(), "{bad}");
        }
    }
}
