//! Host processes that connect without end are accepted at a bounded rate, and then wait.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use causeway_fabric::{PollConfig, Shard};
use causeway_model::{PortKind, PortSpec, VsockSpec};
use causeway_socket::Socket;
use causeway_socket::limits::{HOST_CONNECTS_PER_SECOND, HOST_LISTENER_PAUSE_NS};

/// The socket file of a test, removed with it.
struct Path(PathBuf);

impl Drop for Path {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn path(name: &str) -> Path {
    let name = format!("causeway-connects-{}-{name}", std::process::id());
    Path(std::env::temp_dir().join(name))
}

#[test]
fn hostile_connects_to_a_host_socket_are_taken_at_a_bounded_rate() {
    let (socket, host) = (path("port"), path("host"));
    let service = Box::new(Socket::new());
    let mut shard = Shard::new("red".parse().unwrap(), service, PollConfig::default()).unwrap();
    let kind = PortKind::of(VsockSpec {
        cid: 3,
        guest_cid: None,
        host_socket: Some(host.0.clone()),
        processes: false,
    });
    let (name, group) = ("p1".parse().unwrap(), "red".parse().unwrap());
    shard
        .port_add(
            PortSpec {
                name,
                group,
                socket: socket.0.clone(),
                access: Default::default(),
                memory_max: None,
                kind,
            },
            true,
        )
        .unwrap();
    let counter =
        |shard: &Shard, name: &str| shard.port_view(&"p1".parse().unwrap()).unwrap().counters[name];
    let taken = |shard: &Shard| counter(shard, "reject_handshake_total");
    let steps = |shard: &mut Shard, now: u64, count: u64| {
        (0..count).for_each(|_| shard.step(now, 8).unwrap());
    };
    let begin = 1_000_000_000;
    for _ in 0..HOST_CONNECTS_PER_SECOND + 100 {
        // Without a line: it is refused as soon as it is accepted.
        drop(UnixStream::connect(&host.0).unwrap());
        steps(&mut shard, begin, 2);
    }
    assert_eq!(taken(&shard), HOST_CONNECTS_PER_SECOND);
    assert_eq!(counter(&shard, "host_pauses_total"), 1);
    steps(&mut shard, begin + HOST_LISTENER_PAUSE_NS - 1, 100);
    assert_eq!(taken(&shard), HOST_CONNECTS_PER_SECOND, "the host socket is not watched");
    // Waiting processes are accepted at the rate.
    steps(&mut shard, begin + HOST_LISTENER_PAUSE_NS, 100);
    let most = HOST_CONNECTS_PER_SECOND
        + HOST_CONNECTS_PER_SECOND * HOST_LISTENER_PAUSE_NS / 1_000_000_000;
    assert_eq!(taken(&shard), most);
    for second in 1..4_u64 {
        steps(&mut shard, begin + second * 1_000_000_000, 300);
    }
    assert_eq!(taken(&shard), HOST_CONNECTS_PER_SECOND + 100, "all were taken in the end");
}
