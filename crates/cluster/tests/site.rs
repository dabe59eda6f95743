//! A site of three hosts over a store that loses, repeats and reorders events, with an adversary who
//! writes forged, foreign and old records and deletes keys. Everything derives from a seed.

use std::collections::{BTreeMap, BTreeSet};

use causeway_cluster::limits::{HOST_CLAIMS_MAX, HOSTS_MAX};
use causeway_cluster::record::VERSION;
use causeway_cluster::sign::Signature;
use causeway_cluster::{
    ClaimRecord, Claimer, EvictionRecord, GroupRecord, HostRecord, KeyEvent, RecordKey, Replica,
    SigningKey, Write, key,
};
use causeway_model::{AddressKind, ClusterAddress, LocalAddress, Name, PublicKeyText};

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3_600 * SECOND;
const HOSTS: usize = 3;
const ADDRESSES: u8 = 4;

/// Steele, Lea and Flood's generator (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }
}

fn site() -> Name {
    "lab".parse().unwrap()
}

fn host_name(number: usize) -> Name {
    format!("h{number}").parse().unwrap()
}

/// Returns an address: the kinds alternate.
fn address(number: u8) -> ClusterAddress {
    let group = "blue".parse().unwrap();
    let (kind, address) = match number % 4 {
        0 => (AddressKind::Mac, format!("52:54:00:00:00:{number:02x}")),
        1 => (AddressKind::Cid, (3 + u32::from(number)).to_string()),
        2 => (AddressKind::Nic, format!("node{number}")),
        _ => (AddressKind::Gid, format!("fe80::{number:x}")),
    };
    assert!(key::is_canonical(kind, &address));
    ClusterAddress { kind, group, address }
}

/// Returns the public key of a host's tunnels.
fn tunnel_key(host: &Name) -> PublicKeyText {
    let digit = host.as_str().chars().next_back().unwrap();
    format!("{digit}{}=", "A".repeat(42)).parse().unwrap()
}

fn path(key: &RecordKey) -> String {
    key.path(&site())
}

/// The store: keys with values and revisions, and every event.
#[derive(Default)]
struct Store {
    keys: BTreeMap<String, (Vec<u8>, u64)>,
    revision: u64,
    events: Vec<KeyEvent>,
    /// Every value that was ever stored, for replays.
    values: Vec<(String, Vec<u8>)>,
}

impl Store {
    fn put(&mut self, path: String, value: Vec<u8>) -> u64 {
        self.revision += 1;
        self.keys.insert(path.clone(), (value.clone(), self.revision));
        self.values.push((path.clone(), value.clone()));
        let (key, value, revision) = (path.into_bytes(), Some(value), self.revision);
        self.events.push(KeyEvent { key, value, revision });
        self.revision
    }

    fn delete(&mut self, path: &str) {
        if self.keys.remove(path).is_some() {
            self.revision += 1;
            let (key, revision) = (path.as_bytes().to_vec(), self.revision);
            self.events.push(KeyEvent { key, value: None, revision });
        }
    }

    fn list(&self) -> Vec<KeyEvent> {
        let item = |(key, (value, revision)): (&String, &(Vec<u8>, u64))| KeyEvent {
            key: key.clone().into_bytes(),
            value: Some(value.clone()),
            revision: *revision,
        };
        self.keys.iter().map(item).collect()
    }

    /// Executes a write as etcd does; returns the event that the writer learns.
    fn transact(&mut self, write: &Write) -> KeyEvent {
        let path = path(&write.key);
        let now = self.keys.get(&path).cloned();
        if now.as_ref().map_or(0, |(_, revision)| *revision) == write.expected {
            match &write.value {
                Some(value) => drop(self.put(path.clone(), value.clone())),
                None => self.delete(&path),
            }
        }
        let now = self.keys.get(&path).cloned();
        let revision = now.as_ref().map_or(self.revision, |(_, revision)| *revision);
        KeyEvent { key: path.into_bytes(), value: now.map(|(value, _)| value), revision }
    }
}

struct Host {
    name: Name,
    key: SigningKey,
    replica: Replica,
    claimer: Claimer,
    local: BTreeMap<u8, u64>,
    /// Events of the store that were delivered or lost.
    cursor: usize,
    has_missed: bool,
}

impl Host {
    fn new(number: usize) -> Self {
        let (name, key) = (host_name(number), SigningKey::new([number as u8 + 1; 32]).unwrap());
        let replica = Replica::new(site(), name.clone(), key.public());
        let (claimer, local) = (Claimer::default(), BTreeMap::new());
        Self { name, key, replica, claimer, local, cursor: 0, has_missed: true }
    }

    fn record(&self) -> Vec<u8> {
        self.record_with(|_| {})
    }

    /// Returns the signed record of the host, with changed fields.
    fn record_with(&self, change: impl FnOnce(&mut HostRecord)) -> Vec<u8> {
        let mut record = HostRecord {
            v: VERSION,
            key: tunnel_key(&self.name),
            signing_key: self.key.public(),
            endpoints: vec!["192.0.2.1:51871".parse().unwrap()],
            epoch: 1,
            groups: vec!["blue".parse().unwrap()],
            signature: Signature::none(),
        };
        change(&mut record);
        record.sign(&site(), &self.name, &self.key).write()
    }

    fn observe(&mut self, wall: u64) {
        let local = self.local.iter();
        let local = local.map(|(n, since)| LocalAddress { at: address(*n), since: *since });
        self.claimer.observe(&local.collect::<Vec<_>>(), &self.replica, wall);
    }

    fn list(&mut self, store: &Store, wall: u64) {
        self.replica.list(&store.list(), store.revision, wall);
        (self.cursor, self.has_missed) = (store.events.len(), false);
    }

    fn write(&mut self, store: &mut Store, random: Option<&mut Random>, wall: u64) {
        self.observe(wall);
        let writes = self.claimer.writes(&mut self.replica, &self.key, wall);
        let mut random = random;
        for write in writes {
            let event = store.transact(&write);
            // The answer may be lost.
            if random.as_mut().is_none_or(|random| random.below(4) > 0) {
                let revision = self.replica.revision();
                self.replica.apply(&[event], revision, wall);
            }
        }
    }

    /// Delivers events late, twice, in another order, or not at all.
    fn deliver(&mut self, store: &Store, random: &mut Random, wall: u64) {
        if self.has_missed {
            return;
        }
        let until = self.cursor + random.below(store.events.len() - self.cursor + 1);
        let mut events = store.events[self.cursor..until].to_vec();
        self.cursor = until;
        match random.below(6) {
            0 => events.reverse(),
            1 => events.extend(events.clone()),
            2 if !events.is_empty() => {
                events.remove(random.below(events.len()));
                // A connection that lost an event was lost as a whole.
                self.has_missed = true;
            }
            3 if until > 0 => events.push(store.events[random.below(until)].clone()),
            _ => {}
        }
        let revision = events.iter().map(|event| event.revision).max().unwrap_or(0);
        self.replica.apply(&events, revision, wall);
    }
}

/// Writes a hostile record, or deletes keys.
fn attack(store: &mut Store, random: &mut Random, wall: u64) {
    let at = address(random.below(ADDRESSES.into()) as u8);
    let target = path(&RecordKey::Claim(at.clone()));
    let stranger = SigningKey::new([99; 32]).unwrap();
    let victim = host_name(random.below(HOSTS));
    let epoch = wall + random.next() % SECOND;
    match random.below(9) {
        0 => drop(store.put(target, vec![b'['; random.below(9_000)])),
        1 => {
            let forged = ClaimRecord::new((&site(), &at), (&victim, &stranger), epoch, false);
            store.put(target, forged.write());
        }
        2 => {
            let unknown = "stranger".parse().unwrap();
            let claim = ClaimRecord::new((&site(), &at), (&unknown, &stranger), epoch, true);
            store.put(target, claim.write());
        }
        3 | 4 => {
            let is_claim = |path: &str| path.contains("/blue/");
            let claims: Vec<_> = store.values.iter().filter(|(path, _)| is_claim(path)).collect();
            if !claims.is_empty() {
                // A genuine record, at its own key or at that of another address.
                let (own, value) = claims[random.below(claims.len())].clone();
                let to = if random.below(2) == 0 { own } else { target };
                store.put(to, value);
            }
        }
        5 => store.delete(&target),
        6 => store.delete(&path(&RecordKey::Host(victim))),
        7 if random.below(10) == 0 => {
            for key in store.keys.keys().cloned().collect::<Vec<_>>() {
                store.delete(&key);
            }
        }
        _ => drop(store.put(format!("{}what/ever", key::prefix(&site())), vec![0xff; 40])),
    }
}

fn put_site(store: &mut Store, hosts: &[Host]) {
    let group = GroupRecord::new(7).write();
    store.put(path(&RecordKey::Group("blue".parse().unwrap())), group);
    for host in hosts {
        store.put(path(&RecordKey::Host(host.name.clone())), host.record());
    }
}

/// Runs a site from a seed, and checks what holds always and in the end.
fn run(seed: u64, steps: usize) {
    let mut random = Random(seed);
    let mut hosts: Vec<Host> = (0..HOSTS).map(Host::new).collect();
    let mut store = Store::default();
    let mut wall = 1_000 * SECOND;
    put_site(&mut store, &hosts);
    // Epochs that each replica followed, which never fall while a claim stands.
    let mut followed: BTreeMap<(usize, u8), ClaimRecord> = BTreeMap::new();
    for step in 0..steps {
        wall += random.next() % SECOND;
        let which = random.below(HOSTS);
        let number = random.below(ADDRESSES.into()) as u8;
        match random.below(8) {
            0 => drop(hosts[which].local.insert(number, wall)),
            1 => drop(hosts[which].local.remove(&number)),
            2 | 3 => {
                let host = &mut hosts[which];
                host.write(&mut store, Some(&mut random), wall);
            }
            4 => attack(&mut store, &mut random, wall),
            5 if hosts[which].has_missed => hosts[which].list(&store, wall),
            _ => hosts[which].deliver(&store, &mut random, wall),
        }
        for (which, host) in hosts.iter().enumerate() {
            for number in 0..ADDRESSES {
                let Some(claim) = host.replica.claim(&address(number)) else {
                    followed.remove(&(which, number));
                    continue;
                };
                let before = followed.insert((which, number), claim.clone());
                if before.as_ref() == Some(claim) {
                    continue;
                }
                let owner = hosts.iter().find(|host| host.name == claim.host);
                let owner = owner.unwrap_or_else(|| panic!("seed {seed} step {step}: {claim:?}"));
                let is_genuine = claim.verify(&site(), &address(number), &owner.key.public());
                assert!(is_genuine, "seed {seed} step {step}: a forged claim is followed");
                // A withdrawn claim is forgotten with its deletion; one list may also bring an
                // older record.
                let before = before.filter(|before| !before.gone);
                let is_older = before.is_some_and(|before| before.epoch > claim.epoch);
                assert!(!is_older, "seed {seed} step {step}: an older claim is followed");
            }
        }
    }
    settle(seed, &mut hosts, &mut store, &mut wall);
    check_end(seed, &hosts);
}

/// Lets the adversary rest, and every host connect and claim.
fn settle(seed: u64, hosts: &mut [Host], store: &mut Store, wall: &mut u64) {
    put_site(store, hosts);
    // A write that did not last is repeated after at most a minute.
    let mut quiet = 0;
    for round in 0..400 {
        let before = store.revision;
        // A host that missed a withdrawal keeps the claim for an hour.
        *wall += if round == 8 { 2 * HOUR } else { 3 * SECOND };
        for host in &mut *hosts {
            host.list(store, *wall);
            if round == 8 {
                // An operator confirms what is still missing.
                host.replica.release();
                if host.replica.collect(*wall) {
                    host.list(store, *wall);
                }
            }
            host.write(store, None, *wall);
        }
        quiet = if store.revision == before { quiet + 1 } else { 0 };
        if round > 10 && quiet > 22 {
            return;
        }
    }
    panic!("seed {seed}: the hosts contend without end");
}

fn check_end(seed: u64, hosts: &[Host]) {
    let live = |host: &Host, number| {
        let claim = host.replica.claim(&address(number)).filter(|claim| !claim.gone);
        claim.map(|claim| claim.host.clone())
    };
    for number in 0..ADDRESSES {
        let at: BTreeSet<&Name> =
            hosts.iter().filter(|h| h.local.contains_key(&number)).map(|h| &h.name).collect();
        let owners: BTreeSet<Option<Name>> = hosts.iter().map(|h| live(h, number)).collect();
        if owners.len() != 1 {
            for host in hosts {
                let at = address(number);
                let claim = host.replica.claim(&at).map(|c| (c.host.to_string(), c.epoch, c.gone));
                println!("{} {claim:?} {:?} {:?}", host.name, host.replica.stored(&at), host.local);
            }
        }
        assert_eq!(owners.len(), 1, "seed {seed}: hosts disagree about {number}: {owners:?}");
        let owner = owners.first().unwrap().as_ref();
        match owner {
            None => assert!(at.is_empty(), "seed {seed}: {number} at {at:?} has no owner"),
            Some(owner) => assert!(at.contains(owner), "seed {seed}: {number}: {owner} of {at:?}"),
        }
    }
    for host in hosts {
        assert_eq!(host.replica.alarm(), None, "seed {seed}: the hold has not ended");
    }
}

#[test]
fn site_converges_under_loss_duplication_and_forgery() {
    let seeds = std::env::var("CAUSEWAY_SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 0..seeds.unwrap_or(60) {
        run(seed, 250);
    }
}

/// Returns a site of two hosts with a number of guests each, which know each other.
fn site_of_two(guests: u8, wall: u64) -> (Vec<Host>, Store) {
    let mut hosts: Vec<Host> = (0..2).map(Host::new).collect();
    let mut store = Store::default();
    put_site(&mut store, &hosts);
    for (number, host) in hosts.iter_mut().enumerate() {
        let first = guests * number as u8;
        host.local.extend((first..first + guests).map(|guest| (guest, wall)));
    }
    exchange(&mut hosts, &mut store, wall);
    (hosts, store)
}

/// Lets each host list and write, twice.
fn exchange(hosts: &mut [Host], store: &mut Store, wall: u64) {
    for _ in 0..2 {
        for host in &mut *hosts {
            host.list(store, wall);
            host.write(store, None, wall);
        }
    }
}

#[test]
fn site_cid_of_two_hosts_is_that_of_the_newer_guest_and_they_do_not_contend() {
    let mut wall = 1_000 * SECOND;
    let (mut hosts, mut store) = site_of_two(0, wall);
    let cid = address(1);
    assert_eq!(cid.cid(), Some(4));
    hosts[0].local.insert(1, wall);
    exchange(&mut hosts, &mut store, wall);
    wall += SECOND;
    hosts[1].local.insert(1, wall);
    exchange(&mut hosts, &mut store, wall);
    let owner = |host: &Host| host.replica.claim(&cid).map(|claim| claim.host.to_string());
    assert_eq!(hosts.iter().map(owner).collect::<Vec<_>>(), [Some("h1".into()), Some("h1".into())]);
    assert_eq!(hosts[0].replica.addresses()[0].at, cid);
    assert!(hosts[1].replica.addresses().is_empty());
    // The guest of the first host keeps running: its claim is lost, and not made again.
    assert_eq!(hosts[0].claimer.lost().collect::<Vec<_>>(), [&cid]);
    assert_eq!(hosts[0].replica.counters()["claims_lost_total"], 1);
    let before = store.revision;
    for _ in 0..50 {
        wall += SECOND;
        exchange(&mut hosts, &mut store, wall);
    }
    assert_eq!((hosts[1].claimer.lost().count(), store.revision), (0, before));
    // The newer guest leaves.
    hosts[1].local.remove(&1);
    for _ in 0..4 {
        wall += SECOND;
        exchange(&mut hosts, &mut store, wall);
    }
    assert_eq!(hosts.iter().map(owner).collect::<Vec<_>>(), [Some("h0".into()), Some("h0".into())]);
    assert_eq!((hosts[0].claimer.lost().count(), hosts[1].replica.addresses().len()), (0, 1));
}

#[test]
fn site_wipe_keeps_groups_after_the_claims_are_back() {
    for guests in [0, 1, 4, 50] {
        for is_listed in [false, true] {
            let mut wall = 1_000 * SECOND;
            let (mut hosts, mut store) = site_of_two(guests, wall);
            hosts.iter_mut().for_each(|host| host.list(&store, wall));
            let before = store.events.len();
            for key in store.keys.keys().cloned().collect::<Vec<_>>() {
                store.delete(&key);
            }
            for host in &mut hosts {
                if is_listed {
                    host.list(&store, wall);
                } else {
                    host.replica.apply(&store.events[before..], store.revision, wall);
                }
                assert!(host.replica.alarm().is_some(), "{guests} guests");
            }
            // Hosts write their records and claims anew: only the group is missing.
            for host in &hosts {
                store.put(path(&RecordKey::Host(host.name.clone())), host.record());
            }
            for _ in 0..4 {
                wall += SECOND;
                exchange(&mut hosts, &mut store, wall);
            }
            for host in &hosts {
                assert!(host.replica.alarm().is_some(), "{guests} guests: the hold has ended");
                assert_eq!(host.replica.hosts()[0].groups.len(), 1, "{guests} guests");
                assert_eq!(host.replica.addresses().len(), usize::from(guests));
            }
            put_site(&mut store, &[]);
            exchange(&mut hosts, &mut store, wall);
            assert!(hosts.iter().all(|host| host.replica.alarm().is_none()), "{guests} guests");
        }
    }
}

/// Returns the event of a host's record.
fn host_event(host: &Host, value: Vec<u8>, revision: u64) -> KeyEvent {
    let key = path(&RecordKey::Host(host.name.clone())).into_bytes();
    KeyEvent { key, value: Some(value), revision }
}

#[test]
fn site_own_record_of_another_process_is_followed_by_a_newer_one() {
    let wall = 1_000 * HOUR;
    let mut host = Host::new(0);
    assert_eq!(host.replica.next_epoch(wall), wall);
    // A second process with the host's key ran, and its clock was ahead.
    let epoch = wall + HOUR;
    let newer = host_event(&host, host.record_with(|record| record.epoch = epoch), 1);
    host.replica.apply(&[newer], 1, wall);
    let own = host_event(&host, host.record_with(|record| record.epoch = wall), 2);
    host.replica.apply(&[own], 2, wall);
    assert_eq!(host.replica.counters()["refused_older_total"], 1);
    let next = host.replica.next_epoch(wall);
    assert_eq!(next, epoch + 1);
    let own = host_event(&host, host.record_with(|record| record.epoch = next), 3);
    host.replica.apply(&[own], 3, wall);
    assert_eq!(host.replica.own_record().map(|record| record.epoch), Some(next));
}

#[test]
fn site_records_of_hosts_beyond_a_day_ahead_are_refused_and_replaced() {
    let (wall, ahead) = (1_000 * HOUR, 2_000 * HOUR);
    let (host, mut other) = (Host::new(0), Host::new(1));
    let record = |epoch, revision| {
        host_event(&host, host.record_with(|record| record.epoch = epoch), revision)
    };
    other.replica.apply(&[record(ahead, 1)], 1, wall);
    assert_eq!(other.replica.counters()["refused_future_total"], 1);
    assert!(other.replica.hosts().is_empty());
    // The other host's clock was ahead too, and is right now.
    other.replica.apply(&[record(ahead, 2)], 2, ahead);
    other.replica.apply(&[record(wall, 3)], 3, wall);
    assert_eq!(other.replica.hosts()[0].epoch, wall);
}

#[test]
fn site_writes_that_do_not_last_are_repeated_ever_more_slowly() {
    let mut wall = 1_000 * SECOND;
    let (mut hosts, mut store) = site_of_two(1, wall);
    let host = &mut hosts[0];
    let target = path(&RecordKey::Claim(address(0)));
    let mut writes = 0;
    // 200 s in which a record that is refused replaces each write within 100 ms.
    for _ in 0..2_000 {
        wall += SECOND / 10;
        store.put(target.clone(), b"refused".to_vec());
        host.list(&store, wall);
        let before = store.revision;
        host.write(&mut store, None, wall);
        writes += store.revision - before;
    }
    assert!((5..12).contains(&writes), "{writes} writes");
    // After a quiet time a lost claim is repaired at once.
    wall += 60 * SECOND;
    host.write(&mut store, None, wall);
    wall += 200 * SECOND;
    store.delete(&target);
    host.list(&store, wall);
    host.write(&mut store, None, wall);
    assert!(store.keys.contains_key(&target));
}

#[test]
fn site_guest_that_moves_away_and_back_is_claimed_at_once() {
    let mut wall = 1_000 * SECOND;
    let (mut hosts, mut store) = site_of_two(0, wall);
    // Away for less than the time after which a host withdraws.
    for number in [0, 1, 0, 1, 1] {
        hosts[number].local.insert(0, wall);
        exchange(&mut hosts, &mut store, wall);
        for host in &hosts {
            let owner = host.replica.claim(&address(0)).map(|claim| &claim.host);
            assert_eq!(owner, Some(&host_name(number)), "known to {}", host.name);
        }
        wall += SECOND / 2;
        hosts[number].local.clear();
        exchange(&mut hosts, &mut store, wall);
        wall += SECOND / 2;
    }
}

#[test]
fn site_guest_that_appeared_by_a_clock_ahead_is_claimed_by_the_time_of_day() {
    let wall = 1_000 * SECOND;
    let (mut hosts, mut store) = site_of_two(0, wall);
    hosts[0].local.insert(0, wall + 48 * HOUR);
    exchange(&mut hosts, &mut store, wall);
    assert_eq!(hosts[1].replica.claim(&address(0)).map(|claim| claim.epoch), Some(wall));
}

#[test]
fn site_host_with_the_tunnel_key_of_another_host_is_refused() {
    let wall = 1_000 * SECOND;
    let (mut hosts, mut store) = site_of_two(1, wall);
    let thief = Host::new(2);
    let copied = thief.record_with(|record| record.key = tunnel_key(&hosts[1].name));
    let key = path(&RecordKey::Host(thief.name.clone()));
    store.put(key.clone(), copied);
    exchange(&mut hosts, &mut store, wall);
    let first = &hosts[0].replica;
    assert!(first.hosts().iter().all(|host| host.id != thief.name));
    assert!(first.alarm().is_some_and(|alarm| alarm.contains("h2") && alarm.contains("h1")));
    assert!(first.counters()["refused_conflict_total"] > 0);
    assert!(hosts[1].replica.alarm().is_some(), "the robbed host has an alarm too");
    // A key of its own ends the alarm.
    store.put(key, thief.record());
    exchange(&mut hosts, &mut store, wall);
    assert!(hosts.iter().all(|host| host.replica.alarm().is_none()));
    assert_eq!(hosts[0].replica.hosts().len(), 2);
}

#[test]
fn site_signing_key_of_a_host_holds_until_the_host_is_evicted() {
    let wall = 1_000 * SECOND;
    let (mut hosts, mut store) = site_of_two(1, wall);
    let (name, key) = (hosts[1].name.clone(), path(&RecordKey::Host(hosts[1].name.clone())));
    let known = hosts[0].replica.hosts();
    let mut forger = Host::new(1);
    forger.key = SigningKey::new([99; 32]).unwrap();
    let forged = forger.record_with(|record| record.epoch = 2);
    store.put(key.clone(), forged);
    hosts[0].list(&store, wall);
    assert_eq!(hosts[0].replica.hosts(), known);
    assert!(hosts[0].replica.alarm().is_some_and(|alarm| alarm.contains("signing key")));
    // An eviction forgets the host; after its end the record in etcd counts, with its key.
    let evicted = path(&RecordKey::Evicted(name));
    store.put(evicted.clone(), EvictionRecord { v: VERSION, reason: String::new() }.write());
    hosts[0].list(&store, wall);
    assert!(hosts[0].replica.hosts().is_empty());
    assert_eq!(hosts[0].replica.alarm(), None);
    assert!(!hosts[0].replica.collect(wall));
    let before = store.events.len();
    store.delete(&evicted);
    hosts[0].replica.apply(&store.events[before..], store.revision, wall);
    assert!(hosts[0].replica.collect(wall), "the site must be listed");
    hosts[0].list(&store, wall);
    assert_eq!(hosts[0].replica.hosts()[0].epoch, 2);
    assert_eq!(hosts[0].replica.alarm(), None);
}

#[test]
fn site_host_has_a_bounded_share_of_the_claims() {
    let wall = 1_000 * SECOND;
    let (mut hosts, mut store) = site_of_two(0, wall);
    let group: Name = "blue".parse().unwrap();
    let many: Vec<ClusterAddress> = (0..=HOST_CLAIMS_MAX)
        .map(|number| {
            let address = format!("52:54:01:00:{:02x}:{:02x}", number / 256, number % 256);
            ClusterAddress { kind: AddressKind::Mac, group: group.clone(), address }
        })
        .collect();
    for at in &many {
        let claim = ClaimRecord::new((&site(), at), (&hosts[0].name, &hosts[0].key), wall, false);
        store.put(path(&RecordKey::Claim(at.clone())), claim.write());
    }
    hosts.iter_mut().for_each(|host| host.list(&store, wall));
    assert_eq!(hosts[1].replica.addresses().len(), HOST_CLAIMS_MAX);
    assert_eq!(hosts[1].replica.counters()["refused_full_total"], 1);
    // The own claims fit, and those of other hosts.
    assert_eq!(hosts[0].replica.own_claims().count(), HOST_CLAIMS_MAX + 1);
    hosts[1].local.insert(0, wall);
    exchange(&mut hosts, &mut store, wall);
    assert_eq!(hosts[0].replica.addresses().len(), 1);
}

/// Returns the event that writes or deletes the eviction of a host.
fn eviction_event(host: &Name, reason: Option<&str>, revision: u64) -> KeyEvent {
    let record = |reason: &str| EvictionRecord { v: VERSION, reason: reason.into() }.write();
    let key = path(&RecordKey::Evicted(host.clone())).into_bytes();
    KeyEvent { key, value: reason.map(record), revision }
}

#[test]
fn site_eviction_that_ends_during_a_hold_ends_with_the_hold() {
    let wall = 1_000 * SECOND;
    for is_confirmed in [true, false] {
        let (mut hosts, mut store) = site_of_two(1, wall);
        let (evicted, stays): (Name, Name) = (host_name(7), host_name(8));
        let replica = &mut hosts[0].replica;
        for host in [&evicted, &stays] {
            store.put(path(&RecordKey::Evicted(host.clone())), Vec::new());
            replica.apply(&[eviction_event(host, Some(""), store.revision)], store.revision, wall);
        }
        // All groups disappear; then an operator admits both hosts, and evicts one of them again.
        let group = path(&RecordKey::Group("blue".parse().unwrap()));
        let before = store.events.len();
        store.delete(&group);
        replica.apply(&store.events[before..], store.revision, wall);
        assert!(replica.is_held());
        for (host, reason) in [(&evicted, None), (&stays, None), (&stays, Some("again"))] {
            store.revision += 1;
            let event = eviction_event(host, reason, store.revision);
            replica.apply(&[event], store.revision, wall);
        }
        let is_evicted = |replica: &Replica, host: &Name| {
            let key = path(&RecordKey::Evicted(host.clone()));
            replica.records().iter().any(|(known, _)| *known == key)
        };
        assert!(is_evicted(replica, &evicted) && !replica.collect(wall), "removals are held");
        if is_confirmed {
            replica.release();
        } else {
            let before = store.events.len();
            put_site(&mut store, &[]);
            replica.apply(&store.events[before..], store.revision, wall);
        }
        assert!(!replica.is_held());
        assert!(!is_evicted(replica, &evicted) && is_evicted(replica, &stays));
        assert!(replica.collect(wall), "the site must be listed");
    }
}

#[test]
fn site_eviction_changes_while_there_are_as_many_as_possible() {
    let (wall, mut host) = (1_000 * SECOND, Host::new(0));
    let name = |number| format!("e{number}").parse::<Name>().unwrap();
    for number in 0..HOSTS_MAX as u64 {
        let event = eviction_event(&name(number), Some("old"), number + 1);
        host.replica.apply(&[event], number + 1, wall);
    }
    let revision = HOSTS_MAX as u64 + 1;
    host.replica.apply(&[eviction_event(&name(3), Some("new"), revision)], revision, wall);
    assert_eq!(host.replica.counters()["refused_full_total"], 0);
    let key = path(&RecordKey::Evicted(name(3)));
    let records = host.replica.records();
    let (_, value) = records.iter().find(|(known, _)| *known == key).unwrap();
    assert_eq!(EvictionRecord::read(value).unwrap().reason, "new");
    let event = eviction_event(&name(HOSTS_MAX as u64), Some("one more"), revision + 1);
    host.replica.apply(&[event], revision + 1, wall);
    assert_eq!(host.replica.counters()["refused_full_total"], 1);
}
