//! Ethernet addresses: [`Mac`], its text form and its classes.
//!
//! Specifications, routes and views hold addresses in this form; the data path uses it as a value.
//! The text form is six pairs of hexadecimal digits separated by colons; `-`, `.` and missing zeros
//! are refused. Every 48-bit value is accepted: keys that need a station's address check
//! [`Mac::is_unicast`] themselves. Addresses for ports without one come from
//! [`crate::draft::derived_mac`]. Nothing here compares addresses: a service refuses a second port
//! of its group with the same one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::SpecError;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Returns whether the group bit is set: a multicast or the broadcast address.
    pub fn is_group(self) -> bool {
        let [first, ..] = self.0;
        first & 1 == 1
    }

    /// Returns whether a station may have the address: neither a group address nor zero.
    pub fn is_unicast(self) -> bool {
        !self.is_group() && self.0 != [0; 6]
    }
}

impl FromStr for Mac {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = || {
            SpecError(format!("MAC {text:?}: expected six hexadecimal bytes, as 52:54:00:12:34:56"))
        };
        let mut bytes = [0_u8; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2).ok_or_else(wrong)?;
            if !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Self(bytes)) }
    }
}

impl TryFrom<String> for Mac {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> String {
        mac.to_string()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_form_is_checked() {
        assert_eq!("52:54:00:aB:00:01".parse::<Mac>().unwrap().to_string(), "52:54:00:ab:00:01");
        for bad in
            ["", "52:54:00:ab:00", "52:54:00:ab:00:01:02", "+2:54:00:ab:00:01", "5254:00:ab:00:01"]
        {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }
}
