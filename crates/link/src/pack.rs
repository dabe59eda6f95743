//! Frames into sealed datagrams: small frames share a datagram, long frames fill several.
//!
//! All datagrams of a [`Batch`] but the last have the same length, so that the kernel takes them in
//! one send (UDP GSO): at most [`BATCH_DATAGRAMS_MAX`] (64) datagrams and [`BATCH_BYTES_MAX`]
//! (65,000) bytes. The packer reads frame bytes from guest memory straight into the plaintext of a
//! datagram, and seals the plaintext straight into the batch. A frame of up to [`WHOLE_BYTES_MAX`]
//! (256) bytes is not fragmented if an empty datagram has room for it.
//!
//! A packer belongs to one sending thread, has its buffers (128 KiB) while there is a path, allocates
//! nothing per frame and delays nothing: pushed
//! frames leave with [`Packer::finish`] at the latest. It sends nothing itself and holds no queue:
//! full batches go to the caller's `send`, which counts datagrams that the kernel refuses. Frames
//! keep their order within one packer, and have none between the packers of a tunnel.
//!
//! `TunnelCarrier` of [`crate::io::tunnels`] calls the packer, with frames through
//! [`crate::flood::pack`]; the session, the address and the datagram length come from
//! [`crate::tx_path`]. Pending frames keep the path with which they began: a changed path applies
//! once the packer is empty. At the peer, [`crate::tunnel`] opens the datagrams.

use std::net::SocketAddr;
use std::sync::Arc;

use causeway_wire::tunnel::record::{self, Fragment};
use causeway_wire::tunnel::{INNER_LEN, Inner};
use causeway_wire::virtio_net::Header as Metadata;

use crate::limits::{
    BATCH_BYTES_MAX, BATCH_DATAGRAMS_MAX, DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_SAFE,
    FRAGMENT_BYTES_MIN, FRAME_BYTES_MAX, WHOLE_BYTES_MAX,
};
use crate::session::SealError;
use crate::tx_path::{Path, TunnelTxPath};

/// More than a session adds to a datagram, in bytes.
const OVERHEAD_MAX: usize = 64;
/// Header bytes of a fragment record.
const FRAGMENT_HEADERS: usize = record::HEADER_LEN + record::FRAGMENT_LEN;

/// Why a frame was not packed. Earlier frames are not affected, except by [`PushError::Seal`].
/// Fragments of this frame may have been sent already; the peer drops them after 1 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PushError<E> {
    /// The tunnel has no session, or no address of the peer.
    #[error("the tunnel has no session yet: the peer has not answered")]
    NoPath,
    /// The frame is longer than [`FRAME_BYTES_MAX`] (65,557 bytes).
    #[error("the frame of {0} bytes is longer than a tunnel carries ({FRAME_BYTES_MAX})")]
    Oversized(usize),
    /// The frame's bytes could not be read.
    #[error(transparent)]
    Source(E),
    /// The session cannot seal: the frames in the datagram being filled are lost as well.
    #[error("{0}")]
    Seal(SealError),
}

/// Sealed datagrams for one peer, back to back.
#[derive(Debug)]
pub struct Batch {
    /// The datagrams; only the first `used` bytes are valid.
    bytes: Box<[u8]>,
    /// Valid bytes of `bytes`.
    used: usize,
    /// Length of every datagram but the last, in bytes.
    segment: usize,
    /// Number of datagrams.
    datagrams: usize,
    /// The destination.
    to: Option<SocketAddr>,
    /// Traffic class of the outer headers.
    class: u8,
}

impl Batch {
    /// Returns the datagrams' bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or(&[])
    }

    /// Returns the length of every datagram but the last, in bytes. The last may be shorter.
    pub const fn segment(&self) -> usize {
        self.segment
    }

    /// Returns the number of datagrams: 1 to [`BATCH_DATAGRAMS_MAX`] (64) when the batch is sent.
    pub const fn datagrams(&self) -> usize {
        self.datagrams
    }

    /// Returns the destination; `None` only while the batch is empty.
    pub const fn to(&self) -> Option<SocketAddr> {
        self.to
    }

    /// Returns the traffic class of the outer headers.
    pub const fn class(&self) -> u8 {
        self.class
    }

    fn clear(&mut self) {
        (self.used, self.segment, self.datagrams) = (0, 0, 0);
    }
}

/// The sending side of a tunnel for one thread.
#[derive(Debug)]
pub struct Packer {
    tx_path: Arc<TunnelTxPath>,
    /// Version of the TX path from which `path` was read.
    version: u64,
    /// The path for pending and following frames; `None` without a session or an address.
    path: Option<Arc<Path>>,
    /// Plaintext of the datagram being filled.
    text: Box<[u8]>,
    /// Filled bytes of `text`; 0 while the datagram is empty.
    used: usize,
    /// Virtual network of the records in `text`: a datagram carries records of one network.
    vni: u32,
    batch: Batch,
}

impl Packer {
    /// Returns whether segments have to be cut before [`Packer::push`]
    /// ([`TunnelTxPath::is_lossy`]).
    #[inline]
    pub fn is_lossy(&self) -> bool {
        self.tx_path.is_lossy()
    }

    /// Returns a packer for the calling thread.
    pub fn new(tx_path: Arc<TunnelTxPath>) -> Self {
        let bytes = Box::default();
        let batch = Batch { bytes, used: 0, segment: 0, datagrams: 0, to: None, class: 0 };
        let (version, path) = (tx_path.version(), tx_path.path());
        let mut packer =
            Self { tx_path, version, path, text: Box::default(), used: 0, vni: 0, batch };
        packer.resize();
        packer
    }

    /// Returns the TX path from which the packer reads its path.
    pub const fn tx_path(&self) -> &Arc<TunnelTxPath> {
        &self.tx_path
    }

    /// Allocates the buffers with the first path, and frees them without one: a dormant tunnel needs
    /// no memory.
    fn resize(&mut self) {
        let len = if self.path.is_some() { DATAGRAM_BYTES_MAX } else { 0 };
        if self.text.len() != len {
            (self.text, self.batch.bytes) = (vec![0; len].into(), vec![0; len].into());
        }
    }

    /// Returns whether no frame waits for [`Packer::finish`].
    pub const fn is_empty(&self) -> bool {
        self.used == 0 && self.batch.datagrams == 0
    }

    /// Returns whether frames can be pushed: the tunnel has a session and an address of the peer.
    pub fn is_open(&mut self) -> bool {
        self.refresh();
        self.path.is_some()
    }

    /// Sets the traffic class of the outer headers for the following frames. The kernel takes one
    /// class for all datagrams of a send, and frames that share a datagram share its ECN field; so
    /// pending frames of another class are sent first.
    ///
    /// # Errors
    /// [`SealError`]: the pending frames are lost.
    #[inline]
    pub fn classify(&mut self, class: u8, send: impl FnMut(&Batch)) -> Result<(), SealError> {
        if class == self.batch.class {
            return Ok(());
        }
        let finished = if self.is_empty() { Ok(()) } else { self.finish(send) };
        self.batch.class = class;
        finished
    }

    /// Packs a frame of `len` bytes. `read(offset, into)` writes the frame's bytes from `offset` on
    /// into all of `into`; offsets grow. `send` receives each full batch. `hops` is the number of
    /// daemons that forwarded the frame so far, and its flag `FLOODED` ([`crate::flood`]).
    ///
    /// # Errors
    /// [`PushError`]; errors of `read` are returned as [`PushError::Source`].
    pub fn push<E>(
        &mut self,
        vni: u32,
        hops: u8,
        metadata: &Metadata,
        len: usize,
        mut read: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
        mut send: impl FnMut(&Batch),
    ) -> Result<(), PushError<E>> {
        if len > FRAME_BYTES_MAX {
            return Err(PushError::Oversized(len));
        }
        self.refresh();
        let Some(cap) = self.cap() else { return Err(PushError::NoPath) };
        if self.used > 0 && self.vni != vni {
            self.close(cap, true, &mut send).map_err(PushError::Seal)?;
        }
        self.vni = vni;
        let first = record::emit_metadata(metadata);
        let bare = first == [0; record::METADATA_LEN];
        let first: &[u8] = if bare { &[] } else { &first };
        let frame = FrameToPack { first, len, hops, bare };
        let whole = frame.total().saturating_add(record::HEADER_LEN);
        if whole > cap.saturating_sub(self.start())
            && whole <= cap.saturating_sub(INNER_LEN)
            && frame.total() <= WHOLE_BYTES_MAX
        {
            self.close(cap, true, &mut send).map_err(PushError::Seal)?;
        }
        if whole <= cap.saturating_sub(self.start()) {
            self.whole(&frame, &mut read).map_err(PushError::Source)?;
        } else {
            self.pieces(cap, &frame, &mut read, &mut send)?;
        }
        Ok(())
    }

    /// Returns the length of the longest segment that a datagram holds now ([`Self::push_segment`]);
    /// 0 without a session, and the length that waits for a session at an on-demand tunnel.
    pub fn segment_max(&self) -> usize {
        let path = if self.is_empty() { self.tx_path.path() } else { self.path.clone() };
        let cap = match &path {
            Some(path) => Self::cap_of(path),
            // The first datagrams of the next session have room for this.
            None if self.tx_path.is_on_demand() => DATAGRAM_BYTES_SAFE.saturating_sub(OVERHEAD_MAX),
            None => 0,
        };
        cap.saturating_sub(INNER_LEN).saturating_sub(record::HEADER_LEN)
    }

    /// Packs a datagram of the stream protocol, whole. `read` and `send` are those of
    /// [`Self::push`].
    ///
    /// # Errors
    /// [`PushError`]; [`PushError::Oversized`] beyond [`Self::segment_max`].
    pub fn push_segment<E>(
        &mut self,
        vni: u32,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
        mut send: impl FnMut(&Batch),
    ) -> Result<(), PushError<E>> {
        self.refresh();
        let Some(cap) = self.cap() else { return Err(PushError::NoPath) };
        let whole = len.saturating_add(record::HEADER_LEN);
        if whole > cap.saturating_sub(INNER_LEN) {
            return Err(PushError::Oversized(len));
        }
        let is_full = whole > cap.saturating_sub(self.start());
        if is_full || (self.used > 0 && self.vni != vni) {
            self.close(cap, true, &mut send).map_err(PushError::Seal)?;
        }
        self.vni = vni;
        let count = u16::try_from(len).unwrap_or(u16::MAX);
        let header = record::Header { kind: record::SEGMENT, bare: false, hops: 0, len: count };
        let at = self.start();
        let at = self.put(at, &header.emit());
        let end = at.saturating_add(len);
        read(self.text.get_mut(at..end).unwrap_or(&mut [])).map_err(PushError::Source)?;
        self.used = end;
        Ok(())
    }

    /// Seals pending frames and passes the last batch to `send`.
    ///
    /// # Errors
    /// [`SealError`]: the pending frames are lost.
    pub fn finish(&mut self, mut send: impl FnMut(&Batch)) -> Result<(), SealError> {
        let closed = match self.cap() {
            Some(cap) if self.used > 0 => self.close(cap, false, &mut send),
            _ => Ok(()),
        };
        self.used = 0;
        if self.batch.datagrams > 0 {
            send(&self.batch);
            self.batch.clear();
        }
        closed
    }

    /// Adopts a changed path, once no pending datagram belongs to the old path.
    fn refresh(&mut self) {
        let version = self.tx_path.version();
        if version != self.version && self.is_empty() {
            self.version = version;
            self.path = self.tx_path.path();
            self.resize();
        }
    }

    /// Returns the plaintext bytes of a full datagram; `None` without a path.
    fn cap(&self) -> Option<usize> {
        self.path.as_deref().map(Self::cap_of)
    }

    /// Returns the plaintext bytes of a full datagram on a path.
    fn cap_of(path: &Path) -> usize {
        let datagram = path.datagram.min(DATAGRAM_BYTES_MAX);
        datagram.saturating_sub(path.session.overhead())
    }

    /// Returns where the next record begins.
    fn start(&self) -> usize {
        self.used.max(INNER_LEN)
    }

    /// Copies `bytes` into the plaintext and returns their end.
    fn put(&mut self, at: usize, bytes: &[u8]) -> usize {
        let end = at.saturating_add(bytes.len());
        if let Some(place) = self.text.get_mut(at..end) {
            place.copy_from_slice(bytes);
        }
        end
    }

    /// Writes a frame as one record. `used` grows only once all bytes were read.
    fn whole<E>(
        &mut self,
        frame: &FrameToPack<'_>,
        read: &mut impl FnMut(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let at = self.start();
        let at = self.put(at, &frame.header(record::FRAME, frame.total()));
        let at = self.put(at, frame.first);
        let end = at.saturating_add(frame.len);
        read(0, self.text.get_mut(at..end).unwrap_or(&mut []))?;
        self.used = end;
        Ok(())
    }

    /// Writes a frame as fragments that fill datagrams completely.
    fn pieces<E>(
        &mut self,
        cap: usize,
        frame: &FrameToPack<'_>,
        read: &mut impl FnMut(usize, &mut [u8]) -> Result<(), E>,
        send: &mut impl FnMut(&Batch),
    ) -> Result<(), PushError<E>> {
        let (id, total) = (self.tx_path.next_frame(), frame.total());
        let mut offset = 0;
        while offset < total {
            let left = total.saturating_sub(offset);
            let room = cap.saturating_sub(self.start()).saturating_sub(FRAGMENT_HEADERS);
            if room < left.min(FRAGMENT_BYTES_MIN) {
                if self.used == 0 {
                    // Not even an empty datagram has room for a fragment.
                    return Err(PushError::Seal(SealError::Room(left)));
                }
                self.close(cap, true, send).map_err(PushError::Seal)?;
                continue;
            }
            let len = left.min(room);
            self.piece(frame, id, offset, len, read).map_err(PushError::Source)?;
            offset = offset.saturating_add(len);
        }
        Ok(())
    }

    /// Writes a fragment of `len` bytes.
    fn piece<E>(
        &mut self,
        frame: &FrameToPack<'_>,
        id: u32,
        offset: usize,
        len: usize,
        read: &mut impl FnMut(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let header = frame.header(record::FRAGMENT, len.saturating_add(record::FRAGMENT_LEN));
        let fragment = Fragment { id, offset: number(offset), total: number(frame.total()) };
        let at = self.start();
        let at = self.put(at, &header);
        let at = self.put(at, &fragment.emit());
        let first = frame.first.get(offset..).unwrap_or(&[]);
        let first = first.get(..len).unwrap_or(first);
        let from = self.put(at, first);
        let end = at.saturating_add(len);
        let offset = offset.saturating_sub(frame.first.len());
        read(offset, self.text.get_mut(from..end).unwrap_or(&mut []))?;
        self.used = end;
        Ok(())
    }

    /// Seals the plaintext into the batch, padded to full length if more may follow, and sends the
    /// batch once it is full.
    fn close(
        &mut self,
        cap: usize,
        full: bool,
        send: &mut impl FnMut(&Batch),
    ) -> Result<(), SealError> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        if self.used == 0 {
            return Ok(());
        }
        self.put(0, &Inner { vni: self.vni, flags: 0 }.emit());
        let len = if full { cap } else { self.used };
        if let Some(padding) = self.text.get_mut(self.used..len) {
            padding.fill(record::PAD);
        }
        self.used = 0;
        let text = self.text.get(..len).unwrap_or(&[]);
        let batch = &mut self.batch;
        let room = batch.bytes.get_mut(batch.used..).unwrap_or(&mut []);
        let sealed = path.session.seal_into(text, room)?;
        if batch.datagrams == 0 {
            (batch.segment, batch.to) = (sealed, Some(path.to));
        }
        batch.used = batch.used.saturating_add(sealed);
        batch.datagrams = batch.datagrams.saturating_add(1);
        let crowded = batch.used.saturating_add(batch.segment) > BATCH_BYTES_MAX;
        if crowded || batch.datagrams >= BATCH_DATAGRAMS_MAX || sealed < batch.segment {
            send(&self.batch);
            self.batch.clear();
        }
        Ok(())
    }
}

/// A frame to pack.
struct FrameToPack<'a> {
    /// The frame's metadata (requested offloads); empty if the frame has none.
    first: &'a [u8],
    /// The frame's length in bytes, without metadata.
    len: usize,
    /// Daemons that forwarded the frame so far.
    hops: u8,
    /// Whether the frame has no metadata.
    bare: bool,
}

impl FrameToPack<'_> {
    /// Returns the length of metadata and frame, in bytes.
    const fn total(&self) -> usize {
        self.first.len().saturating_add(self.len)
    }

    /// Returns the header of a record of `len` bytes.
    fn header(&self, kind: u8, len: usize) -> [u8; record::HEADER_LEN] {
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        record::Header { kind, bare: self.bare, hops: self.hops, len }.emit()
    }
}
