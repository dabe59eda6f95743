//! Plans checked on a plain list model.

use super::*;
use causeway_model::{NetSpec, Offloads, PortKind, SectionDefinition, TableValues};

use crate::services::{Registered, SERVICES};

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

/// Returns an object of a section of the daemon.
fn object(section: &str, complete: Value) -> SectionObject {
    let sections = Registered::of(SERVICES).sections;
    let section = sections.iter().find(|one| one.name == section).unwrap();
    let Value::Object(complete) = complete else { unreachable!() };
    SectionObject::new(section, complete)
}

/// Returns an object with another value.
fn changed(before: &SectionObject, key: &str, value: Value) -> SectionObject {
    let mut complete = before.complete.clone();
    complete.insert(key.into(), value);
    SectionObject::new(before.section, complete)
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
        let link = json!({"name": text, "group": group, "kind": "raw", "interface": "e",
            "metric": 100, "transit": false});
        object("link", link)
    };
    let route = |to: Value| {
        object("route", json!({"group": "g", "source": "any", "destination": "any", "to": to}))
    };
    FabricState {
        groups: vec![group("g"), group("h")],
        rules: rules("a"),
        ports: vec![port("p", "g"), port("q", "h")],
        objects: vec![
            link("l", "g"),
            link("m", "h"),
            route(json!({"type": "interface", "name": "p"})),
            route(json!({"type": "edge", "name": "l"})),
        ],
    }
}

/// Returns the commands of the steps, in order: of objects, with the section.
fn kinds(plan: &ChangePlan) -> Vec<String> {
    let word = |step: &PlanStep| {
        let text = format!("{:?}", step.act);
        let word = text.split(['(', ' ']).next().unwrap();
        match &step.act {
            StepCommand::ObjectPrepare(object)
            | StepCommand::ObjectPrepareIn(object)
            | StepCommand::ObjectAdd(object)
            | StepCommand::ObjectDel(object) => {
                format!("{}:{}", object.section.name, word.trim_start_matches("Object"))
            }
            _ => word.to_owned(),
        }
    };
    plan.steps.iter().map(word).collect()
}

#[test]
fn plan_of_equal_states_is_empty() {
    assert_eq!(plan(&whole(), &whole()), ChangePlan::default());
    let mut turned = whole();
    turned.ports.reverse();
    turned.objects.reverse();
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
            "route:PrepareIn",
            "route:PrepareIn",
            "PortAdd",
            "PortAdd",
            "link:Add",
            "link:Add",
            "route:Add",
            "route:Add"
        ]
    );
    let to_nothing = kinds(&plan(&whole(), &FabricState::default()));
    assert_eq!(
        to_nothing,
        [
            "link:Del",
            "link:Del",
            "PortDel",
            "PortDel",
            "GroupDel",
            "GroupDel",
            "RuleDel",
            "route:Del",
            "route:Del"
        ]
    );
}

#[test]
fn plan_replaces_the_objects_that_name_a_replaced_object() {
    let mut after = whole();
    after.objects[0] = changed(&after.objects[0], "metric", json!(7));
    let one = plan(&whole(), &after);
    assert_eq!(kinds(&one), ["route:Prepare", "link:Del", "link:Add", "route:Add"]);
    assert_eq!(one.changes.len(), 2);
    assert!(one.changes.iter().all(|change| change.action == ChangeType::Replace));

    let mut after = whole();
    after.groups[0].forwarding = causeway_model::Forwarding::Routes;
    assert_eq!(
        kinds(&plan(&whole(), &after)),
        [
            "route:Prepare",
            "route:Prepare",
            "link:Del",
            "PortDel",
            "GroupDel",
            "GroupAdd",
            "route:PrepareIn",
            "route:PrepareIn",
            "PortAdd",
            "link:Add",
            "route:Add",
            "route:Add"
        ]
    );
}

/// A new route is in force before a port is opened, and an old one until all is done.
#[test]
fn plan_puts_routes_in_force_before_ports_and_deletes_them_last() {
    let mut after = whole();
    after.ports[0].socket = "/elsewhere".into();
    after.objects[3] = changed(&after.objects[3], "source", json!("02:00:00:00:00:07"));
    let steps = kinds(&plan(&whole(), &after));
    assert_eq!(
        steps,
        [
            "route:Prepare",
            "route:Prepare",
            "PortDel",
            "PortAdd",
            "route:Add",
            "route:Add",
            "route:Del"
        ]
    );
}

/// A section without requests of its own: plans only compare the tables.
static NOTE: SectionDefinition =
    SectionDefinition::new("note", "[[note]]", &[], |_| Err(Vec::new()));

fn note(name: &str, text: &str) -> SectionObject {
    let values: TableValues =
        serde_json::from_value(json!({ "name": name, "text": text })).unwrap();
    SectionObject::new(&NOTE, values)
}

#[test]
fn plan_compares_objects_of_sections_by_name_and_values() {
    let state = |objects: &[SectionObject]| FabricState { objects: objects.to_vec(), ..whole() };
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
    assert_eq!(kinds(&plan), ["note:Del", "note:Del", "note:Add", "note:Add"]);
}
