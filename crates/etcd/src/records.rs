//! The records of a site as the verbs of operators read them, and the failures of these verbs.

use causeway_cluster::token::TokenRefusal;
use causeway_cluster::{RecordKey, key};
use causeway_model::Name;

use crate::client::{Etcd, EtcdError};

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
///
/// # Errors
/// etcd does not answer.
pub(crate) fn records(etcd: &mut Etcd, site: &Name) -> Result<Vec<StoredRecord>, VerbError> {
    let listing = etcd.list(&key::prefix(site))?;
    let parse = |event: causeway_cluster::KeyEvent| {
        Some((RecordKey::parse(site, &event.key).ok()?, event.value?, event.revision))
    };
    Ok(listing.items.into_iter().filter_map(parse).collect())
}
