//! What both sides do with an order.

use std::collections::VecDeque;

use crate::api::{Address, Status};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::order::{DATA, DONE, Order, Play};

/// What stands in message `number` at byte `at`.
fn byte(number: u32, at: usize) -> u8 {
    let mixed = (at as u32).wrapping_mul(0x9e37_79b1) ^ number.wrapping_mul(0x85eb_ca6b);
    (mixed >> 13) as u8
}

/// A buffer whose pages are all there: those that nobody wrote to are one page of zeros, which is
/// read in another time than memory.
fn buffer(len: u32) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    fill(&mut bytes, 0);
    bytes
}

fn fill(bytes: &mut [u8], number: u32) {
    bytes.iter_mut().enumerate().for_each(|(at, b)| *b = byte(number, at));
}

fn check(bytes: &[u8], number: u32) -> Result<(), Error> {
    let wrong = bytes.iter().enumerate().position(|(at, b)| *b != byte(number, at));
    wrong.map_or(Ok(()), |at| Err(Error::Altered { at, len: bytes.len() }))
}

/// Returns how a play ended, and frees its buffers, unless an error left requests under way that still
/// use them.
pub fn keep<T>(buffers: T, played: Result<(), Error>) -> Result<(), Error> {
    if played.is_err() {
        std::mem::forget(buffers);
    }
    played
}

/// One who plays with a peer.
#[derive(Debug)]
pub struct Player<'a> {
    pub endpoint: &'a Endpoint<'a>,
    pub peer: Address,
    /// Whether it is the one who asked.
    pub asked: bool,
}

impl Player<'_> {
    /// Plays an order; `mark` is called after each message that came back.
    pub fn play(&self, order: &Order, mark: &mut dyn FnMut()) -> Result<(), Error> {
        match order.play {
            Play::Pingpong => self.pingpong(order, mark),
            Play::Stream | Play::Both => self.stream(order),
            Play::End => Ok(()),
        }
    }

    /// As others measure, each side has a buffer to send from and one to receive into, and a receive
    /// is posted while the message before it is on its way.
    fn pingpong(&self, order: &Order, mark: &mut dyn FnMut()) -> Result<(), Error> {
        let mut rooms = [buffer(order.len), buffer(order.len)];
        let played = match order.count {
            0 => Ok(()),
            _ if self.asked => self.ask(order, mark, &mut rooms),
            _ => self.answer(order, &mut rooms),
        };
        keep(rooms, played)
    }

    /// Sends each message and waits for its answer.
    fn ask(
        &self,
        order: &Order,
        mark: &mut dyn FnMut(),
        [out, came]: &mut [Vec<u8>; 2],
    ) -> Result<(), Error> {
        let endpoint = self.endpoint;
        for number in 0..order.count {
            if order.verify {
                fill(out, number);
            }
            // SAFETY: both are used again when their requests have ended, and kept on an error.
            let (sent, receive) = unsafe {
                let sent = endpoint.send(self.peer, DATA, out, order.sync)?;
                (sent, endpoint.receive(DATA, came)?)
            };
            endpoint.wait(sent)?;
            endpoint.wait(receive)?;
            if order.verify {
                check(came, number)?;
            }
            mark();
        }
        Ok(())
    }

    /// Answers each message, with its own bytes where somebody looks at them.
    fn answer(&self, order: &Order, [out, came]: &mut [Vec<u8>; 2]) -> Result<(), Error> {
        let endpoint = self.endpoint;
        // SAFETY: the room is used again when the request has ended, and kept on an error.
        let mut next = unsafe { endpoint.receive(DATA, came) }?;
        for number in 1..=order.count {
            endpoint.wait(next)?;
            if order.verify {
                std::mem::swap(out, came);
                check(out, number - 1)?;
            }
            // SAFETY: the bytes are written again when the request has ended, and kept on an error.
            let sent = unsafe { endpoint.send(self.peer, DATA, out, order.sync) }?;
            if number == order.count {
                return endpoint.wait(sent);
            }
            // SAFETY: as of the first.
            next = unsafe { endpoint.receive(DATA, came) }?;
            endpoint.wait(sent)?;
        }
        Ok(())
    }

    fn stream(&self, order: &Order) -> Result<(), Error> {
        let both = order.play == Play::Both;
        let (sends, receives) = match self.asked {
            true => (order.count, if both { order.count } else { 0 }),
            false => (if both { order.count } else { 0 }, order.count),
        };
        let window = order.window();
        // Where nobody looks at the bytes all messages leave and enter one buffer, as in what others
        // measure with (osu_bw, ucx_perftest): many buffers would measure the memory behind the caches.
        let apart = if order.verify { window } else { 1 };
        let rooms = |count: u32| vec![buffer(order.len); apart.min(count as usize)];
        let mut rooms = (rooms(sends), rooms(receives));
        let played = self.stream_in(order, (sends, receives), (&mut rooms.0, &mut rooms.1));
        keep(rooms, played)
    }

    /// Sends and receives so many messages, from and into these buffers.
    fn stream_in(
        &self,
        order: &Order,
        (sends, receives): (u32, u32),
        (out, into): (&mut [Vec<u8>], &mut [Vec<u8>]),
    ) -> Result<(), Error> {
        let (endpoint, window) = (self.endpoint, order.window());
        let apart = if order.verify { window } else { 1 };
        // SAFETY: of no bytes.
        let done = unsafe { endpoint.receive(DONE, &mut []) }?;
        let room = || VecDeque::with_capacity(window);
        let (mut sending, mut receiving, mut status) = (room(), room(), Status::default());
        for posted in 0..window.min(receives as usize) {
            // SAFETY: a room is looked at when its request has ended, and kept on an error.
            receiving.push_back(unsafe { endpoint.receive(DATA, &mut into[posted % apart]) }?);
        }
        // Both sides are ready for what comes before anything does.
        self.meet()?;
        let (mut sent, mut got) = (0, 0);
        while sent < sends || got < receives || !sending.is_empty() {
            while sent < sends && sending.len() < window {
                let room = &mut out[sent as usize % apart];
                if order.verify {
                    fill(room, sent);
                }
                // SAFETY: bytes are written again when their request has ended, and kept on an error.
                sending.push_back(unsafe { endpoint.send(self.peer, DATA, room, order.sync) }?);
                sent += 1;
            }
            if let Some(receive) = receiving.pop_front() {
                endpoint.wait_in(receive, &mut status)?;
                let room = &mut into[got as usize % apart];
                if order.verify {
                    check(room, got)?;
                }
                got += 1;
                if receives - got >= window as u32 {
                    // SAFETY: as of the first.
                    receiving.push_back(unsafe { endpoint.receive(DATA, room) }?);
                }
                // What has ended meanwhile.
                while let Some(oldest) = sending.front_mut() {
                    if !endpoint.test(oldest)? {
                        break;
                    }
                    sending.pop_front();
                }
            } else if let Some(send) = sending.pop_front() {
                endpoint.wait_in(send, &mut status)?;
            }
        }
        // SAFETY: of no bytes.
        let told = unsafe { endpoint.send(self.peer, DONE, &[], false) }?;
        endpoint.wait(done)?;
        endpoint.wait(told)
    }

    /// Returns when the peer is here as well.
    fn meet(&self) -> Result<(), Error> {
        // SAFETY: of no bytes.
        let (come, told) = unsafe {
            let come = self.endpoint.receive(crate::order::READY, &mut [])?;
            (come, self.endpoint.send(self.peer, crate::order::READY, &[], false)?)
        };
        self.endpoint.wait(come)?;
        self.endpoint.wait(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_altered_byte_is_found() {
        let mut bytes = vec![0; 1000];
        fill(&mut bytes, 5);
        assert!(check(&bytes, 5).is_ok() && check(&bytes, 6).is_err());
        bytes[777] ^= 1;
        assert!(matches!(check(&bytes, 5), Err(Error::Altered { at: 777, len: 1000 })));
    }
}
