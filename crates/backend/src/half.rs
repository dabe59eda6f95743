//! The engine with its rings: one look at all that they have, whoever serves it.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;

use causeway_memory::OwnMemory;
use causeway_message::backend::{Board, Config, Dropped, Taken};
use causeway_message::limits::MEDIUM_BYTES_MAX;
use causeway_message::rings;
use causeway_message::split::{PeerId, RegionId, Request};

use crate::desk::{Desk, NoRegion};
use crate::frames::Exit;
use crate::limits::{REGION_BYTES_OF_ENDPOINT_MAX, REQUESTS_AT_CLOSE_MAX};
use crate::outlet::Outlet;

/// What a look at an endpoint's rings came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// There may be more.
    Worked,
    /// Nothing is there, and nobody rings when there is.
    Idle,
    /// Nothing is there; it rings when there is.
    Parked,
}

/// The engine, its rings and its frames. `W` is whose an endpoint is, `E` where frames leave.
#[derive(Debug)]
pub struct Half<W, E> {
    /// The engine.
    pub board: Board,
    /// What it has around it.
    pub outlet: Outlet<W, E>,
    /// What a request brings.
    request: Vec<u8>,
}

impl<W: Debug, E: Exit> Half<W, E> {
    /// Of a board; frames leave there.
    pub fn new(config: Config, exit: Option<E>) -> Self {
        let request = vec![0; MEDIUM_BYTES_MAX];
        Self { board: Board::new(config), outlet: Outlet::new(exit), request }
    }

    /// Opens an endpoint with its key and session at a desk.
    ///
    /// # Errors
    /// It is open, or has no such number.
    pub fn open(
        &mut self,
        endpoint: u8,
        (key, session): (u32, u32),
        desk: Desk<W>,
    ) -> io::Result<()> {
        self.board
            .open_as(endpoint, key, session, &mut self.outlet)
            .map_err(|error| io::Error::other(error.to_string()))?;
        self.outlet.desks.insert(endpoint, desk);
        Ok(())
    }

    /// Takes what an endpoint that is closed still asked for; [`Self::close`] comes next.
    pub fn take_last(&mut self, now: u64, endpoint: u8) {
        for _ in 0..REQUESTS_AT_CLOSE_MAX {
            if self.take_request(now, endpoint).is_none() {
                break;
            }
        }
    }

    /// Closes an endpoint.
    pub fn close(&mut self, now: u64, endpoint: u8) -> Option<Desk<W>> {
        self.board.close(now, endpoint, &mut self.outlet);
        self.outlet.desks.remove(&endpoint)
    }

    /// Takes memory for large messages of an endpoint.
    ///
    /// # Errors
    /// It is not taken.
    pub fn lend(
        &mut self,
        endpoint: u8,
        file: BorrowedFd<'_>,
        len: u64,
    ) -> Result<RegionId, NoRegion> {
        let desk = self.outlet.desks.get_mut(&endpoint).ok_or(NoRegion::Rule)?;
        let lent = desk.lend(file, len)?;
        if desk.region_bytes.saturating_add(len) > REGION_BYTES_OF_ENDPOINT_MAX {
            return Err(NoRegion::Limit);
        }
        let region = self.board.region_add(endpoint, len).ok_or(NoRegion::Limit)?;
        desk.keep(region, lent);
        Ok(region)
    }

    /// Where we are in the endpoint's own process: memory of it that is sent from where it lies. It
    /// is one region, once.
    pub fn lend_own(&mut self, endpoint: u8, own: OwnMemory) -> Option<RegionId> {
        let desk = self.outlet.desks.get_mut(&endpoint)?;
        let region = self.board.region_add(endpoint, OwnMemory::BYTES)?;
        desk.keep_own(region, own);
        Some(region)
    }

    /// Lets memory go.
    pub fn give_back(&mut self, now: u64, endpoint: u8, region: RegionId) {
        self.board.region_remove(now, endpoint, region, &mut self.outlet);
        if let Some(desk) = self.outlet.desks.get_mut(&endpoint) {
            desk.give_back(region);
        }
    }

    /// Takes requests of an endpoint, so many at most: how many, and what is to become of it.
    /// `polled`: whether it is looked at again without a cause. What comes of it is to be settled.
    pub fn serve(&mut self, now: u64, endpoint: u8, budget: usize, polled: bool) -> (After, u32) {
        let Some(desk) = self.outlet.desks.get_mut(&endpoint) else { return (After::Parked, 0) };
        desk.disarm();
        desk.later = false;
        if desk.has_room_again() | desk.holds.released() {
            self.board.room(now, endpoint, &mut self.outlet);
        }
        let mut count = 0_u32;
        while (count as usize) < budget
            && let Some(cost) = self.take_request(now, endpoint)
        {
            count = count.saturating_add(cost);
        }
        let Some(desk) = self.outlet.desks.get_mut(&endpoint) else {
            return (After::Parked, count);
        };
        let after = if desk.broken.is_some() {
            After::Parked
        } else if desk.later {
            if desk.arm_for_room() { After::Parked } else { After::Worked }
        } else if count as usize >= budget {
            After::Worked
        } else if polled {
            After::Idle
        } else if desk.arm() {
            After::Parked
        } else {
            After::Worked
        };
        if desk.broken.is_some() || desk.wish {
            self.outlet.touch(endpoint);
        }
        (after, count)
    }

    /// Takes one request, if there may be more after it: how many it is worth.
    fn take_request(&mut self, now: u64, endpoint: u8) -> Option<u32> {
        let desk = self.outlet.desks.get_mut(&endpoint)?;
        if desk.broken.is_some() || desk.later {
            return None;
        }
        let event = match desk.receiver.poll() {
            Ok(Some(event)) => event,
            Ok(None) => return None,
            Err(broken) => {
                desk.broken = Some(broken.to_string());
                return None;
            }
        };
        let bytes = self.request.get_mut(..event.len).unwrap_or(&mut []);
        desk.receiver.copy(&event, 0, bytes);
        if bytes.len() < event.len {
            desk.broken = Some(format!("a request of {} bytes", event.len));
            return None;
        }
        let request = match rings::read_request(&event.head, bytes) {
            Ok(request) => request,
            Err(wrong) => {
                desk.broken = Some(format!("its requests: {wrong}"));
                return None;
            }
        };
        let more = match request {
            Request::Cancel { .. } => self.board.cancel_cost(endpoint),
            _ => 0,
        };
        let taken = self.board.request(now, endpoint, &request, &mut self.outlet);
        let desk = self.outlet.desks.get_mut(&endpoint)?;
        if taken == Taken::Later {
            desk.later = true;
            return None;
        }
        desk.wish |= desk.receiver.advance(&event);
        u32::try_from(more.saturating_add(1)).ok()
    }

    /// Sends a message of who is in this process, in two pieces, past its requests: it is told only if
    /// that fails. False: nothing was done, and it is to be requested; so it is where something
    /// was before. What comes of it is to be settled.
    #[inline]
    pub fn send_untold(
        &mut self,
        now: u64,
        endpoint: u8,
        to: (PeerId, u64),
        (first, second): (&[u8], &[u8]),
    ) -> bool {
        let Some(desk) = self.outlet.desks.get(&endpoint) else { return false };
        if desk.broken.is_some() || desk.later || desk.receiver.ready() {
            return false;
        }
        let data = if second.is_empty() {
            first
        } else {
            let whole = self.request.get_mut(..first.len().saturating_add(second.len()));
            let Some((one, other)) = whole.and_then(|room| room.split_at_mut_checked(first.len()))
            else {
                return false;
            };
            one.copy_from_slice(first);
            other.copy_from_slice(second);
            self.request.get(..first.len().saturating_add(second.len())).unwrap_or(&[])
        };
        self.board.send_untold(now, endpoint, to, data, &mut self.outlet)
    }

    /// Whether an endpoint asks for something, or waits for what it could not be given.
    #[inline]
    pub fn asks(&self, endpoint: u8) -> bool {
        let desk = self.outlet.desks.get(&endpoint);
        desk.is_some_and(|desk| desk.receiver.ready() || desk.is_waiting())
    }

    /// A frame came.
    ///
    /// # Errors
    /// [`Dropped`] says why nothing came of it.
    pub fn arrive(&mut self, now: u64, frame: &[u8]) -> Result<(), Dropped> {
        self.board.receive(now, frame, &mut self.outlet)
    }

    /// When something is due, or what the host had no room for is tried again.
    pub fn deadline(&self) -> u64 {
        let engine = self.board.deadline().unwrap_or(u64::MAX);
        engine.min(self.outlet.frames.again_ns.unwrap_or(u64::MAX))
    }

    /// Whether something is due.
    pub fn is_due(&self, now: u64) -> bool {
        self.board.deadline().is_some_and(|at| at <= now)
    }

    /// Does what is due.
    pub fn tick(&mut self, now: u64) {
        self.board.tick(now, &mut self.outlet);
    }
}
