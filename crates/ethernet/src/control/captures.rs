//! The captures of all groups, which clients fetch in parts.
//!
//! A shard of this service writes a [`Recording`] of frames. For a port of another service that
//! service's shard writes too: beside the frames of the port (the queue pairs of an adapter), or
//! alone for a port without frames (the packets of a vsock port). This module numbers, serves and
//! ends the recordings, on the threads of the control socket, and ends idle recordings also in the
//! tick (`crate::control`). At most [`RECORDINGS_MAX`] (64) captures exist; a further capture is
//! refused, as is a capture in a group with [`CAPTURES_MAX`](crate::limits::CAPTURES_MAX) (16). A
//! capture that is not fetched from for [`CAPTURE_IDLE`] (30 s) is removed with its copies. The
//! module reads no frame and does not wait for copies: a fetch may return no bytes. Fetched bytes
//! are gone: of two clients that fetch one capture, each gets a part. A second stop has no effect.
//! A number without a capture, also of a removed capture, is [`CommandError::NotFound`].

use std::collections::BTreeMap;
use std::time::Instant;

use causeway_fabric::capture::{JoinCapture, Recording};
use causeway_fabric::{Control, ShardKey};
use causeway_model::{
    CaptureChunk, CaptureFormat, CaptureSpec, CaptureView, CommandError, RouteEnd,
};

use super::group_of;
use crate::limits::{CAPTURE_IDLE, RECORDINGS_MAX};
use crate::request::BeginCapture;
use crate::service::NAME;

/// The captures that clients may fetch from, by number.
#[derive(Debug, Default)]
pub(super) struct Captures {
    /// Each with the time of its last fetch.
    all: BTreeMap<u64, (Recording, Instant)>,
    /// Number of the latest capture; numbers are not reused.
    last: u64,
}

/// Returns the shard of a port of another service.
fn service_of(control: &Control<'_>, end: &RouteEnd) -> Result<Option<ShardKey>, CommandError> {
    let RouteEnd::Interface(name) = end else { return Ok(None) };
    let (_, shard) = control.port(name)?;
    Ok((shard.service != NAME).then(|| shard.clone()))
}

/// Returns the format of a capture at a port or link.
fn format_of(control: &Control<'_>, end: &RouteEnd) -> Result<CaptureFormat, CommandError> {
    let RouteEnd::Interface(name) = end else { return Ok(CaptureFormat::Ethernet) };
    let (port, _) = control.port(name)?;
    let kind = port.kind.kind();
    kind.captures.ok_or_else(|| {
        let text = format!("port {name}: ports of kind {} cannot be captured", kind.name);
        CommandError::Invalid(text)
    })
}

/// Returns the error for a number without a capture.
fn no_capture(number: u64) -> CommandError {
    CommandError::NotFound { what: "capture", name: number.to_string() }
}

impl Captures {
    /// Returns whether no capture exists.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Removes captures without a fetch for [`CAPTURE_IDLE`], with their recorded bytes.
    pub(super) fn end_idle(&mut self) {
        self.all.retain(|_, (recording, fetched)| {
            let is_used = fetched.elapsed() < CAPTURE_IDLE;
            if !is_used {
                recording.close();
            }
            is_used
        });
    }

    /// Begins a capture in the shard of its port or link, and numbers it.
    pub(super) fn begin(
        &mut self,
        control: &mut Control<'_>,
        spec: CaptureSpec,
    ) -> Result<CaptureView, CommandError> {
        let other = service_of(control, &spec.at)?;
        self.end_idle();
        if self.all.len() >= RECORDINGS_MAX {
            let text = format!("there are {RECORDINGS_MAX} captures already: end one");
            return Err(CommandError::Full(text));
        }
        let recording = match format_of(control, &spec.at)? {
            CaptureFormat::Ethernet => {
                let group = group_of(control, &spec.at)?;
                let begin = BeginCapture(spec.clone());
                control.ask(&ShardKey::new(&group, NAME), begin)?
            }
            format => Recording::of(format, &spec.at.to_string(), spec.snap, spec.count),
        };
        if let Some(shard) = other {
            let join = JoinCapture { spec, recording: recording.clone() };
            control.ask(&shard, join).inspect_err(|_| recording.close())?;
        }
        self.last = self.last.saturating_add(1);
        let capture = self.last;
        self.all.insert(capture, (recording, Instant::now()));
        Ok(CaptureView { capture })
    }

    /// Takes recorded bytes of a capture, and keeps it alive.
    pub(super) fn fetch(&mut self, number: u64) -> Result<CaptureChunk, CommandError> {
        self.end_idle();
        let (recording, fetched) = self.all.get_mut(&number).ok_or_else(|| no_capture(number))?;
        *fetched = Instant::now();
        Ok(recording.fetch())
    }

    /// Stops recording; recorded bytes can still be fetched.
    pub(super) fn stop(&mut self, number: u64) -> Result<(), CommandError> {
        let (recording, _) = self.all.get(&number).ok_or_else(|| no_capture(number))?;
        recording.close();
        Ok(())
    }

    /// Removes a capture with its recorded bytes.
    pub(super) fn end(&mut self, number: u64) -> Result<(), CommandError> {
        let (recording, _) = self.all.remove(&number).ok_or_else(|| no_capture(number))?;
        recording.close();
        Ok(())
    }
}
