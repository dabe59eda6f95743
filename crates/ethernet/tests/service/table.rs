//! The address table against a simple model.

use std::collections::BTreeMap;

use causeway_ethernet::limits::{
    LEARNT_AGE_NS, LEARNT_PER_GROUP_MAX, LEARNT_PER_PORT_MAX, SWEEP_INTERVAL_NS,
};
use causeway_ethernet::table::{AddressInUse, AddressTable, Learnt};
use proptest::collection::vec;
use proptest::prelude::*;

fn mac(n: u32) -> [u8; 6] {
    let [a, b, c, d] = n.to_be_bytes();
    [2, 0, a, b, c, d]
}

#[derive(Debug, Clone)]
enum Step {
    Add(u32, u8),
    Remove(u8),
    Unlearn(u8),
    Learn(u32, u8),
    Lookup(u32),
    Wait(u16),
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (address, port) = (0_u32..12, 0_u8..4);
    vec(
        prop_oneof![
            (address.clone(), port.clone()).prop_map(|(m, p)| Step::Add(m, p)),
            port.clone().prop_map(Step::Remove),
            port.clone().prop_map(Step::Unlearn),
            (address.clone(), port.clone()).prop_map(|(m, p)| Step::Learn(m, p)),
            (address.clone(), port).prop_map(|(m, p)| Step::Learn(m, p)),
            address.prop_map(Step::Lookup),
            (0_u16..200).prop_map(Step::Wait),
            Just(Step::Sweep),
        ],
        0..120,
    )
}

proptest! {
    #[test]
    fn address_table_agrees_with_a_simple_model(steps in steps()) {
        let mut now = 5_u64;
        let mut table = AddressTable::<u8>::new();
        // Address to port and time of the last frame; `None` for a configured address.
        let mut model: BTreeMap<u32, (u8, Option<u64>)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Add(m, p) => {
                    let taken = matches!(model.get(&m), Some(&(q, None)) if q != p);
                    prop_assert_eq!(table.add(mac(m), p), if taken { Err(AddressInUse) } else { Ok(()) });
                    if !taken {
                        model.insert(m, (p, None));
                    }
                }
                Step::Remove(p) => {
                    table.remove(p);
                    model.retain(|_, (q, _)| *q != p);
                }
                Step::Unlearn(p) => {
                    table.unlearn(p);
                    model.retain(|_, (q, seen)| *q != p || seen.is_none());
                }
                Step::Learn(m, p) => {
                    let expected = match model.get(&m) {
                        Some(&(q, _)) if q == p => Learnt::Known,
                        Some(&(_, None)) => Learnt::Forged,
                        _ => Learnt::New,
                    };
                    prop_assert_eq!(table.learn(mac(m), p, now), expected);
                    if expected != Learnt::Forged && model.get(&m) != Some(&(p, None)) {
                        model.insert(m, (p, Some(now)));
                    }
                }
                Step::Lookup(m) => {
                    let fresh = |seen: Option<u64>| seen.is_none_or(|s| now - s < LEARNT_AGE_NS);
                    let expected = model.get(&m).filter(|(_, seen)| fresh(*seen)).map(|(p, _)| *p);
                    prop_assert_eq!(table.lookup(mac(m), now), expected);
                }
                Step::Wait(seconds) => now += u64::from(seconds) * 1_000_000_000,
                Step::Sweep => {
                    table.sweep(now);
                    model.retain(|_, (_, seen)| seen.is_none_or(|s| now - s < LEARNT_AGE_NS));
                }
            }
            prop_assert_eq!(table.len(), model.len());
            for p in 0..4 {
                let learnt = model.values().filter(|(q, seen)| *q == p && seen.is_some()).count();
                prop_assert_eq!(table.learnt_at(p), learnt);
            }
        }
    }
}

#[test]
fn hostile_flood_of_source_addresses_stays_within_the_quota() {
    let now = 5_u64;
    let mut table = AddressTable::<u8>::new();
    table.add(mac(1), 0).unwrap();
    for n in 0..LEARNT_PER_PORT_MAX as u32 {
        assert_eq!(table.learn(mac(1000 + n), 0, now), Learnt::New);
    }
    for n in 0..50_000 {
        assert_eq!(table.learn(mac(100_000 + n), 0, now), Learnt::Full);
    }
    assert_eq!(table.len(), LEARNT_PER_PORT_MAX + 1);
    // Another port still learns, and known addresses stay known.
    assert_eq!(table.learn(mac(7), 1, now), Learnt::New);
    assert_eq!(table.lookup(mac(1000), now), Some(0));
    // After its addresses have aged, the port may learn again.
    let later = now + LEARNT_AGE_NS + SWEEP_INTERVAL_NS;
    assert_eq!(table.learn(mac(100_000), 0, later), Learnt::New);
    assert_eq!(table.len(), 2);
}

#[test]
fn hostile_ports_together_stay_within_the_table() {
    let now = 5_u64;
    let mut table = AddressTable::<u8>::new();
    for port in 0..10_u8 {
        for n in 0..LEARNT_PER_PORT_MAX as u32 {
            table.learn(mac(u32::from(port) << 16 | n), port, now);
        }
    }
    assert_eq!(table.len(), LEARNT_PER_GROUP_MAX);
    // An address may still move between ports with quota.
    assert_eq!(table.learn(mac(0), 9, now), Learnt::New);
    assert_eq!(table.lookup(mac(0), now), Some(9));
    assert_eq!(table.len(), LEARNT_PER_GROUP_MAX);
}

#[test]
fn hostile_forgery_of_a_configured_address_is_seen() {
    let now = 5_u64;
    let mut table = AddressTable::<u8>::new();
    table.add(mac(1), 0).unwrap();
    table.learn(mac(2), 1, now);
    assert_eq!(table.learn(mac(1), 1, now), Learnt::Forged);
    assert_eq!(table.lookup(mac(1), now), Some(0));
    assert_eq!(table.add(mac(1), 1), Err(AddressInUse));
    // A port that is configured later takes its address from the port that had learnt it.
    table.add(mac(2), 0).unwrap();
    assert_eq!(table.lookup(mac(2), now), Some(0));
    assert_eq!(table.learnt_at(1), 0);
}

#[test]
fn address_table_advertisement_overrides_a_late_frame() {
    let mut table = AddressTable::new();
    table.learn(mac(1), 1, 0);
    table.advertise(mac(1), 2, 1);
    assert_eq!(
        table.learn(mac(1), 1, 2),
        Learnt::Known,
        "the late frame does not move the address"
    );
    assert_eq!(table.lookup(mac(1), 2), Some(2));
    table.advertise(mac(1), 3, 3);
    assert_eq!(table.lookup(mac(1), 3), Some(3), "the newer advertisement");
    table.demote(3);
    assert_eq!(
        table.learn(mac(1), 1, 4),
        Learnt::New,
        "the peer can no longer withdraw the address"
    );
    assert_eq!(table.lookup(mac(1), 4), Some(1));
    table.advertise(mac(1), 2, 5);
    let late = 5 + 10 * LEARNT_AGE_NS;
    table.sweep(late);
    assert_eq!(table.lookup(mac(1), late), Some(2), "an advertised address does not age");
    assert_eq!(table.learn(mac(1), 1, late), Learnt::Known, "and not at another port");
    table.unlearn_at(mac(1), 2);
    assert_eq!(table.learn(mac(1), 1, 6), Learnt::New, "the peer withdrew the address");
    table.add(mac(9), 4).unwrap();
    table.advertise(mac(9), 2, 7);
    assert_eq!(table.lookup(mac(9), 7), Some(4), "a port's own address stays");
}

/// Peers have a quota of their own and take none from ports that learn.
#[test]
fn hostile_peers_take_no_quota_from_ports() {
    let mut table = AddressTable::new();
    let address = |n: u32| {
        let [a, b, c, d] = n.to_be_bytes();
        [2, 0, a, b, c, d]
    };
    let far = 2 * causeway_ethernet::limits::LEARNT_PER_PEER_MAX as u32;
    for n in 0..far {
        table.learn_far(address(n), 9_u32, 1);
    }
    assert_eq!(table.learnt_at(9), causeway_ethernet::limits::LEARNT_PER_PEER_MAX);
    assert_eq!(table.learn(address(far), 1, 1), Learnt::New);
    // An address that moves from the peer to a port counts there, and may move back.
    assert_eq!(table.learn(address(0), 1, 2), Learnt::New);
    assert_eq!((table.learnt_at(1), table.lookup(address(0), 2)), (2, Some(1)));
    assert_eq!(table.learn_far(address(0), 9, 3), Learnt::New);
    assert_eq!((table.learnt_at(1), table.lookup(address(0), 3)), (1, Some(9)));
    table.unlearn(9);
    assert_eq!((table.len(), table.lookup(address(0), 3)), (1, None));
}
