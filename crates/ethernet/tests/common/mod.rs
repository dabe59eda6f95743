//! A dispatcher with the Ethernet service, and native ports attached to it.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

pub mod bursts;
pub mod links;
pub mod raw;

use std::ops::Deref;
use std::path::Path;

use causeway_attach::native::NetPort;
use causeway_fabric::{Options, PollConfig};
use causeway_model::commands::trace;
use causeway_model::{
    Answer, Command, CommandError, Mac, NetSpec, PortKind, PortSpec, TraceQuery, TraceView,
};
use causeway_testing::fabric::{self, TestFabric};
use causeway_wire::virtio::mask;
use causeway_wire::virtio_net::*;

/// Every offload that a driver can negotiate.
pub const ALL: u64 = mask(VIRTIO_NET_F_CSUM)
    | mask(VIRTIO_NET_F_GUEST_CSUM)
    | mask(VIRTIO_NET_F_GUEST_TSO4)
    | mask(VIRTIO_NET_F_GUEST_TSO6)
    | mask(VIRTIO_NET_F_GUEST_ECN)
    | mask(VIRTIO_NET_F_GUEST_USO4)
    | mask(VIRTIO_NET_F_GUEST_USO6)
    | mask(VIRTIO_NET_F_HOST_TSO4)
    | mask(VIRTIO_NET_F_HOST_TSO6)
    | mask(VIRTIO_NET_F_HOST_ECN)
    | mask(VIRTIO_NET_F_HOST_USO)
    | mask(VIRTIO_NET_F_MAC)
    | MERGE;
/// Mergeable receive buffers.
pub const MERGE: u64 = mask(VIRTIO_NET_F_MRG_RXBUF);

pub use causeway_testing::fabric::{net, receive, receive_of, send, send_by};
pub use causeway_testing::segments::{
    checksum_is_right, mac, pattern, payload_of, plain, tcp, udp,
};
pub use causeway_testing::wait::{PATIENCE, wait};

/// A [`TestFabric`] with the groups `red` and `blue`.
pub struct Rig(TestFabric);

impl Deref for Rig {
    type Target = TestFabric;

    fn deref(&self) -> &TestFabric {
        &self.0
    }
}

/// Returns the specification of a net port without limits.
pub fn port_spec(name: &str, group: &str, socket: &Path, net: NetSpec) -> PortSpec {
    fabric::port_spec(name, group, socket, PortKind::of(net))
}

impl Rig {
    /// Starts dispatchers with both groups.
    pub fn new() -> Self {
        Self::paced(PollConfig::default())
    }

    /// As [`Self::new`], with the given poll_config of queues.
    pub fn paced(poll_config: PollConfig) -> Self {
        // Two dispatchers, one for each group.
        let options = Options { dispatchers: 2, poll_config, ..Options::default() };
        Self(TestFabric::start(&[causeway_ethernet::SERVICE], &["red", "blue"], options))
    }

    pub fn try_add(&self, name: &str, group: &str, net: NetSpec) -> Result<Answer, CommandError> {
        self.0.try_add(name, group, PortKind::of(net))
    }

    /// Adds a port to group `red` and attaches to it.
    pub fn port(&self, name: &str, net: NetSpec, features: u64) -> NetPort {
        self.guest(name, "red", net, features)
    }

    pub fn trace(&self, from: &str, source: Option<[u8; 6]>, destination: [u8; 6]) -> TraceView {
        let from = from.parse().unwrap();
        let (source, destination) = (source.map(Mac), Mac(destination));
        match self.handle.call(Command::Trace(TraceQuery::new(&trace::Frame {
            from,
            source,
            destination,
        }))) {
            Ok(Answer::Trace(view)) => view,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns whether no frame is available.
pub fn is_silent(port: &mut NetPort) -> bool {
    port.receive(0, &mut Vec::new()).unwrap().is_none()
}
