//! The exchange of addresses in frames and packets of clones: its own inverse, bounded, and without
//! effect on other bytes than addresses and checksums. Target `exchange`. Applying it twice gives
//! the first bytes, but for the two forms of a zero checksum; the frame keeps its length.

use causeway_socket::guest_cid::GuestCid;
use causeway_wire::exchange::{MacExchange, needs_headers};
use causeway_wire::frame::HEADERS_MAX;
use causeway_wire::vsock::{HEADER_LEN, Header};

use crate::Input;

const SHOWN: [u8; 6] = [0x52, 0x54, 0, 0, 0, 9];
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Runs one input: a frame, in which bytes of 0xf0 and 0xf1 stand for the two addresses.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    vsock(&mut input);
    let (offload, offset) = (input.bool(), usize::from(input.u8()));
    let mut frame = Vec::new();
    while !input.is_empty() {
        match input.u8() {
            0xf0 => frame.extend(SHOWN),
            0xf1 => frame.extend(OWN),
            byte => frame.push(byte),
        }
    }
    frame.truncate(HEADERS_MAX);
    let pair = MacExchange::new(SHOWN, OWN);
    let incomplete = offload.then_some(offset);
    let mut once = frame.clone();
    pair.apply(&mut once, incomplete);
    assert_eq!(once.len(), frame.len());
    assert_eq!(needs_headers(&once), needs_headers(&frame));
    let changed = frame.iter().zip(&once).filter(|(old, new)| old != new).count();
    // Both addresses of the Ethernet header, a checksum, and at most 24 options.
    assert!(changed <= 2 * 6 + 2 + 24 * 6, "{changed} bytes changed");
    let mut twice = once.clone();
    pair.apply(&mut twice, incomplete);
    for (at, (old, new)) in frame.iter().zip(&twice).enumerate() {
        // The checksum 0xffff has the second form 0.
        assert!(old == new || (*old, *new) == (0xff, 0), "byte {at} of {frame:02x?}");
    }
    let mut other = frame.clone();
    MacExchange::new([0xa2; 6], [0xa4; 6]).apply(&mut other, incomplete);
    let holds = |address: [u8; 6]| frame.windows(6).any(|window| window == address);
    assert!(other == frame || holds([0xa2; 6]) || holds([0xa4; 6]));
}

/// Translates the header of a vsock packet there and back.
fn vsock(input: &mut Input<'_>) {
    let cids = (3 + u32::from(input.u8() % 4), input.bool().then(|| 3 + u32::from(input.u8() % 4)));
    let guest = GuestCid::new(cids.0, cids.1);
    let mut header = Header::parse(&input.array::<HEADER_LEN>()).expect("a whole header");
    if input.bool() {
        (header.src_cid, header.dst_cid) = (header.src_cid % 8, header.dst_cid % 8);
    }
    let once = guest.translate(header);
    assert_eq!(guest.translate(once), header);
    assert_eq!(once.src_cid == u64::from(cids.0), header.src_cid == u64::from(guest.shown()));
}

/// Returns frames of each protocol that holds addresses.
pub fn seeds() -> Vec<Vec<u8>> {
    let prefix = [0_u8; 3 + HEADER_LEN + 2];
    let arp = [0xf1, 0xf0, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 0xf0, 10, 0, 0, 1, 0xf1, 10, 0, 0, 2];
    let mut nd = vec![0xf1, 0xf0, 0x81, 0, 0, 7, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 48, 58, 255];
    nd.extend([9; 32]);
    nd.extend([135, 0, 0x12, 0x34]);
    nd.extend([8; 20]);
    nd.extend([14, 1, 1, 2, 3, 4, 5, 6, 1, 1, 0xf0, 2, 1, 0xf1]);
    let mut dhcp = vec![0xf1, 0xf0, 8, 0, 0x45, 0, 1, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    dhcp.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 68, 0, 67, 0, 100, 0x12, 0x34, 1, 1, 6, 0]);
    dhcp.extend([0; 24]);
    dhcp.push(0xf0);
    [&arp[..], &nd, &dhcp].map(|frame| [&prefix[..], frame].concat()).to_vec()
}
