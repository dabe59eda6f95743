//! Frames with a partial checksum or pending segmentation from a remote kernel: the offload derived
//! from the frame is always an offload that the switch supports, for any frame content. Target
//! `unfinished`. The offload is then executed and checked by [`crate::offload`]; a frame without
//! one must have nothing pending.

use causeway_ethernet::offload::{OffloadPlan, plan};
use causeway_fabric::carrier::OFFLOAD_BYTES;
use causeway_link::limits::PACKET_BYTES_VXLAN;
use causeway_link::partial_offload::missing_offload;
use causeway_wire::frame::{Frame, HEADERS_MAX};
use causeway_wire::virtio_net::{Header, Offload};

use crate::Input;
use crate::offload::{ALL, complete, cut, frame, sum};

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = input.u8();
    let mut bytes = match choice & 1 {
        0 => frame(&mut input, [2; 6], [4; 6]),
        _ => input.rest().to_vec(),
    };
    let left = match choice & 2 {
        0 => unfinish(&mut bytes),
        _ => false,
    };
    let offload = missing_offload(&bytes, PACKET_BYTES_VXLAN, None);
    if offload == [0; OFFLOAD_BYTES] {
        assert!(!left, "pending offload is not requested");
        return;
    }
    let mut header = [0; 12];
    header[..OFFLOAD_BYTES].copy_from_slice(&offload);
    let header = Header::parse(&header).expect("a complete header");
    let start = &bytes[..bytes.len().min(HEADERS_MAX)];
    let frame = Frame::parse(start).expect("a frame that was parsed before");
    let Ok(offload) = Offload::check(&header, ALL, &frame, bytes.len()) else { return };
    match plan(&offload, 0) {
        OffloadPlan::Pass => panic!("{header:?} requests no offload"),
        OffloadPlan::Complete(place) => complete(bytes, place),
        OffloadPlan::Cut { place, gso, complete } => {
            cut(&bytes, &frame, &offload, place, gso, complete)
        }
    }
}

/// Writes the pseudo-header sum into the checksum field of a complete frame. Returns true if the
/// frame has a checksum and can be segmented.
fn unfinish(bytes: &mut [u8]) -> bool {
    let network = Frame::parse(bytes).ok().and_then(|frame| frame.network);
    let Some(network) = network.filter(|network| network.end == bytes.len()) else { return false };
    let Some(transport) = network.transport else { return false };
    let at = transport.offset + transport.protocol.checksum_offset();
    if bytes.len() < at + 2 {
        return false;
    }
    let addresses = match bytes[network.offset] >> 4 {
        4 => network.offset + 12..network.offset + 20,
        _ => network.offset + 8..network.offset + 40,
    };
    let len = (bytes.len() - transport.offset) as u64;
    let all = sum(&bytes[addresses]) + len + u64::from(transport.protocol.number());
    // Zero has two representations in ones' complement; kernels write 0xffff.
    let word = match all % 65_535 {
        0 => 0xffff,
        word => word as u16,
    };
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
    // If the headers fill a packet, segmentation has no room for payload, and no offload is
    // requested.
    network.transport.is_some_and(|transport| transport.payload - network.offset < 1000)
}

/// Returns frames of every kind with pending offloads.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for kind in 0..8_u8 {
        for (len, choice) in [(100_u16, 0_u8), (3000, 0), (40_000, 0), (3000, 2)] {
            let mut scenario = vec![choice, kind | if len > 4095 { 0x38 } else { 0x10 }];
            if kind & 1 != 0 {
                scenario.push(7);
            }
            scenario.extend(len.to_le_bytes());
            if kind & 4 == 0 {
                scenario.push(0x18);
            }
            scenario.push(0);
            all.push(scenario);
        }
    }
    all
}
