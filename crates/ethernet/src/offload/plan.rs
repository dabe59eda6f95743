//! The decision which offload of a frame is done in software for a receiver.
//!
//! `deliver` asks for the receiver's negotiated features, `link_tx` with no features for a carrier
//! that takes no offloads, and `forward` before it counts the segments of a frame, all in the
//! thread of the group's dispatcher. The decision is a pure function: it changes no frame, checks
//! no header and cannot fail. A receiver that did not negotiate incomplete checksums
//! (VIRTIO_NET_F_GUEST_CSUM) gets segments with complete checksums.

use causeway_wire::virtio::has;
use causeway_wire::virtio_net::{
    ChecksumPlace, Gso, Offload, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_ECN,
};

/// The software work before the receiver gets the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffloadPlan {
    /// None: the frame passes with the header that the sender gave it.
    Pass,
    /// Complete the checksum.
    Complete(ChecksumPlace),
    /// Cut the frame into segments.
    Cut {
        /// Position of the checksum, in the frame and in every segment.
        place: ChecksumPlace,
        /// Segment size and header length.
        gso: Gso,
        /// Whether the checksums of the segments are completed too.
        complete: bool,
    },
}

/// Returns the software work for a frame with `offload` and a receiver that negotiated `features`.
pub fn plan(offload: &Offload, features: u64) -> OffloadPlan {
    let takes_partial = has(features, VIRTIO_NET_F_GUEST_CSUM);
    match *offload {
        Offload::None => OffloadPlan::Pass,
        Offload::Checksum(_) if takes_partial => OffloadPlan::Pass,
        Offload::Checksum(place) => OffloadPlan::Complete(place),
        Offload::Segment(place, gso) => {
            let takes_ecn = !gso.kind.ecn() || has(features, VIRTIO_NET_F_GUEST_ECN);
            if takes_partial && takes_ecn && has(features, gso.kind.guest_feature()) {
                OffloadPlan::Pass
            } else {
                OffloadPlan::Cut { place, gso, complete: !takes_partial }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use causeway_wire::virtio::mask;
    use causeway_wire::virtio_net::*;

    use super::*;

    #[test]
    fn offload_plan_follows_negotiated_features() {
        let place = ChecksumPlace { start: 34, offset: 16 };
        let sum = Offload::Checksum(place);
        let tcp = |ecn| Gso { kind: GsoKind::Tcp4 { ecn }, size: 1000, header_len: 54 };
        let (plain, ecn) =
            (Offload::Segment(place, tcp(false)), Offload::Segment(place, tcp(true)));
        let cut = |gso, complete| OffloadPlan::Cut { place, gso, complete };
        let csum = mask(VIRTIO_NET_F_GUEST_CSUM);
        let tso4 = mask(VIRTIO_NET_F_GUEST_TSO4);
        let tso6 = mask(VIRTIO_NET_F_GUEST_TSO6);
        let with_ecn = mask(VIRTIO_NET_F_GUEST_ECN);
        for (offload, features, expected) in [
            (Offload::None, 0, OffloadPlan::Pass),
            (sum, 0, OffloadPlan::Complete(place)),
            (sum, csum, OffloadPlan::Pass),
            (plain, 0, cut(tcp(false), true)),
            (plain, tso4, cut(tcp(false), true)),
            (plain, csum, cut(tcp(false), false)),
            (plain, csum | tso6, cut(tcp(false), false)),
            (plain, csum | tso4, OffloadPlan::Pass),
            (ecn, csum | tso4, cut(tcp(true), false)),
            (ecn, csum | tso4 | with_ecn, OffloadPlan::Pass),
        ] {
            assert_eq!(plan(&offload, features), expected, "{offload:?} {features:#x}");
        }
    }
}
