//! The operator's verbs: groups, evictions, export and import. `main` calls each in the main
//! thread, with a client of etcd; [`crate::join`] uses the verbs of groups. The daemon and the
//! process of the host are not asked: the processes of all hosts learn of a change from etcd.

use std::path::Path;

use causeway_cluster::limits::VALUE_BYTES_MAX;
use causeway_cluster::record::VERSION;
use causeway_cluster::token::TokenRefusal;
use causeway_cluster::{EvictionRecord, GroupRecord, RecordKey, Write, key};
use causeway_model::Name;
use serde_json::{Map, Value, json};

use crate::client::{Etcd, EtcdError, WriteOutcome, at};
use crate::groups;
use crate::limits::SNAPSHOT_BYTES_MAX;

/// A failed verb.
#[derive(Debug, thiserror::Error)]
pub enum VerbError {
    /// etcd does not answer or refuses.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The named object does not exist.
    #[error("{0} does not exist in the site")]
    NotFound(String),
    /// A value is in use, or has a form that cannot be used.
    #[error("{0}")]
    Conflict(String),
    /// The settings are written, and systemd does not run on this host.
    #[error(
        "systemd does not run here, and the process is not started: repeat the command with --run, \
         or have `causeway-directory run` started with the variables of {0}"
    )]
    NoService(String),
    /// A file cannot be used.
    #[error("{0}: {1}")]
    File(String, String),
    /// A token does not admit the host.
    #[error("the join is refused: {0}")]
    Token(#[from] TokenRefusal),
}

/// A record: key, value, and revision of the last change.
pub(crate) type StoredRecord = (RecordKey, Vec<u8>, u64);

/// Returns all records that have the form of the schema.
pub(crate) fn records(etcd: &mut Etcd, site: &Name) -> Result<Vec<StoredRecord>, VerbError> {
    let listing = etcd.list(&key::prefix(site))?;
    let parse = |event: causeway_cluster::KeyEvent| {
        Some((RecordKey::parse(site, &event.key).ok()?, event.value?, event.revision))
    };
    Ok(listing.items.into_iter().filter_map(parse).collect())
}

/// Shares a group. A group that exists with this number is left as it is. The check of the number
/// and the write are not atomic: of two groups that are added at once with one number, hosts refuse
/// the second.
///
/// # Errors
/// Another group has the number, the group exists with another one, or etcd does not answer.
pub fn add_group(etcd: &mut Etcd, site: &Name, name: Name, vni: u32) -> Result<(), VerbError> {
    if check_number(&records(etcd, site)?, &name, vni)? {
        return Ok(());
    }
    let value = Some(GroupRecord::new(vni).write());
    let write = Write { key: RecordKey::Group(name.clone()), value, expected: 0 };
    match etcd.write(site, &write)? {
        WriteOutcome::Done(_) => Ok(()),
        WriteOutcome::Failed(_) => {
            Err(VerbError::Conflict(format!("group {name} was changed meanwhile: try again")))
        }
    }
}

/// Returns whether a group is shared with a number.
///
/// # Errors
/// Another group has the number, or the group is shared with another one.
pub(crate) fn check_number(all: &[StoredRecord], name: &Name, vni: u32) -> Result<bool, VerbError> {
    let mut is_shared = false;
    for (key, value, _) in all {
        let (RecordKey::Group(other), Ok(record)) = (key, GroupRecord::read(value)) else {
            continue;
        };
        if other == name && record.vni == vni {
            is_shared = true;
        } else if other == name {
            let text = format!(
                "group {name} has the number {}: delete it first, which closes its links",
                record.vni
            );
            return Err(VerbError::Conflict(text));
        } else if record.vni == vni {
            let text = format!("number {vni} is that of group {other}: choose another");
            return Err(VerbError::Conflict(text));
        }
    }
    Ok(is_shared)
}

/// Ends the sharing of a group.
///
/// # Errors
/// The group is not shared, or etcd does not answer.
pub fn delete_group(etcd: &mut Etcd, site: &Name, name: &Name) -> Result<(), VerbError> {
    let path = RecordKey::Group(name.clone()).path(site);
    if etcd.delete(&path)? { Ok(()) } else { Err(VerbError::NotFound(format!("group {name}"))) }
}

/// Returns the shared groups, as JSON.
///
/// # Errors
/// etcd does not answer.
pub fn list_groups(etcd: &mut Etcd, site: &Name) -> Result<Value, VerbError> {
    let group = |(key, value, _): (RecordKey, Vec<u8>, u64)| match key {
        RecordKey::Group(name) => Some(groups::view(&name, &GroupRecord::read(&value).ok()?)),
        _ => None,
    };
    Ok(records(etcd, site)?.into_iter().filter_map(group).collect())
}

/// Evicts a host; a known name is not required. The reason is cut to 512 characters, and replaces
/// that of an earlier eviction.
///
/// # Errors
/// etcd does not answer.
pub fn evict(etcd: &mut Etcd, site: &Name, host: Name, reason: &str) -> Result<(), VerbError> {
    let reason = reason.chars().take(VALUE_BYTES_MAX / 8).collect();
    let record = EvictionRecord { v: VERSION, reason };
    etcd.put(&RecordKey::Evicted(host).path(site), &record.write(), None)?;
    Ok(())
}

/// Ends the eviction of a host.
///
/// # Errors
/// The host is not evicted, or etcd does not answer.
pub fn readmit(etcd: &mut Etcd, site: &Name, host: &Name) -> Result<(), VerbError> {
    let path = RecordKey::Evicted(host.clone()).path(site);
    if etcd.delete(&path)? {
        Ok(())
    } else {
        Err(VerbError::NotFound(format!("an eviction of host {host}")))
    }
}

/// Returns all records of the site with keys of the schema, by key. A value that is not JSON is
/// null.
///
/// # Errors
/// etcd does not answer.
pub fn export(etcd: &mut Etcd, site: &Name) -> Result<Value, VerbError> {
    let mut all = Map::new();
    for (key, value, _) in records(etcd, site)? {
        let value = serde_json::from_slice(&value).unwrap_or(Value::Null);
        all.insert(key.path(site), value);
    }
    Ok(json!({ "v": VERSION, "site": site, "records": all }))
}

/// Writes the groups and evictions of an export, as far as their keys do not exist. Returns the
/// number of written records. A group that hosts would refuse is an error; other values are not
/// examined.
///
/// # Errors
/// The file is too long or no export of the site, or etcd does not answer; earlier records of the
/// file are written.
pub fn import(etcd: &mut Etcd, site: &Name, file: &Path) -> Result<usize, VerbError> {
    let wrong = |text: String| VerbError::File(file.display().to_string(), text);
    let length = std::fs::metadata(file).map_err(|error| wrong(error.to_string()))?.len();
    if length > SNAPSHOT_BYTES_MAX {
        return Err(wrong("the file is too long".into()));
    }
    let text = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
    let value: Value = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    let records = at(&value, "/records").as_object();
    let records = records.ok_or_else(|| wrong("expected the output of export".into()))?;
    let mut count: usize = 0;
    for (path, value) in records {
        let key = RecordKey::parse(site, path.as_bytes());
        let key = key.map_err(|error| wrong(format!("{path}: {error}")))?;
        if !matches!(key, RecordKey::Group(_) | RecordKey::Evicted(_)) {
            continue;
        }
        let value = match &key {
            RecordKey::Group(name) => groups::check(name, value.clone())?,
            _ => value.to_string().into_bytes(),
        };
        let write = Write { key, value: Some(value), expected: 0 };
        if let WriteOutcome::Done(_) = etcd.write(site, &write)? {
            count = count.saturating_add(1);
        }
    }
    Ok(count)
}
