//! Plans checked on a plain list model.

use super::*;
use causeway_model::{NetSpec, Offloads, PortKind, SectionDefinition};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn rules(text: &str) -> Vec<RuleSpec> {
    text.bytes()
        .map(|b| {
            let json = json!({ "action": "accept", "to": format!("*/*:{b}") });
            serde_json::from_value(json).unwrap()
        })
        .collect()
}

/// Executes the rules' steps on a list.
fn played(before: &[RuleSpec], plan: &ChangePlan) -> Vec<RuleSpec> {
    let mut list = before.to_vec();
    for step in &plan.steps {
        match &step.act {
            StepCommand::RuleDel(index) => drop(list.remove(*index)),
            StepCommand::RuleAdd(index, rule) => list.insert(*index, rule.clone()),
            other => panic!("{other:?}"),
        }
    }
    list
}

#[test]
fn plan_of_rules_has_the_fewest_changes() {
    for (before, after, changes) in [
        ("", "", 0),
        ("abc", "abc", 0),
        ("", "abc", 3),
        ("abc", "", 3),
        ("abcd", "bd", 2),
        ("abcd", "axbcyd", 2),
        ("abcd", "dabc", 2),
        ("aab", "aba", 2),
        ("abcabba", "cbabac", 5),
    ] {
        let (old, new) = (rules(before), rules(after));
        let state =
            |rules: &[RuleSpec]| FabricState { rules: rules.to_vec(), ..FabricState::default() };
        let plan = plan(&state(&old), &state(&new));
        assert_eq!(played(&old, &plan), new, "{before} {after}");
        assert_eq!(plan.changes.len(), changes, "{before} {after}");
    }
}

fn whole() -> FabricState {
    let group = |text| GroupSpec::from(name(text));
    let port = |text, group| PortSpec {
        name: name(text),
        group: name(group),
        socket: format!("/{text}").into(),
        access: Default::default(),
        memory_max: None,
        kind: PortKind::of(NetSpec {
            mac: "02:00:00:00:00:01".parse().unwrap(),
            guest_mac: None,
            mtu: 1500,
            queue_pairs: 1,
            learn: false,
            offloads: Offloads::All,
        }),
    };
    let link = |text, group: &str| {
        serde_json::from_value(
            json!({"name": text, "group": group, "kind": "raw", "interface": "e"}),
        )
        .unwrap()
    };
    let route = |to: Value| {
        serde_json::from_value(
            json!({"group": "g", "source": "any", "destination": "any", "to": to}),
        )
        .unwrap()
    };
    FabricState {
        groups: vec![group("g"), group("h")],
        rules: rules("a"),
        ports: vec![port("p", "g"), port("q", "h")],
        links: vec![link("l", "g"), link("m", "h")],
        routes: vec![
            route(json!({"type": "interface", "name": "p"})),
            route(json!({"type": "edge", "name": "l"})),
        ],
        objects: Vec::new(),
    }
}

/// Returns the commands of the steps, in order.
fn kinds(plan: &ChangePlan) -> Vec<String> {
    let word = |step: &PlanStep| {
        let text = format!("{:?}", step.act);
        text.split(['(', ' ']).next().unwrap().to_owned()
    };
    plan.steps.iter().map(word).collect()
}

#[test]
fn plan_of_equal_states_is_empty() {
    assert_eq!(plan(&whole(), &whole()), ChangePlan::default());
    let mut turned = whole();
    turned.ports.reverse();
    turned.links.reverse();
    turned.routes.reverse();
    assert_eq!(plan(&whole(), &turned), ChangePlan::default(), "only rules have an order");
}

#[test]
fn plan_adds_named_objects_first_and_deletes_them_last() {
    let from_nothing = kinds(&plan(&FabricState::default(), &whole()));
    assert_eq!(
        from_nothing,
        [
            "GroupAdd",
            "GroupAdd",
            "RuleAdd",
            "RoutePrepareIn",
            "RoutePrepareIn",
            "PortAdd",
            "PortAdd",
            "LinkAdd",
            "LinkAdd",
            "RouteAdd",
            "RouteAdd"
        ]
    );
    let to_nothing = kinds(&plan(&whole(), &FabricState::default()));
    assert_eq!(
        to_nothing,
        [
            "LinkDel", "LinkDel", "PortDel", "PortDel", "GroupDel", "GroupDel", "RuleDel",
            "RouteDel", "RouteDel"
        ]
    );
}

#[test]
fn plan_replaces_the_objects_that_name_a_replaced_object() {
    let mut after = whole();
    after.links[0].metric = 7;
    let one = plan(&whole(), &after);
    assert_eq!(kinds(&one), ["RoutePrepare", "LinkDel", "LinkAdd", "RouteAdd"]);
    assert_eq!(one.changes.len(), 2);
    assert!(one.changes.iter().all(|change| change.action == ChangeType::Replace));

    let mut after = whole();
    after.groups[0].forwarding = causeway_model::Forwarding::Routes;
    assert_eq!(
        kinds(&plan(&whole(), &after)),
        [
            "RoutePrepare",
            "RoutePrepare",
            "LinkDel",
            "PortDel",
            "GroupDel",
            "GroupAdd",
            "RoutePrepareIn",
            "RoutePrepareIn",
            "PortAdd",
            "LinkAdd",
            "RouteAdd",
            "RouteAdd"
        ]
    );
}

/// A new route is in force before a port is opened, and an old one until all is done.
#[test]
fn plan_puts_routes_in_force_before_ports_and_deletes_them_last() {
    let mut after = whole();
    after.ports[0].socket = "/elsewhere".into();
    after.routes[1].source = "02:00:00:00:00:07".parse().unwrap();
    let steps = kinds(&plan(&whole(), &after));
    assert_eq!(
        steps,
        ["RoutePrepare", "RoutePrepare", "PortDel", "PortAdd", "RouteAdd", "RouteAdd", "RouteDel"]
    );
}

/// A section without requests of its own: plans only compare the tables.
static NOTE: SectionDefinition = SectionDefinition {
    name: "note",
    title: "[[note]]",
    fields: &[],
    read: |_| Err(Vec::new()),
    list: None,
    delete: None,
};

fn note(name: &str, text: &str) -> ConfigObject {
    let Value::Object(values) = json!({ "name": name, "text": text }) else { unreachable!() };
    ConfigObject { section: &NOTE, values }
}

#[test]
fn plan_compares_objects_of_sections_by_name_and_values() {
    let state = |objects: &[ConfigObject]| FabricState { objects: objects.to_vec(), ..whole() };
    let before = state(&[note("a", "1"), note("b", "1"), note("c", "1")]);
    let after = state(&[note("c", "1"), note("b", "2"), note("d", "1")]);
    let plan = plan(&before, &after);
    let changes: Vec<_> =
        plan.changes.iter().map(|change| (change.action, change.what, &change.name[..])).collect();
    assert_eq!(
        changes,
        [
            (ChangeType::Delete, "note", "a"),
            (ChangeType::Replace, "note", "b"),
            (ChangeType::Add, "note", "d")
        ]
    );
    assert_eq!(kinds(&plan), ["ObjectDel", "ObjectDel", "ObjectAdd", "ObjectAdd"]);
}
