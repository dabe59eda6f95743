//! `GET /v1/nics` and `GET /v1/nics/PORT`: NICs of MX endpoints on this host; `GET /v1/peers`: those
//! of other hosts, each as a NIC of this host knows it.
//!
//! The replies are samples. The list of NICs has no processes; the view of a NIC has all processes
//! with their endpoints. A name of no port of kind `mx` is 404.
//!
//! The list of peers is read-only: the service has it from the configuration (`static`) or from discovery
//! (`announced`). A peer that two NICs of this host know has two entries. Peers of links are in
//! `/v1/links`.
//!
//! The daemon calls the handler on the thread of a connection; `causeway nic` and `causeway peer` print
//! the replies.

use causeway_model::commands::{nics, peers};
use causeway_model::{NounCall, NounDefinition, NounError, NounResult, noun::name};

/// The nouns of NICs.
pub(crate) const NOUNS: &[NounDefinition] =
    &[NounDefinition::new("nics", nics), NounDefinition::new("peers", peers)];

/// Answers `/v1/nics`.
fn nics(call: &NounCall<'_>) -> NounResult {
    match (call.path, call.method) {
        ([], "GET") => call.show(nics::List),
        ([port], "GET") => call.show(nics::Show(name(port)?)),
        ([] | [_], _) => Err(NounError::Method("GET")),
        _ => Err(NounError::Path),
    }
}

/// Answers `/v1/peers`.
fn peers(call: &NounCall<'_>) -> NounResult {
    match (call.path, call.method) {
        ([], "GET") => call.show(peers::List),
        ([], _) => Err(NounError::Method("GET")),
        _ => Err(NounError::Path),
    }
}
