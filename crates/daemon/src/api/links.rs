//! Links in other nouns of the control API: the default MTU of new ports ([`mtus`]), and the counters
//! of links in `/v1/stats` ([`stats`]). `/v1/links` itself is a noun of the `link` service.
//!
//! Both ask for all links, in the thread of the connection, which waits for the dispatchers. Without the
//! `link` service, [`mtus`] limits nothing, and [`stats`] is empty.

use causeway_model::commands::links::List;
use causeway_model::{CommandError, LinkStats, LinkView, Name, ObjectStats};

use super::{ApiCall, refused};
use crate::fabric::ask;
use crate::http::HttpReply;

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
