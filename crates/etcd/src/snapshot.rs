//! The snapshot: accepted records on disk, so that a restart while etcd is away forwards as before.
//!
//! A JSON file with the keys and values of the accepted records, replaced as a whole
//! ([`crate::new_file`]). A missing file is an empty snapshot. Records are verified as
//! those of etcd, except that the time of day counts as no earlier than the change of the file. The
//! main thread reads it once, at the start, and writes it at most every
//! [`SNAPSHOT`](crate::limits::SNAPSHOT) (2 s), and at the end.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use causeway_cluster::{KeyEvent, Replica};
use serde::{Deserialize, Serialize};

use crate::limits::SNAPSHOT_BYTES_MAX;
use crate::new_file;

/// Version of the file.
const VERSION: u32 = 1;

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Snapshot {
    v: u32,
    /// Last revision of etcd, for the reader of the file.
    revision: u64,
    records: Vec<(String, String)>,
}

/// Writes the accepted records of a replica.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, replica: &Replica) -> std::io::Result<()> {
    let text = |(key, value): (String, Vec<u8>)| Some((key, String::from_utf8(value).ok()?));
    let records = replica.records().into_iter().filter_map(text).collect();
    let snapshot = Snapshot { v: VERSION, revision: replica.revision(), records };
    new_file::replace(path, &serde_json::to_vec(&snapshot)?, 0o644)
}

/// Reads records into a replica, which should be empty. Returns the number of records in the file,
/// refused ones included; 0 if there is no file.
///
/// # Errors
/// The file cannot be read, has more than [`SNAPSHOT_BYTES_MAX`] (128 MiB), is malformed, or has a
/// newer version; the replica is unchanged.
pub fn read(path: &Path, replica: &mut Replica, wall: u64) -> std::io::Result<usize> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        file => file?,
    };
    // A clock that is behind at boot would refuse every record as one of the future.
    let written = file.metadata()?.modified()?.duration_since(std::time::UNIX_EPOCH);
    let written = written.map_or(0, |at| u64::try_from(at.as_nanos()).unwrap_or(0));
    let wall = wall.max(written);
    let mut text = Vec::new();
    file.take(SNAPSHOT_BYTES_MAX).read_to_end(&mut text)?;
    let snapshot: Snapshot = serde_json::from_slice(&text)?;
    if snapshot.v > VERSION {
        return Err(std::io::Error::other(format!("version {} is newer", snapshot.v)));
    }
    let item = |(key, value): (String, String)| KeyEvent {
        key: key.into_bytes(),
        value: Some(value.into_bytes()),
        revision: 1,
    };
    let items: Vec<KeyEvent> = snapshot.records.into_iter().map(item).collect();
    replica.list(&items, 0, wall);
    replica.forget_revisions();
    Ok(items.len())
}
