//! virtio-vsock: the 44-byte packet header and its constants (virtio 1.3, section 5.10).

use crate::field::{Reader, Truncated, Writer};

/// Length of [`Header`] on the wire, in bytes.
pub const HEADER_LEN: usize = 44;
/// Length of an event on the event queue, in bytes (a little-endian id).
pub const EVENT_LEN: usize = 4;
/// Length of the configuration space, in bytes (the guest's CID, little endian, 64 bits).
pub const CONFIG_LEN: usize = 8;

/// Feature bit: stream sockets (assumed where neither this nor SEQPACKET is negotiated).
pub const VIRTIO_VSOCK_F_STREAM: u32 = 0;
/// Feature bit: sockets that keep message boundaries.
pub const VIRTIO_VSOCK_F_SEQPACKET: u32 = 1;
/// Feature bit: streams are not implied by SEQPACKET.
pub const VIRTIO_VSOCK_F_NO_IMPLIED_STREAM: u32 = 2;

/// Event: the transport was reset, every connection is gone (5.10.6.7).
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

/// The kind of socket that a packet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Type {
    /// An ordered byte stream.
    Stream = 1,
    /// Ordered messages.
    Seqpacket = 2,
}

impl Type {
    /// The type that `raw` stands for, if any.
    pub const fn from_raw(raw: u16) -> Option<Self> {
        match raw {
            1 => Some(Self::Stream),
            2 => Some(Self::Seqpacket),
            _ => None,
        }
    }

    /// The value on the wire.
    pub const fn raw(self) -> u16 {
        self as u16
    }
}

/// What a packet asks or tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Op {
    /// Connect to this port.
    Request = 1,
    /// The connect is accepted.
    Response = 2,
    /// Refused, or the connection is gone.
    Reset = 3,
    /// One or both directions are closed, see [`SHUTDOWN_SEND`].
    Shutdown = 4,
    /// Data.
    Data = 5,
    /// Tells `buf_alloc` and `fwd_cnt`.
    CreditUpdate = 6,
    /// Asks for a [`Op::CreditUpdate`].
    CreditRequest = 7,
}

impl Op {
    /// The operation that `raw` stands for, if any (0 is invalid by the specification).
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

    /// The value on the wire.
    pub const fn raw(self) -> u16 {
        self as u16
    }
}

/// `struct virtio_vsock_hdr`, as it is: every value of every field can be held, so that a
/// packet of unknown type or operation can still be answered with a reset.
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
    /// Bytes of data that follow.
    pub len: u32,
    /// Raw [`Type`].
    pub kind: u16,
    /// Raw [`Op`].
    pub op: u16,
    /// `SHUTDOWN_*` or `SEQ_*`, as `op` says.
    pub flags: u32,
    /// Sender's receive space for this connection, in bytes.
    pub buf_alloc: u32,
    /// Bytes that the sender has consumed so far, modulo 2^32.
    pub fwd_cnt: u32,
}

impl Header {
    /// A packet from one socket to another, each by its CID and port number, of a raw [`Type`]: it
    /// carries nothing, and tells of no room.
    pub fn between(from: (u64, u32), to: (u64, u32), kind: u16, op: Op) -> Self {
        let ((src_cid, src_port), (dst_cid, dst_port)) = (from, to);
        let op = op.raw();
        Self { src_cid, dst_cid, src_port, dst_port, kind, op, ..Self::default() }
    }

    /// Reads a header from the first [`HEADER_LEN`] bytes.
    ///
    /// # Errors
    /// [`Truncated`] when there are fewer.
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

    /// The header's bytes.
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

    /// The socket type, if it is a known one.
    pub const fn socket_type(&self) -> Option<Type> {
        Type::from_raw(self.kind)
    }

    /// The operation, if it is a known one.
    pub const fn operation(&self) -> Option<Op> {
        Op::from_raw(self.op)
    }

    /// Room at the sender of this header for `tx_cnt` bytes sent to it so far: `buf_alloc` less
    /// what is on the way (5.10.6.3), 0 where the counters contradict each other.
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
    fn the_layout_is_the_specifications() {
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
    fn credit_never_underflows() {
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
        fn short_input_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..HEADER_LEN)) {
            let have = bytes.len();
            let error = Header::parse(&bytes).unwrap_err();
            prop_assert_eq!((error.need, error.have), (HEADER_LEN, have));
        }

        #[test]
        fn raw_values_round_trip(raw in any::<u16>()) {
            prop_assert_eq!(Op::from_raw(raw).map_or(raw, Op::raw), raw);
            prop_assert_eq!(Type::from_raw(raw).map_or(raw, Type::raw), raw);
        }
    }
}
