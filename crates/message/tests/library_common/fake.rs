//! A way that notes what it is told and says what it is told to say: a backend half by hand.

use std::collections::VecDeque;

use causeway_message::library::{Arrival, Buffer, Handed, Refused, Transport};
use causeway_message::split::{Address, PeerId, Token};

use super::Pad;

/// What it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Eager(PeerId, Token, u64, Vec<u8>),
    Offer(PeerId, Token, u64, usize),
    Pull(PeerId, u64, Token, u32),
    Connect(Token, Address, u32, Option<u64>),
    Disconnect(PeerId),
    Forget(PeerId),
    Cancel(Token),
    Fail(PeerId, u64),
    Broken(PeerId),
}

#[derive(Debug)]
pub struct Fake {
    pub told: Vec<Told>,
    pub arrivals: VecDeque<(Arrival, Vec<u8>)>,
    /// How many more things it takes before it is full.
    pub room: usize,
    /// What an eager send is.
    pub eager: Handed,
    deferred: bool,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            told: Vec::new(),
            arrivals: VecDeque::new(),
            room: usize::MAX,
            eager: Handed::Copied,
            deferred: false,
        }
    }
}

impl Fake {
    pub fn say(&mut self, arrival: Arrival) {
        self.arrivals.push_back((arrival, Vec::new()));
    }

    pub fn say_message(&mut self, peer: PeerId, match_info: u64, bytes: &[u8]) {
        let arrival = Arrival::Message { peer, match_info, len: bytes.len() as u32 };
        self.arrivals.push_back((arrival, bytes.to_vec()));
    }

    fn take(&mut self, told: Told) -> Result<(), Refused> {
        self.room = self.room.checked_sub(1).ok_or(Refused::Full)?;
        self.told.push(told);
        Ok(())
    }

    /// The tokens of the sends, in order.
    pub fn tokens(&self) -> Vec<Token> {
        let token = |told: &Told| match told {
            Told::Eager(_, token, ..) | Told::Offer(_, token, ..) => Some(*token),
            Told::Pull(_, _, token, _) | Told::Connect(token, ..) => Some(*token),
            _ => None,
        };
        self.told.iter().filter_map(token).collect()
    }
}

impl Transport<Pad> for Fake {
    fn eager_max(&self, _peer: PeerId) -> usize {
        100
    }

    fn eager(
        &mut self,
        peer: PeerId,
        token: Token,
        info: u64,
        data: &Pad,
    ) -> Result<Handed, Refused> {
        let mut bytes = Vec::new();
        causeway_message::library::pieces(data, 0, data.len(), |piece| bytes.extend(piece));
        self.take(Told::Eager(peer, token, info, bytes))?;
        Ok(self.eager)
    }

    fn offer(&mut self, peer: PeerId, token: Token, info: u64, data: &Pad) -> Result<(), Refused> {
        self.take(Told::Offer(peer, token, info, data.len()))
    }

    fn pull(
        &mut self,
        peer: PeerId,
        offer: u64,
        token: Token,
        into: Option<&mut Pad>,
        len: u32,
    ) -> Result<Handed, Refused> {
        self.take(Told::Pull(peer, offer, token, len))?;
        if let Some(into) = into {
            causeway_message::library::fill(into, 0, len as usize, |_, piece| {
                piece.fill(0x55);
                piece.len()
            });
        }
        Ok(Handed::Kept)
    }

    fn feed(&mut self, _: PeerId, _: u64, _: &Pad, _: usize, _: usize) -> Result<usize, Refused> {
        unreachable!("nobody wants what goes by a backend half")
    }

    fn fail(&mut self, peer: PeerId, to: u64) {
        self.told.push(Told::Fail(peer, to));
    }

    fn connect(
        &mut self,
        token: Token,
        to: Address,
        key: u32,
        timeout_ns: Option<u64>,
    ) -> Result<(), Refused> {
        self.take(Told::Connect(token, to, key, timeout_ns))
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.told.push(Told::Disconnect(peer));
    }

    fn forget(&mut self, peer: PeerId) {
        self.told.push(Told::Forget(peer));
    }

    fn cancel(&mut self, token: Token) {
        self.told.push(Told::Cancel(token));
    }

    fn broken(&mut self, peer: PeerId) {
        self.told.push(Told::Broken(peer));
    }

    fn next(&mut self) -> Option<Arrival> {
        if std::mem::take(&mut self.deferred) {
            return None;
        }
        self.arrivals.front().map(|(arrival, _)| *arrival)
    }

    fn copy(&self, at: usize, into: &mut [u8]) -> usize {
        let Some((_, bytes)) = self.arrivals.front() else { return 0 };
        let from = bytes.get(at..).unwrap_or_default();
        let len = from.len().min(into.len());
        into[..len].copy_from_slice(&from[..len]);
        len
    }

    fn done(&mut self) {
        self.arrivals.pop_front();
    }

    fn defer(&mut self) {
        self.deferred = true;
    }
}
