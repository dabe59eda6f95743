//! The path to partners: of this host by channels, which the daemon sets up when it is asked
//! (`setup`); of other hosts by the rings to the daemon, where the NIC has a network. Messages go by
//! it as a transport (`transport`); it outlives the daemon (`resume`).

mod connects;
mod open;
mod partners;
mod resume;
mod setup;
mod transport;

use std::os::fd::{BorrowedFd, OwnedFd};

use causeway_message::library::{Bell, Channels, Rings, Transport};
use causeway_message::split::{NicId, RegionId};
use causeway_wire::local::Ask;

use crate::board::Conversation;
use crate::bypass::Bypass;
use crate::staging::{Slabs, Staged};
use connects::Connects;
use open::far;
use partners::PartnerTable;
use resume::Resume;
use transport::Turn;

pub use partners::Between;

/// The daemon's doorbell: nobody else has it. None: the backend half is here.
#[derive(Debug)]
pub struct OfDaemon(Option<OwnedFd>);

impl Bell for OfDaemon {
    fn ring(&self) {
        if let Some(bell) = &self.0 {
            // It can only fail when it is full, and then it is readable all the same.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }
}

/// All channels of an endpoint, its rings, and the conversation that brings more.
#[derive(Debug)]
pub struct Way {
    own: u8,
    /// To partners of this host.
    pub channels: Channels<Between>,
    rings: Option<Rings<OfDaemon, Slabs>>,
    /// What is at the other end of the rings, where that is not the daemon.
    bypass: Option<Box<Bypass>>,
    /// It took memory since the library looked: what waited for that goes on.
    granted: bool,
    /// With the daemon.
    pub conversation: Conversation,
    /// Those of this host.
    partners: Partners,
    /// The daemon is gone: channels go on, nothing new comes.
    pub parted: bool,
    resume: Resume,
    /// Held as long as the endpoint is open: the next daemon finds that it is.
    lock: Option<OwnedFd>,
    connects: Connects,
    turn: Turn,
    /// What came last came from the daemon: it, too, needs a processor.
    pub far: bool,
}

impl Way {
    /// Of an endpoint. `past`: its key and session, if it goes past the daemon to other hosts.
    /// `fds`: what came with it.
    pub fn new(
        own: u8,
        past: Option<(u32, u32)>,
        conversation: Conversation,
        fds: Vec<OwnedFd>,
    ) -> std::io::Result<Self> {
        let board = NicId(conversation.board.nic);
        let mut fds = fds;
        let lock = if past.is_none() { fds.drain(2.min(fds.len())..).next() } else { None };
        let (rings, bypass) = far((board, own), past, fds)?;
        Ok(Self {
            own,
            channels: Channels::default(),
            rings,
            bypass,
            granted: false,
            conversation,
            partners: Partners::new()?,
            parted: false,
            resume: Resume::new(),
            lock,
            connects: Connects::default(),
            turn: Turn::default(),
            far: false,
        })
    }

    /// Readable when a partner rings.
    pub fn bells(&self) -> BorrowedFd<'_> {
        self.partners.bells()
    }

    /// Whether an answer of the daemon is waited for.
    #[inline]
    pub fn connecting(&self) -> bool {
        !self.connects.is_empty() || self.rings.as_ref().is_some_and(|rings| rings.staging.asks())
    }

    /// Sends the daemon what the staging wants of it.
    #[inline]
    fn send_orders(&mut self) {
        if self.rings.as_ref().is_some_and(|rings| !rings.staging.orders.is_empty()) {
            self.send_all_orders();
        }
    }

    #[cold]
    fn send_all_orders(&mut self) {
        let Some(rings) = &mut self.rings else { return };
        for (ask, files) in std::mem::take(&mut rings.staging.orders) {
            if let Some(bypass) = &mut self.bypass {
                match (ask, files.first()) {
                    (Ask::Region { tag, len, .. }, Some(file)) => {
                        rings.staging.answered(tag, bypass.lend(file, len));
                        self.granted = true;
                    }
                    (Ask::Unregion { region, .. }, _) => bypass.give_back(RegionId(region)),
                    _ => {}
                }
                continue;
            }
            if !self.parted && self.conversation.ask_with(ask, files).is_err() {
                return self.part();
            }
        }
    }

    /// Where the backend half is here: goes on with it. Says whether there was anything.
    #[inline]
    fn go_past(&mut self) -> bool {
        let Some(bypass) = &mut self.bypass else { return false };
        let worked = bypass.turn();
        if bypass.broken
            && let Some(rings) = &mut self.rings
        {
            rings.end();
        }
        if let Some(board) = bypass.stranger() {
            self.ask_of(board);
        }
        self.granted = false;
        worked
    }

    /// Where the backend half is here: what was asked of it is done.
    #[inline]
    fn push_past(&mut self) {
        if let Some(bypass) = &mut self.bypass {
            bypass.send();
        }
    }

    /// Notes that a partner rang while the endpoint is awake.
    pub fn heard(&mut self, bell: u64) {
        self.partners.heard(bell);
    }

    /// Clears the doorbells that rang.
    fn clear(&mut self) {
        let channels: &mut Ways = &mut self.channels;
        self.partners.clear(|peer| channels.broken(peer));
    }

    /// Memory that was offered to partners of this host is not what it was any more.
    pub fn withdraw(&mut self) {
        self.channels.withdraw();
    }

    /// The endpoint is closed: partners hear of it by their channels.
    pub fn end(&mut self) {
        for peer in self.partners.all() {
            let channels: &mut Ways = &mut self.channels;
            channels.disconnect(peer);
        }
        self.lock = None;
        // Also those that the daemon parted from.
        self.channels.settle();
        self.partners.part();
        // First: the daemon is to find that we left.
        if let Some(mut bypass) = self.bypass.take() {
            bypass.close();
        }
        if !self.parted {
            let _ = self.conversation.ask(Ask::Close { endpoint: self.own });
        }
    }

    /// A receive was posted: what could not be taken before may be taken now, and nobody is to
    /// sleep before that is known. Says whether there is anything of that.
    #[inline]
    pub fn stir(&mut self) -> bool {
        let near = self.channels.stir();
        self.rings.as_mut().is_some_and(|rings| rings.stir()) || near
    }

    /// Whether other hosts are reached, too.
    #[inline]
    pub fn is_networked(&self) -> bool {
        self.rings.is_some()
    }

    /// Whether that is past the daemon.
    pub fn goes_past(&self) -> bool {
        self.bypass.is_some()
    }

    /// Whether there may be something to take.
    #[inline]
    pub fn comes(&self) -> bool {
        self.rings_come() || self.connects.has_notes() || self.channels.comes()
    }

    /// The same of other hosts.
    #[inline]
    fn rings_come(&self) -> bool {
        let Some(rings) = &self.rings else { return false };
        rings.comes()
            || self.bypass.as_ref().is_some_and(|bypass| bypass.comes())
            || self.granted
            || self.connects.has_remote()
            || !rings.staging.orders.is_empty()
    }

    /// Whether messages that ended are not known to be there, past what the library half knows.
    pub fn is_sending(&self) -> bool {
        self.bypass.as_ref().is_some_and(|bypass| !bypass.broken && bypass.is_sending())
    }

    /// How often memory was lent to the daemon.
    pub fn lent(&self) -> u64 {
        self.rings.as_ref().map_or(0, |rings| rings.staging.lent)
    }

    /// The same, and how often it was used.
    pub fn staged(&self) -> Staged {
        let Some(rings) = &self.rings else { return Staged::default() };
        Staged { lent: rings.staging.lent, taken: rings.staging.taken }
    }

    /// Before sleeping; see [`Channels::arm`].
    pub fn arm(&mut self) -> bool {
        // First: what is rung for from now on is seen below, or rings again.
        self.clear();
        let mut idle = !self.connects.has_notes() & self.channels.arm();
        if let Some(bypass) = &mut self.bypass {
            idle &= !self.granted & bypass.arm(self.partners.bells());
        }
        if let Some(rings) = &mut self.rings {
            idle &= rings.arm();
        }
        idle
    }

    /// After sleeping; see [`Channels::disarm`].
    pub fn disarm(&mut self) {
        self.channels.disarm();
        if let Some(bypass) = &mut self.bypass {
            bypass.disarm(self.partners.bells());
        }
        if let Some(rings) = &mut self.rings {
            rings.disarm();
        }
    }
}

/// For what knows no buffer.
type Ways = dyn Transport<Vec<u8>>;
