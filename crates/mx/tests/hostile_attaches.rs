//! Processes that attach to a NIC repeatedly: the rate is limited, and the others wait.

use std::os::unix::net::UnixStream;

use causeway_fabric::limits::{ATTACHES_PER_SECOND, LISTENER_PAUSE_NS};
use causeway_fabric::{PollConfig, Shard};
use causeway_model::{Mac, MxSpec, PortKind, PortSpec};
use causeway_mx::MxService;

#[test]
fn hostile_processes_that_attach_are_taken_at_a_bounded_rate() {
    let name = format!("causeway-attaches-{}", std::process::id());
    let socket = std::env::temp_dir().join(name);
    let service = Box::new(MxService::new());
    let mut shard = Shard::new("red".parse().unwrap(), service, PollConfig::default()).unwrap();
    let kind = PortKind::of(MxSpec::local(Mac([2, 0, 0, 0, 0, 1]), "a:0".into()));
    let (name, group) = ("p1".parse().unwrap(), "red".parse().unwrap());
    shard
        .port_add(
            PortSpec {
                name,
                group,
                socket: socket.clone(),
                access: Default::default(),
                memory_max: None,
                kind,
            },
            true,
        )
        .unwrap();
    let taken = |shard: &Shard| shard.port_view(&"p1".parse().unwrap()).unwrap().connects_total;
    let begin = 1_000_000_000;
    for _ in 0..ATTACHES_PER_SECOND + 50 {
        drop(UnixStream::connect(&socket).unwrap());
        shard.step(begin, 8).unwrap();
        shard.step(begin, 8).unwrap();
    }
    assert_eq!(taken(&shard), ATTACHES_PER_SECOND);
    // Waiting processes are accepted in their turn, and none is refused.
    for step in 1..100_u64 {
        shard.step(begin + step * LISTENER_PAUSE_NS, 8).unwrap();
    }
    assert_eq!(taken(&shard), ATTACHES_PER_SECOND + 50);
    std::fs::remove_file(&socket).unwrap();
}
