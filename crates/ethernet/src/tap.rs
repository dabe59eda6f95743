//! Mirrors: copies of the frames that pass a port or a link, for running captures.
//!
//! The module copies into [`Recording`]s, after the filter, and never changes or delays a frame.
//!
//! # Budget
//! Without a capture: one comparison a batch.

use causeway_model::CaptureSpec;
use causeway_model::RouteEnd;
use causeway_wire::pcapng::Direction;

use crate::capture::{Recording, matches};
use crate::job::Taken;
use crate::limits::{CAPTURES_MAX, FRAME_BYTES_MAX};
use crate::route::Place;
use crate::source::Source;

/// One running capture.
#[derive(Debug)]
struct Tap {
    spec: CaptureSpec,
    /// The switch index that is mirrored; `None` if it no longer exists.
    place: Option<Place>,
    recording: Recording,
    /// Offset from the shard's clock to the time of day, in nanoseconds.
    wall_offset_ns: u64,
}

/// All running captures of a group.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    all: Vec<Tap>,
    room: Vec<u8>,
}

impl Taps {
    /// Returns whether no capture runs.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Begins a capture. Returns `None` if [`CAPTURES_MAX`] run already.
    pub fn begin(
        &mut self,
        spec: CaptureSpec,
        place: Place,
        name: &str,
        wall_offset_ns: u64,
    ) -> Option<Recording> {
        self.tidy();
        if self.all.len() >= CAPTURES_MAX {
            return None;
        }
        let recording = Recording::new(name, spec.snap, spec.count);
        let tap = Tap { spec, place: Some(place), recording: recording.clone(), wall_offset_ns };
        self.all.push(tap);
        Some(recording)
    }

    /// Removes captures that are over.
    fn tidy(&mut self) {
        self.all.retain(|tap| !tap.recording.is_over());
    }

    /// Resolves the captured ports and links again after some came or went.
    pub fn resolve(&mut self, place: impl Fn(&RouteEnd) -> Option<Place>) {
        for tap in &mut self.all {
            tap.place = place(&tap.spec.at);
            if tap.place.is_none() {
                tap.recording.close();
            }
        }
        self.all.retain(|tap| tap.place.is_some());
    }

    /// Copies frames that pass a switch index into its captures.
    #[cold]
    pub fn show(
        &mut self,
        place: Place,
        direction: Direction,
        source: Source<'_>,
        frames: &[Taken],
        now_ns: u64,
    ) {
        self.tidy();
        let Self { all, room } = self;
        for tap in all.iter().filter(|tap| tap.place == Some(place)) {
            let fits = frames.iter().filter(|taken| matches(&tap.spec.filter, taken.job.head()));
            for taken in fits.filter(|taken| taken.job.len <= FRAME_BYTES_MAX) {
                let len = taken.job.len;
                let snap = usize::try_from(tap.spec.snap).unwrap_or(len);
                let keep = if snap == 0 { len } else { snap.min(len) };
                room.clear();
                room.resize(keep, 0);
                let head = taken.job.head();
                let first = head.len().min(keep);
                if let (Some(to), Some(from)) = (room.get_mut(..first), head.get(..first)) {
                    to.copy_from_slice(from);
                }
                // Bytes that can no longer be read appear as zeroes.
                let rest = room.get_mut(first..).unwrap_or(&mut []);
                let _ = source.behind(taken).read(rest);
                let wall_ns = now_ns.wrapping_add(tap.wall_offset_ns);
                tap.recording.add(wall_ns, direction, room, len);
            }
        }
    }
}
