//! What links and the services whose frames they carry say to each other.
//!
//! A service gives frames to a link's [`Carrier`] in its own thread; the carrier sends them
//! itself. What came by a link is brought to the service's shard in [`Arrivals`] through a
//! [`crate::mailbox`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use causeway_memory::{Cursor, Map};
use causeway_wire::virtio_net::Offload;

use crate::mailbox::Sender;
use crate::registration::Capability;
use causeway_model::{Ask, Mac, Name};

/// Names a link for as long as it exists; never reused for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// Length of what says how a frame is to be finished, in bytes: a virtio-net header without the
/// number of buffers (virtio 1.3, 5.1.6).
pub const OFFLOAD_BYTES: usize = 10;

/// Where the bytes behind a frame's head are.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// In a guest's memory.
    Guest(&'a Map, Cursor<'a>),
    /// In our own.
    Private(&'a [u8]),
}

/// The bytes of a frame are gone: its sender's memory was taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sender's memory was taken away")]
pub struct Lost;

impl Body<'_> {
    /// Copies the next `out.len()` bytes.
    ///
    /// # Errors
    /// There are fewer, or the memory behind them is gone.
    pub fn read(&mut self, out: &mut [u8]) -> Result<(), Lost> {
        match self {
            Self::Guest(map, cursor) => cursor.read(map, out).map_err(|_| Lost),
            Self::Private(bytes) => {
                let (now, later) = bytes.split_at_checked(out.len()).ok_or(Lost)?;
                out.copy_from_slice(now);
                *bytes = later;
                Ok(())
            }
        }
    }
}

/// A frame on its way out.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// What its receiver has left to do; where [`Carrier::takes_offloads`] says no, at most a
    /// checksum, which the carrier completes ([`Self::write`]).
    pub offload: &'a Offload,
    /// Its first bytes, all headers among them as far as they are there.
    pub head: &'a [u8],
    /// Those behind them.
    pub body: Body<'a>,
    /// Length of the frame, in bytes.
    pub len: usize,
    /// How many links it has crossed.
    pub hops: u8,
    /// Of a frame for many: its number, by which copies of it are known. Links that cannot carry
    /// it leave it out.
    pub flood: Option<u64>,
}

impl Outgoing<'_> {
    /// Goes through its bytes once.
    pub fn reader(&self) -> Reader<'_> {
        Reader { head: self.head, body: self.body }
    }

    /// Copies it, all [`Self::len`] bytes, and completes its checksum if that is left to do.
    ///
    /// # Errors
    /// There are fewer bytes, or the memory behind them is gone.
    pub fn write(&self, into: &mut [u8]) -> Result<(), Lost> {
        self.reader().read(into)?;
        if let Offload::Checksum(place) = self.offload {
            place.complete(into);
        }
        Ok(())
    }
}

/// Goes through the bytes of an [`Outgoing`] frame.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    head: &'a [u8],
    body: Body<'a>,
}

impl Reader<'_> {
    /// Copies the next `out.len()` bytes.
    ///
    /// # Errors
    /// There are fewer, or the memory behind them is gone.
    pub fn read(&mut self, out: &mut [u8]) -> Result<(), Lost> {
        let now = self.head.len().min(out.len());
        let (first, later) = self.head.split_at_checked(now).ok_or(Lost)?;
        let (into, rest) = out.split_at_mut_checked(now).ok_or(Lost)?;
        into.copy_from_slice(first);
        self.head = later;
        if rest.is_empty() { Ok(()) } else { self.body.read(rest) }
    }
}

/// Why a frame did not leave by a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The link is down.
    Down,
    /// It is longer than the link carries.
    TooBig,
    /// The kernel or the stream has no room now.
    NoRoom,
    /// Its sender's memory was taken away.
    Lost,
    /// It is MAC control (PAUSE): for the two ends of one physical link alone.
    MacControl,
}

/// One link's way out, for one shard.
pub trait Carrier: Send + std::fmt::Debug {
    /// Takes a frame. It leaves by [`Self::flush`] at the latest.
    ///
    /// # Errors
    /// Says why it does not leave.
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal>;

    /// Sends what was taken. Says how many frames the kernel had no room for.
    fn flush(&mut self) -> u64;

    /// Whether frames may cross whose checksums and segments are unfinished. Where they may not,
    /// segments are cut before they come here, and checksums completed here, in the one copy that
    /// is made.
    fn takes_offloads(&self) -> bool;

    /// The longest frame that crosses, in bytes.
    fn longest(&self) -> usize;
}

/// One frame that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Where it lies in [`Arrivals::bytes`].
    pub at: Range<usize>,
    /// How it is to be finished. From the network: to be checked like a guest's.
    pub offload: [u8; OFFLOAD_BYTES],
    /// How many links it has crossed, this one among them.
    pub hops: u8,
    /// See [`Outgoing::flood`].
    pub flood: Option<u64>,
}

/// Frames that came by one link.
#[derive(Debug)]
pub struct Arrivals {
    /// By which.
    pub link: LinkId,
    /// Where they lie.
    pub bytes: Buffer,
    /// Each of them.
    pub frames: Vec<Arrival>,
}

/// Whether a link carries frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Whether it does.
    pub up: bool,
    /// Whether much is lost on it: of several links to a peer the others are preferred.
    pub poor: bool,
    /// Round trip in nanoseconds, where it is known.
    pub rtt_ns: Option<u64>,
}

/// What a link tells the shard of its group.
#[derive(Debug)]
pub enum Message {
    /// Frames came.
    Arrivals(Arrivals),
    /// The link came up or went down.
    Standing(LinkId, Standing),
    /// The peer behind the link says that it has these addresses now: newer than all that was said
    /// of them before.
    Here(LinkId, Vec<Mac>),
    /// It does not have them any more.
    Gone(LinkId, Vec<Mac>),
    /// The link sends in another way from now on: it was opened after its group had joined it, or
    /// opened anew.
    Carrier(LinkId, Box<dyn Carrier>),
}

/// What the shard of a group tells the peer behind a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// An address is at one of our ports now.
    Here(LinkId, Mac),
    /// It is not any more.
    Gone(LinkId, Mac),
}

/// What a service needs to use a link.
#[derive(Debug)]
pub struct Membership {
    /// Which.
    pub id: LinkId,
    /// Its name.
    pub name: Name,
    /// Who is at the other end.
    pub peer: String,
    /// What it costs: lower is better.
    pub metric: u16,
    /// Whether frames of other links may leave by it.
    pub transit: bool,
    /// Whether it leads to a network segment that others are on as well, rather than to one peer.
    pub segment: bool,
    /// Where to tell our own addresses, if the peer wants to know them.
    pub notices: Option<Sender<Notice>>,
    /// The way out.
    pub carrier: Box<dyn Carrier>,
}

/// Shards of the service forward frames between ports and links: they answer [`OpenInbox`], [`Join`],
/// [`Leave`] and [`ReadDrops`].
pub const FORWARDS_FRAMES: Capability = Capability("forwards frames");

/// Asks a shard that forwards frames where links put what they receive.
#[derive(Debug)]
pub struct OpenInbox;

impl Ask for OpenInbox {
    type Answer = Sender<Message>;
}

/// Has a shard that forwards frames use a link.
#[derive(Debug)]
pub struct Join(pub Membership);

impl Ask for Join {
    type Answer = ();
}

/// Has a shard that forwards frames use a link no more.
#[derive(Debug)]
pub struct Leave(pub LinkId);

impl Ask for Leave {
    type Answer = ();
}

/// Reads how many frames that one link, or each, brought were dropped by the shard, by reason.
#[derive(Debug)]
pub struct ReadDrops(pub Option<LinkId>);

impl Ask for ReadDrops {
    type Answer = Vec<(LinkId, BTreeMap<String, u64>)>;
}

/// Asks a controller whether a link of this name is its own, and for the group of the link.
#[derive(Debug, Clone)]
pub struct FindLink(pub Name);

impl Ask for FindLink {
    type Answer = Option<Name>;
}

/// Tells a controller that a link was deleted.
#[derive(Debug, Clone)]
pub struct LinkDeleted {
    /// Its name.
    pub name: Name,
    /// Its group.
    pub group: Name,
}

impl Ask for LinkDeleted {
    type Answer = ();
}

/// Buffers that are used again.
#[derive(Debug, Clone, Default)]
pub struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

/// How many buffers a pool keeps.
const POOLED_MAX: usize = 64;

impl Pool {
    /// A buffer of at least `len` bytes; what is in it is of no meaning.
    pub fn take(&self, len: usize) -> Buffer {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bytes = bytes.unwrap_or_default();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        Buffer { bytes, pool: self.clone() }
    }

    /// Makes bytes a buffer of this pool.
    pub fn adopt(&self, bytes: Vec<u8>) -> Buffer {
        Buffer { bytes, pool: self.clone() }
    }
}

impl Buffer {
    /// The bytes, which do not go back to the pool.
    pub fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

/// A buffer that goes back to its pool.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    pool: Pool,
}

impl std::ops::Deref for Buffer {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut pool = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.len() < POOLED_MAX && bytes.capacity() > 0 {
            pool.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_goes_from_head_to_body() {
        let (offload, head, body) = (Offload::None, [1, 2, 3], [4, 5, 6, 7]);
        let frame = Outgoing {
            offload: &offload,
            head: &head,
            body: Body::Private(&body),
            len: 7,
            hops: 0,
            flood: None,
        };
        let mut reader = frame.reader();
        let (mut a, mut b) = ([0; 2], [0; 4]);
        reader.read(&mut a).unwrap();
        reader.read(&mut b).unwrap();
        assert_eq!((a, b), ([1, 2], [3, 4, 5, 6]));
        assert_eq!(reader.read(&mut a), Err(Lost), "one byte is left");
    }

    #[test]
    fn buffers_are_used_again() {
        let pool = Pool::default();
        let mut buffer = pool.take(1000);
        buffer.fill(7);
        drop(buffer);
        let again = pool.take(10);
        assert_eq!(*again, [7; 1000], "as it was: nothing is wiped in vain");
        assert!(pool.take(10).iter().all(|b| *b == 0), "another one");
    }
}
