//! The directory of a site: records and answers of a hostile etcd. Target `cluster`.
//!
//! The input chooses what etcd delivers: texts of its own, genuine records at their keys and at
//! others, damaged ones, lists, messages of a watch, and replies of HTTP. After each step every
//! accepted record has a valid signature, a host keeps its first signing key until it is evicted, and
//! no claim is replaced by an older one. In the end a copy that reads the accepted records has the
//! same records. No socket is opened; etcd is the input.

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};
use std::sync::LazyLock;

use causeway_cluster::limits::{CLAIMS_MAX, GROUPS_MAX, HOSTS_MAX, VALUE_BYTES_MAX};
use causeway_cluster::record::VERSION;
use causeway_cluster::sign::Signature;
use causeway_cluster::token::{JoinToken, JoinsRecord, TokenRecord};
use causeway_cluster::{
    ClaimRecord, Claimer, EvictionRecord, GroupRecord, HostRecord, KeyEvent, RecordKey, Replica,
    SigningKey, VerifyingKey, key,
};
use causeway_etcd::client::{WatchMessage, watch_message};
use causeway_etcd::http::{Connection, HttpCall};
use causeway_etcd::list::Listing;
use causeway_model::{AddressKind, ClusterAddress, LocalAddress, Name};

use crate::Input;

const SECOND: u64 = 1_000_000_000;
/// Time of day at the begin.
const BEGIN: u64 = 1_000_000 * SECOND;
/// Most steps of an input.
const STEPS: usize = 48;
/// Most bytes of a line of a watch.
const LINE: usize = 4_096;

fn site() -> Name {
    "lab".parse().expect("a name")
}

fn host(number: u8) -> Name {
    format!("h{number}").parse().expect("a name")
}

fn signing(number: u8) -> SigningKey {
    SigningKey::new([number; 32]).expect("a seed")
}

fn address(number: u8) -> ClusterAddress {
    let (group, address) = ("blue".parse().expect("a name"), format!("52:54:00:00:00:0{number}"));
    ClusterAddress { kind: AddressKind::Mac, group, address }
}

fn host_record(number: u8, key: u8, epoch: u64) -> (String, Vec<u8>) {
    let digit = char::from(b'A' + number % 26);
    let record = HostRecord {
        v: VERSION,
        key: format!("{digit}{}=", "A".repeat(42)).parse().expect("a key"),
        signing_key: signing(key).public(),
        endpoints: vec!["192.0.2.1:51871".parse().expect("an address")],
        epoch,
        groups: vec!["blue".parse().expect("a name")],
        signature: Signature::none(),
    };
    let record = record.sign(&site(), &host(number), &signing(key));
    (RecordKey::Host(host(number)).path(&site()), record.write())
}

/// Genuine records, with their keys; some have the signature of another host's key.
static RECORDS: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let path = |key: RecordKey| key.path(&site());
    let group = |name: &str, vni| {
        let name = name.parse().expect("a name");
        (path(RecordKey::Group(name)), GroupRecord::new(vni).write())
    };
    let mut all = vec![group("blue", 7), group("red", 8), group("red", 7)];
    let rules =
        r#"{"v":1,"vni":7,"forwarding":"routes","rules":[{"action":"reject","to":"blue/*:22"}]}"#;
    all.push((path(RecordKey::Group("blue".parse().expect("a name"))), rules.into()));
    for number in 1..4 {
        all.push(host_record(number, number, BEGIN));
        all.push(host_record(number, number, BEGIN + SECOND));
        // Another key, as after a new installation or of a forger.
        all.push(host_record(number, number + 100, BEGIN + 2 * SECOND));
        let evicted = EvictionRecord { v: VERSION, reason: "x".into() };
        all.push((path(RecordKey::Evicted(host(number))), evicted.write()));
    }
    for at in 0..3 {
        for (number, epoch, gone) in
            [(1, 1, false), (2, 2, false), (2, 2, true), (3, 3, false), (102, 9, false)]
        {
            let (by, key) = (host(number % 100), signing(number));
            let epoch = BEGIN + epoch * SECOND;
            let claim = ClaimRecord::new((&site(), &address(at)), (&by, &key), epoch, gone);
            all.push((path(RecordKey::Claim(address(at))), claim.write()));
        }
    }
    all
});

/// A token of the site.
static TOKEN: LazyLock<JoinToken> = LazyLock::new(|| JoinToken::new(site(), &[7; 32], &[1; 8]));

/// A host that follows the hostile etcd.
struct Follower {
    replica: Replica,
    claimer: Claimer,
    key: SigningKey,
    wall: u64,
    revision: u64,
    events: usize,
    generation: u64,
    /// Signing keys of hosts, and epochs of claims, after the last step.
    keys: BTreeMap<Name, VerifyingKey>,
    claims: BTreeMap<ClusterAddress, ClaimRecord>,
    /// Whether an eviction began or ended in this step: the host is forgotten, and may return.
    has_eviction: bool,
}

impl Follower {
    fn new() -> Self {
        let key = signing(1);
        Self {
            replica: Replica::new(site(), host(1), key.public()),
            claimer: Claimer::default(),
            key,
            wall: BEGIN,
            revision: 0,
            events: 0,
            generation: 0,
            keys: BTreeMap::new(),
            claims: BTreeMap::new(),
            has_eviction: false,
        }
    }

    /// Notes events that are delivered next.
    fn note(&mut self, events: &[KeyEvent]) {
        self.events += events.len();
        let is_eviction = |event: &KeyEvent| {
            matches!(RecordKey::parse(&site(), &event.key), Ok(RecordKey::Evicted(_)))
        };
        self.has_eviction |= events.iter().any(is_eviction);
    }

    /// Returns an event of the input: text or a genuine record, at a genuine key or another.
    fn event(&mut self, input: &mut Input<'_>) -> KeyEvent {
        let (own, value) = &RECORDS[input.below(RECORDS.len())];
        let kind = input.u8();
        let mut key = own.clone().into_bytes();
        if kind & 1 != 0 {
            key = RECORDS[input.below(RECORDS.len())].0.clone().into_bytes();
        }
        if kind & 2 != 0 {
            key = [key::prefix(&site()).as_bytes(), input.bytes(16)].concat();
        }
        let mut value = value.clone();
        if kind & 4 != 0 {
            let (at, bit) = (usize::from(input.u16()) % value.len(), input.below(8));
            value[at] ^= 1 << bit;
        }
        if kind & 8 != 0 {
            let len = usize::from(input.u8());
            value = input.bytes(len).to_vec();
        }
        if kind & 16 != 0 {
            value.resize(VALUE_BYTES_MAX + 1, b' ');
        }
        self.revision += u64::from(input.u8() % 4);
        let value = (kind & 32 == 0).then_some(value);
        let event = KeyEvent { key, value, revision: self.revision };
        self.note(std::slice::from_ref(&event));
        event
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let (wall, revision) = (self.wall, self.revision);
        match input.below(9) {
            0..=2 => {
                let event = self.event(input);
                self.replica.apply(&[event], self.revision, wall);
            }
            3 => {
                let count = input.below(8);
                let events: Vec<KeyEvent> = (0..count).map(|_| self.event(input)).collect();
                if input.bool() {
                    self.has_eviction = true;
                    self.replica.list(&events, self.revision, wall);
                } else {
                    self.replica.apply(&events, revision, wall);
                }
            }
            4 => {
                let len = usize::from(input.u16()) % 1_024;
                self.line(input.bytes(len));
            }
            5 => {
                let len = usize::from(input.u16()) % 1_024;
                if let Ok(answer) = serde_json::from_slice(input.bytes(len)) {
                    let mut list = Listing::default();
                    list.add(&answer);
                    self.note(&list.items);
                    // A list without an eviction ends it.
                    self.has_eviction = true;
                    self.replica.list(&list.items, list.revision, wall);
                }
            }
            6 => {
                let len = usize::from(input.u16()) % 1_024;
                self.reply(input.bytes(len));
            }
            7 => {
                let len = usize::from(input.u8());
                token(input.bytes(len));
            }
            _ => self.pass(input),
        }
    }

    /// Takes a line of a watch.
    fn line(&mut self, line: &[u8]) {
        match watch_message(line) {
            Ok((WatchMessage::Events(events, revision), _)) => {
                self.note(&events);
                self.replica.apply(&events, revision, self.wall);
            }
            Ok((WatchMessage::Cancelled(reason), _)) => assert!(reason.chars().count() <= 256),
            Err(_) => {}
        }
    }

    /// Takes a reply of HTTP, with lines of a watch.
    fn reply(&mut self, bytes: &[u8]) {
        let mut connection = Connection::new(Replying(Cursor::new(bytes)));
        let call = HttpCall { method: "POST", path: "/", host: "x", token: None, body: b"" };
        if connection.send(&call).is_err() {
            return;
        }
        let mut pending = Vec::new();
        while let Ok(Some(line)) = connection.read_line(&mut pending, LINE) {
            assert!(line.len() <= LINE + 16 * 1_024);
            self.line(&line);
        }
    }

    /// Lets time pass, with guests that come and leave.
    fn pass(&mut self, input: &mut Input<'_>) {
        self.wall += u64::from(input.u16()) * SECOND;
        let here = input.u8();
        let local = (0..3).filter(|number| here & (1 << number) != 0);
        let since = self.wall;
        let local: Vec<LocalAddress> =
            local.map(|number| LocalAddress { at: address(number), since }).collect();
        self.claimer.observe(&local, &self.replica, self.wall);
        for write in self.claimer.writes(&mut self.replica, &self.key, self.wall) {
            self.revision += 1;
            let key = write.key.path(&site()).into_bytes();
            let event = KeyEvent { key, value: write.value, revision: self.revision };
            self.note(std::slice::from_ref(&event));
            self.replica.apply(&[event], self.replica.revision(), self.wall);
        }
        if input.bool() {
            self.replica.collect(self.wall);
        }
        if input.bool() {
            self.replica.release();
        }
    }

    /// Checks what holds after each step.
    fn check(&mut self) {
        assert!(self.replica.alarm().is_none_or(|alarm| alarm.len() < 1_024));
        let has_eviction = std::mem::take(&mut self.has_eviction);
        if self.replica.generation() == self.generation {
            return;
        }
        self.generation = self.replica.generation();
        let (mut keys, mut claims) = (BTreeMap::new(), BTreeMap::new());
        let (mut hosts, mut groups) = (0, 0);
        let records = self.replica.records();
        assert!(records.len() <= self.events, "{} of {} events", records.len(), self.events);
        for (path, value) in &records {
            match RecordKey::parse(&site(), path.as_bytes()).expect("an accepted key") {
                RecordKey::Host(id) => {
                    let record = HostRecord::read(value).expect("an accepted record");
                    assert!(record.verify(&site(), &id), "{id}: not signed");
                    keys.insert(id, record.signing_key);
                    hosts += 1;
                }
                RecordKey::Claim(at) => {
                    claims.insert(at, ClaimRecord::read(value).expect("an accepted record"));
                }
                RecordKey::Group(_) => groups += 1,
                RecordKey::Evicted(_) => {}
            }
        }
        assert!(hosts <= HOSTS_MAX && groups <= GROUPS_MAX && claims.len() <= CLAIMS_MAX);
        let own = self.key.public();
        for (at, claim) in &claims {
            let key = if claim.host == host(1) { own } else { keys[&claim.host] };
            assert!(claim.verify(&site(), at, &key), "{at:?}: not signed by {}", claim.host);
            // After a withdrawal that was deleted, any claim is new.
            let before = self.claims.get(at).filter(|before| !before.gone && !has_eviction);
            assert!(before.is_none_or(|before| before.epoch <= claim.epoch), "{at:?}: older");
        }
        for (id, key) in &keys {
            let known = self.keys.get(id).filter(|_| !has_eviction);
            assert!(known.is_none_or(|known| known == key), "{id}: another key");
        }
        (self.keys, self.claims) = (keys, claims);
    }

    /// Checks that a copy reads the accepted records.
    fn check_copy(&self) {
        let mut copy = Replica::new(site(), host(1), self.key.public());
        let item = |(path, value): (String, Vec<u8>)| KeyEvent {
            key: path.into_bytes(),
            value: Some(value),
            revision: 1,
        };
        let items: Vec<KeyEvent> = self.replica.records().into_iter().map(item).collect();
        copy.list(&items, 1, self.wall);
        assert_eq!(copy.records(), self.replica.records());
    }
}

/// A stream of which the input is the answer.
struct Replying<'a>(Cursor<&'a [u8]>);

impl Read for Replying<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        // Short reads reach each state of the parser.
        let most = out.len().min(7);
        self.0.read(&mut out[..most])
    }
}

impl Write for Replying<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads a token and the records about it: only the record of the token admits a host.
fn token(bytes: &[u8]) {
    if let Ok(token) = String::from_utf8_lossy(bytes).parse::<JoinToken>() {
        let again = token.to_text().parse::<JoinToken>();
        assert_eq!(again.as_ref(), Ok(&token));
        assert!(key::is_of_operators(token.site(), token.path().as_bytes()));
    }
    if let Ok(record) = TokenRecord::read(bytes) {
        let genuine = TOKEN.record(None, 0);
        if TOKEN.check(&record, &host(2), false).is_ok() {
            assert_eq!(record.digest, genuine.digest);
        }
    }
    assert!(JoinsRecord::read(bytes).refused.len() <= bytes.len());
}

/// Follows an etcd that delivers the input.
pub fn run(data: &[u8]) {
    let mut follower = Follower::new();
    Input::new(data).steps(STEPS, |input| {
        follower.step(input);
        follower.check();
    });
    follower.check_copy();
}

/// Returns inputs with each step.
pub fn seeds() -> Vec<Vec<u8>> {
    let put = |record: u8| vec![0, record, 0, 1];
    // Every genuine record in order, and in the opposite order.
    let count = RECORDS.len() as u8;
    let forward: Vec<u8> = (0..count).flat_map(put).collect();
    let backward: Vec<u8> = (0..count).rev().flat_map(put).collect();
    let text = |step: u8, text: &str| {
        let len = u16::try_from(text.len()).expect("a short text").to_le_bytes();
        [&[step][..], &len, text.as_bytes()].concat()
    };
    let event = r#"{"kv":{"key":"YQ==","mod_revision":"8","value":"Yg=="}}"#;
    let line = format!(r#"{{"result":{{"header":{{"revision":"9"}},"events":[{event}]}}}}"#);
    let list = r#"{"header":{"revision":"9"},"kvs":[{"key":"YQ==","mod_revision":"8"}]}"#;
    let reply = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{line}\n\r\n0\r\n\r\n",
        line.len() + 1
    );
    let of_token = |text: &[u8]| [&[7, text.len() as u8][..], text].concat();
    let known = [put(0), put(3), put(8), put(16), put(17)].concat();
    vec![
        forward,
        backward,
        // A host and its claims, a deletion, time, a damaged record, a list that is empty.
        [
            &known[..],
            &[0, 16, 32, 1, 8, 10, 0, 7, 1, 0, 1, 17, 4, 9, 0, 3, 1, 3, 0, 1],
            &[8, 255, 255, 0, 1, 1],
        ]
        .concat(),
        text(4, &line),
        text(4, r#"{"result":{"canceled":true,"compact_revision":"7"}}"#),
        text(5, list),
        text(6, &reply),
        of_token(TOKEN.to_text().as_bytes()),
        of_token(&TOKEN.record(Some(host(2)), 5).write()),
        of_token(br#"{"v":1,"refused":{"used":3}}"#),
    ]
}
