//! Frames whose checksum, and whose cutting, a far kernel left to hardware: what is asked for them
//! is what the switch can do, whatever they say of themselves.

use causeway_ethernet::offload::{OffloadPlan, plan};
use causeway_fabric::carrier::OFFLOAD_BYTES;
use causeway_link::partial_offload::missing_offload;
use causeway_wire::frame::{Frame, HEADERS_MAX};
use causeway_wire::virtio_net::{Header, Offload};

use crate::Input;
use crate::offload::{ALL, complete, cut, frame, sum};

/// Plays one input.
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
    let offload = missing_offload(&bytes);
    if offload == [0; OFFLOAD_BYTES] {
        assert!(!left, "what was left is asked for");
        return;
    }
    let mut header = [0; 12];
    header[..OFFLOAD_BYTES].copy_from_slice(&offload);
    let header = Header::parse(&header).expect("twelve bytes");
    let start = &bytes[..bytes.len().min(HEADERS_MAX)];
    let frame = Frame::parse(start).expect("it was read before");
    let Ok(offload) = Offload::check(&header, ALL, &frame, bytes.len()) else { return };
    match plan(&offload, 0) {
        OffloadPlan::Pass => panic!("{header:?} asks for nothing"),
        OffloadPlan::Complete(place) => complete(bytes, place),
        OffloadPlan::Cut { place, gso, complete } => {
            cut(&bytes, &frame, &offload, place, gso, complete)
        }
    }
}

/// Writes the pseudo-header's sum into the checksum of a frame that has one and is whole; whether
/// it was one.
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
    // A sum of zero is written as one of the two zeroes that there are; kernels write the other.
    let word = match all % 65_535 {
        0 => 0xffff,
        word => word as u16,
    };
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
    // Headers that fill a packet leave no room for pieces: such a frame is left alone.
    network.transport.is_some_and(|transport| transport.payload - network.offset < 1000)
}

/// Frames of every kind that were left unfinished.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for kind in 0..8_u8 {
        for (len, choice) in [(100_u16, 0_u8), (3000, 0), (40_000, 0), (3000, 2)] {
            let mut story = vec![choice, kind | if len > 4095 { 0x38 } else { 0x10 }];
            if kind & 1 != 0 {
                story.push(7);
            }
            story.extend(len.to_le_bytes());
            if kind & 4 == 0 {
                story.push(0x18);
            }
            story.push(0);
            all.push(story);
        }
    }
    all
}
