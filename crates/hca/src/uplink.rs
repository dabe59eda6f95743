//! The path between the adapters of a group and the service that forwards the group's frames.
//!
//! Each adapter is a station of that service (`fabric::station`). Two values connect the two: the
//! forwarding service calls the [`AdapterCarrier`], in its own thread, with each frame for the
//! adapter; the adapters' shard uses the [`Station`] in the call of the port ([`crate::switch`],
//! `crate::call`), to take those frames and to send the adapter's, with the offloads that they
//! request. `crate::control` joins the two. Both directions copy: the two services may run in
//! different threads, and neither reads the other's guest memory. Frames between two adapters pass
//! here while the service filters or observes them; else [`crate::switch`] delivers them with one
//! copy. The copies that the adapters' shard makes, in both directions, count for the port.
//!
//! Frames from an adapter wait in its send queue while they find no room, and none is lost here
//! (`crate::uplink_sender`). Frames to an adapter do not wait in the forwarding service: at most
//! [`INBOX_FRAMES_MAX`] (512) wait for each adapter, and [`Carrier::push`] refuses further ones,
//! frames longer than [`FRAME_BYTES_MAX`] (65,792 bytes), and frames that cannot be read; the
//! forwarding service counts them. A multicast frame takes a place of the inbox of each adapter
//! that receives it.

use causeway_fabric::Context;
use causeway_fabric::carrier::{
    BufferPool, Carrier, LinkId, Membership, Message, Outgoing, Refusal,
};
use causeway_fabric::mailbox::{Mailbox, Sender};
use causeway_fabric::station;
use causeway_model::{CommandError, Mac, Name};

use crate::inbound::InboundFrame;
use crate::limits::{FRAME_BYTES_MAX, INBOX_FRAMES_MAX};
use crate::policy::GroupPolicy;
use crate::uplink_sender::UplinkSender;

/// Takes frames of the forwarding service to an adapter, in the thread of that service.
#[derive(Debug)]
struct AdapterCarrier {
    to: Sender<InboundFrame>,
    pool: BufferPool,
}

impl Carrier for AdapterCarrier {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        if frame.len > FRAME_BYTES_MAX {
            return Err(Refusal::TooBig);
        }
        let mut bytes = self.pool.take(frame.len);
        let room = bytes.get_mut(..frame.len).ok_or(Refusal::TooBig)?;
        frame.reader().read(room).map_err(|_| Refusal::Lost)?;
        let inbound = InboundFrame::new(bytes, frame.len, *frame.offload);
        self.to.push(inbound).map_err(|_| Refusal::NoRoom)
    }

    fn flush(&mut self) -> u64 {
        0
    }

    fn takes_offloads(&self) -> bool {
        true
    }

    fn longest(&self) -> usize {
        FRAME_BYTES_MAX
    }
}

/// The adapter's ends of the uplink.
#[derive(Debug)]
pub(crate) struct Station {
    /// Frames for the adapter.
    inbox: Mailbox<InboundFrame>,
    /// Frames of the adapter.
    pub sender: UplinkSender,
}

impl Station {
    /// Removes and returns the next frame for the adapter.
    pub(crate) fn next_inbound(&self) -> Option<InboundFrame> {
        if self.inbox.is_empty() { None } else { self.inbox.next() }
    }

    /// Requests a call of the port for the next frame. Returns false if a frame waits already.
    pub(crate) fn arm(&self) -> bool {
        self.inbox.arm()
    }
}

/// The uplink of a group's adapters. There is one value in a shard.
#[derive(Debug)]
pub(crate) struct Uplink {
    to: Sender<Message>,
    /// The group's policy.
    pub policy: GroupPolicy,
    /// Buffers of frames for adapters.
    pool: BufferPool,
}

/// A port that joins the forwarding service.
#[derive(Debug)]
pub(crate) struct Joining<'a> {
    /// Identifier in the forwarding service.
    pub id: LinkId,
    pub name: &'a Name,
    pub mac: [u8; 6],
    /// Source value of the port.
    pub source: u32,
}

impl Uplink {
    /// Returns the uplink of a group's adapters to the service with the inbox `to`.
    pub(crate) fn new(to: Sender<Message>) -> Self {
        Self { to, policy: GroupPolicy::default(), pool: BufferPool::default() }
    }

    /// Returns the ends of a port at the uplink, the sender of its inbox, and its membership in the
    /// forwarding service.
    ///
    /// # Errors
    /// The host has no descriptor for the inbox.
    pub(crate) fn join(
        &self,
        cx: &mut Context<'_>,
        port: &Joining<'_>,
    ) -> Result<(Station, Sender<InboundFrame>, Membership), CommandError> {
        let host = |e: std::io::Error| CommandError::Host(format!("inbox of an adapter: {e}"));
        let (to, inbox) = cx.mailbox(INBOX_FRAMES_MAX, port.source).map_err(host)?;
        let carrier = AdapterCarrier { to: to.clone(), pool: self.pool.clone() };
        let membership = Membership {
            id: port.id,
            name: port.name.clone(),
            peer: String::from("a guest of this host"),
            metric: 0,
            transit: false,
            segment: false,
            notices: None,
            station: Some(station::Station {
                address: Mac(port.mac),
                learns: false,
                policy: self.policy.cell(),
            }),
            carrier: Box::new(carrier),
        };
        let sender = UplinkSender::new(port.id, self.to.clone());
        Ok((Station { inbox, sender }, to, membership))
    }
}
