//! `GET /v1/hcas` and `GET /v1/hcas/PORT`: host channel adapters of guests.
//!
//! The replies are samples: objects with their limits, and counters. The list has no queue pairs;
//! the view of an adapter has up to
//! [`HCA_QUEUE_PAIRS_SHOWN_MAX`](causeway_model::limits::HCA_QUEUE_PAIRS_SHOWN_MAX) (256). A name
//! of no port of kind `hca` is 404. Adapters are added and deleted in `/v1/ports`.
//!
//! The daemon calls the handler on the thread of a connection; `causeway hca` prints the reply.

use causeway_model::commands::hca::{List, Show};
use causeway_model::{NounCall, NounDefinition, NounError, NounResult, noun::name};

/// The noun of adapters.
pub(crate) const NOUNS: &[NounDefinition] = &[NounDefinition::new("hcas", hcas)];

/// Answers `/v1/hcas`.
fn hcas(call: &NounCall<'_>) -> NounResult {
    match (call.path, call.method) {
        ([], "GET") => call.show(List),
        ([port], "GET") => call.show(Show(name(port)?)),
        ([] | [_], _) => Err(NounError::Method("GET")),
        _ => Err(NounError::Path),
    }
}
