//! The addresses of NICs in datagram mode.
//!
//! A NIC belongs to the address of its first frame. Frames from another address in its name are
//! dropped, unless the NIC was silent for long. Then both addresses get a name query with a random
//! number, at most every `QUERY_NS` (5 s), and the NIC moves if the new address answers and the old
//! address does not.
//!
//! This module is without I/O, like the engine. Forgery by a node on the path is not prevented.
//!
//! Limits: [`NICS_PER_ADDRESS_MAX`] (256) NICs per configured address; frames of further NICs are
//! dropped. Entries are kept until the NIC moves or the table ends with the port. A NIC may move
//! after [`MOVED_NS`] (30 s) of silence, and its old address has [`MOVE_ANSWER_NS`] (1 s) to
//! answer: any frame from there ends the move. Datagrams from addresses that are not configured are
//! dropped by the caller ([`AddressTable::knows`]). Used by `network::udp` for each received and
//! each sent frame, under its lock, on the dispatcher's thread.

use std::collections::HashMap;
use std::net::SocketAddr;

use causeway_wire::mxoe::{Packet, parse};

use crate::limits::{MOVE_ANSWER_NS, MOVED_NS, NICS_PER_ADDRESS_MAX, QUERY_NS, SINGLE_BATCHES};

/// A pending move of a NIC.
#[derive(Debug, Clone, Copy)]
struct MoveClaim {
    /// The new address.
    at: SocketAddr,
    /// Number of the query to both addresses, and its time.
    magic: u32,
    asked_ns: u64,
    /// Whether the new address answered the query.
    answered: bool,
}

/// The address of a NIC, and the time of its latest frame.
#[derive(Debug, Clone, Copy)]
struct NicAddress {
    /// The address.
    at: SocketAddr,
    /// Time of the latest frame from the address, in ns.
    heard_ns: u64,
    /// A pending move to another address.
    claim: Option<MoveClaim>,
}

/// Result of checking the source of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceCheck {
    /// The NIC is at this address.
    Valid,
    /// The NIC is at another address, or the address has 256 NICs: the caller drops the frame.
    Foreign,
    /// The caller drops the frame, and sends a name query with this number to both addresses.
    Query { both: [SocketAddr; 2], magic: u32 },
}

/// The address table of a NIC.
#[derive(Debug)]
pub struct AddressTable {
    /// The configured addresses.
    peers: Vec<SocketAddr>,
    /// With the keyed hash of `std`: peers choose MACs.
    nics: HashMap<[u8; 6], NicAddress>,
    /// Number of further batches to an address that are sent in single datagrams, because the
    /// kernel did not segment one. Only addresses of `peers`.
    single: HashMap<SocketAddr, u32>,
}

impl AddressTable {
    /// Creates a table for the configured addresses.
    pub fn new(peers: Vec<SocketAddr>) -> Self {
        Self { peers, nics: HashMap::new(), single: HashMap::new() }
    }

    /// Returns whether an address is configured.
    pub fn knows(&self, peer: &SocketAddr) -> bool {
        self.peers.contains(peer)
    }

    /// Returns the configured addresses.
    pub fn peers(&self) -> &[SocketAddr] {
        &self.peers
    }

    /// Returns the address of a NIC.
    pub fn place(&self, nic: [u8; 6]) -> Option<SocketAddr> {
        self.nics.get(&nic).map(|place| place.at)
    }

    /// Returns whether the next batch to an address may be sent in one call.
    pub fn may_batch(&mut self, to: SocketAddr) -> bool {
        let Some(left) = self.single.get_mut(&to) else { return true };
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.single.remove(&to);
        }
        false
    }

    /// Records that the kernel did not segment a batch to an address.
    pub fn send_singly(&mut self, to: SocketAddr) {
        self.single.insert(to, SINGLE_BATCHES);
    }

    /// Returns whether an address has fewer than [`NICS_PER_ADDRESS_MAX`] (256) NICs.
    fn has_room(&self, at: SocketAddr) -> bool {
        self.nics.values().filter(|place| place.at == at).count() < NICS_PER_ADDRESS_MAX
    }

    /// Checks the source of a frame from NIC `nic`.
    pub fn check_source(
        &mut self,
        nic: [u8; 6],
        from: SocketAddr,
        frame: &[u8],
        now_ns: u64,
        random: impl FnOnce() -> u32,
    ) -> SourceCheck {
        let new = NicAddress { at: from, heard_ns: now_ns, claim: None };
        let room = self.place(nic) == Some(from) || self.has_room(from);
        let Some(known) = self.nics.get_mut(&nic) else {
            if !room {
                return SourceCheck::Foreign;
            }
            self.nics.insert(nic, new);
            return SourceCheck::Valid;
        };
        if known.at == from {
            *known = new;
            return SourceCheck::Valid;
        }
        if now_ns.saturating_sub(known.heard_ns) <= MOVED_NS {
            return SourceCheck::Foreign;
        }
        if let Some(claim) = &mut known.claim {
            let asked = now_ns.saturating_sub(claim.asked_ns);
            if claim.at == from {
                claim.answered |= asked < QUERY_NS && answers(frame, claim.magic);
                // The answer counts until a frame arrives from the old address, which removes the
                // claim.
                if claim.answered && asked >= MOVE_ANSWER_NS && room {
                    *known = new;
                    return SourceCheck::Valid;
                }
            }
            if asked < QUERY_NS {
                return SourceCheck::Foreign;
            }
        }
        let (both, magic) = ([known.at, from], random());
        known.claim = Some(MoveClaim { at: from, magic, asked_ns: now_ns, answered: false });
        SourceCheck::Query { both, magic }
    }
}

/// Returns whether a frame answers a query.
fn answers(frame: &[u8], magic: u32) -> bool {
    matches!(parse(frame), Ok((_, Packet::HostReply(reply))) if reply.magic == magic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_wire::mxoe::{Header, HostReply, PEER_UNKNOWN, emit};

    const NIC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn answer(magic: u32) -> Vec<u8> {
        let header = Header { destination: [2; 6], source: NIC, peer_index: PEER_UNKNOWN };
        let reply = HostReply { index_of_destination: 0, magic, name: b"one:0" };
        let (head, data) = emit(&header, &Packet::HostReply(reply));
        [head.bytes(), data].concat()
    }

    /// Returns a table with the NIC at the first address, and a time after its silence.
    fn silent() -> (AddressTable, u64) {
        let mut book = AddressTable::new(vec![at(1), at(2), at(3)]);
        assert_eq!(book.check_source(NIC, at(1), b"", 0, || 0), SourceCheck::Valid);
        (book, MOVED_NS + 1)
    }

    #[test]
    fn hostile_peers_have_few_nics_and_none_of_another() {
        let (mut book, now) = silent();
        assert_eq!(book.check_source(NIC, at(2), b"", now - 1, || 5), SourceCheck::Foreign);
        assert_eq!(book.place(NIC), Some(at(1)));
        let mut taken = 0;
        for number in 0..3000_u32 {
            let [_, _, high, low] = number.to_be_bytes();
            let nic = [2, 1, 0, 0, high, low];
            taken += usize::from(book.check_source(nic, at(2), b"", 0, || 0) == SourceCheck::Valid);
        }
        assert_eq!(taken, NICS_PER_ADDRESS_MAX);
    }

    #[test]
    fn hostile_peers_do_not_take_a_silent_nic() {
        let (mut book, now) = silent();
        let both = [at(1), at(2)];
        assert_eq!(
            book.check_source(NIC, at(2), b"", now, || 5),
            SourceCheck::Query { both, magic: 5 }
        );
        // The claimant answers, and so does the NIC.
        assert_eq!(book.check_source(NIC, at(2), &answer(5), now + 1, || 6), SourceCheck::Foreign);
        assert_eq!(book.check_source(NIC, at(1), &answer(5), now + 2, || 6), SourceCheck::Valid);
        let later = now + MOVE_ANSWER_NS;
        assert_eq!(book.check_source(NIC, at(2), b"", later, || 6), SourceCheck::Foreign);
        assert_eq!(book.place(NIC), Some(at(1)));
    }

    #[test]
    fn hostile_peers_do_not_take_a_nic_without_an_answer() {
        let (mut book, now) = silent();
        assert!(matches!(book.check_source(NIC, at(2), b"", now, || 5), SourceCheck::Query { .. }));
        // Another number; another address with the right number.
        book.check_source(NIC, at(2), &answer(4), now + 1, || 6);
        book.check_source(NIC, at(3), &answer(5), now + 1, || 6);
        for after in [MOVE_ANSWER_NS, QUERY_NS - 1] {
            assert_eq!(book.check_source(NIC, at(2), b"", now + after, || 6), SourceCheck::Foreign);
        }
        let again = book.check_source(NIC, at(3), b"", now + QUERY_NS, || 6);
        assert_eq!(
            again,
            SourceCheck::Query { both: [at(1), at(3)], magic: 6 },
            "the query is repeated"
        );
        assert_eq!(book.place(NIC), Some(at(1)));
    }

    #[test]
    fn address_moves_if_only_the_new_address_answers() {
        let (mut book, now) = silent();
        assert!(matches!(book.check_source(NIC, at(2), b"", now, || 5), SourceCheck::Query { .. }));
        assert_eq!(book.check_source(NIC, at(2), &answer(5), now + 1, || 6), SourceCheck::Foreign);
        assert_eq!(
            book.check_source(NIC, at(2), b"", now + MOVE_ANSWER_NS, || 6),
            SourceCheck::Valid
        );
        assert_eq!(book.place(NIC), Some(at(2)));
    }

    #[test]
    fn address_moves_of_a_rare_sender() {
        let (mut book, now) = silent();
        assert!(matches!(book.check_source(NIC, at(2), b"", now, || 5), SourceCheck::Query { .. }));
        assert_eq!(book.check_source(NIC, at(2), &answer(5), now + 1, || 6), SourceCheck::Foreign);
        assert_eq!(
            book.check_source(NIC, at(2), b"", now + 3 * QUERY_NS, || 6),
            SourceCheck::Valid
        );
    }
}
