//! The interface between links or stations and the services that forward frames.
//!
//! Sending: a service passes a frame to the link's [`Carrier`], in its own thread and turn; the
//! carrier encapsulates it and sends it by [`Carrier::flush`] at the latest. Receiving: the shard
//! of the link or station puts [`ReceivedFrames`] into the [mailbox](crate::mailbox) of the
//! service's shard ([`OpenInbox`]), which may run in another thread.
//!
//! The types carry frames and the state of links. Encapsulation and encryption are the link's;
//! addresses, routes and the choice among links are the service's. Delivery is not guaranteed: a
//! carrier without room refuses a frame and keeps none for later ([`Refusal::NoRoom`]), and a full
//! mailbox drops a whole batch of received frames. The mailbox returns a message that it has no
//! room for to its sender: links send states and carriers by
//! [`Sender::push_critical`](crate::mailbox::Sender::push_critical), which has four times the room.
//! Addresses go by [`Sender::push_urgent`](crate::mailbox::Sender::push_urgent), which has twice
//! the room. A refused state or carrier is logged, and the group learns only the next; refused
//! addresses are sent again later. [`Leave`] for an unknown link is no error. A carrier does not
//! check [`Outgoing::hops`]; the service refuses a frame to a link that crossed
//! [`HOPS_MAX`](crate::limits::HOPS_MAX) (8) links.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use causeway_memory::{Cursor, Map};
use causeway_wire::virtio_net::Offload;

use crate::capability::Capability;
use crate::mailbox::Sender;
use crate::station::Station;
use causeway_model::{Mac, Name, TypedRequest};

pub use crate::link_id::LinkId;

/// Length of an encoded offload request, in bytes: a virtio-net header without the number of
/// buffers (virtio 1.3, 5.1.6).
pub const OFFLOAD_BYTES: usize = 10;

/// The bytes of a frame after its head ([`Outgoing::head`]).
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// In a guest's memory: the map, and the position of the next byte.
    Guest(&'a Map, Cursor<'a>),
    /// In private memory.
    Private(&'a [u8]),
}

/// Error: the sender's memory was withdrawn, so the bytes of a frame are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sender's memory was taken away")]
pub struct MemoryLost;

impl Body<'_> {
    /// Copies the next `out.len()` bytes, and advances.
    ///
    /// # Errors
    /// Fewer bytes are left, or their memory was withdrawn.
    pub fn read(&mut self, out: &mut [u8]) -> Result<(), MemoryLost> {
        match self {
            Self::Guest(map, cursor) => cursor.read(map, out).map_err(|_| MemoryLost),
            Self::Private(bytes) => {
                let (now, later) = bytes.split_at_checked(out.len()).ok_or(MemoryLost)?;
                out.copy_from_slice(now);
                *bytes = later;
                Ok(())
            }
        }
    }
}

/// An outgoing frame.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// Offload that the receiver has to complete. If [`Carrier::takes_offloads`] is false, it is at
    /// most a checksum, and the carrier completes it ([`Self::write`]).
    pub offload: &'a Offload,
    /// First bytes of the frame, in private memory: the Ethernet header at least, and all headers
    /// that an offload needs.
    pub head: &'a [u8],
    /// The bytes after `head`.
    pub body: Body<'a>,
    /// Length of `head` and `body` together, in bytes.
    pub len: usize,
    /// Number of links that the frame has crossed.
    pub hops: u8,
    /// Flood sequence of a flooded frame (group address or unknown destination), by which
    /// duplicates are recognized. Links whose format has no field for it omit it.
    pub flood: Option<u64>,
}

impl Outgoing<'_> {
    /// Returns a reader of the bytes as they are: a checksum that was left stays incomplete.
    pub fn reader(&self) -> Reader<'_> {
        Reader { head: self.head, body: self.body }
    }

    /// Copies all [`Self::len`] bytes to `into`, and completes a checksum that was left.
    ///
    /// # Errors
    /// The frame has fewer bytes, or their memory was withdrawn.
    pub fn write(&self, into: &mut [u8]) -> Result<(), MemoryLost> {
        self.reader().read(into)?;
        if let Offload::Checksum(place) = self.offload {
            place.complete(into);
        }
        Ok(())
    }
}

/// Reads the bytes of an [`Outgoing`] frame in order.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    head: &'a [u8],
    body: Body<'a>,
}

impl Reader<'_> {
    /// Copies the next `out.len()` bytes.
    ///
    /// # Errors
    /// Fewer bytes are left, or their memory was withdrawn.
    pub fn read(&mut self, out: &mut [u8]) -> Result<(), MemoryLost> {
        let now = self.head.len().min(out.len());
        let (first, later) = self.head.split_at_checked(now).ok_or(MemoryLost)?;
        let (into, rest) = out.split_at_mut_checked(now).ok_or(MemoryLost)?;
        into.copy_from_slice(first);
        self.head = later;
        if rest.is_empty() { Ok(()) } else { self.body.read(rest) }
    }
}

/// Reason for which a link did not send a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The link is down; the frame is dropped.
    Down,
    /// The frame is longer than the link carries.
    TooBig,
    /// The socket or the stream has no room now; the frame is dropped, and not sent again.
    NoRoom,
    /// The sender's memory was withdrawn.
    Lost,
    /// MAC control (PAUSE) stays on its physical link (IEEE 802.3, annex 31B).
    MacControl,
}

/// The transmit path of a link, for one shard. Only the thread that owns the shard calls it; no
/// method blocks.
pub trait Carrier: Send + std::fmt::Debug {
    /// Takes a frame. It is sent by [`Self::flush`] at the latest.
    ///
    /// # Errors
    /// Returns the reason for which the frame is not sent.
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal>;

    /// Sends the frames taken so far; the service calls it at the end of a turn, and before it
    /// replaces or removes the carrier. Returns the number of datagrams (frames, for a link without
    /// datagrams) that the kernel refused: they are lost, and the carrier has counted them.
    fn flush(&mut self) -> u64;

    /// Returns whether frames may cross with unfinished checksums and segments. If not, the service
    /// segments frames before, and the carrier completes checksums in its only copy.
    fn takes_offloads(&self) -> bool;

    /// Returns the estimated time of a frame beside the copy of its bytes, in nanoseconds, for a
    /// carrier that makes a system call for each frame. The service charges it to its turn.
    fn frame_ns(&self) -> u64 {
        0
    }

    /// Frees buffers that a dormant link does not need; the next [`Self::push`] takes new ones. The
    /// service calls it when the link goes dormant, after [`Self::flush`].
    fn release(&mut self) {}

    /// Notes that the service dropped a frame that arrived by this member, for the reason of which
    /// `counter` is the name. Carriers of links ignore the call: [`ReadDrops`] has the drops of
    /// links.
    fn count_drop(&mut self, _counter: &'static str) {}

    /// Returns the length of the longest frame that crosses, in bytes.
    fn longest(&self) -> usize;
}

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// Its bytes in [`ReceivedFrames::bytes`].
    pub at: Range<usize>,
    /// Offload request, from the network: to be checked like a guest's.
    pub offload: [u8; OFFLOAD_BYTES],
    /// Links that the frame has crossed, including this link.
    pub hops: u8,
    /// Flood sequence ([`Outgoing::flood`]).
    pub flood: Option<u64>,
}

/// Frames received by a link.
#[derive(Debug)]
pub struct ReceivedFrames {
    /// Link that received them.
    pub link: LinkId,
    /// Bytes of all frames.
    pub bytes: PooledBuffer,
    /// Frames, in order of arrival.
    pub frames: Vec<ReceivedFrame>,
}

/// State of a link, as its shard reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkStatus {
    /// The link carries frames.
    pub up: bool,
    /// The link loses many frames: among several links to a peer, others are preferred.
    pub poor: bool,
    /// Round-trip time in nanoseconds, if known.
    pub rtt_ns: Option<u64>,
    /// The link is up and dormant: it has no session with its peer, and the next frame begins one.
    pub is_dormant: bool,
}

/// A message of a link to the shard of its group.
#[derive(Debug)]
pub enum Message {
    /// Received frames.
    ReceivedFrames(ReceivedFrames),
    /// Frames of a station to group addresses, which the other stations of its service have
    /// received already.
    StationFrames(ReceivedFrames),
    /// The link came up, went down or changed in quality.
    LinkStatus(LinkId, LinkStatus),
    /// The peer of the link advertises that it has these addresses; this supersedes earlier
    /// advertisements.
    AddressAdded(LinkId, Vec<Mac>),
    /// The peer of the link withdraws these addresses.
    AddressRemoved(LinkId, Vec<Mac>),
    /// The link has a new transmit path, which replaces the last: the link was opened after its
    /// group had joined it, or reopened.
    Carrier(LinkId, Box<dyn Carrier>),
}

/// A notice of a group's shard to the peer of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// An address is at a local port now.
    AddressAdded(LinkId, Mac),
    /// The address is no longer at a local port.
    AddressRemoved(LinkId, Mac),
    /// A frame for the dormant link waits in its [`Carrier`], which sends the notice itself.
    Wake(LinkId),
}

/// The values with which a service uses a link or a station.
#[derive(Debug)]
pub struct Membership {
    /// Identifier.
    pub id: LinkId,
    /// Name of the link, or of the station's port.
    pub name: Name,
    /// Name of the peer; links with equal names are alternatives to each other.
    pub peer: String,
    /// Cost of the link among its alternatives; the lowest is preferred.
    pub metric: u16,
    /// Whether frames of other links may leave by this link.
    pub transit: bool,
    /// Whether the link leads to a shared network segment rather than to a single peer.
    pub segment: bool,
    /// Destination of notices about local addresses, if the peer takes them.
    pub notices: Option<Sender<Notice>>,
    /// Address and policy, if the member is a station; `None` for a link. A station is up from the
    /// beginning, and its peer, metric, transit and segment have no meaning.
    pub station: Option<Station>,
    /// Transmit path.
    pub carrier: Box<dyn Carrier>,
}

/// Shards of the service forward frames between ports and links: they answer [`OpenInbox`],
/// [`Join`], [`Leave`], [`ReadDrops`] and [`ReadAddresses`].
pub const FORWARDS_FRAMES: Capability = Capability("forwards frames");

/// Shards of the service connect sockets of a group with those of other hosts, by datagrams that a
/// link carries apart from frames: they answer [`OpenInbox`], [`Join`], [`Leave`], [`ReadDrops`],
/// [`ReadCids`] and [`AssignCids`]. The datagrams are passed as frames without offloads, at most
/// [`Carrier::longest`] bytes each; they may be lost, repeated and reordered.
/// Ethernet addresses and [`Membership::notices`] are not used.
pub const CARRIES_SOCKETS: Capability = Capability("carries sockets between hosts");

/// Requests the mailbox into which links put received frames and all other [`Message`]s; the shard
/// opens it at the first request. As the next three requests, it runs in the dispatcher of the
/// group, between two turns.
#[derive(Debug)]
pub struct OpenInbox;

impl TypedRequest for OpenInbox {
    type Answer = Sender<Message>;
}

/// Adds a link or a station to a shard that forwards frames; the answer confirms the membership.
/// Refused as [`CommandError::Full`](causeway_model::CommandError::Full) if the group has as many
/// links as the service takes, and as
/// [`CommandError::Conflict`](causeway_model::CommandError::Conflict) if a port or station of the
/// group has the address of the station.
#[derive(Debug)]
pub struct Join(pub Membership);

impl TypedRequest for Join {
    type Answer = ();
}

/// Removes a link or a station from a shard that forwards frames.
#[derive(Debug)]
pub struct Leave(pub LinkId);

impl TypedRequest for Leave {
    type Answer = ();
}

/// Requests the number of frames that a shard dropped, by link and reason; for all links if `None`.
/// Of links that are alternatives to each other, one answers for all. The service may add further
/// counters and states of the link. An unknown link has no entry.
#[derive(Debug)]
pub struct ReadDrops(pub Option<LinkId>);

impl TypedRequest for ReadDrops {
    type Answer = Vec<(LinkId, BTreeMap<String, u64>)>;
}

/// Requests the addresses of the group's running guests and of its stations, in no defined order.
/// The shard adds 1 to the counter after each later change, until it closes or the next request
/// gives another counter.
#[derive(Debug)]
pub struct ReadAddresses(pub Arc<AtomicU64>);

impl TypedRequest for ReadAddresses {
    type Answer = Vec<Mac>;
}

/// Requests the CIDs of the group's attached guests, each with the time of day at which its guest
/// attached, in ns since 1970; in order of the CIDs. The shard adds 1 to the counter after each
/// later change, until it closes or the next request gives another counter.
#[derive(Debug)]
pub struct ReadCids(pub Arc<AtomicU64>);

impl TypedRequest for ReadCids {
    type Answer = Vec<(u32, u64)>;
}

/// Assigns CIDs to the peer behind a link, by claims that the sender has verified: the shard follows
/// no announcement of these CIDs by another peer. The sender bounds the number of CIDs. No effect for
/// a link that has not joined, and for a CID that no guest may have.
#[derive(Debug)]
pub struct AssignCids {
    /// The link to the peer.
    pub link: LinkId,
    /// Further links to the peer in the group.
    pub others: Vec<LinkId>,
    /// CIDs at the peer, with the epochs of the claims.
    pub claimed: Vec<(u32, u64)>,
    /// CIDs that left the peer, with the epochs until which assignments end.
    pub withdrawn: Vec<(u32, u64)>,
}

impl TypedRequest for AssignCids {
    type Answer = ();
}

/// Asks a controller for the group of a link, if the link is its own.
#[derive(Debug, Clone)]
pub struct FindLink(pub Name);

impl TypedRequest for FindLink {
    type Answer = Option<Name>;
}

/// Notifies a controller of a deleted link.
#[derive(Debug, Clone)]
pub struct LinkDeleted {
    /// Name.
    pub name: Name,
    /// Group.
    pub group: Name,
}

impl TypedRequest for LinkDeleted {
    type Answer = ();
}

/// Notifies a controller that the forwarding mode of a group may have changed
/// ([`Control::forwarding`](crate::Control::forwarding)). The group need not exist.
#[derive(Debug, Clone)]
pub struct ForwardingChanged(pub Name);

impl TypedRequest for ForwardingChanged {
    type Answer = ();
}

/// A pool of reusable buffers, shared between threads. It keeps at most `POOLED_MAX` (64) unused
/// buffers and does not limit the buffers in use.
#[derive(Debug, Clone, Default)]
pub struct BufferPool(Arc<Mutex<Vec<Vec<u8>>>>);

/// Unused buffers that a pool keeps; further returned buffers are freed.
const POOLED_MAX: usize = 64;

impl BufferPool {
    /// Returns a buffer of at least `len` bytes: a pooled buffer if there is one, else a new one.
    /// Its content is arbitrary.
    pub fn take(&self, len: usize) -> PooledBuffer {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bytes = bytes.unwrap_or_default();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        PooledBuffer { bytes, pool: self.clone() }
    }

    /// Returns the number of buffers in use, if this is the only handle of the pool; each clone
    /// counts as a further buffer.
    pub fn in_use(&self) -> usize {
        Arc::strong_count(&self.0).saturating_sub(1)
    }

    /// Frees the unused buffers.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Makes a vector a buffer of this pool: it returns there when dropped.
    pub fn adopt(&self, bytes: Vec<u8>) -> PooledBuffer {
        PooledBuffer { bytes, pool: self.clone() }
    }
}

impl PooledBuffer {
    /// Takes the bytes out; they do not return to the pool.
    pub fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

/// A buffer that returns to its pool when dropped.
#[derive(Debug)]
pub struct PooledBuffer {
    bytes: Vec<u8>,
    pool: BufferPool,
}

impl std::ops::Deref for PooledBuffer {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl std::ops::DerefMut for PooledBuffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for PooledBuffer {
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
    fn carrier_reader_continues_from_head_to_body() {
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
        assert_eq!(reader.read(&mut a), Err(MemoryLost), "one byte is left");
    }

    #[test]
    fn carrier_buffers_are_reused() {
        let pool = BufferPool::default();
        let mut buffer = pool.take(1000);
        buffer.fill(7);
        drop(buffer);
        assert_eq!(pool.in_use(), 0);
        let again = pool.take(10);
        assert_eq!(pool.in_use(), 1);
        assert_eq!(*again, [7; 1000], "the content is kept: the pool does not clear buffers");
        assert!(pool.take(10).iter().all(|b| *b == 0), "another one");
    }
}
