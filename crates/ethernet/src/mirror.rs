//! Mirrors: copies of the frames that pass a port or a link, for running captures.
//!
//! `crate::classify` and `crate::link_rx` mirror frames that arrive, `crate::forward` and
//! `crate::link_tx` frames that leave. [`Mirrors::copy_frames`] copies the frames that pass the
//! capture's filter into a [`Recording`], at most `snap` bytes each (0: whole frames). A group has
//! at most [`CAPTURES_MAX`] (16) running captures; a further capture is refused. A full recording
//! drops the copy and counts it. A capture at a link copies the frames of its whole bundle
//! (`crate::uplink`). Arriving frames are copied whether they are dropped afterwards or not, except
//! those of a standby link. A frame that leaves by a link is copied even if the carrier refuses it;
//! a frame to a port when it was delivered to a receive queue or dropped there, but not if it was
//! dropped because no queue runs or buffers are missing. The filter sees the private headers: 64
//! bytes of a plain frame (`crate::headers`).
//!
//! The module never changes or delays a frame, although the copies cost time of the shard. Frames
//! are copied as the sender wrote them, before segmentation, with incomplete checksums; payload
//! that a guest changes or unmaps meanwhile appears changed, or as zeroes. A capture ends if its
//! port or link is removed; its recorded copies can still be fetched. The copies are made in the
//! dispatcher's thread of the group, and fetched in threads of control requests.
//!
//! # Budget
//! Without a capture: one comparison a batch.

use causeway_fabric::capture::{Recording, matches};
use causeway_model::CaptureSpec;
use causeway_model::RouteEnd;
use causeway_wire::pcapng::Direction;

use crate::frame_store::FrameStore;
use crate::headers::RxFrame;
use crate::limits::{CAPTURES_MAX, FRAME_BYTES_MAX};
use crate::route::SwitchIndex;

/// One running capture.
#[derive(Debug)]
struct Mirror {
    spec: CaptureSpec,
    /// The switch index that is mirrored; `None` if it no longer exists.
    place: Option<SwitchIndex>,
    /// The buffer that the controller fetches from.
    recording: Recording,
    /// Offset from the shard's clock to the time of day, in nanoseconds.
    wall_offset_ns: u64,
}

/// All running captures of a group.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    all: Vec<Mirror>,
    /// Buffer for one copied frame, kept for its capacity.
    room: Vec<u8>,
}

impl Mirrors {
    /// Returns whether no capture runs.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns whether a capture runs at a switch index.
    pub fn is_at(&self, place: SwitchIndex) -> bool {
        self.all.iter().any(|mirror| mirror.place == Some(place))
    }

    /// Begins a capture. Returns `None` if [`CAPTURES_MAX`] run already.
    pub fn begin(
        &mut self,
        spec: CaptureSpec,
        place: SwitchIndex,
        name: &str,
        wall_offset_ns: u64,
    ) -> Option<Recording> {
        self.tidy();
        if self.all.len() >= CAPTURES_MAX {
            return None;
        }
        let recording = Recording::new(name, spec.snap, spec.count);
        let mirror =
            Mirror { spec, place: Some(place), recording: recording.clone(), wall_offset_ns };
        self.all.push(mirror);
        Some(recording)
    }

    /// Removes captures that are over.
    fn tidy(&mut self) {
        self.all.retain(|mirror| !mirror.recording.is_over());
    }

    /// Resolves the captured ports and links again after some came or went.
    pub fn resolve(&mut self, place: impl Fn(&RouteEnd) -> Option<SwitchIndex>) {
        for mirror in &mut self.all {
            mirror.place = place(&mirror.spec.at);
            if mirror.place.is_none() {
                mirror.recording.close();
            }
        }
        self.all.retain(|mirror| mirror.place.is_some());
    }

    /// Copies frames that pass a switch index into its captures.
    #[cold]
    pub fn copy_frames(
        &mut self,
        place: SwitchIndex,
        direction: Direction,
        source: FrameStore<'_>,
        frames: &[RxFrame],
        now_ns: u64,
    ) {
        self.tidy();
        let Self { all, room } = self;
        for mirror in all.iter().filter(|mirror| mirror.place == Some(place)) {
            let fits = frames.iter().filter(|rx| matches(&mirror.spec.filter, rx.headers.head()));
            for rx in fits.filter(|rx| rx.headers.len <= FRAME_BYTES_MAX) {
                let len = rx.headers.len;
                let snap = usize::try_from(mirror.spec.snap).unwrap_or(len);
                let keep = if snap == 0 { len } else { snap.min(len) };
                room.clear();
                room.resize(keep, 0);
                let head = rx.headers.head();
                let first = head.len().min(keep);
                if let (Some(to), Some(from)) = (room.get_mut(..first), head.get(..first)) {
                    to.copy_from_slice(from);
                }
                // Bytes that can no longer be read appear as zeroes.
                let rest = room.get_mut(first..).unwrap_or(&mut []);
                let _ = source.behind(rx).read(rest);
                let wall_ns = now_ns.wrapping_add(mirror.wall_offset_ns);
                mirror.recording.add(wall_ns, direction, room, len);
            }
        }
    }
}
