//! virtio-vsock: the 44-byte packet header and its constants (virtio 1.3, section 5.10). First step
//! of a socket packet after its descriptors were read. Connections and credit accounting across
//! packets are in `socket`.
//!
//! The parser checks the length alone. Type, operation, CIDs, flags and `len` may have any value;
//! the data behind the header is not read. `socket` answers an unknown type, operation or
//! destination with a reset, and stops the port of a guest whose packet is cut off, announces more
//! data than it has or than 64 KiB, or names another source than the port's CID. Names and numbers
//! are those of the specification. `socket` runs in a dispatcher's turn; native frontends
//! (`attach::native`) use the format in their own threads.

use crate::field::{Reader, Truncated, Writer};

/// Length of [`Header`], in bytes.
pub const HEADER_LEN: usize = 44;
/// Length of an event on the event queue, in bytes: a little-endian number.
pub const EVENT_LEN: usize = 4;
/// Length of the configuration space, in bytes: the guest's CID, little-endian, 64 bits.
pub const CONFIG_LEN: usize = 8;

/// Feature bit: stream sockets (implied if neither this nor SEQPACKET is negotiated).
pub const VIRTIO_VSOCK_F_STREAM: u32 = 0;
/// Feature bit: sockets that preserve message boundaries.
pub const VIRTIO_VSOCK_F_SEQPACKET: u32 = 1;
/// Feature bit: SEQPACKET does not imply streams.
pub const VIRTIO_VSOCK_F_NO_IMPLIED_STREAM: u32 = 2;

/// Event: the transport was reset, all connections are gone (5.10.6.7).
pub const EVENT_TRANSPORT_RESET: u32 = 0;

/// Flag of SHUTDOWN: the sender will receive no more.
pub const SHUTDOWN_RECEIVE: u32 = 1;
/// Flag of SHUTDOWN: the sender will send no more.
pub const SHUTDOWN_SEND: u32 = 2;
/// Both directions.
pub const SHUTDOWN_BOTH: u32 = SHUTDOWN_RECEIVE | SHUTDOWN_SEND;
/// Flag of SEQPACKET data: the end of a message.
pub const SEQ_EOM: u32 = 1;
/// Flag of SEQPACKET data: the end of a record (`MSG_EOR`).
pub const SEQ_EOR: u32 = 2;

/// Type of the socket that a packet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Type {
    /// An ordered byte stream.
    Stream = 1,
    /// Ordered messages.
    Seqpacket = 2,
}

impl Type {
    /// Returns the type with number `raw`, or `None` if it is unknown.
    pub const fn from_raw(raw: u16) -> Option<Self> {
        match raw {
            1 => Some(Self::Stream),
            2 => Some(Self::Seqpacket),
            _ => None,
        }
    }

    /// Returns the number of the type.
    pub const fn raw(self) -> u16 {
        self as u16
    }
}

/// Operation of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Op {
    /// Requests a connection to the destination port.
    Request = 1,
    /// Accepts the connection.
    Response = 2,
    /// Refuses or resets the connection.
    Reset = 3,
    /// Closes one or both directions, see [`SHUTDOWN_SEND`].
    Shutdown = 4,
    /// Carries data.
    Data = 5,
    /// Reports `buf_alloc` and `fwd_cnt`.
    CreditUpdate = 6,
    /// Requests an [`Op::CreditUpdate`].
    CreditRequest = 7,
}

impl Op {
    /// Returns the operation with number `raw`, or `None` if it is unknown (0 is invalid).
    pub const fn from_raw(raw: u16) -> Option<Self> {
        match raw {
            1 => Some(Self::Request),
            2 => Some(Self::Response),
            3 => Some(Self::Reset),
            4 => Some(Self::Shutdown),
            5 => Some(Self::Data),
            6 => Some(Self::CreditUpdate),
            7 => Some(Self::CreditRequest),
            _ => None,
        }
    }

    /// Returns the number of the operation.
    pub const fn raw(self) -> u16 {
        self as u16
    }
}

/// `struct virtio_vsock_hdr`, unchecked: each field holds any value, so that a packet of unknown
/// type or operation can be answered with a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Sender's CID; the upper 32 bits are reserved and zero.
    pub src_cid: u64,
    /// Receiver's CID.
    pub dst_cid: u64,
    /// Sender's port number.
    pub src_port: u32,
    /// Receiver's port number.
    pub dst_port: u32,
    /// Length of the data that follows, in bytes.
    pub len: u32,
    /// Number of a [`Type`].
    pub kind: u16,
    /// Number of an [`Op`].
    pub op: u16,
    /// `SHUTDOWN_*` or `SEQ_*`, according to `op`.
    pub flags: u32,
    /// The sender's receive buffer for this connection, in bytes.
    pub buf_alloc: u32,
    /// Bytes that the sender has consumed so far, modulo 2^32.
    pub fwd_cnt: u32,
}

impl Header {
    /// Returns the header of a packet without data, credit and flags from one socket to another,
    /// each by CID and port number. `kind` is the number of a [`Type`].
    pub fn between(from: (u64, u32), to: (u64, u32), kind: u16, op: Op) -> Self {
        let ((src_cid, src_port), (dst_cid, dst_port)) = (from, to);
        let op = op.raw();
        Self { src_cid, dst_cid, src_port, dst_port, kind, op, ..Self::default() }
    }

    /// Parses a header from the first [`HEADER_LEN`] bytes.
    ///
    /// # Errors
    /// [`Truncated`] if `bytes` is shorter.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new("virtio-vsock header", HEADER_LEN, bytes)?;
        Ok(Self {
            src_cid: r.u64_le(),
            dst_cid: r.u64_le(),
            src_port: r.u32_le(),
            dst_port: r.u32_le(),
            len: r.u32_le(),
            kind: r.u16_le(),
            op: r.u16_le(),
            flags: r.u32_le(),
            buf_alloc: r.u32_le(),
            fwd_cnt: r.u32_le(),
        })
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let mut w = Writer::new(&mut bytes);
        w.put(self.src_cid.to_le_bytes());
        w.put(self.dst_cid.to_le_bytes());
        w.put(self.src_port.to_le_bytes());
        w.put(self.dst_port.to_le_bytes());
        w.put(self.len.to_le_bytes());
        w.put(self.kind.to_le_bytes());
        w.put(self.op.to_le_bytes());
        w.put(self.flags.to_le_bytes());
        w.put(self.buf_alloc.to_le_bytes());
        w.put(self.fwd_cnt.to_le_bytes());
        bytes
    }

    /// Returns the socket type, or `None` if it is unknown.
    pub const fn socket_type(&self) -> Option<Type> {
        Type::from_raw(self.kind)
    }

    /// Returns the operation, or `None` if it is unknown.
    pub const fn operation(&self) -> Option<Op> {
        Op::from_raw(self.op)
    }

    /// Returns the free receive space of this header's sender, in bytes, if `tx_cnt` bytes were
    /// sent to it so far: `buf_alloc` less the bytes in flight (5.10.6.3), or 0 if the counters are
    /// inconsistent.
    pub const fn peer_free(&self, tx_cnt: u32) -> u32 {
        let on_the_way = tx_cnt.wrapping_sub(self.fwd_cnt);
        self.buf_alloc.saturating_sub(on_the_way)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn vsock_header_has_the_layout_of_the_specification() {
        let header = Header {
            src_cid: 0x0102_0304,
            dst_cid: 3,
            src_port: 0xa0a1_a2a3,
            dst_port: 1234,
            len: 7,
            kind: Type::Stream.raw(),
            op: Op::Data.raw(),
            flags: SEQ_EOM,
            buf_alloc: 0x10_0000,
            fwd_cnt: 9,
        };
        let bytes = header.emit();
        assert_eq!(bytes[..8], [4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(bytes[16..20], [0xa3, 0xa2, 0xa1, 0xa0]);
        assert_eq!(bytes[24..32], [7, 0, 0, 0, 1, 0, 5, 0]);
        assert_eq!(bytes[36..40], [0, 0, 0x10, 0]);
    }

    #[test]
    fn vsock_credit_never_underflows() {
        let header = Header { buf_alloc: 100, fwd_cnt: u32::MAX - 9, ..Header::default() };
        assert_eq!(header.peer_free(u32::MAX - 9), 100);
        assert_eq!(header.peer_free(40), 50);
        assert_eq!(header.peer_free(200), 0);
        assert_eq!(header.peer_free(0x8000_0000), 0);
    }

    proptest! {
        #[test]
        fn emit_undoes_parse(bytes in proptest::array::uniform32(any::<u8>()), more in any::<[u8; 12]>()) {
            let mut all = bytes.to_vec();
            all.extend(more);
            prop_assert_eq!(Header::parse(&all).unwrap().emit().to_vec(), all);
        }

        #[test]
        fn vsock_short_input_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..HEADER_LEN)) {
            let have = bytes.len();
            let error = Header::parse(&bytes).unwrap_err();
            prop_assert_eq!((error.need, error.have), (HEADER_LEN, have));
        }

        #[test]
        fn vsock_raw_values_round_trip(raw in any::<u16>()) {
            prop_assert_eq!(Op::from_raw(raw).map_or(raw, Op::raw), raw);
            prop_assert_eq!(Type::from_raw(raw).map_or(raw, Type::raw), raw);
        }
    }
}
