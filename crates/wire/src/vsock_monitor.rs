//! Captured socket packets as Wireshark reads them: link type VSOCK (271) of pcapng.
//!
//! A record is a header of [`HEADER_LEN`] bytes with the addresses and the class of the operation
//! (`struct af_vsockmon_hdr` of Linux, little-endian), then the virtio-vsock header
//! ([`crate::vsock`]), then the data. `socket` writes records for captures; nothing here reads
//! them. It runs in the dispatcher's turn of the shard that records the packet.

use crate::vsock::{self, Header, Op};

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 32;
/// The transport header behind the header is that of virtio.
const TRANSPORT_VIRTIO: u16 = 2;

/// Returns the class of an operation: connect, disconnect, control or payload; 0 if it is unknown.
const fn class(op: Option<Op>) -> u16 {
    match op {
        None => 0,
        Some(Op::Request | Op::Response) => 1,
        Some(Op::Reset | Op::Shutdown) => 2,
        Some(Op::CreditUpdate | Op::CreditRequest) => 3,
        Some(Op::Data) => 4,
    }
}

/// Appends the two headers of a record; the data of the packet follows.
pub fn headers(out: &mut Vec<u8>, packet: &Header) {
    out.extend_from_slice(&packet.src_cid.to_le_bytes());
    out.extend_from_slice(&packet.dst_cid.to_le_bytes());
    out.extend_from_slice(&packet.src_port.to_le_bytes());
    out.extend_from_slice(&packet.dst_port.to_le_bytes());
    out.extend_from_slice(&class(packet.operation()).to_le_bytes());
    out.extend_from_slice(&TRANSPORT_VIRTIO.to_le_bytes());
    out.extend_from_slice(&(vsock::HEADER_LEN as u16).to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&packet.emit());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vsock_monitor_record_has_both_headers() {
        let packet = Header::between((3, 1000), (2, 22), 1, Op::Request);
        let mut out = Vec::new();
        headers(&mut out, &packet);
        let start = [
            3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0xe8, 3, 0, 0, 22, 0, 0, 0, 1, 0, 2, 0,
            44, 0, 0, 0,
        ];
        assert_eq!(out[..HEADER_LEN], start);
        assert_eq!(Header::parse(&out[HEADER_LEN..]).unwrap(), packet);
        let classes = [1, 2, 3, 4, 5, 6, 7, 8].map(|op| class(Op::from_raw(op)));
        assert_eq!(classes, [1, 1, 2, 2, 4, 3, 3, 0]);
    }
}
