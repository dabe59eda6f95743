//! The traffic between the adapters of a group that the forwarding service does not see: RDMA
//! messages, and frames that go directly.
//!
//! [`crate::switch`] counts frames, a run of frames of one pair together. The engine counts
//! messages for each peer of an adapter (`verbs::PeerTraffic`); [`crate::service`] takes the sums
//! of an adapter ([`DirectTraffic::collect`]) once a second while it works, before an adapter is
//! removed, and for each view. So a rate of messages is that of the last second, or of the longer
//! time since the adapter was served. All run in the dispatcher's thread. The forwarding service
//! asks for the view by a request ([`ReadDirectTraffic`]), which `crate::control` passes on as
//! [`ReadTraffic`], and adds it to its own matrix.
//!
//! The matrix has `fabric::limits::TRAFFIC_PAIRS_MAX` (4,096) pairs; when it is full, pairs without
//! traffic for 60 s are replaced, and traffic of further pairs is counted as uncounted
//! (`fabric::traffic`). Nothing here delays or drops traffic.
//!
//! [`ReadDirectTraffic`]: causeway_fabric::traffic::ReadDirectTraffic

use causeway_fabric::traffic::{MessageSums, TrafficMatrix};
use causeway_mlx5::Function;
use causeway_model::{Name, TrafficView, TypedRequest};
use causeway_verbs::{Adapter, TrafficSum};
use causeway_wire::ethernet;

use crate::adapter_port::AdapterPorts;

/// Asks a shard for the traffic of its group.
#[derive(Debug)]
pub(crate) struct ReadTraffic(pub Name);

impl TypedRequest for ReadTraffic {
    type Answer = TrafficView;
}

/// The traffic of a group's adapters.
#[derive(Debug, Default)]
pub(crate) struct DirectTraffic(TrafficMatrix);

impl DirectTraffic {
    /// Counts a frame that goes directly.
    #[inline]
    pub(crate) fn count_frame(
        &mut self,
        (source, destination): ([u8; 6], [u8; 6]),
        len: usize,
        now_ns: u64,
    ) {
        let pair = (ethernet::number(source), ethernet::number(destination));
        self.0.count(0, pair, (1, len as u64), now_ns);
    }

    /// Adds the messages of an adapter since `since_ns`, when they were collected last.
    #[cold]
    pub(crate) fn collect(
        &mut self,
        adapter: &mut Adapter<Function>,
        (since_ns, now_ns): (u64, u64),
    ) {
        let own = ethernet::number(adapter.mac());
        for entry in adapter.take_traffic() {
            let peer = ethernet::number(entry.mac);
            for (pair, sum) in [((own, peer), entry.sent), ((peer, own), entry.read)] {
                let TrafficSum { messages, bytes } = sum;
                if messages > 0 {
                    let sums = MessageSums { messages, bytes };
                    self.0.collect(0, pair, sums, (since_ns, now_ns));
                }
            }
        }
    }

    /// Returns the matrix. The sender of a pair is named by its port.
    pub(crate) fn view(&mut self, group: Name, ports: &AdapterPorts, now_ns: u64) -> TrafficView {
        let mut view = self.0.view(group, now_ns, |_| String::from("-"));
        for pair in &mut view.pairs {
            if let Some(port) = ports.values().find(|port| port.mac == pair.source.0) {
                pair.from = port.name.to_string();
            }
        }
        view
    }
}
