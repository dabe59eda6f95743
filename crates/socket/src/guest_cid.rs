//! Ports with a guest CID (`guest_cid`): the clones of one snapshot, which all have the same CID,
//! while the group sees the port's own CID (`cid`).
//!
//! Everything in the service uses the group's CIDs: the directory, connections, rules, the ledger,
//! traces and lists. `transmit` exchanges the two CIDs in the header of each packet of such
//! a guest before its source is checked; `deliver` and `host` exchange them in the header of each
//! packet for it, all in the thread of the shard. Source and destination are exchanged alike:
//!
//! - The guest's packets come from `guest_cid`; another source is forged and closes the port: its
//!   frontend is disconnected, and may attach again.
//! - A packet of the guest to its own `guest_cid` is one to itself, and refused like every packet to
//!   the sender's own CID. Linux connects such sockets inside the guest.
//! - A port of the group with the CID `guest_cid` (the original of the snapshot) appears to the guest
//!   under the CID `cid`, in both directions.
//!
//! The model refuses a `guest_cid` below 3 or of 2^32 - 1; a value equal to `cid` has no effect.
//! The configuration space shows `guest_cid`. The transport reset event has no CID; Linux reads the
//! configuration again after it, and finds the same CID.
//!
//! # Budget
//! One comparison for each header, and at most four more for a header of such a port.

use causeway_model::VsockSpec;
use causeway_wire::vsock::Header;

/// The CID of a port, and that of its guest.
///
/// ```
/// use causeway_socket::guest_cid::GuestCid;
///
/// let guest = GuestCid::new(10, Some(3));
/// assert_eq!((guest.shown(), guest.exchange(3), guest.exchange(2)), (3, 10, 2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestCid {
    cid: u32,
    shown: u32,
}

impl GuestCid {
    /// Returns the CIDs of a port; `None`: the guest has the port's own CID.
    pub fn new(cid: u32, guest_cid: Option<u32>) -> Self {
        Self { cid, shown: guest_cid.unwrap_or(cid) }
    }

    /// Returns the CIDs of a port.
    pub fn of(spec: &VsockSpec) -> Self {
        Self::new(spec.cid, spec.guest_cid)
    }

    /// Returns the CID that the guest has.
    pub fn shown(self) -> u32 {
        self.shown
    }

    /// Returns the other CID for each of the two, and any third value unchanged: values above 32
    /// bits too, which no port has.
    #[inline]
    pub fn exchange(self, cid: u64) -> u64 {
        if cid == u64::from(self.cid) {
            u64::from(self.shown)
        } else if cid == u64::from(self.shown) {
            u64::from(self.cid)
        } else {
            cid
        }
    }

    /// Returns a header with the CIDs of the group instead of the guest's, or the reverse.
    #[inline]
    #[must_use]
    pub fn translate(self, header: Header) -> Header {
        if self.cid == self.shown {
            return header;
        }
        let (src_cid, dst_cid) = (self.exchange(header.src_cid), self.exchange(header.dst_cid));
        Header { src_cid, dst_cid, ..header }
    }
}

#[cfg(test)]
mod tests {
    use causeway_wire::vsock::{HEADER_LEN, Op, Type};
    use proptest::prelude::*;

    use super::*;

    fn header(src_cid: u64, dst_cid: u64) -> Header {
        Header::between((src_cid, 7), (dst_cid, 9), Type::Stream.raw(), Op::Data)
    }

    fn cids(header: Header) -> (u64, u64) {
        (header.src_cid, header.dst_cid)
    }

    #[test]
    fn guest_cid_is_exchanged_as_source_and_destination() {
        let guest = GuestCid::new(10, Some(3));
        for (sent, seen) in [
            ((3, 11), (10, 11)),
            ((11, 10), (11, 3)),
            ((3, 2), (10, 2)),
            // To itself.
            ((3, 3), (10, 10)),
            // The original of the snapshot, which has the CID 3 in the group.
            ((3, 10), (10, 3)),
            // A forged source is that of no guest with this port.
            ((10, 11), (3, 11)),
            ((4, 11), (4, 11)),
            ((3 | 1 << 32, 11), (3 | 1 << 32, 11)),
        ] {
            assert_eq!(cids(guest.translate(header(sent.0, sent.1))), seen, "{sent:?}");
        }
        let plain = GuestCid::new(10, None);
        assert_eq!((plain.shown(), cids(plain.translate(header(10, 3)))), (10, (10, 3)));
    }

    proptest! {
        #[test]
        fn guest_cid_translation_twice_is_the_identity(
            bytes in proptest::collection::vec(any::<u8>(), HEADER_LEN..=HEADER_LEN),
            cids in (3_u32..6, 3_u32..6),
            known in any::<(Option<u8>, Option<u8>)>(),
        ) {
            let mut header = Header::parse(&bytes).unwrap();
            header.src_cid = known.0.map_or(header.src_cid, |cid| u64::from(cid % 8));
            header.dst_cid = known.1.map_or(header.dst_cid, |cid| u64::from(cid % 8));
            let guest = GuestCid::new(cids.0, Some(cids.1));
            let once = guest.translate(header);
            prop_assert_eq!(guest.translate(once), header);
            // No other field changes.
            prop_assert_eq!(Header { src_cid: 0, dst_cid: 0, ..once }, Header { src_cid: 0, dst_cid: 0, ..header });
        }
    }
}
