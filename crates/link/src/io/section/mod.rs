//! The section `[[link]]` of the configuration file, and its objects in the state file.
//!
//! The operator's form of a link is a [`LinkDraft`], the complete form a [`LinkSpec`]: names are
//! resolved, and all defaults filled in. A link of the files is kept if it cannot be opened
//! ([`Keep`]), any other is refused. Links are deleted before the ports of their group change, and
//! added after them.
//!
//! The daemon calls the functions in the thread that reads a file, or of a client's connection. They
//! open no socket, except to ask the host for the MTU of a path (`underlay`); a name is resolved by
//! the resolver of the daemon, which may block. `conflicts` finds links of one file that cannot be
//! open at the same time; conflicts with running links are the controller's.

mod conflicts;
mod underlay;

use std::path::{Path, PathBuf};

use causeway_model::commands::links::{Add, Delete, Keep, List, Reload, Show};
use causeway_model::draft::LinkDraft;
use causeway_model::draft::link::LINK_FIELDS;
use causeway_model::limits::LINKS_MAX;
use causeway_model::schema::{Problem, values};
use causeway_model::{
    Asker, CommandError, GroupMtu, HostNeed, LinkSpec, LinkStats, LinkView, Name, ObjectStats,
    PathMtu, ReferenceTarget, RequestEffect, SectionDefinition, SectionOrder, SectionRequests,
    ServiceRequest, StatsView, TableContext, TableForms, TableReference, TableRelations,
    TableValues,
};
use serde_json::Value;

/// The section of links.
pub(super) const SECTIONS: &[SectionDefinition] =
    &[SectionDefinition::new("link", "[[link]]", LINK_FIELDS, |complete| {
        spec(complete).map(|spec| ServiceRequest::new(Add(Box::new(spec))))
    })
    .with_about("A path to another host.")
    .with_list(list)
    .with_delete(|complete| spec(complete).map(|spec| ServiceRequest::new(Delete(spec.name))))
    .with_order(SectionOrder::Path)
    .with_tables_max(LINKS_MAX)
    .with_forms(TableForms { fill, complete, table, id: None })
    .with_relations(TableRelations {
        references,
        conflicts: Some(conflicts::find),
        group_mtu: Some(GroupMtu { of: mtu, path: underlay::underlay, running: mtus }),
        needs: Some(needs),
    })
    .with_requests(SectionRequests {
        keep: Some(|complete| spec(complete).map(|spec| ServiceRequest::new(Keep(Box::new(spec))))),
        prepare: None,
        follow: Some(effect),
        reload: Some(|ask| ask(ServiceRequest::new(Reload)).map(drop)),
        stats: Some(stats),
        close: Some(close),
    })];

/// Returns the link of complete values.
fn spec(complete: &TableValues) -> Result<LinkSpec, Vec<Problem>> {
    serde_json::from_value(Value::Object(complete.clone()))
        .map_err(|error| vec![Problem::wrong("", error.to_string())])
}

/// Returns the draft of a filled table; `None` if the table has a problem.
fn draft(table: &TableValues) -> Option<LinkDraft> {
    serde_json::from_value(Value::Object(table.clone())).ok()
}

/// Returns the views of all links.
fn all(ask: Asker<'_>) -> Result<Vec<LinkView>, CommandError> {
    ask(ServiceRequest::new(List))?.take::<List>()
}

/// Lists the links of the operator: those that the cluster made are in no file.
fn list(ask: Asker<'_>) -> Result<Vec<TableValues>, CommandError> {
    let views = all(ask)?;
    let configured = views.iter().filter(|view| !view.is_of_cluster);
    Ok(configured.map(|view| values(&view.spec)).collect())
}

fn fill(table: &TableValues, key_file: &Path) -> Result<TableValues, Vec<Problem>> {
    LinkDraft::read(table).map(|draft| draft.filled(key_file).values())
}

fn complete(table: &TableValues, cx: TableContext<'_>) -> Result<TableValues, String> {
    let Some(draft) = draft(table) else { return Err("link: the table is not valid".into()) };
    let spec = draft.into_spec(cx.key_file, cx.resolve).map_err(|error| error.to_string())?;
    Ok(values(&spec))
}

fn table(complete: &TableValues) -> Option<TableValues> {
    spec(complete).ok().map(|spec| LinkDraft::of_spec(&spec).values())
}

/// Returns the group of a link.
fn references(table: &TableValues) -> Vec<TableReference> {
    let name = table.get("group").and_then(Value::as_str).map(str::to_owned);
    let group = |name| TableReference { key: "group", target: ReferenceTarget::Group, name };
    name.map(group).into_iter().collect()
}

fn mtu(table: &TableValues, path: PathMtu) -> u16 {
    draft(table).map_or(u16::MAX, |draft| draft.mtu(|| path(table)))
}

/// Returns the files and the interface of a link.
fn needs(table: &TableValues) -> Vec<HostNeed> {
    let text = |key: &str| table.get(key).and_then(Value::as_str);
    let file = |key| text(key).map(|path| HostNeed::File { key, path: PathBuf::from(path) });
    let files = ["private_key", "certificate", "authorities"].into_iter().filter_map(file);
    let interface =
        text("interface").map(|name| HostNeed::Interface { key: "interface", name: name.into() });
    files.chain(interface).collect()
}

/// Returns the effect of a request on the links of the operator.
fn effect(request: &ServiceRequest) -> RequestEffect {
    let added = request.get::<Add>().map(|Add(spec)| spec);
    let added = added.or_else(|| request.get::<Keep>().map(|Keep(spec)| spec));
    if let Some(spec) = added {
        return RequestEffect::Add(LinkDraft::of_spec(spec).values());
    }
    if let Some(Delete(name)) = request.get::<Delete>() {
        return RequestEffect::Delete(name.to_string());
    }
    let is_read = request.is::<List>() || request.is::<Show>();
    if is_read { RequestEffect::Nothing } else { RequestEffect::Unknown }
}

/// Returns the largest payload that each link carries without fragmentation, with its group.
fn mtus(ask: Asker<'_>) -> Result<Vec<(Name, u16)>, CommandError> {
    Ok(all(ask)?.into_iter().map(|link| (link.spec.group, link.mtu)).collect())
}

/// Adds the counters of every link.
fn stats(ask: Asker<'_>, view: &mut StatsView) -> Result<(), CommandError> {
    view.links.extend(all(ask)?.into_iter().map(|link| LinkStats {
        object: ObjectStats {
            kind: link.spec.kind.name().into(),
            name: link.spec.name,
            group: link.spec.group,
            counters: link.counters,
        },
        state: link.state,
        ups_total: link.ups_total,
        certificate_expires: link.certificate_expires,
    }));
    Ok(())
}

/// Closes every link, also those of the cluster, so that peers are notified.
fn close(ask: Asker<'_>) {
    for view in all(ask).unwrap_or_default() {
        if let Err(error) = ask(ServiceRequest::new(Delete(view.spec.name.clone()))) {
            log::warn!(
                link:% = view.spec.name, error:% = error;
                "cannot close a link: its peer is not notified"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use causeway_model::draft::host::{assume_resolved, resolve_later};
    use serde_json::json;

    use super::*;

    fn section() -> &'static SectionDefinition {
        &SECTIONS[0]
    }

    fn filled(table: Value) -> TableValues {
        section().fill(table.as_object().unwrap(), Path::new("/key")).unwrap()
    }

    #[test]
    fn link_section_gives_one_table_however_the_name_was_resolved() {
        let table = filled(json!({
            "name": "l", "group": "g", "kind": "vnet", "remote": "far.example"
        }));
        let tables = [assume_resolved, resolve_later].map(|resolve| {
            let cx = TableContext { key_file: Path::new("/key"), resolve };
            section().table(&section().complete(&table, cx).unwrap())
        });
        assert_eq!(tables[0], tables[1]);
        assert_eq!(tables[0]["remote"], "far.example:9000");
    }

    #[test]
    fn link_section_names_what_a_link_uses() {
        let table = filled(json!({
            "name": "l", "group": "g", "kind": "tls", "remote": "10.0.0.2", "certificate": "/c",
            "private_key": "/k", "authorities": "/a"
        }));
        let keys: Vec<_> = needs(&table)
            .into_iter()
            .map(|need| match need {
                HostNeed::File { key, .. } | HostNeed::Interface { key, .. } => key,
            })
            .collect();
        assert_eq!(keys, ["private_key", "certificate", "authorities"]);
        let raw = filled(json!({ "name": "r", "group": "g", "kind": "raw", "interface": "eth1" }));
        let interface = HostNeed::Interface { key: "interface", name: "eth1".into() };
        assert_eq!(needs(&raw), [interface]);
        assert_eq!(mtu(&raw, |_| Some(1400)), 1400);
        let group =
            TableReference { key: "group", target: ReferenceTarget::Group, name: "g".into() };
        assert_eq!(references(&raw), [group]);
    }

    #[test]
    fn link_section_follows_the_requests_that_change_links() {
        let table = filled(json!({
            "name": "l", "group": "g", "kind": "causeway-plain", "remote": "10.0.0.2"
        }));
        let cx = TableContext { key_file: Path::new("/key"), resolve: resolve_later };
        let complete = section().complete(&table, cx).unwrap();
        for read in [section().read, section().requests.keep.unwrap()] {
            let RequestEffect::Add(added) = effect(&read(&complete).unwrap()) else { panic!() };
            assert_eq!(added, section().table(&complete));
        }
        let delete = section().delete.unwrap()(&complete).unwrap();
        let RequestEffect::Delete(name) = effect(&delete) else { panic!() };
        assert_eq!(name, "l");
        assert!(matches!(effect(&ServiceRequest::new(List)), RequestEffect::Nothing));
        assert!(matches!(effect(&ServiceRequest::new(Reload)), RequestEffect::Unknown));
        // Values of another form are refused, and do not panic.
        assert!((section().read)(&table).is_err() || section().table(&table) != table);
        assert_eq!(table_of_nothing(), TableValues::new());
    }

    fn table_of_nothing() -> TableValues {
        section().table(&TableValues::new())
    }
}
