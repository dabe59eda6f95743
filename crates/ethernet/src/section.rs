//! The section `[[route]]` of the configuration file, and its objects in the state file.
//!
//! A route is a policy: the daemon puts it in force before a port opens, completes it when its port
//! and link exist, and deletes it last. A route has no name; all of its values identify it. The
//! complete form of a table is that of views ([`causeway_model::RouteEnd`]).
//!
//! The daemon calls the functions in the thread that reads a file, or of a client's connection. They
//! keep no state and send no request. [`references`] also accepts tables that are no routes.

use causeway_model::commands::routes::{Add, Delete, List, Prepare, Remove};
use causeway_model::limits::ROUTES_MAX;
use causeway_model::schema::{self, Problem, values};
use causeway_model::{
    ROUTE_FIELDS, ReferenceTarget, RequestEffect, RouteSpec, SectionDefinition, SectionOrder,
    SectionRequests, ServiceRequest, TableForms, TableReference, TableRelations, TableValues,
};
use serde_json::Value;

/// The section of routes.
pub(crate) const SECTIONS: &[SectionDefinition] =
    &[SectionDefinition::new("route", "[[route]]", ROUTE_FIELDS, |route| {
        RouteSpec::read(route).map(|spec| ServiceRequest::new(Add(spec)))
    })
    .with_about("Sends frames to a port or link, before learnt addresses.")
    .with_list(|ask| {
        let routes = ask(ServiceRequest::new(List))?.take::<List>()?;
        // The list is in reverse order: newest first.
        Ok(routes.iter().rev().map(|view| values(&view.spec)).collect())
    })
    .with_delete(|route| RouteSpec::read(route).map(|spec| ServiceRequest::new(Remove(spec))))
    .with_order(SectionOrder::Policy)
    .with_tables_max(ROUTES_MAX)
    .with_main_key("to")
    .with_forms(TableForms {
        fill: |table, _| fill(table),
        complete: |table, _| match RouteSpec::read(table) {
            Ok(spec) => Ok(values(&spec)),
            Err(problems) => Err(schema::joined("route", &problems)),
        },
        table: |complete| RouteSpec::read(complete).ok().map(|spec| spec.values()),
        id: Some(|table| RouteSpec::read(table).ok().map(|spec| spec.to_string())),
    })
    .with_relations(TableRelations { references, ..TableRelations::NONE })
    .with_requests(SectionRequests {
        prepare: Some(|route| {
            RouteSpec::read(route).map(|spec| ServiceRequest::new(Prepare(spec)))
        }),
        follow: Some(effect),
        ..SectionRequests::NONE
    })];

fn fill(table: &TableValues) -> Result<TableValues, Vec<Problem>> {
    schema::read(ROUTE_FIELDS, table).map(|spec: RouteSpec| spec.values())
}

/// Returns the group, the target and the ingress of a route.
fn references(table: &TableValues) -> Vec<TableReference> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let group = table.get("group").and_then(text);
    let group =
        group.map(|name| TableReference { key: "group", target: ReferenceTarget::Group, name });
    let ends = ["to", "from"].into_iter().flat_map(|key| {
        let targets = [
            ("interface", ReferenceTarget::NetworkPort),
            ("edge", ReferenceTarget::Object("link")),
        ];
        targets.into_iter().filter_map(move |(end, target)| {
            let name = table.get(key)?.get(end)?.as_str()?.to_owned();
            Some(TableReference { key, target, name })
        })
    });
    group.into_iter().chain(ends).collect()
}

/// Returns the effect of a request on the routes.
fn effect(request: &ServiceRequest) -> RequestEffect {
    if let Some(Add(spec)) = request.get::<Add>() {
        return RequestEffect::AddNumbered(spec.values(), |answer| {
            answer.get::<Add>().map(|view| view.index)
        });
    }
    if let Some(Delete(number)) = request.get::<Delete>() {
        return RequestEffect::DeleteNumber(*number);
    }
    if let Some(Remove(spec)) = request.get::<Remove>() {
        return RequestEffect::Delete(spec.to_string());
    }
    let is_other = request.is::<List>() || request.is::<Prepare>();
    if is_other { RequestEffect::Nothing } else { RequestEffect::Unknown }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn route_section_names_the_ports_and_links_of_a_route() {
        let table = json!({
            "group": "g", "to": { "edge": "l" }, "from": { "interface": "p" }
        });
        let found = references(table.as_object().unwrap());
        let shown: Vec<_> =
            found.iter().map(|found| (found.key, found.target, found.name.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("group", ReferenceTarget::Group, "g"),
                ("to", ReferenceTarget::Object("link"), "l"),
                ("from", ReferenceTarget::NetworkPort, "p")
            ]
        );
        for table in [json!({}), json!({ "to": "l" }), json!({ "to": { "edge": 7 } })] {
            assert_eq!(references(table.as_object().unwrap()), []);
        }
    }

    #[test]
    fn route_section_follows_the_requests_that_change_routes() {
        let section = &SECTIONS[0];
        let table = json!({ "group": "g", "to": { "edge": "l" } });
        let table = fill(table.as_object().unwrap()).unwrap();
        assert_eq!(table["source"], "any");
        let complete = values(&RouteSpec::read(&table).unwrap());
        assert_eq!(section.table(&complete), table);
        let add = (section.read)(&complete).unwrap();
        let RequestEffect::AddNumbered(added, _) = effect(&add) else { panic!() };
        assert_eq!(added, table);
        let remove = section.delete.unwrap()(&complete).unwrap();
        let RequestEffect::Delete(id) = effect(&remove) else { panic!() };
        assert_eq!((id.as_str(), section.id(&table)), ("g: any > any, to edge l", id.clone()));
        let prepare = section.requests.prepare.unwrap()(&complete).unwrap();
        assert!(matches!(effect(&prepare), RequestEffect::Nothing));
    }
}
