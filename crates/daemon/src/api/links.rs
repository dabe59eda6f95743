//! `/v1/links`: lists, adds, shows and deletes configured paths to peers.
//!
//! `POST` reads the keys of a `[[link]]` table and resolves the peer's name on the thread of the
//! connection, which blocks for as long as the resolver takes; a name without an address is refused
//! (422). A name in use is a conflict, and a link beyond `LINKS_MAX` (1,024) is refused (409 both).
//! A link cannot be changed in place: clients delete and add it. The module opens no socket; the
//! `link` service does. A link that cannot be opened is refused with the status of the error. Only
//! links of the configuration file and of the state file are added at the start of the daemon all
//! the same, in the state down, and opened again later. Without the `link` service, a command to
//! `/v1/links` is 422, [`mtus`] limits nothing, and [`stats`] is empty.
//!
//! [`mtus`] and [`stats`] serve the other nouns: the default MTU of new ports, and `/v1/stats`.
//! `super::answer` dispatches here; the commands go to the `link` service by
//! [`crate::fabric::ask`].

use causeway_model::commands::links::{Add, Delete, List, Show};
use causeway_model::draft::LinkDraft;
use causeway_model::{CommandError, LinkStats, LinkView, Name, ObjectStats};
use serde_json::{Map, Value};

use super::{ApiCall, invalid, named, parse_name, refused};
use crate::fabric::ask;
use crate::http::HttpReply;

/// Answers `/v1/links`; `rest` holds the path segments after it.
pub(super) fn links(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    match (rest, call.method()) {
        ([], "GET") => call.ask(List, 200),
        ([], "POST") => {
            let values: Map<String, Value> = call.body()?;
            let draft = LinkDraft::read(&values);
            let draft = draft.map_err(|problems| invalid(named("link", &values, &problems)))?;
            let spec = draft.into_spec(&call.about.key_file, call.about.resolve);
            let spec = spec.map_err(|e| invalid(e.to_string()))?;
            call.ask(Add(Box::new(spec)), 201)
        }
        ([name], "GET") => call.ask(Show(parse_name(name)?), 200),
        ([name], "DELETE") => call.execute(Delete(parse_name(name)?)),
        ([], _) => Err(HttpReply::method_not_allowed("GET, POST")),
        ([_], _) => Err(HttpReply::method_not_allowed("GET, DELETE")),
        _ => Err(call.no_path()),
    }
}

/// Returns every link, or an empty list if no service of links is registered.
fn all(call: &ApiCall<'_>) -> Result<Vec<LinkView>, HttpReply> {
    match ask(call.fabric, List) {
        // The command has no value that could be invalid, so no service has it.
        Err(CommandError::Invalid(_)) => Ok(Vec::new()),
        links => links.map_err(refused),
    }
}

/// Returns a function from a group to the largest payload that all its links carry without
/// fragmentation, in bytes.
pub(super) fn mtus(call: &ApiCall<'_>) -> Result<impl Fn(&Name) -> u16 + use<>, HttpReply> {
    let links = all(call)?;
    Ok(move |group: &Name| {
        let of = links.iter().filter(|link| link.spec.group == *group);
        of.map(|link| link.mtu).min().unwrap_or(u16::MAX)
    })
}

/// Returns the counters of every link, for `/v1/stats`.
pub(super) fn stats(call: &ApiCall<'_>) -> Result<Vec<LinkStats>, HttpReply> {
    let links = all(call)?.into_iter().map(|link| LinkStats {
        object: ObjectStats {
            kind: link.spec.kind.name().into(),
            name: link.spec.name,
            group: link.spec.group,
            counters: link.counters,
        },
        state: link.state,
        ups_total: link.ups_total,
        certificate_expires: link.certificate_expires,
    });
    Ok(links.collect())
}
