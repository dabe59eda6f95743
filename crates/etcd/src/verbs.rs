//! The operator's verbs about the whole site: evictions, export and import. `main` calls each in the
//! main thread, with a client of etcd. The daemon and the process of the host are not asked: the
//! processes of all hosts learn of a change from etcd.

use std::path::Path;

use causeway_cluster::limits::VALUE_BYTES_MAX;
use causeway_cluster::record::VERSION;
use causeway_cluster::{EvictionRecord, RecordKey, Write};
use causeway_model::Name;
use serde_json::{Map, Value, json};

use crate::client::{Etcd, WriteOutcome, at};
use crate::groups;
use crate::limits::SNAPSHOT_BYTES_MAX;
use crate::records::{VerbError, records};

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
