//! Captures of a port's queue pairs: their messages as packets of RoCE version 2.
//!
//! No packet exists between two adapters of a host. A capture shows each message as the packets
//! that two adapters on a network would exchange ([`crate::packets`]): requests, acknowledgements,
//! answers to reads and atomic operations, and refusals. `causeway capture` begins a capture
//! through the service that forwards frames, which passes its recording here ([`JoinCapture`]); the
//! recording buffers, counts and ends as for frames. Packets that the port's guest sends are shown
//! as received by the port, packets to the guest as sent. A datagram, or a message of an unreliable
//! connection, that a rule denied or its receiver did not accept is shown at its sender only; a
//! multicast datagram at each adapter that received it.
//!
//! [`crate::service`] adds and ends captures and writes the messages of each call, in the
//! dispatcher's thread. A group has at most [`CAPTURES_MAX`] (16) captures; a further one is
//! refused.
//!
//! Of each message at most [`CAPTURE_MESSAGE_BYTES_MAX`] (64 KiB) are copied; the packets behind
//! are counted as dropped, as are messages beyond `verbs::limits::OBSERVATIONS_MAX` in a call.
//! Sequence numbers begin with the first number of the queue pair when the capture begins, and
//! count on from there. Requests that wait, time out or fail at their own adapter are not shown.
//! Messages of adapters without a capture are not copied; without any capture the engine takes one
//! branch for each message. Copies are charged to the turn.

use std::time::{SystemTime, UNIX_EPOCH};

use causeway_fabric::capture::{JoinCapture, Recording, matches};
use causeway_mlx5::Function;
use causeway_model::{CaptureSpec, CommandError, Name, RouteEnd};
use causeway_verbs::{AdapterId, ObservedMessage, Subnet};
use causeway_wire::pcapng::Direction;

use crate::limits::{CAPTURE_BYTE_NS, CAPTURE_MESSAGE_BYTES_MAX, CAPTURES_MAX};
use crate::packets::{PacketFrame, Sequences};

/// A capture at a port.
#[derive(Debug)]
struct PortCapture {
    spec: CaptureSpec,
    adapter: AdapterId,
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

    /// Adds a capture at an adapter.
    ///
    /// # Errors
    /// The group has [`CAPTURES_MAX`] (16) captures.
    pub(crate) fn join(
        &mut self,
        subnet: &mut Subnet<Function>,
        (now_ns, adapter): (u64, AdapterId),
        join: JoinCapture,
    ) -> Result<(), CommandError> {
        self.tidy(subnet);
        if self.all.len() >= CAPTURES_MAX {
            let text = format!("there are {CAPTURES_MAX} captures in this group already: end one");
            return Err(CommandError::Full(text));
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        let wall_offset_ns = wall.wrapping_sub(now_ns);
        let JoinCapture { spec, recording } = join;
        self.all.push(PortCapture { spec, adapter, recording, wall_offset_ns });
        self.observe(subnet);
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

    /// Observes the adapters that have a capture.
    fn observe(&self, subnet: &mut Subnet<Function>) {
        let adapters = self.all.iter().map(|capture| capture.adapter).collect();
        subnet.observe(adapters, CAPTURE_MESSAGE_BYTES_MAX);
    }

    /// Removes captures that are over; the last one ends the observation.
    fn tidy(&mut self, subnet: &mut Subnet<Function>) {
        let before = self.all.len();
        self.all.retain(|capture| !capture.recording.is_over());
        if self.all.len() != before {
            self.observe(subnet);
        }
        if self.all.is_empty() {
            self.sequences = Sequences::default();
        }
    }

    /// Writes the messages that the engine observed since the last call. Returns the estimated
    /// time, in nanoseconds.
    #[cold]
    pub(crate) fn write(&mut self, subnet: &mut Subnet<Function>, now_ns: u64) -> u64 {
        self.tidy(subnet);
        let (messages, missed) = subnet.take_observations();
        let Self { all, sequences, frame } = self;
        let mut written = 0_u64;
        for ObservedMessage { message, sender, receivers } in &messages {
            let ends = (std::slice::from_ref(sender), receivers.as_slice());
            let omitted = sequences.packets(message, frame, |is_request, bytes| {
                written = written.saturating_add(bytes.len() as u64);
                let (from, to) = if is_request { ends } else { (ends.1, ends.0) };
                for capture in all.iter() {
                    if from.contains(&capture.adapter) {
                        capture.add(now_ns, Direction::In, bytes);
                    } else if to.contains(&capture.adapter) {
                        capture.add(now_ns, Direction::Out, bytes);
                    }
                }
            });
            let shows = |id: &AdapterId| sender == id || receivers.contains(id);
            for capture in all.iter().filter(|capture| shows(&capture.adapter)) {
                capture.recording.miss(omitted);
            }
        }
        all.iter().for_each(|capture| capture.recording.miss(missed));
        written.saturating_mul(CAPTURE_BYTE_NS)
    }
}

impl PortCapture {
    /// Adds a packet that passes the filter.
    fn add(&self, now_ns: u64, direction: Direction, bytes: &[u8]) {
        if !matches(&self.spec.filter, bytes) {
            return;
        }
        let snap = usize::try_from(self.spec.snap).unwrap_or(usize::MAX);
        let keep = if snap == 0 { bytes.len() } else { snap.min(bytes.len()) };
        let kept = bytes.get(..keep).unwrap_or(bytes);
        let wall_ns = now_ns.wrapping_add(self.wall_offset_ns);
        self.recording.add(wall_ns, direction, kept, bytes.len());
    }
}
