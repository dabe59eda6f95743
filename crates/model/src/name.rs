//! Names of ports, groups, links, peers, forwards and VMs.
//!
//! Every parser of a specification makes a [`Name`], in the thread that reads it, and refuses
//! another text as a whole; its text is valid as a part of a file name, a log value and a URL
//! without quoting. A name has 1 to [`NAME_BYTES_MAX`] (63) bytes of ASCII and is compared byte by
//! byte, with case. The type does not make a name unique: the registry and the services refuse a
//! name in use. The group name `host` is reserved; the table of groups and the registry refuse it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::SpecError;
use crate::limits::NAME_BYTES_MAX;

/// The name of a port, a group, a link or another object: 1 to 63 of `A-Z a-z 0-9 . _ -`, starting
/// with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let first_ok = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        let rest_ok = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if first_ok && rest_ok && text.len() <= NAME_BYTES_MAX {
            Ok(Self(text.to_owned()))
        } else {
            Err(SpecError(format!(
                "name {text:?}: expected 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' or '-', \
                 starting with a letter or digit"
            )))
        }
    }
}

impl TryFrom<String> for Name {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_form_is_checked() {
        assert!("vm-1.net_0".parse::<Name>().is_ok());
        for bad in ["", "-x", "a b", "a/b", &"x".repeat(64)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
