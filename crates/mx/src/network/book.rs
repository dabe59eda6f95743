//! Which boards are behind which address, where frames are carried in datagrams.
//!
//! A board is where it was heard of first. What comes from another address in its name is not
//! taken, unless the board was silent for long; then both addresses are asked with a number that
//! nobody can guess, and the board is at the other one if that answers and the first does not.
//!
//! As the engine, it is without I/O.

use std::collections::HashMap;
use std::net::SocketAddr;

use causeway_wire::mxoe::{Packet, parse};

use crate::limits::{ALONE_RUNS, ASKED_NS, BOARDS_PER_ADDRESS_MAX, MOVED_NS, MOVES_NS};

/// A board may be elsewhere.
#[derive(Debug, Clone, Copy)]
struct Claim {
    at: SocketAddr,
    /// What both were asked with, and when.
    magic: u32,
    asked_ns: u64,
    answered: bool,
}

/// Where a board is, and when it was heard of.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: SocketAddr,
    heard_ns: u64,
    claim: Option<Claim>,
}

/// What is to become of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It is of the board that it names.
    Here,
    /// It is not, as far as is known.
    Elsewhere,
    /// Nor that; and both addresses are to be asked for the board's name, with this number.
    Ask { both: [SocketAddr; 2], magic: u32 },
}

/// See the module.
#[derive(Debug)]
pub struct Book {
    peers: Vec<SocketAddr>,
    /// With std's keyed hash: peers choose MACs.
    boards: HashMap<[u8; 6], Place>,
    /// Where so many more runs leave frame by frame, because the host did not cut one on its way
    /// there. Only of `peers`.
    alone: HashMap<SocketAddr, u32>,
}

impl Book {
    /// Of addresses that the operator named.
    pub fn new(peers: Vec<SocketAddr>) -> Self {
        Self { peers, boards: HashMap::new(), alone: HashMap::new() }
    }

    /// Whether the operator named an address.
    pub fn knows(&self, peer: &SocketAddr) -> bool {
        self.peers.contains(peer)
    }

    /// All addresses.
    pub fn peers(&self) -> &[SocketAddr] {
        &self.peers
    }

    /// Where a board is.
    pub fn place(&self, board: [u8; 6]) -> Option<SocketAddr> {
        self.boards.get(&board).map(|place| place.at)
    }

    /// Whether the next run to an address may leave in one call.
    pub fn leaves_together(&mut self, to: SocketAddr) -> bool {
        let Some(left) = self.alone.get_mut(&to) else { return true };
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.alone.remove(&to);
        }
        false
    }

    /// The host did not cut what was to go to an address together.
    pub fn leaves_alone(&mut self, to: SocketAddr) {
        self.alone.insert(to, ALONE_RUNS);
    }

    fn has_room(&self, at: SocketAddr) -> bool {
        self.boards.values().filter(|place| place.at == at).count() < BOARDS_PER_ADDRESS_MAX
    }

    /// A frame came from there in the name of a board.
    pub fn heard(
        &mut self,
        board: [u8; 6],
        from: SocketAddr,
        frame: &[u8],
        now_ns: u64,
        random: impl FnOnce() -> u32,
    ) -> Heard {
        let new = Place { at: from, heard_ns: now_ns, claim: None };
        let room = self.place(board) == Some(from) || self.has_room(from);
        let Some(known) = self.boards.get_mut(&board) else {
            if !room {
                return Heard::Elsewhere;
            }
            self.boards.insert(board, new);
            return Heard::Here;
        };
        if known.at == from {
            *known = new;
            return Heard::Here;
        }
        if now_ns.saturating_sub(known.heard_ns) <= MOVED_NS {
            return Heard::Elsewhere;
        }
        if let Some(claim) = &mut known.claim {
            let asked = now_ns.saturating_sub(claim.asked_ns);
            if claim.at == from {
                claim.answered |= asked < ASKED_NS && answers(frame, claim.magic);
                // An answer stays true: whoever is heard where it was takes the claim back by that.
                if claim.answered && asked >= MOVES_NS && room {
                    *known = new;
                    return Heard::Here;
                }
            }
            if asked < ASKED_NS {
                return Heard::Elsewhere;
            }
        }
        let (both, magic) = ([known.at, from], random());
        known.claim = Some(Claim { at: from, magic, asked_ns: now_ns, answered: false });
        Heard::Ask { both, magic }
    }
}

/// Whether a frame is the answer to such a question.
fn answers(frame: &[u8], magic: u32) -> bool {
    matches!(parse(frame), Ok((_, Packet::HostReply(reply))) if reply.magic == magic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_wire::mxoe::{Header, HostReply, PEER_UNKNOWN, emit};

    const BOARD: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn answer(magic: u32) -> Vec<u8> {
        let header = Header { destination: [2; 6], source: BOARD, peer_index: PEER_UNKNOWN };
        let reply = HostReply { index_of_destination: 0, magic, name: b"one:0" };
        let (head, data) = emit(&header, &Packet::HostReply(reply));
        [head.bytes(), data].concat()
    }

    /// A book in which the board is at the first address, long ago.
    fn silent() -> (Book, u64) {
        let mut book = Book::new(vec![at(1), at(2), at(3)]);
        assert_eq!(book.heard(BOARD, at(1), b"", 0, || 0), Heard::Here);
        (book, MOVED_NS + 1)
    }

    #[test]
    fn hostile_peers_have_few_boards_and_none_of_another() {
        let (mut book, now) = silent();
        assert_eq!(book.heard(BOARD, at(2), b"", now - 1, || 5), Heard::Elsewhere);
        assert_eq!(book.place(BOARD), Some(at(1)));
        let mut taken = 0;
        for number in 0..3000_u32 {
            let [_, _, high, low] = number.to_be_bytes();
            let board = [2, 1, 0, 0, high, low];
            taken += usize::from(book.heard(board, at(2), b"", 0, || 0) == Heard::Here);
        }
        assert_eq!(taken, BOARDS_PER_ADDRESS_MAX);
    }

    #[test]
    fn hostile_peers_do_not_take_a_board_that_is_only_silent() {
        let (mut book, now) = silent();
        let both = [at(1), at(2)];
        assert_eq!(book.heard(BOARD, at(2), b"", now, || 5), Heard::Ask { both, magic: 5 });
        // Who claims it answers; so does the board.
        assert_eq!(book.heard(BOARD, at(2), &answer(5), now + 1, || 6), Heard::Elsewhere);
        assert_eq!(book.heard(BOARD, at(1), &answer(5), now + 2, || 6), Heard::Here);
        let later = now + MOVES_NS;
        assert_eq!(book.heard(BOARD, at(2), b"", later, || 6), Heard::Elsewhere);
        assert_eq!(book.place(BOARD), Some(at(1)));
    }

    #[test]
    fn hostile_peers_do_not_take_a_board_without_an_answer() {
        let (mut book, now) = silent();
        assert!(matches!(book.heard(BOARD, at(2), b"", now, || 5), Heard::Ask { .. }));
        // Another number; another address with the right one.
        book.heard(BOARD, at(2), &answer(4), now + 1, || 6);
        book.heard(BOARD, at(3), &answer(5), now + 1, || 6);
        for after in [MOVES_NS, ASKED_NS - 1] {
            assert_eq!(book.heard(BOARD, at(2), b"", now + after, || 6), Heard::Elsewhere);
        }
        let again = book.heard(BOARD, at(3), b"", now + ASKED_NS, || 6);
        assert_eq!(again, Heard::Ask { both: [at(1), at(3)], magic: 6 }, "asked again");
        assert_eq!(book.place(BOARD), Some(at(1)));
    }

    #[test]
    fn a_board_that_answers_elsewhere_and_not_where_it_was_has_moved() {
        let (mut book, now) = silent();
        assert!(matches!(book.heard(BOARD, at(2), b"", now, || 5), Heard::Ask { .. }));
        assert_eq!(book.heard(BOARD, at(2), &answer(5), now + 1, || 6), Heard::Elsewhere);
        assert_eq!(book.heard(BOARD, at(2), b"", now + MOVES_NS, || 6), Heard::Here);
        assert_eq!(book.place(BOARD), Some(at(2)));
    }

    #[test]
    fn a_board_that_moved_and_says_little_is_found_all_the_same() {
        let (mut book, now) = silent();
        assert!(matches!(book.heard(BOARD, at(2), b"", now, || 5), Heard::Ask { .. }));
        assert_eq!(book.heard(BOARD, at(2), &answer(5), now + 1, || 6), Heard::Elsewhere);
        assert_eq!(book.heard(BOARD, at(2), b"", now + 3 * ASKED_NS, || 6), Heard::Here);
    }
}
