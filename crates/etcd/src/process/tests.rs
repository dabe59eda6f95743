use causeway_cluster::GroupRecord;
use causeway_model::{AddressKind, LocalAddress};
use causeway_testing::folder::Folder;

use super::*;
use crate::stream::Security;

/// Returns a process that has no etcd and no daemon, with a state directory.
fn process(state: PathBuf) -> Process {
    let settings = Settings {
        site: "lab".parse().unwrap(),
        host: "h1".parse().unwrap(),
        control: state.join("control.sock"),
        state,
        endpoints: Vec::new(),
        tunnel: ClusterTunnel {
            local: "127.0.0.1:1".parse().unwrap(),
            private_key: PathBuf::new(),
            idle: 0,
        },
    };
    let signing = SigningKey::new([7; 32]).unwrap();
    Process::new(settings, signing, Etcd::new(Vec::new(), Security::default(), None))
}

/// Returns a session over a connection of its own.
fn session() -> Session {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let now = Instant::now();
    Session {
        watch: Watch::over(socket),
        begun: now,
        lease: 1,
        renewed: now,
        probed: now,
        keys: 0,
        missing: None,
        record: None,
    }
}

#[test]
fn process_waits_while_the_daemon_is_away() {
    let folder = Folder::new("process");
    let mut process = process(folder.path().to_owned());
    process.session = Some(session());
    let local = ClusterLocal {
        daemon: 1,
        version: 1,
        key: format!("{}=", "A".repeat(43)).parse().unwrap(),
        groups: Vec::new(),
        addresses: Vec::new(),
    };
    let at = ClusterAddress {
        kind: AddressKind::Mac,
        group: "blue".parse().unwrap(),
        address: "52:54:00:00:00:01".into(),
    };
    let with_guest =
        ClusterLocal { addresses: vec![LocalAddress { at, since: 1 }], ..local.clone() };
    // The guest left long ago: a withdrawal is due.
    process.claimer.observe(&with_guest.addresses, &process.replica, 1);
    process.claimer.observe(&[], &process.replica, 2);
    process.local = Some(local);
    assert!(process.timeout() <= Duration::from_millis(5), "a write is due");
    process.take_local(Err(ControlError::Refused(String::new())));
    assert!(process.timeout() > Duration::from_millis(500), "nothing can be written");
}

#[test]
fn process_writes_a_snapshot_that_failed_again() {
    let folder = Folder::new("process");
    let mut process = process(folder.join("missing"));
    let key = RecordKey::Group("blue".parse().unwrap()).path(&process.settings.site);
    let value = Some(GroupRecord::new(7).write());
    let event = KeyEvent { key: key.into_bytes(), value, revision: 1 };
    process.replica.apply(&[event], 1, wall());
    process.save(true);
    let file = folder.join("missing").join("snapshot.json");
    assert!(process.has_save_failed && !file.exists());
    std::fs::create_dir(folder.join("missing")).unwrap();
    process.save(false);
    assert!(!file.exists(), "the next attempt follows after a pause");
    process.save(true);
    assert!(!process.has_save_failed && file.exists());
}

#[test]
fn probe_finds_writes_and_deletions_that_a_watch_did_not_deliver() {
    let state = RangeState { keys: 5, newest: 9 };
    assert!(!is_behind(state, 9, 5) && !is_behind(state, 12, 5));
    assert!(is_behind(state, 8, 5) && is_behind(state, 12, 6) && is_behind(state, 12, 4));
}

#[test]
fn pauses_of_refused_writes_grow_to_a_minute() {
    let mut retry = Retry::new();
    assert!(retry.is_due());
    let pauses = [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs);
    for pause in pauses {
        assert_eq!(retry.pause, pause);
        retry.refused();
        assert!(!retry.is_due());
    }
}
