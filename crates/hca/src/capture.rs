//! Captures of a port's queue pairs: their messages as packets of RoCE version 2.
//!
//! No packet exists between two adapters of a host. A capture shows each message as the packets that
//! two adapters on a network would exchange ([`crate::packets`]): requests, acknowledgements, answers
//! to reads and atomic operations, and refusals. `causeway capture` begins a capture through the
//! service that forwards frames, which passes its recording here ([`JoinCapture`]); the recording
//! buffers, counts and ends as for frames. Requests of the port's guest are shown as received by the
//! port, requests to the guest as sent.
//!
//! Of each message at most [`CAPTURE_MESSAGE_BYTES_MAX`] (64 KiB) are copied; the packets behind are
//! counted as dropped, as are messages beyond `verbs::limits::OBSERVATIONS_MAX` in a call. Sequence
//! numbers begin with the first number of the queue pair when the capture begins, and count on from
//! there. Requests that wait, time out or fail at their own adapter are not shown. Without a capture
//! the engine takes one branch for each message; copies are charged to the turn.

use std::time::{SystemTime, UNIX_EPOCH};

use causeway_fabric::capture::{JoinCapture, Recording, matches};
use causeway_mlx5::Function;
use causeway_model::{CaptureSpec, CommandError, Name, RouteEnd};
use causeway_verbs::Subnet;
use causeway_wire::pcapng::Direction;

use crate::limits::{CAPTURE_BYTE_NS, CAPTURE_MESSAGE_BYTES_MAX, CAPTURES_MAX};
use crate::packets::{PacketFrame, Sequences};

/// A capture at a port.
#[derive(Debug)]
struct PortCapture {
    spec: CaptureSpec,
    /// Address of the port's adapter.
    mac: [u8; 6],
    recording: Recording,
    /// Offset from the shard's clock to the time of day, in nanoseconds.
    wall_offset_ns: u64,
}

/// The captures of a group's adapters.
#[derive(Debug, Default)]
pub(crate) struct PortCaptures {
    all: Vec<PortCapture>,
    sequences: Sequences,
    frame: PacketFrame,
}

impl PortCaptures {
    /// Returns whether no capture runs.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds a capture at the adapter with an address.
    ///
    /// # Errors
    /// The group has [`CAPTURES_MAX`] captures.
    pub(crate) fn join(
        &mut self,
        subnet: &mut Subnet<Function>,
        (now_ns, mac): (u64, [u8; 6]),
        join: JoinCapture,
    ) -> Result<(), CommandError> {
        self.tidy(subnet);
        if self.all.len() >= CAPTURES_MAX {
            let text = format!("there are {CAPTURES_MAX} captures in this group already: end one");
            return Err(CommandError::Conflict(text));
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        let wall_offset_ns = wall.wrapping_sub(now_ns);
        if self.all.is_empty() {
            subnet.observe(Some(CAPTURE_MESSAGE_BYTES_MAX));
        }
        let JoinCapture { spec, recording } = join;
        self.all.push(PortCapture { spec, mac, recording, wall_offset_ns });
        Ok(())
    }

    /// Ends the captures of a port that is deleted.
    pub(crate) fn port_removed(&mut self, subnet: &mut Subnet<Function>, name: &Name) {
        for capture in &self.all {
            if matches!(&capture.spec.at, RouteEnd::Interface(at) if at == name) {
                capture.recording.close();
            }
        }
        self.tidy(subnet);
    }

    /// Removes captures that are over; the last one ends the observation.
    fn tidy(&mut self, subnet: &mut Subnet<Function>) {
        let before = self.all.len();
        self.all.retain(|capture| !capture.recording.is_over());
        if self.all.is_empty() && before > 0 {
            subnet.observe(None);
            self.sequences = Sequences::default();
        }
    }

    /// Writes the messages that the engine observed since the last call. Returns the estimated time,
    /// in nanoseconds.
    #[cold]
    pub(crate) fn write(&mut self, subnet: &mut Subnet<Function>, now_ns: u64) -> u64 {
        self.tidy(subnet);
        let (observations, missed) = subnet.take_observations();
        let Self { all, sequences, frame } = self;
        let mut written = 0_u64;
        for observation in &observations {
            let macs = [observation.requester.mac, observation.responder.mac];
            if !all.iter().any(|capture| macs.contains(&capture.mac)) {
                continue;
            }
            let omitted = sequences.packets(observation, frame, |is_request, bytes| {
                written = written.saturating_add(bytes.len() as u64);
                for capture in all.iter().filter(|capture| macs.contains(&capture.mac)) {
                    let is_sender = (capture.mac == observation.requester.mac) == is_request;
                    capture.add(now_ns, is_sender, bytes);
                }
            });
            for capture in all.iter().filter(|capture| macs.contains(&capture.mac)) {
                capture.recording.miss(omitted);
            }
        }
        all.iter().for_each(|capture| capture.recording.miss(missed));
        written.saturating_mul(CAPTURE_BYTE_NS)
    }
}

impl PortCapture {
    /// Adds a packet that passes the filter.
    fn add(&self, now_ns: u64, is_sender: bool, bytes: &[u8]) {
        if !matches(&self.spec.filter, bytes) {
            return;
        }
        let snap = usize::try_from(self.spec.snap).unwrap_or(usize::MAX);
        let keep = if snap == 0 { bytes.len() } else { snap.min(bytes.len()) };
        let direction = if is_sender { Direction::In } else { Direction::Out };
        let kept = bytes.get(..keep).unwrap_or(bytes);
        let wall_ns = now_ns.wrapping_add(self.wall_offset_ns);
        self.recording.add(wall_ns, direction, kept, bytes.len());
    }
}
