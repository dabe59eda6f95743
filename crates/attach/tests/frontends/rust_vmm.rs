//! The frontend of rust-vmm, on which Cloud Hypervisor, crosvm and others are based.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::{sockets, wait_readable};
use causeway_attach::{Model, Server};
use vhost::VhostBackend as _;
use vhost::vhost_user::message::VhostUserProtocolFeatures as P;
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};

/// Queue pairs of the network device.
const PAIRS: usize = 2;

#[test]
fn rust_vmm_frontend_uses_every_queue_of_a_network_device() {
    let (ours, theirs) = sockets();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let backend = thread::spawn(move || {
        let mut server = Server::new(Model::new(PAIRS * 2, 0, vec![0; 12]).in_pairs(), theirs);
        let mut events = Vec::new();
        while !stopped.load(Ordering::Relaxed) && !server.is_over() {
            server.receive(&mut events).expect("no fault");
            wait_readable(&server);
        }
    });
    let queues = (PAIRS * 2) as u64;
    let mut frontend = Frontend::from_stream(UnixStream::from(ours), queues);
    frontend.set_owner().unwrap();
    let features = frontend.get_features().unwrap();
    frontend.set_features(features).unwrap();
    let protocol = frontend.get_protocol_features().unwrap();
    assert!(protocol.contains(P::MQ));
    frontend.set_protocol_features(P::MQ).unwrap();
    // The frontend itself refuses queues from this number on.
    assert_eq!(frontend.get_queue_num().unwrap(), queues);
    for queue in 0..PAIRS * 2 {
        frontend.set_vring_num(queue, 256).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    drop(frontend);
    backend.join().unwrap();
}
