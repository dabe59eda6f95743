//! Tests of flow tables.

use super::*;

const RX: u8 = TableType::Receive.raw();

fn group(table: u32, first: u32, last: u32, mask: MatchHeaders) -> GroupDefinition {
    GroupDefinition { table, table_type: RX, first, last, mask, is_supported: true }
}

fn entry(group: u32, value: MatchHeaders, to: &[(DestinationType, u32)]) -> FlowEntry {
    let to = to
        .iter()
        .map(|(kind, number)| Destination { destination_type: kind.raw(), number: *number });
    let (action, value) = (ACTION_FORWARD, value.to_bytes());
    FlowEntry { group, value, action, tag: 7, destinations: to.collect() }
}

fn vlan(vlan: u16) -> MatchHeaders {
    MatchHeaders { vlan, ..Default::default() }
}

#[test]
fn ethernet_flow_lowest_index_decides_and_misses_follow_the_link() {
    use DestinationType::{FlowTable as T, ReceiveInterface as I};
    let mut flows = FlowTables::default();
    let last = flows.create(RX, 4, None).unwrap();
    let root = flows.create(RX, 4, Some(last)).unwrap();
    assert_eq!(flows.find(&vlan(5)), Verdict::default());
    flows.set_root(Some(root), RX).unwrap();
    let all = flows.create_group(&group(last, 0, 0, vlan(0))).unwrap();
    flows.insert((last, RX, 0), entry(all, vlan(0), &[(I, 9)])).unwrap();
    assert_eq!(flows.find(&vlan(5)).interfaces(), [9]);
    let some = flows.create_group(&group(root, 2, 3, vlan(0xfff))).unwrap();
    flows.insert((root, RX, 3), entry(some, vlan(5), &[(I, 4), (T, last)])).unwrap();
    assert_eq!(flows.find(&vlan(5)).interfaces(), [4, 9]);
    assert_eq!(flows.find(&vlan(6)).interfaces(), [9]);
    // A lower index of the same value is preferred, and its removal reveals the other.
    flows.insert((root, RX, 2), entry(some, vlan(5), &[(I, 1)])).unwrap();
    assert_eq!(flows.find(&vlan(5)).interfaces(), [1]);
    flows.modify((root, RX, 2), Some(ACTION_DROP), None, None).unwrap();
    assert_eq!(flows.find(&vlan(5)).interfaces(), []);
    flows.remove(root, RX, 2).unwrap();
    assert_eq!(flows.find(&vlan(5)), Verdict { tag: 7, ..flows.find(&vlan(5)) });
    assert_eq!(flows.find(&vlan(5)).interfaces(), [4, 9]);
    flows.set_miss(root, RX, None).unwrap();
    assert_eq!(flows.find(&vlan(6)).interfaces(), []);
}

#[test]
fn ethernet_flow_refuses_overlaps_wrong_indices_and_objects_in_use() {
    let mut flows = FlowTables::default();
    assert_eq!(flows.create(0x33, 1, None), Err(Status::BadParameter));
    assert_eq!(flows.create(RX, 25, None), Err(Status::BadParameter));
    assert_eq!(flows.create(RX, 1, Some(77)), Err(Status::BadResource));
    let table = flows.create(RX, 4, None).unwrap();
    assert!(flows.create_group(&group(table, 4, 16, vlan(0))).is_err());
    assert!(flows.create_group(&group(table, 5, 4, vlan(0))).is_err());
    let middle = flows.create_group(&group(table, 4, 7, vlan(0))).unwrap();
    for (first, last) in [(4, 4), (7, 9), (0, 4), (0, 15), (5, 6)] {
        let error = flows.create_group(&group(table, first, last, vlan(0)));
        assert_eq!(error, Err(Status::BadParameter), "{first} {last}");
    }
    assert!(flows.create_group(&group(table, 8, 9, vlan(0))).is_ok());
    let one = entry(middle, vlan(0), &[]);
    assert_eq!(flows.insert((table, RX, 8), one.clone()), Err(Status::BadIndex));
    flows.insert((table, RX, 5), one.clone()).unwrap();
    assert_eq!(flows.insert((table, RX, 5), one), Err(Status::BadResourceState));
    assert_eq!(flows.destroy_group(table, middle), Err(Status::BadResourceState));
    assert_eq!(flows.destroy(table, RX), Err(Status::BadResourceState));
    flows.remove(table, RX, 5).unwrap();
    assert_eq!(flows.remove(table, RX, 5), Err(Status::BadIndex));
    flows.destroy_group(table, middle).unwrap();
    assert_eq!(flows.destroy_group(table, middle), Err(Status::BadResource));
}

#[test]
fn ethernet_flow_circle_of_tables_ends() {
    use DestinationType::{FlowTable as T, ReceiveInterface as I};
    let mut flows = FlowTables::default();
    let [a, b] = [0; 2].map(|_| flows.create(RX, 1, None).unwrap());
    flows.set_miss(a, RX, Some(b)).unwrap();
    flows.set_miss(b, RX, Some(a)).unwrap();
    flows.set_root(Some(a), RX).unwrap();
    assert_eq!(flows.find(&vlan(1)).interfaces(), []);
    let all = flows.create_group(&group(a, 0, 1, vlan(0))).unwrap();
    flows.insert((a, RX, 0), entry(all, vlan(0), &[(T, a), (T, b), (I, 3)])).unwrap();
    assert_eq!(flows.find(&vlan(1)).interfaces(), [3]);
}

#[test]
fn ethernet_flow_group_with_unknown_criteria_matches_nothing() {
    let mut flows = FlowTables::default();
    let table = flows.create(RX, 1, None).unwrap();
    flows.set_root(Some(table), RX).unwrap();
    let mut definition = group(table, 0, 1, vlan(0));
    definition.is_supported = false;
    let group = flows.create_group(&definition).unwrap();
    let to = [(DestinationType::ReceiveInterface, 3)];
    flows.insert((table, RX, 0), entry(group, vlan(0), &to)).unwrap();
    assert_eq!(flows.find(&vlan(1)).interfaces(), []);
}

#[test]
fn ethernet_flow_removal_keeps_the_next_entry_of_the_value() {
    let mut flows = FlowTables::default();
    let table = flows.create(RX, 14, None).unwrap();
    flows.set_root(Some(table), RX).unwrap();
    let last = limits::FLOW_ENTRIES_MAX as u32 - 1;
    let all = flows.create_group(&group(table, 0, last, vlan(0xfff))).unwrap();
    let to = |number| [(DestinationType::ReceiveInterface, number)];
    for index in 1..last {
        let own = entry(all, vlan((index % 4096) as u16 | 1), &to(index));
        flows.insert((table, RX, index), own).unwrap();
    }
    for index in [0, last] {
        flows.insert((table, RX, index), entry(all, vlan(2), &to(index))).unwrap();
    }
    // A search of all entries for each removal would take many seconds.
    for _ in 0..50_000 {
        assert_eq!(flows.find(&vlan(2)).interfaces(), [0]);
        flows.remove(table, RX, 0).unwrap();
        assert_eq!(flows.find(&vlan(2)).interfaces(), [last]);
        flows.insert((table, RX, 0), entry(all, vlan(2), &to(0))).unwrap();
    }
    flows.remove(table, RX, last).unwrap();
    flows.remove(table, RX, 0).unwrap();
    assert_eq!(flows.find(&vlan(2)).interfaces(), []);
}
