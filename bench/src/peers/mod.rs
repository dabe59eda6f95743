//! Alternatives to Causeway, as far as they are installed on this machine.
//!
//! The rows (`rows`) name a peer's function beside Causeway's; `rounds` calls it in each round. A
//! missing program, a missing privilege or a failed run is an error with the reason, and the row
//! stands without the peer. Programs are children that end with the benchmark ([`process`]), with
//! files in temporary folders. Waits of a peer end after their limits ([`wait`], [`process`]),
//! except those of [`streams`]. Peers run on the cores that Causeway's dispatcher and clients use
//! in the same row.

pub mod af_xdp;
pub mod frames;
pub mod kernel;
pub mod messages;
pub mod mpi;
pub mod netns;
pub mod overlay;
pub mod ovs;
pub mod process;
pub mod relay;
pub mod streams;
pub mod tcp;
pub mod testpmd;
pub mod underlay;
pub mod vsock;
pub mod wait;

#[cfg(test)]
mod tests {
    use super::underlay::{Ends, PeerNetwork};
    use super::*;
    use crate::effort::Effort;

    #[test]
    fn peers_in_namespaces_have_figures() {
        let effort = &Effort { runs: 1, quick: true };
        let figures = [
            ("relay", relay::relay_round_us(effort, Ends::Apart)),
            ("frames, asleep", frames::frame_round_us(effort, Ends::Together)),
            ("frames, polling", frames::frame_round_us(effort, Ends::Spinning)),
            ("UDP, asleep", underlay::udp_round_us(effort, PeerNetwork::Veth, Ends::Together)),
            ("UDP, polling", underlay::udp_round_us(effort, PeerNetwork::Vxlan, Ends::Spinning)),
            ("TCP", underlay::tcp_gbits(effort, PeerNetwork::Veth)),
            ("TCP over a bridge", kernel::tcp_gbps(effort)),
        ];
        for (peer, figure) in figures {
            match figure {
                Ok(values) => assert!(values.iter().all(|value| *value > 0.0), "{peer} {values:?}"),
                Err(why) => {
                    assert!(why.contains("Operation not permitted"), "{peer}: {why}");
                    eprintln!("left out: {peer}: {why}");
                }
            }
        }
    }
}
