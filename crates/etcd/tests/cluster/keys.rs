//! The number of keys, as a watch and a request report it.

use std::time::Duration;

use causeway_etcd::client::{Etcd, WatchMessage, watch_message};
use causeway_etcd::limits::WATCH_BYTES_MAX;
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
    let (mut pending, mut keys) = (Vec::new(), listing.items.len() as u64);
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
