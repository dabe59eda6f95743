//! Rules: which socket connects are accepted.
//!
//! An operator inserts rules at a position ([`crate::Command::RuleAdd`]); the fabric keeps the list
//! and copies it to every shard, and the socket service checks each connect of a guest or of the
//! host. The first matching rule decides; without a match a connect is accepted. The rules of a
//! site about the group ([`crate::SitePolicy`]) come before the list of the host.
//!
//! Rules do not apply to open connections, to Ethernet frames or to MX messages, and cannot connect
//! two groups. At most [`RULES_MAX`] (4,096) rules; a further one, and a position beyond the end of
//! the list, are refused by `causeway_fabric::rules`. This module parses and prints the sides of a
//! rule; matching is in `causeway_fabric::rules`. A CID or port number beyond 32 bits is refused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::RULES_MAX;
use crate::schema::{self, DefaultValue, Field, Problem, ValueType, check, table, text};
use crate::{Name, SpecError};

/// The effect of a rule on a connect that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleAction {
    /// The connect passes.
    Accept,
    /// The connect of a guest is answered with a reset; the stream of a host process is closed.
    Reject,
}

impl RuleAction {
    /// The names, as operators write them.
    pub const NAMES: [&'static str; 2] = ["accept", "reject"];
}

/// The author of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleOrigin {
    /// The operator of this host: its configuration, or a command.
    #[default]
    Host,
    /// The site, by the record of the group. Its rules come first, and no host can change them.
    Cluster,
}

/// A side of a rule: `GROUP/CID:PORT`, each part a value or `*`; the host is `host`.
///
/// Examples: `blue/3:*`, `*/*:22`, `host:*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(try_from = "String", into = "String")]
pub struct RuleSide {
    /// Whether this side is the host itself (CID 2).
    pub host: bool,
    /// The group; `None` is any.
    pub group: Option<Name>,
    /// The CID; `None` is any CID, that of the host included.
    pub cid: Option<u32>,
    /// First and last port number, both included; `None` is any.
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
        let (side, ports) = text.rsplit_once(':').unwrap_or((text, "*"));
        let ports = match ports {
            "*" => None,
            range => {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let first: u32 = first.parse().map_err(|_| wrong())?;
                let last: u32 = last.parse().map_err(|_| wrong())?;
                if first > last {
                    return Err(wrong());
                }
                Some((first, last))
            }
        };
        if side == "host" {
            return Ok(Self { host: true, ports, ..Self::default() });
        }
        let (group, cid) = side.split_once('/').ok_or_else(wrong)?;
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

table! {
    /// An ordered rule over connects, as in V4V's viptables. The first matching rule decides; a
    /// connect that no rule matches is accepted within its group.
    pub struct RuleSpec, pub const RULE_FIELDS {
        /// Effect on matching connects.
        action: RuleAction => ValueType::Word(&RuleAction::NAMES),
            DefaultValue::Required("expected \"accept\" or \"reject\"");
        /// The connecting side.
        #[serde(default)]
        from: RuleSide => text::<RuleSide>("SIDE"), DefaultValue::Derived("any");
        /// The side that is connected to.
        #[serde(default)]
        to: RuleSide => text::<RuleSide>("SIDE"), DefaultValue::Derived("any");
    }
}

/// The number of a rule that is added, which is no part of the rule.
pub const RULE_INDEX: Field = Field::new(
    "index",
    "Insert before the rule that now has this number.",
    ValueType::Integer { min: 0, max: RULES_MAX as u64, unit: "N" },
    DefaultValue::NoneMeans("at the end"),
);

impl RuleSpec {
    /// Reads the table of a rule that is added, and its number, if given.
    ///
    /// # Errors
    /// All problems of the table.
    pub fn read_with_index(
        values: &Map<String, Value>,
    ) -> Result<(Option<usize>, Self), Vec<Problem>> {
        let problems = check(RULE_FIELDS.iter().chain([&RULE_INDEX]), values);
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut rule = values.clone();
        let index = rule.remove(RULE_INDEX.key).and_then(|index| index.as_u64());
        let index = index.and_then(|index| usize::try_from(index).ok());
        Ok((index, schema::read(RULE_FIELDS, &rule)?))
    }
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
