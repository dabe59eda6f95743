//! Records of the directory: the values in etcd, as JSON with a version.
//!
//! A reader ignores fields that it does not know, and refuses a record with a larger version
//! ([`RecordError::Version`]): a change that older readers may ignore keeps the version. Values
//! longer than [`VALUE_BYTES_MAX`] are refused before they are read. Reading verifies no signature:
//! the replica ([`crate::replica`]) calls [`HostRecord::verify`] and [`ClaimRecord::verify`]. A
//! host's record is signed by the key that it contains, so the replica also compares that key with
//! the known one. Records of groups and evictions have no signature; the rights in etcd protect
//! them. Pure; runs in the caller's thread.

use std::net::SocketAddr;

use causeway_model::limits::VNI_MAX;
use causeway_model::{
    ClusterAddress, Forwarding, Name, PublicKeyText, RULE_FIELDS, RuleSpec, SitePolicy, schema,
};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::key::RecordKey;
use crate::limits::{ENDPOINTS_MAX, VALUE_BYTES_MAX};
use crate::sign::{Signature, SigningKey, VerifyingKey};

/// Version of the records that this release writes.
pub const VERSION: u32 = 1;

/// The reason why a value is no record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The value is too long.
    #[error("the value has {0} bytes: expected at most {VALUE_BYTES_MAX}")]
    Long(usize),
    /// The value is not the JSON of a record.
    #[error("the value is no record: {0}")]
    Form(#[from] serde_json::Error),
    /// The record is of a newer release.
    #[error("the record has version {0}, and this release reads {VERSION}: upgrade this host")]
    Version(u32),
    /// A field is out of its range.
    #[error("the field {0} is out of its range")]
    Range(&'static str),
}

/// Only the version of a record.
#[derive(Deserialize)]
struct Versioned {
    v: u32,
}

/// Reads the JSON of a record.
pub(crate) fn read<T: DeserializeOwned>(value: &[u8]) -> Result<T, RecordError> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(RecordError::Long(value.len()));
    }
    let Versioned { v } = serde_json::from_slice(value)?;
    if v > VERSION {
        return Err(RecordError::Version(v));
    }
    Ok(serde_json::from_slice(value)?)
}

/// Returns the JSON of a record; records have no part that could fail.
pub(crate) fn write(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_default()
}

/// Appends a part with its length, so that two lists of parts never have equal bytes.
fn append(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend((part.len() as u64).to_be_bytes());
    bytes.extend(part);
}

/// A host of the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    /// Version.
    pub v: u32,
    /// Public key of the host's tunnels.
    pub key: PublicKeyText,
    /// Public key of the host's signatures.
    pub signing_key: VerifyingKey,
    /// Addresses and UDP ports at which the host receives, the preferred first; 1 to
    /// [`ENDPOINTS_MAX`] (16).
    pub endpoints: Vec<SocketAddr>,
    /// Time of day at which the host's process started, in ns since 1970, or later
    /// ([`crate::Replica::next_epoch`]).
    pub epoch: u64,
    /// Groups that exist on the host and are shared in the site.
    pub groups: Vec<Name>,
    /// Signature of `signing_key` over the other fields except `v`, and the key of the record.
    pub signature: Signature,
}

impl HostRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// The value is no record of a host.
    pub fn read(value: &[u8]) -> Result<Self, RecordError> {
        let record: Self = read(value)?;
        let endpoints = &record.endpoints;
        let is_usable = |at: &SocketAddr| at.port() != 0 && !at.ip().is_unspecified();
        if endpoints.is_empty()
            || endpoints.len() > ENDPOINTS_MAX
            || !endpoints.iter().all(is_usable)
        {
            return Err(RecordError::Range("endpoints"));
        }
        Ok(record)
    }

    /// Returns the value for etcd.
    pub fn write(&self) -> Vec<u8> {
        write(self)
    }

    fn signed_bytes(&self, path: &str) -> Vec<u8> {
        let mut bytes = b"causeway-host-1".to_vec();
        append(&mut bytes, path.as_bytes());
        append(&mut bytes, self.key.as_str().as_bytes());
        append(&mut bytes, self.signing_key.to_string().as_bytes());
        append(&mut bytes, &self.epoch.to_be_bytes());
        for endpoint in &self.endpoints {
            append(&mut bytes, endpoint.to_string().as_bytes());
        }
        append(&mut bytes, b"groups");
        for group in &self.groups {
            append(&mut bytes, group.as_str().as_bytes());
        }
        bytes
    }

    /// Signs the record for a site and a host.
    #[must_use]
    pub fn sign(mut self, site: &Name, id: &Name, key: &SigningKey) -> Self {
        self.signing_key = key.public();
        self.signature = key.sign(&self.signed_bytes(&RecordKey::Host(id.clone()).path(site)));
        self
    }

    /// Returns whether the holder of the record's signing key wrote the record for this host.
    pub fn verify(&self, site: &Name, id: &Name) -> bool {
        let bytes = self.signed_bytes(&RecordKey::Host(id.clone()).path(site));
        self.signing_key.verifies(&bytes, &self.signature)
    }
}

/// A group that hosts of the site share, with the site's policy about it. Operators write it. A
/// reader of an older release knows the number only, and ignores the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// Version.
    pub v: u32,
    /// Number of the group on the wire, 0 to 16777215, unique in the site.
    pub vni: u32,
    /// Treatment of frames that no route matches, on every host; `None` leaves each host its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarding: Option<Forwarding>,
    /// Rules about connects in the group, which come before those of each host.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "rules")]
    pub rules: Vec<RuleSpec>,
}

/// Reads rules. A key that is not known is refused, unlike one of a record: an older reader would
/// apply the rule to connects that its newer author did not mean.
fn rules<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<RuleSpec>, D::Error> {
    let tables = Vec::<Map<String, Value>>::deserialize(from)?;
    let rule = |(index, table): (usize, &Map<String, Value>)| {
        schema::read(RULE_FIELDS, table).map_err(|problems| {
            D::Error::custom(schema::joined(&format!("rule {index}"), &problems))
        })
    };
    tables.iter().enumerate().map(rule).collect()
}

impl GroupRecord {
    /// Returns the record of a group without rules and forwarding.
    pub const fn new(vni: u32) -> Self {
        Self { v: VERSION, vni, forwarding: None, rules: Vec::new() }
    }

    /// Returns the policy of the record about its group. It is not checked here.
    pub fn policy(&self, group: &Name) -> SitePolicy {
        let (group, forwarding) = (group.clone(), self.forwarding);
        SitePolicy { group, forwarding, rules: self.rules.clone() }
    }

    /// Reads a record. Whether its rules stay inside the group is not examined:
    /// [`SitePolicy::check`] of [`Self::policy`] does.
    ///
    /// # Errors
    /// The value is no record of a group, or a rule has not the form of `[[rule]]`.
    pub fn read(value: &[u8]) -> Result<Self, RecordError> {
        let record: Self = read(value)?;
        if record.vni > VNI_MAX {
            return Err(RecordError::Range("vni"));
        }
        Ok(record)
    }

    /// Returns the value for etcd.
    pub fn write(&self) -> Vec<u8> {
        write(self)
    }
}

/// The eviction of a host: its record and claims are refused. Operators write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionRecord {
    /// Version.
    pub v: u32,
    /// Reason, as text.
    #[serde(default)]
    pub reason: String,
}

impl EvictionRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// The value is no record of an eviction.
    pub fn read(value: &[u8]) -> Result<Self, RecordError> {
        read(value)
    }

    /// Returns the value for etcd.
    pub fn write(&self) -> Vec<u8> {
        write(self)
    }
}

/// The claim of a host on an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// Version.
    pub v: u32,
    /// The host.
    pub host: Name,
    /// Time of day at which the address appeared there, in ns since 1970, or 1 more than the epoch
    /// of a newer claim that the host knew.
    pub epoch: u64,
    /// Whether the host withdraws the claim of this epoch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// Signature of the host over the other fields except `v`, and the key of the record.
    pub signature: Signature,
}

impl ClaimRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// The value is no record of a claim.
    pub fn read(value: &[u8]) -> Result<Self, RecordError> {
        read(value)
    }

    /// Returns the value for etcd.
    pub fn write(&self) -> Vec<u8> {
        write(self)
    }

    fn signed_bytes(&self, path: &str) -> Vec<u8> {
        let mut bytes = b"causeway-claim-1".to_vec();
        append(&mut bytes, path.as_bytes());
        append(&mut bytes, self.host.as_str().as_bytes());
        append(&mut bytes, &self.epoch.to_be_bytes());
        append(&mut bytes, &[u8::from(self.gone)]);
        bytes
    }

    /// Returns the signed claim of a host on an address.
    pub fn new(
        (site, at): (&Name, &ClusterAddress),
        (host, key): (&Name, &SigningKey),
        epoch: u64,
        gone: bool,
    ) -> Self {
        let (v, host, signature) = (VERSION, host.clone(), Signature::none());
        let mut claim = Self { v, host, epoch, gone, signature };
        let path = RecordKey::Claim(at.clone()).path(site);
        claim.signature = key.sign(&claim.signed_bytes(&path));
        claim
    }

    /// Returns whether the holder of a key signed this claim on this address.
    pub fn verify(&self, site: &Name, at: &ClusterAddress, key: &VerifyingKey) -> bool {
        let path = RecordKey::Claim(at.clone()).path(site);
        key.verifies(&self.signed_bytes(&path), &self.signature)
    }
}
