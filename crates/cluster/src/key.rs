//! Keys of the directory in etcd: `/causeway/v1/SITE/…`.
//!
//! | key | value |
//! |---|---|
//! | `host/HOST` | [`HostRecord`](crate::record::HostRecord), leased |
//! | `evicted/HOST` | [`EvictionRecord`](crate::record::EvictionRecord) |
//! | `group/GROUP` | [`GroupRecord`](crate::record::GroupRecord) |
//! | `cid/GROUP/CID`, `mac/GROUP/MAC`, `nic/GROUP/HOSTNAME`, `gid/GROUP/GID` | [`ClaimRecord`](crate::record::ClaimRecord) |
//! | `site`, `token/ID`, `joins` | [`crate::token`]: read and written by operators' verbs only |
//!
//! A key has one form only: an address that is not in the canonical form is refused, so that one
//! address never has two claims. The replica parses each key of etcd and counts a refused one as
//! malformed; the verbs of `causeway-directory` leave it out of lists. Parsing is pure, and runs in
//! the caller's thread.

use std::net::Ipv6Addr;

use causeway_model::{
    AddressKind, CID_GUEST_MIN, ClusterAddress, Mac, Name, is_claimable_nic_name,
};

use crate::limits::{HOST_BYTES_MAX, KEY_BYTES_MAX, TOKEN_ID_LEN};

/// The key of a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordKey {
    /// A host.
    Host(Name),
    /// The eviction of a host.
    Evicted(Name),
    /// A group.
    Group(Name),
    /// The claim on an address.
    Claim(ClusterAddress),
}

/// The error of a key that is not of this schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the key is not of the schema: expected host, evicted, group, cid, mac, nic or gid with names"
)]
pub struct KeyError;

/// The start of all keys.
pub const ROOT: &str = "/causeway/v1/";

/// Returns the prefix of all keys of a site.
pub fn prefix(site: &Name) -> String {
    format!("{ROOT}{site}/")
}

/// Returns the key of the record of a site itself.
pub fn site_path(site: &Name) -> String {
    format!("{}site", prefix(site))
}

/// Returns the key of a token.
pub fn token_path(site: &Name, id: &str) -> String {
    format!("{}token/{id}", prefix(site))
}

/// Returns the key of the counts of refused joins.
pub fn joins_path(site: &Name) -> String {
    format!("{}joins", prefix(site))
}

/// Returns whether a text is the number of a token: 16 lower-case hexadecimal digits.
pub fn is_token_id(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == TOKEN_ID_LEN && text.bytes().all(is_digit)
}

/// Returns whether a key is one that only verbs of operators read and write: the site, tokens and
/// refused joins. A replica ignores such a key.
pub fn is_of_operators(site: &Name, path: &[u8]) -> bool {
    let rest = path.strip_prefix(prefix(site).as_bytes());
    let rest = rest.and_then(|rest| std::str::from_utf8(rest).ok());
    rest.is_some_and(|rest| {
        rest == "site" || rest == "joins" || rest.strip_prefix("token/").is_some_and(is_token_id)
    })
}

impl RecordKey {
    /// Returns the key in etcd. Lengths and forms are not checked here.
    pub fn path(&self, site: &Name) -> String {
        let prefix = prefix(site);
        match self {
            Self::Host(id) => format!("{prefix}host/{id}"),
            Self::Evicted(id) => format!("{prefix}evicted/{id}"),
            Self::Group(name) => format!("{prefix}group/{name}"),
            Self::Claim(ClusterAddress { kind, group, address }) => {
                format!("{prefix}{kind}/{group}/{address}")
            }
        }
    }

    /// Reads a key of etcd.
    ///
    /// # Errors
    /// The key is longer than [`KEY_BYTES_MAX`] (320), of another site, not of the schema or not
    /// canonical, or the name of a host is longer than [`HOST_BYTES_MAX`] (40).
    pub fn parse(site: &Name, path: &[u8]) -> Result<Self, KeyError> {
        if path.len() > KEY_BYTES_MAX {
            return Err(KeyError);
        }
        let text = std::str::from_utf8(path).map_err(|_| KeyError)?;
        let rest = text.strip_prefix(&prefix(site)).ok_or(KeyError)?;
        let parts: Vec<&str> = rest.split('/').collect();
        match parts[..] {
            ["host", id] => Ok(Self::Host(host_id(id)?)),
            ["evicted", id] => Ok(Self::Evicted(host_id(id)?)),
            ["group", group] => Ok(Self::Group(name(group)?)),
            [kind, group, address] => {
                let kind = AddressKind::ALL.into_iter().find(|known| known.as_str() == kind);
                let kind = kind.filter(|kind| is_canonical(*kind, address)).ok_or(KeyError)?;
                let (group, address) = (name(group)?, address.to_owned());
                Ok(Self::Claim(ClusterAddress { kind, group, address }))
            }
            _ => Err(KeyError),
        }
    }
}

fn name(text: &str) -> Result<Name, KeyError> {
    text.parse().map_err(|_| KeyError)
}

fn host_id(text: &str) -> Result<Name, KeyError> {
    name(text).and_then(|id| (text.len() <= HOST_BYTES_MAX).then_some(id).ok_or(KeyError))
}

/// Returns whether a text is the canonical form of an address of a kind.
pub fn is_canonical(kind: AddressKind, text: &str) -> bool {
    match kind {
        AddressKind::Cid => {
            let cid = text.parse::<u32>().ok();
            cid.is_some_and(|n| (CID_GUEST_MIN..u32::MAX).contains(&n) && n.to_string() == text)
        }
        AddressKind::Mac => {
            let mac = text.parse::<Mac>().ok();
            mac.is_some_and(|mac| mac.is_unicast() && mac.to_string() == text)
        }
        AddressKind::Nic => is_claimable_nic_name(text),
        AddressKind::Gid => text.parse::<Ipv6Addr>().is_ok_and(|gid| gid.to_string() == text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> Name {
        "lab".parse().unwrap()
    }

    #[test]
    fn key_parses_to_the_record_that_printed_it() {
        for text in [
            "/causeway/v1/lab/host/h1",
            "/causeway/v1/lab/evicted/h1",
            "/causeway/v1/lab/group/blue",
            "/causeway/v1/lab/mac/blue/52:54:00:00:00:01",
            "/causeway/v1/lab/cid/blue/3",
            "/causeway/v1/lab/nic/blue/node0",
            "/causeway/v1/lab/nic/blue/host-a:mx0",
            "/causeway/v1/lab/gid/blue/fe80::1",
        ] {
            let key = RecordKey::parse(&site(), text.as_bytes()).unwrap();
            assert_eq!(key.path(&site()), text);
        }
    }

    #[test]
    fn key_of_operators_is_no_record_of_a_replica() {
        let id = "0123456789abcdef";
        for path in [site_path(&site()), joins_path(&site()), token_path(&site(), id)] {
            assert!(is_of_operators(&site(), path.as_bytes()), "{path}");
            assert!(RecordKey::parse(&site(), path.as_bytes()).is_err(), "{path}");
        }
        let token = token_path(&site(), id);
        for text in [&token[..token.len() - 1], &token.to_uppercase(), "/causeway/v1/x/site"] {
            assert!(!is_of_operators(&site(), text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn key_hostile_texts_are_refused() {
        let long = format!("/causeway/v1/lab/host/{}", "h".repeat(HOST_BYTES_MAX + 1));
        for text in [
            "",
            "/causeway/v1/lab/",
            "/causeway/v1/other/host/h1",
            "/causeway/v1/lab/host/",
            "/causeway/v1/lab/host/a/b",
            "/causeway/v1/lab/host/../x",
            "/causeway/v1/lab/mac/blue/52:54:00:00:00:0A",
            "/causeway/v1/lab/mac/blue/ff:ff:ff:ff:ff:ff",
            "/causeway/v1/lab/cid/blue/2",
            "/causeway/v1/lab/cid/blue/03",
            "/causeway/v1/lab/cid/blue/4294967295",
            "/causeway/v1/lab/gid/blue/FE80::1",
            "/causeway/v1/lab/nic/blue/",
            "/causeway/v1/lab/nic/blue/a b",
            "/causeway/v1/lab/nic/blue/a/b",
            "/causeway/v1/lab/what/blue/1",
            &long,
        ] {
            assert_eq!(RecordKey::parse(&site(), text.as_bytes()), Err(KeyError), "{text}");
        }
        assert!(RecordKey::parse(&site(), &[0xff; 30]).is_err());
    }
}
