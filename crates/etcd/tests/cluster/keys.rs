//! The number of keys, as a watch and a request report it, and lists of many and long ones.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_etcd::client::{Etcd, WatchMessage, watch_message};
use causeway_etcd::limits::{PAGE_KEYS, REPLY_BYTES_MAX, WATCH_BYTES_MAX};
use causeway_etcd::stream::Security;

use crate::hosts::EtcdServer;

#[test]
fn etcd_number_of_keys_is_that_of_the_watch() {
    let server = EtcdServer::start();
    let mut etcd = Etcd::new(vec![server.url().parse().unwrap()], Security::default(), None);
    etcd.put("/a/1", b"x", None).unwrap();
    etcd.put("/b/1", b"x", None).unwrap();
    let listing = etcd.list("/a/").unwrap();
    let state = etcd.state("/a/").unwrap();
    assert_eq!((state.keys, state.newest), (1, listing.revision - 1));
    let (mut connection, socket) = etcd.watch("/a/", listing.revision + 1).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let (mut pending, mut keys) = (Vec::new(), listing.keys);
    let mut follow = |until: u64| {
        loop {
            let line = connection.read_line(&mut pending, WATCH_BYTES_MAX).unwrap().unwrap();
            let Ok((WatchMessage::Events(_, revision), growth)) = watch_message(&line) else {
                panic!("{}", String::from_utf8_lossy(&line));
            };
            keys = keys.saturating_add_signed(growth);
            if revision >= until {
                return keys;
            }
        }
    };
    etcd.put("/a/2", b"x", None).unwrap();
    etcd.put("/b/2", b"x", None).unwrap();
    let revision = etcd.put("/a/1", b"y", None).unwrap();
    assert_eq!((follow(revision), etcd.state("/a/").unwrap().keys), (2, 2));
    // The deletion leaves no newer key.
    let before = etcd.state("/a/").unwrap();
    etcd.delete("/a/2").unwrap();
    let state = etcd.state("/a/").unwrap();
    assert_eq!((state.keys, state.newest), (1, before.newest));
    assert_eq!(follow(revision + 1), 1);
    // A watch that missed both a new key and a deletion has an older revision.
    etcd.put("/a/3", b"x", None).unwrap();
    etcd.delete("/a/1").unwrap();
    let state = etcd.state("/a/").unwrap();
    assert!(state.keys == 1 && state.newest > revision + 1);
}

#[test]
fn etcd_list_of_many_and_long_values_has_all_keys_at_one_revision() {
    /// Bytes of a long value: etcd takes 1.5 MiB.
    const LONG: usize = 1 << 20;
    let server = EtcdServer::start();
    let mut etcd = Etcd::new(vec![server.url().parse().unwrap()], Security::default(), None);
    // Keys for two pages, and long values for two replies.
    let (short, long) = (PAGE_KEYS + 88, REPLY_BYTES_MAX / LONG);
    let encoded = |bytes: &[u8]| STANDARD.encode(bytes);
    let value = encoded(b"x");
    for first in (0..short).step_by(100) {
        let put = |number| {
            let key = encoded(format!("/a/{number:04}").as_bytes());
            format!(r#"{{"request_put":{{"key":"{key}","value":"{value}"}}}}"#)
        };
        let puts: Vec<String> = (first..first + 100).map(put).collect();
        server.post("/v3/kv/txn", &format!(r#"{{"success":[{}]}}"#, puts.join(",")), None);
    }
    for number in 0..long {
        etcd.put(&format!("/a/9999/{number}"), &vec![b'j'; LONG], None).unwrap();
    }
    etcd.put("/b/", b"x", None).unwrap();
    let listing = etcd.list("/a/").unwrap();
    assert_eq!((listing.items.len(), listing.keys), (short + long, (short + long) as u64));
    assert!(listing.items.is_sorted_by_key(|item| &item.key));
    let is_short = |value: &Option<Vec<u8>>| value.as_deref() == Some(b"x");
    let count = listing.items.iter().filter(|item| is_short(&item.value)).count();
    assert_eq!(count, short, "long values are empty");
    assert_eq!(etcd.state("/a/").unwrap().newest, listing.revision - 1);
}
