//! The messages of a measurement, for both sides: the requesting side and the serving side run the
//! same [`BenchRequest`].
//!
//! A ping-pong keeps one message in flight, a stream as many as the request's window. With `verify`
//! each received byte is compared with the sender's pattern, which makes the measurement slower;
//! otherwise contents are not checked. Buffers of requests that an error left pending are leaked,
//! since the library may still write to them. A message that does not come within the patience of
//! its side ends the measurement there (`endpoint`), and the other side notices by its own
//! patience. Called by `measure` and `serve`, in the only thread.

use std::collections::VecDeque;

use crate::api::{ApiStatus, MxAddress};
use crate::bench_request::{BenchRequest, DATA, DONE, MessagePattern};
use crate::endpoint::BenchEndpoint;
use crate::error::Error;

/// Returns the byte at position `at` of message `number`.
fn byte(number: u32, at: usize) -> u8 {
    let mixed = (at as u32).wrapping_mul(0x9e37_79b1) ^ number.wrapping_mul(0x85eb_ca6b);
    (mixed >> 13) as u8
}

/// Returns a buffer with present pages. Untouched pages share one page of zeros, which is read at
/// another speed than memory.
fn buffer(len: u32) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    fill(&mut bytes, 0);
    bytes
}

/// Fills a buffer with the pattern of message `number`.
fn fill(bytes: &mut [u8], number: u32) {
    bytes.iter_mut().enumerate().for_each(|(at, b)| *b = byte(number, at));
}

/// Compares a received message with the pattern of message `number`.
fn check(bytes: &[u8], number: u32) -> Result<(), Error> {
    let wrong = bytes.iter().enumerate().position(|(at, b)| *b != byte(number, at));
    wrong.map_or(Ok(()), |at| Err(Error::Altered { at, len: bytes.len() }))
}

/// Returns a result after freeing the buffers, which are leaked if an error left pending requests
/// that use them.
pub fn keep<T>(buffers: T, result: Result<(), Error>) -> Result<(), Error> {
    if result.is_err() {
        std::mem::forget(buffers);
    }
    result
}

/// One side of a measurement.
#[derive(Debug)]
pub struct BenchSide<'a> {
    /// Endpoint of this side.
    pub endpoint: &'a BenchEndpoint<'a>,
    /// Address of the other side.
    pub peer: MxAddress,
    /// This side requested the measurement.
    pub asked: bool,
}

impl BenchSide<'_> {
    /// Runs a measurement. Calls `mark` after each message that was answered.
    pub fn run(&self, order: &BenchRequest, mark: &mut dyn FnMut()) -> Result<(), Error> {
        match order.pattern {
            MessagePattern::Pingpong => self.pingpong(order, mark),
            MessagePattern::Stream | MessagePattern::Both => self.stream(order),
            MessagePattern::End => Ok(()),
        }
    }

    /// Each side has a buffer for sends and one for receives, and a receive is posted while the
    /// previous message is in flight, as in other benchmarks.
    fn pingpong(&self, order: &BenchRequest, mark: &mut dyn FnMut()) -> Result<(), Error> {
        let mut rooms = [buffer(order.len), buffer(order.len)];
        let result = match order.count {
            0 => Ok(()),
            _ if self.asked => self.ask(order, mark, &mut rooms),
            _ => self.answer(order, &mut rooms),
        };
        keep(rooms, result)
    }

    /// Sends each message and waits for its answer.
    fn ask(
        &self,
        order: &BenchRequest,
        mark: &mut dyn FnMut(),
        [out, came]: &mut [Vec<u8>; 2],
    ) -> Result<(), Error> {
        let endpoint = self.endpoint;
        for number in 0..order.count {
            if order.verify {
                fill(out, number);
            }
            // SAFETY: both buffers are reused after their requests have ended, and are leaked on an
            // error.
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

    /// Answers each message, with its own content if that is verified.
    fn answer(&self, order: &BenchRequest, [out, came]: &mut [Vec<u8>; 2]) -> Result<(), Error> {
        let endpoint = self.endpoint;
        // SAFETY: the buffer is reused after the request has ended, and is leaked on an error.
        let mut next = unsafe { endpoint.receive(DATA, came) }?;
        for number in 1..=order.count {
            endpoint.wait(next)?;
            if order.verify {
                std::mem::swap(out, came);
                check(out, number - 1)?;
            }
            // SAFETY: the buffer is written after the request has ended, and is leaked on an error.
            let sent = unsafe { endpoint.send(self.peer, DATA, out, order.sync) }?;
            if number == order.count {
                return endpoint.wait(sent);
            }
            // SAFETY: as for the first receive.
            next = unsafe { endpoint.receive(DATA, came) }?;
            endpoint.wait(sent)?;
        }
        Ok(())
    }

    /// Runs a stream: allocates the buffers of the window.
    fn stream(&self, order: &BenchRequest) -> Result<(), Error> {
        let both = order.pattern == MessagePattern::Both;
        let (sends, receives) = match self.asked {
            true => (order.count, if both { order.count } else { 0 }),
            false => (if both { order.count } else { 0 }, order.count),
        };
        let window = order.window();
        // Without verification all messages use one buffer, as in other benchmarks (osu_bw,
        // ucx_perftest): many buffers would measure memory instead of caches.
        let apart = if order.verify { window } else { 1 };
        let rooms = |count: u32| vec![buffer(order.len); apart.min(count as usize)];
        let mut rooms = (rooms(sends), rooms(receives));
        let result = self.stream_in(order, (sends, receives), (&mut rooms.0, &mut rooms.1));
        keep(rooms, result)
    }

    /// Sends and receives the given numbers of messages with the given buffers.
    fn stream_in(
        &self,
        order: &BenchRequest,
        (sends, receives): (u32, u32),
        (out, into): (&mut [Vec<u8>], &mut [Vec<u8>]),
    ) -> Result<(), Error> {
        let (endpoint, window) = (self.endpoint, order.window());
        let apart = if order.verify { window } else { 1 };
        // SAFETY: the buffer is empty.
        let done = unsafe { endpoint.receive(DONE, &mut []) }?;
        let room = || VecDeque::with_capacity(window);
        let (mut sending, mut receiving, mut status) = (room(), room(), ApiStatus::default());
        for posted in 0..window.min(receives as usize) {
            // SAFETY: a buffer is read after its request has ended, and is leaked on an error.
            receiving.push_back(unsafe { endpoint.receive(DATA, &mut into[posted % apart]) }?);
        }
        // Both sides have posted their receives before the first message.
        self.meet()?;
        let (mut sent, mut got) = (0, 0);
        while sent < sends || got < receives || !sending.is_empty() {
            while sent < sends && sending.len() < window {
                let room = &mut out[sent as usize % apart];
                if order.verify {
                    fill(room, sent);
                }
                // SAFETY: a buffer is written after its request has ended, and is leaked on an
                // error.
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
                    // SAFETY: as for the first receives.
                    receiving.push_back(unsafe { endpoint.receive(DATA, room) }?);
                }
                // Sends that have ended meanwhile.
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
        // SAFETY: the buffer is empty.
        let sent = unsafe { endpoint.send(self.peer, DONE, &[], false) }?;
        endpoint.wait(done)?;
        endpoint.wait(sent)
    }

    /// Waits until the peer is ready as well.
    fn meet(&self) -> Result<(), Error> {
        // SAFETY: the buffers are empty.
        let (ready, sent) = unsafe {
            let ready = self.endpoint.receive(crate::bench_request::READY, &mut [])?;
            (ready, self.endpoint.send(self.peer, crate::bench_request::READY, &[], false)?)
        };
        self.endpoint.wait(ready)?;
        self.endpoint.wait(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verification_finds_an_altered_byte() {
        let mut bytes = vec![0; 1000];
        fill(&mut bytes, 5);
        assert!(check(&bytes, 5).is_ok() && check(&bytes, 6).is_err());
        bytes[777] ^= 1;
        assert!(matches!(check(&bytes, 5), Err(Error::Altered { at: 777, len: 1000 })));
    }
}
