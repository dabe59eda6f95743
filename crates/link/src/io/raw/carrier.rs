//! Carrier of a `raw` link: sends frames by an interface.
//!
//! `ethernet` pushes frames in the thread of the group; the carrier copies each into its batch
//! behind a virtio-net header, and sends the batch with [`Carrier::flush`], or at
//! [`FRAMES_PER_CALL_MAX`] (64) frames or [`SEND_BYTES`] (65,000) bytes. It also records up to
//! [`RAW_ADDRESSES_MAX`] (4,096) source addresses per ageing period, to which the receive side then
//! accepts frames; frames from further addresses leave, but the answers to them are dropped.
//!
//! The carrier refuses frames longer than the interface's MTU after segmentation or than 65,557
//! bytes before, MAC control frames, and all frames while the interface is down, and counts them. A
//! frame that the kernel refuses is counted and dropped; the rest of the batch is sent, in order,
//! and there is no retry. The carrier finishes no checksum and cuts no segment: the kernel or the
//! NIC does.

use std::collections::HashSet;
use std::sync::Arc;

use causeway_fabric::carrier::{Carrier, Outgoing, Refusal};
use causeway_host::limits::FRAMES_PER_CALL_MAX;
use causeway_host::net::send::contiguous_frames;
use causeway_host::net::socket::{PacketSocket, VNET_HEADER_BYTES};
use causeway_wire::ethernet;

use super::super::limits::{RAW_ADDRESSES_MAX, RAW_FRAME_ROOM, SEND_BYTES, TAGGED_HEADER};
use super::super::stats::{LinkStats, Loss};
use super::{SharedInterface, lock};
use crate::limits::FRAME_BYTES_MAX;

/// Carrier of one link, for one shard.
#[derive(Debug)]
pub struct RawCarrier {
    shared: SharedInterface,
    stats: Arc<LinkStats>,
    /// Frames back to back, each behind its virtio-net header.
    bytes: Vec<u8>,
    /// End of each frame in `bytes`.
    ends: Vec<usize>,
    /// The socket at the time of the batch's first frame.
    socket: Option<Arc<PacketSocket>>,
    /// Source addresses already recorded in this ageing period.
    recorded: HashSet<u64>,
    /// The ageing period of `recorded`.
    period: u64,
}

impl RawCarrier {
    pub(super) fn new(shared: SharedInterface, stats: Arc<LinkStats>) -> Self {
        Self {
            shared,
            stats,
            bytes: vec![0; SEND_BYTES.saturating_add(RAW_FRAME_ROOM)],
            ends: Vec::with_capacity(FRAMES_PER_CALL_MAX),
            socket: None,
            recorded: HashSet::new(),
            period: 0,
        }
    }

    /// Returns the bytes of the batch.
    fn used(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Records that an address is on our side.
    fn record(&mut self, from: u64) {
        if self.recorded.contains(&from) || self.recorded.len() >= RAW_ADDRESSES_MAX {
            return;
        }
        self.recorded.insert(from);
        let mut shared = lock(&self.shared);
        if shared.recent.len() < RAW_ADDRESSES_MAX {
            shared.recent.insert(from);
        }
    }

    /// Counts a refused frame.
    fn refuse(&self, loss: Loss, refusal: Refusal) -> Result<(), Refusal> {
        self.stats.add_drops(loss, 1);
        Err(refusal)
    }
}

impl Carrier for RawCarrier {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        if self.ends.len() >= FRAMES_PER_CALL_MAX || self.used() >= SEND_BYTES {
            self.flush();
        }
        if self.ends.is_empty() {
            let shared = lock(&self.shared);
            self.socket = shared.socket.clone();
            if shared.period != self.period {
                self.period = shared.period;
                self.recorded.clear();
            }
        }
        let Some(mtu) = self.socket.as_ref().map(|socket| socket.mtu()) else {
            return self.refuse(Loss::Down, Refusal::Down);
        };
        let piece = frame.offload.piece_len(frame.len);
        if frame.len > FRAME_BYTES_MAX || piece > mtu.saturating_add(TAGGED_HEADER + 2) {
            return self.refuse(Loss::TooBig, Refusal::TooBig);
        }
        // PAUSE frames would make a switch throttle this host, and so all its tenants.
        if frame.head.get(12..14) == Some(&ethernet::TYPE_MAC_CONTROL.to_be_bytes()) {
            return self.refuse(Loss::MacControl, Refusal::MacControl);
        }
        let start = self.used();
        let end = start.saturating_add(VNET_HEADER_BYTES).saturating_add(frame.len);
        let Some(room) = self.bytes.get_mut(start..end) else {
            return self.refuse(Loss::TooBig, Refusal::TooBig);
        };
        let (before, behind) = room.split_at_mut_checked(VNET_HEADER_BYTES).unwrap_or_default();
        before.copy_from_slice(&frame.offload.to_header(0).to_host());
        let read = frame.reader().read(behind);
        let from = ethernet::numbers(behind).map(|(_, from, _)| from);
        if read.is_err() {
            return self.refuse(Loss::SenderFault, Refusal::Lost);
        }
        from.into_iter().for_each(|from| self.record(from));
        self.ends.push(end);
        Ok(())
    }

    fn flush(&mut self) -> u64 {
        let (mut at, mut lost, mut calls) = (0_usize, 0_u64, 0_u64);
        let mut lost_bytes = 0_usize;
        if let Some(socket) = self.socket.take() {
            while at < self.ends.len() {
                calls = calls.saturating_add(1);
                let error = match socket.send(contiguous_frames(&self.bytes, &self.ends, at)) {
                    Ok(sent) if sent > 0 => {
                        at = at.saturating_add(sent);
                        continue;
                    }
                    Ok(_) => None,
                    Err(error) => rustix::io::Errno::from_io_error(&error),
                };
                let why = match error {
                    Some(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => Loss::NoRoom,
                    Some(rustix::io::Errno::MSGSIZE) => Loss::TooBig,
                    _ => Loss::Unreachable,
                };
                self.stats.add_drops(why, 1);
                let before = at.checked_sub(1).and_then(|before| self.ends.get(before));
                let end = self.ends.get(at).copied().unwrap_or(0);
                let len = end.saturating_sub(before.copied().unwrap_or(0));
                lost_bytes = lost_bytes.saturating_add(len);
                (at, lost) = (at.saturating_add(1), lost.saturating_add(1));
            }
        }
        let sent = (self.ends.len() as u64).saturating_sub(lost);
        let headers = sent.saturating_mul(VNET_HEADER_BYTES as u64);
        let bytes = self.used().saturating_sub(lost_bytes) as u64;
        self.stats.add_transmitted(sent, bytes.saturating_sub(headers), calls);
        self.ends.clear();
        lost
    }

    fn takes_offloads(&self) -> bool {
        true
    }

    fn longest(&self) -> usize {
        FRAME_BYTES_MAX
    }
}
