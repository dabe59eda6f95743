//! `GET /v1/peers`: NICs of MX endpoints on other hosts, each as a NIC of this host knows it.
//!
//! The list is read-only: the service has it from the configuration (`static`) or from discovery
//! (`announced`). A peer that two NICs of this host know has two entries. Peers of links are in
//! `/v1/links`.
//!
//! The daemon calls the handler on the thread of a connection, and `mx::control` answers the
//! command in it. `causeway peer` prints the reply, and the page of `causeway web` shows it.

use causeway_model::commands::peers::List;
use causeway_model::{NounCall, NounDefinition, NounError, NounResult};

/// The noun of peers.
pub(crate) const NOUNS: &[NounDefinition] = &[NounDefinition::new("peers", peers)];

/// Answers `/v1/peers`.
fn peers(call: &NounCall<'_>) -> NounResult {
    match (call.path, call.method) {
        ([], "GET") => call.show(List),
        ([], _) => Err(NounError::Method("GET")),
        _ => Err(NounError::Path),
    }
}
