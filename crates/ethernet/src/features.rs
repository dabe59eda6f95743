//! Feature bits and configuration space that a net port offers its guest (virtio 1.3, 5.1.3 and
//! 5.1.4).
//!
//! `service` returns both to the fabric when a port is added and for each frontend that connects;
//! they depend on the port's options only and do not change while the port exists. The attachment
//! adds features of its own (packed rings, for example), negotiates and checks the driver: this
//! module does not. The control queue (VIRTIO_NET_F_CTRL_VQ), UFO, RSC, RSS and VIRTIO_F_IN_ORDER
//! are not offered. The link status is always up. Offloads towards the guest are left out with the
//! port's option `offloads = "xdp"`. The functions run in the dispatcher's thread and cannot fail.

use causeway_model::{NetSpec, Offloads};
use causeway_wire::virtio::*;
use causeway_wire::virtio_net::*;

/// Length of the filled configuration space, in bytes: up to and including `mtu`.
pub const CONFIG_LEN: usize = 12;

/// Bit of `status`: the link is up.
const STATUS_LINK_UP: u16 = 1;

/// Feature bits that every net port offers.
const ALWAYS: [u32; 12] = [
    VIRTIO_F_VERSION_1,
    VIRTIO_F_INDIRECT_DESC,
    VIRTIO_F_EVENT_IDX,
    VIRTIO_NET_F_CSUM,
    VIRTIO_NET_F_MTU,
    VIRTIO_NET_F_MAC,
    VIRTIO_NET_F_HOST_TSO4,
    VIRTIO_NET_F_HOST_TSO6,
    VIRTIO_NET_F_HOST_ECN,
    VIRTIO_NET_F_MRG_RXBUF,
    VIRTIO_NET_F_STATUS,
    VIRTIO_NET_F_HOST_USO,
];

/// Feature bits that let the guest receive frames with offloads.
const GUEST_OFFLOADS: [u32; 6] = [
    VIRTIO_NET_F_GUEST_CSUM,
    VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6,
    VIRTIO_NET_F_GUEST_ECN,
    VIRTIO_NET_F_GUEST_USO4,
    VIRTIO_NET_F_GUEST_USO6,
];

/// Returns the feature bits that a port offers.
///
/// VIRTIO_NET_F_MQ is offered only with several queue pairs. The driver selects the pairs by the
/// control queue, which the frontend (QEMU, for example) offers and implements by itself.
pub fn offered(spec: &NetSpec) -> u64 {
    let all = |bits: &[u32]| bits.iter().fold(0, |all, bit| all | mask(*bit));
    let guest = if spec.offloads == Offloads::Xdp { 0 } else { all(&GUEST_OFFLOADS) };
    let several = if spec.queue_pairs > 1 { mask(VIRTIO_NET_F_MQ) } else { 0 };
    all(&ALWAYS) | guest | several
}

/// Returns the first bytes of `struct virtio_net_config` (virtio 1.3, 5.1.4), with the address that
/// the guest has.
pub fn config(spec: &NetSpec) -> [u8; CONFIG_LEN] {
    let [m0, m1, m2, m3, m4, m5] = spec.shown_mac().0;
    let [s0, s1] = STATUS_LINK_UP.to_le_bytes();
    let [q0, q1] = spec.queue_pairs.to_le_bytes();
    let [u0, u1] = spec.mtu.to_le_bytes();
    [m0, m1, m2, m3, m4, m5, s0, s1, q0, q1, u0, u1]
}

#[cfg(test)]
mod tests {
    use causeway_model::Mac;

    use super::*;

    #[test]
    fn config_and_features_follow_the_spec() {
        let mut spec = NetSpec {
            mac: Mac([2, 1, 2, 3, 4, 5]),
            guest_mac: None,
            mtu: 1500,
            queue_pairs: 1,
            learn: false,
            offloads: Offloads::All,
        };
        assert!(!has(offered(&spec), VIRTIO_NET_F_MQ));
        assert!(!has(offered(&spec), VIRTIO_NET_F_HOST_UFO));
        assert!(has(offered(&spec), VIRTIO_NET_F_MTU), "guests learn the MTU");
        let every = ALWAYS.len() + GUEST_OFFLOADS.len();
        assert_eq!(offered(&spec).count_ones() as usize, every);
        assert_eq!(config(&spec), [2, 1, 2, 3, 4, 5, 1, 0, 1, 0, 0xdc, 5]);
        spec.guest_mac = Some(Mac([2, 9, 9, 9, 9, 9]));
        assert_eq!(config(&spec)[..6], [2, 9, 9, 9, 9, 9], "the guest's own address");
        spec.queue_pairs = 4;
        assert!(has(offered(&spec), VIRTIO_NET_F_MQ));
        assert_eq!(config(&spec)[8..10], [4, 0]);
        spec.offloads = Offloads::Xdp;
        let offered = offered(&spec);
        assert!(GUEST_OFFLOADS.iter().all(|bit| !has(offered, *bit)));
        assert!(has(offered, VIRTIO_NET_F_CSUM) && has(offered, VIRTIO_NET_F_HOST_TSO4));
    }
}
