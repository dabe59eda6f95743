//! The noun `/v1/links` of the control API: lists, adds, shows and deletes links.
//!
//! | request | effect |
//! |---|---|
//! | `GET /v1/links` | lists the links of all groups, by name |
//! | `POST /v1/links` | adds a link, and replies with it |
//! | `GET /v1/links/NAME` | shows a link |
//! | `DELETE /v1/links/NAME` | deletes a link |
//!
//! `POST` reads the keys of a `[[link]]` table and resolves the peer's name in the thread of the
//! connection, which blocks for as long as the resolver takes; a name without an address is refused
//! (422). A name in use is a conflict, and a link beyond
//! [`LINKS_MAX`](causeway_model::limits::LINKS_MAX) (4,096) is refused (409 both). A link that cannot
//! be opened is refused with the status of the error: only links of the configuration file are kept in
//! the state down and opened later. A link cannot be changed in place: clients delete and add it.
//!
//! The daemon calls the handler in the thread of a connection; the controller (`super::control`)
//! answers its commands. The handler opens no socket and keeps no state.

use causeway_model::commands::links::{Add, Delete, List, Show};
use causeway_model::draft::LinkDraft;
use causeway_model::noun::name;
use causeway_model::schema::named;
use causeway_model::{NounCall, NounDefinition, NounError, NounResult};
use serde_json::{Map, Value};

/// The nouns of the service.
pub(super) const NOUNS: &[NounDefinition] =
    &[NounDefinition::new("links", links), super::cluster::NOUN];

/// Answers `/v1/links`.
fn links(call: &NounCall<'_>) -> NounResult {
    match (call.path, call.method) {
        ([], "GET") => call.show(List),
        ([], "POST") => {
            let values: Map<String, Value> = call.body()?;
            let draft = LinkDraft::read(&values);
            let draft = draft.map_err(|all| NounError::invalid(named("link", &values, &all)))?;
            let spec = draft.into_spec(call.defaults.key_file, call.defaults.resolve);
            let spec = spec.map_err(|error| NounError::invalid(error.to_string()))?;
            call.add(Add(Box::new(spec)))
        }
        ([link], "GET") => call.show(Show(name(link)?)),
        ([link], "DELETE") => call.execute(Delete(name(link)?)),
        ([], _) => Err(NounError::Method("GET, POST")),
        ([_], _) => Err(NounError::Method("GET, DELETE")),
        _ => Err(NounError::Path),
    }
}
