//! Records of groups with rules and forwarding: forms, refusals, holds and the snapshot.

use causeway_cluster::{GroupRecord, KeyEvent, RecordKey, Replica, SigningKey};
use causeway_model::limits::SITE_RULES_MAX;
use causeway_model::{Forwarding, Name, RuleAction, RuleSide, RuleSpec};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn replica() -> Replica {
    let key = SigningKey::new([7; 32]).unwrap().public();
    Replica::new(name("lab"), name("h1"), key)
}

fn event(group: &str, value: Option<Vec<u8>>, revision: u64) -> KeyEvent {
    let key = RecordKey::Group(name(group)).path(&name("lab")).into_bytes();
    KeyEvent { key, value, revision }
}

fn bytes(record: &Value) -> Vec<u8> {
    record.to_string().into_bytes()
}

fn rules(to: &str, count: usize) -> Value {
    vec![json!({ "action": "reject", "to": to }); count].into()
}

#[test]
fn group_records_of_older_and_newer_releases_are_read() {
    let old = br#"{"v":1,"vni":7}"#;
    assert_eq!(GroupRecord::read(old).unwrap(), GroupRecord::new(7));
    assert_eq!(GroupRecord::new(7).write(), old, "a group without values has the old form");
    let newer = json!({ "v": 1, "vni": 7, "forwarding": "routes", "weight": 3 });
    let record = GroupRecord::read(&bytes(&newer)).unwrap();
    assert_eq!((record.vni, record.forwarding), (7, Some(Forwarding::Routes)));
    for refused in [
        json!({ "v": 2, "vni": 7 }),
        json!({ "v": 1, "vni": 7, "forwarding": "hub" }),
        json!({ "v": 1, "vni": 7, "rules": [{ "action": "log" }] }),
        json!({ "v": 1, "vni": 7, "rules": [{ "to": "blue/*:22" }] }),
        // A reader that ignored the condition would apply the rule to other connects.
        json!({ "v": 1, "vni": 7, "rules": [{ "action": "reject", "user": 7 }] }),
        json!({ "v": 1, "vni": 7, "rules": { "action": "reject" } }),
    ] {
        assert!(GroupRecord::read(&bytes(&refused)).is_err(), "{refused}");
    }
}

#[test]
fn group_record_that_is_refused_keeps_the_policy_before() {
    let mut replica = replica();
    let good = json!({ "v": 1, "vni": 7, "forwarding": "routes", "rules": rules("blue/*:22", 1) });
    replica.apply(&[event("blue", Some(bytes(&good)), 1)], 1, 0);
    let policies = replica.policies();
    assert_eq!((policies.len(), policies[0].rules.len()), (1, 1));
    let refused = [
        json!({ "v": 1, "vni": 7, "rules": rules("red/*:22", 1) }),
        json!({ "v": 1, "vni": 7, "rules": rules("*", SITE_RULES_MAX + 1) }),
        json!({ "v": 1, "vni": 7, "rules": [{ "action": "log" }] }),
        json!("x".repeat(5_000)),
    ];
    for (revision, record) in (2..).zip(&refused) {
        replica.apply(&[event("blue", Some(bytes(record)), revision)], revision, 0);
        assert_eq!(replica.policies(), policies);
        assert!(replica.has_group(&name("blue")));
        assert!(replica.alarm().unwrap().contains("group blue"));
    }
    assert_eq!(replica.counters()["refused_malformed_total"], refused.len() as u64);
    // A group with a first record that is refused is not shared.
    replica.apply(&[event("red", Some(bytes(&refused[1])), 9)], 9, 0);
    assert!(!replica.has_group(&name("red")));
    replica.apply(&[event("red", None, 10)], 10, 0);
    let generation = replica.generation();
    replica.apply(&[event("blue", Some(GroupRecord::new(7).write()), 11)], 11, 0);
    assert_eq!((replica.policies(), replica.alarm()), (Vec::new(), None));
    assert_ne!(replica.generation(), generation);
}

#[test]
fn group_policies_outlast_a_wipe_and_a_restart() {
    let mut before = replica();
    let record = json!({ "v": 1, "vni": 7, "rules": rules("blue/*:22", 2) });
    before.list(&[event("blue", Some(bytes(&record)), 5)], 5, 0);
    let policies = before.policies();
    before.list(&[], 6, 0);
    assert!(before.is_held());
    assert_eq!(before.policies(), policies, "the brake holds the removal");

    let item = |(key, value): (String, Vec<u8>)| KeyEvent {
        key: key.into_bytes(),
        value: Some(value),
        revision: 1,
    };
    let snapshot: Vec<KeyEvent> = before.records().into_iter().map(item).collect();
    let mut after = replica();
    after.list(&snapshot, 0, 0);
    assert_eq!(after.policies(), policies);
    after.apply(&[event("red", Some(GroupRecord::new(8).write()), 7)], 7, 0);
    after.apply(&[event("blue", None, 8)], 8, 0);
    assert!(after.policies().is_empty(), "a single deletion is followed");
}

/// The record as the releases before rules and forwarding read it.
#[derive(Deserialize)]
struct OldRecord {
    v: u32,
    vni: u32,
}

fn side() -> impl Strategy<Value = RuleSide> {
    let group = prop::option::of(Just(name("blue")));
    let ports = prop::option::of((any::<u32>(), any::<u32>()));
    (any::<bool>(), group, prop::option::of(any::<u32>()), ports).prop_map(
        |(host, group, cid, ports)| {
            let ports = ports.map(|(a, b)| (a.min(b), a.max(b)));
            let any = RuleSide { host, ports, ..RuleSide::default() };
            if host { any } else { RuleSide { group, cid, ..any } }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn group_record_is_read_as_it_was_written(
        vni in 0_u32..=0xff_ffff,
        routes in prop::option::of(any::<bool>()),
        rules in prop::collection::vec((any::<bool>(), side(), side()), 0..24),
    ) {
        let forwarding =
            routes.map(|routes| if routes { Forwarding::Routes } else { Forwarding::Learn });
        let rule = |(accept, from, to)| RuleSpec {
            action: if accept { RuleAction::Accept } else { RuleAction::Reject },
            from,
            to,
        };
        let rules: Vec<RuleSpec> = rules.into_iter().map(rule).collect();
        let record = GroupRecord { forwarding, rules, ..GroupRecord::new(vni) };
        let value = record.write();
        prop_assert_eq!(&GroupRecord::read(&value).unwrap(), &record);
        let old: OldRecord = serde_json::from_slice(&value).unwrap();
        prop_assert_eq!((old.v, old.vni), (1, vni));
        let mut replica = replica();
        replica.apply(&[event("blue", Some(value), 1)], 1, 0);
        prop_assert!(replica.has_group(&name("blue")));
        prop_assert_eq!(replica.policies().is_empty(), record.policy(&name("blue")).is_empty());
    }
}
