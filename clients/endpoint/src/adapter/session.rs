//! A session with the daemon over an adapter: commands, answers, and the memory that the process
//! grants.
//!
//! A session belongs to one endpoint, or to a query of the daemon. It registers new rings for each
//! command that opens or resumes the endpoint, and keeps the last rings for its life. Granted
//! memory stays registered until the daemon has answered a *fence*: a question behind the command
//! that ends the grant; the answer to it shows that earlier commands were executed. A region that
//! the daemon refused is released at once. Fences have no limit of their own; they count to the
//! commands that wait.
//!
//! An answer that cannot be decoded, one to a fence that was not sent, and a broken link, are
//! [`Error::DaemonGone`] for good; queued commands are lost. Files are refused with [`Error::NoResources`]. [`finish`](Connection::finish)
//! waits for the last fence, at most [`FENCE_WAIT`] (1 s); without it the drop ends the queue pair
//! first, so that the adapter withdraws the memory before it is freed.
//!
//! `nic::connect`, and [`again`](Connection::again) after the end of a daemon, open a session;
//! [`Conversation`](crate::nic::Conversation) owns it, in the thread that holds the lock of the
//! endpoint or queries the daemon. The queue pair is in `link`.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use causeway_channel::mx_rings;
use causeway_ibverbs::{Adapter, ProtectionDomain, Registration, adapters};
use causeway_wire::local::{ClientMessage, DaemonMessage};
use causeway_wire::session::{Offer, SessionMessage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::link::{Link, allocate, converted};
use super::{AdapterRings, find_active};
use crate::connection::{Attached, Connection, Grant};
use crate::error::Error;
use crate::limits::FENCE_WAIT;
use crate::waiter::Awaited;

/// Tag of questions that only mark a position among the commands: their answer shows that all
/// earlier commands were executed. Other questions have the tag 0.
const FENCE_TAG: u32 = 0xffff_fff0;

/// A session. The fields are dropped in this order: the queue pair ends before the memory does,
/// unless the rings of the endpoint still hold the link.
#[derive(Debug)]
pub struct Session {
    link: Arc<Link>,
    /// Name of the device.
    device: String,
    /// Number of the port.
    port: u8,
    /// Rings that were offered, of the endpoint of this session.
    rings: Option<Arc<Registration>>,
    /// Memory of grants that have not ended, with the tags of their commands.
    granted: Vec<(u32, Arc<Registration>)>,
    /// Memory of ended grants, one entry for each fence that was not answered.
    ended: VecDeque<Option<Arc<Registration>>>,
}

/// Returns the device and the port that a user named, or the first active one.
fn resolve(device: Option<&str>, port: Option<u8>) -> Result<(String, u8), Error> {
    let active = find_active();
    let fits = |of: &&(String, u8)| {
        device.is_none_or(|name| name == of.0) && port.is_none_or(|port| port == of.1)
    };
    match (active.iter().find(fits), device) {
        (Some(found), _) => Ok(found.clone()),
        // The reason is that of the device: missing, refused, or without a link.
        (None, Some(device)) => Ok((device.to_owned(), port.unwrap_or(1))),
        (None, None) => match adapters().map_err(converted)?.into_iter().next() {
            Some(device) => Ok((device, port.unwrap_or(1))),
            None => Err(Error::NoAdapter),
        },
    }
}

impl Session {
    /// Connects to the daemon over the port `port` of the adapter `device`, or over the first
    /// active port. Blocks for some commands of the adapter.
    ///
    /// # Errors
    /// [`Error::NoLibrary`], [`Error::NoAdapter`], [`Error::NoPermission`] or
    /// [`Error::NoResources`].
    pub fn open(device: Option<&str>, port: Option<u8>) -> Result<Self, Error> {
        let (device, port) = resolve(device, port)?;
        let adapter = Adapter::open(&device).map_err(converted)?;
        let of = adapter.port(port).map_err(converted)?;
        if !of.is_active {
            return Err(Error::NoAdapter);
        }
        let own = adapter.roce_v2_gid(port).map_err(converted)?;
        let link = Arc::new(Link::open(&adapter, &of, &own)?);
        let (rings, granted, ended) = (None, Vec::new(), VecDeque::new());
        Ok(Self { link, device, port, rings, granted, ended })
    }

    /// Sends a command with an offer.
    fn send_offer(
        &mut self,
        message: ClientMessage,
        memory: Option<&Registration>,
    ) -> Result<(), Error> {
        let offer = memory.map(|memory| Offer {
            key: memory.remote_key(),
            address: memory.address(),
            len: memory.len() as u64,
        });
        self.link.send(SessionMessage { message, offer }.emit())
    }

    /// Sends a question. The answer to it shows that all earlier commands were executed; then
    /// `memory` is released.
    fn fence(&mut self, memory: Option<Arc<Registration>>) -> Result<(), Error> {
        self.ended.push_back(memory);
        self.send_offer(ClientMessage::Name { tag: FENCE_TAG, nic: 0 }, None)
    }

    /// Returns a message with the rings that belong to it; `None` for the answer to a fence.
    fn deliver(&mut self, message: DaemonMessage) -> Option<(DaemonMessage, Attached)> {
        match message {
            DaemonMessage::Host { tag: FENCE_TAG, .. } => {
                if let Some(Some(memory)) = self.ended.pop_front() {
                    self.granted.retain(|(_, of)| !Arc::ptr_eq(of, &memory));
                }
                None
            }
            DaemonMessage::Region { tag, code, .. } if code != 0 => {
                self.granted.retain(|(of, _)| *of != tag);
                Some((message, Attached::Files(Vec::new())))
            }
            DaemonMessage::Opened { code: 0, .. } => {
                let rings = self.rings.clone();
                let attached = rings.map(|memory| {
                    Attached::Rings(AdapterRings { memory, link: Arc::clone(&self.link) })
                });
                Some((message, attached.unwrap_or(Attached::Files(Vec::new()))))
            }
            message => Some((message, Attached::Files(Vec::new()))),
        }
    }
}

impl Connection for Session {
    fn send(&mut self, command: ClientMessage, grant: Grant) -> Result<(), Error> {
        match (command, grant) {
            (ClientMessage::Open { .. } | ClientMessage::Resume { .. }, _) => {
                let rings = Arc::new(allocate(&self.link.domain, mx_rings::layout().bytes())?);
                // The daemon reads the rings from the answer on: an earlier offer has ended by
                // then.
                self.rings = Some(Arc::clone(&rings));
                self.send_offer(command, Some(&rings))
            }
            (ClientMessage::Region { tag, .. }, Grant::Memory(memory)) => {
                self.granted.push((tag, Arc::clone(&memory)));
                self.send_offer(command, Some(&memory))
            }
            (_, Grant::Ended(memory)) => {
                self.send_offer(command, None)?;
                self.fence(Some(memory))
            }
            (_, Grant::Nothing) => self.send_offer(command, None),
            // The daemon of an adapter reaches registered memory only, and regions are all that it
            // is given.
            (_, Grant::File(_) | Grant::Memory(_)) => Err(Error::NoResources),
        }
    }

    fn receive(&mut self) -> Result<Option<(DaemonMessage, Attached)>, Error> {
        while let Some(bytes) = self.link.receive()? {
            let parsed = SessionMessage::<DaemonMessage>::parse(&bytes);
            let Ok(SessionMessage { message, .. }) = parsed else { return Err(Error::DaemonGone) };
            // Each answer ends a fence, which bounds this loop.
            if matches!(message, DaemonMessage::Host { tag: FENCE_TAG, .. })
                && self.ended.is_empty()
            {
                return Err(Error::DaemonGone);
            }
            if let Some(delivered) = self.deliver(message) {
                return Ok(Some(delivered));
            }
        }
        Ok(None)
    }

    fn awaited(&self) -> Awaited {
        // Room in the send queue is announced by events, too.
        Awaited::Words
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.descriptor()
    }

    fn arm(&mut self) -> bool {
        self.link.arm()
    }

    fn disarm(&mut self) {
        self.link.disarm();
    }

    fn again(&self) -> Result<Box<dyn Connection>, Error> {
        Ok(Box::new(Self::open(Some(&self.device), Some(self.port))?))
    }

    fn domain(&self) -> Option<ProtectionDomain> {
        Some(self.link.domain.clone())
    }

    fn permits_direct_reads(&self) -> bool {
        // The daemon and its processes are on another machine.
        false
    }

    fn finish(&mut self) {
        let since = Instant::now();
        if self.fence(None).is_err() {
            return;
        }
        while !self.ended.is_empty() {
            // Before each message: a daemon may send without end.
            let left = FENCE_WAIT.checked_sub(since.elapsed()).map(Timespec::try_from);
            let Some(Ok(left)) = left else { return };
            match self.receive() {
                Ok(Some(_)) => continue,
                Ok(None) if self.ended.is_empty() => return,
                Ok(None) => {}
                Err(_) => return,
            }
            if self.arm() {
                let _ = poll(
                    &mut [PollFd::from_borrowed_fd(self.descriptor(), PollFlags::IN)],
                    Some(&left),
                );
            }
            self.disarm();
        }
    }
}
