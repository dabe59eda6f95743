//! A port: its common part, and the stream or datagram side of it.
//!
//! [`crate::service`] makes a [`Port`] when the operator adds one, and drops it when the port is
//! deleted, which closes its sockets. The values belong to the dispatcher of the shard, but for the
//! output, which the carrier in the forwarding service shares; that carrier may live longer, and
//! counts frames for a deleted port as dropped.
//!
//! [`Port::open`] binds or listens at once, and leaves nothing behind if that fails; a port that
//! connects opens without its peer. It refuses `allowed_users` where the kernel reports no users:
//! at TCP and datagram sockets. Until the forwarding service asks for the membership, no frame of
//! the peer is read. [`Port::tick`] before the deadline has no effect; a late one delays the next
//! attempt to connect or to send. No call waits. Lines about a peer that comes and goes are limited
//! in their rate.

use std::io;
use std::sync::Arc;

use causeway_fabric::carrier::LinkId;
use causeway_fabric::carrier::Membership;
use causeway_fabric::station::{PolicyCell, Station};
use causeway_fabric::{AttachmentStatus, Context, LogLimit, PortId};
use causeway_model::port::{DgramSpec, StreamSpec};
use causeway_model::{CommandError, Mac, Name, PortSpec};

use crate::connector::Remote;
use crate::datagram_end::DatagramEnd;
use crate::ingress::{Ingress, UplinkSender};
use crate::limits::LINK_HEADER_BYTES_MAX;
use crate::output::{Output, PortCarrier};
use crate::stream_end::{self, StreamEnd};

/// The part of a port that both sides use.
#[derive(Debug)]
pub(crate) struct PortCore {
    pub id: PortId,
    pub name: Name,
    mac: Mac,
    learns: bool,
    /// Longest frame, in bytes.
    pub frame_max: usize,
    pub output: Arc<Output>,
    pub ingress: Ingress,
    /// Path to the forwarding service, once the port has joined the group.
    pub sender: Option<UplinkSender>,
    log: LogLimit,
}

impl PortCore {
    fn new(
        id: PortId,
        name: Name,
        (mac, learns, mtu): (Mac, bool, u16),
        output: Arc<Output>,
    ) -> Self {
        Self {
            id,
            name,
            mac,
            learns,
            frame_max: frame_max(mtu),
            output,
            ingress: Ingress::new(mac, learns),
            sender: None,
            log: LogLimit::default(),
        }
    }

    /// Returns whether the forwarding service has room for another batch; `None` if the port has
    /// not joined it.
    pub fn has_room(&mut self) -> Option<bool> {
        let Self { sender, ingress, .. } = self;
        sender.as_mut().map(|sender| sender.has_room(&mut ingress.counters))
    }

    /// Reports a refused source address to the operator.
    pub fn report(&mut self, cx: &mut Context<'_>) {
        if let Some(text) = self.ingress.take_report() {
            cx.remark(self.id, text);
        }
    }

    /// Logs that the peer came or left.
    pub fn log_state(&mut self, now_ns: u64, event: &str) {
        if let Some(more) = self.log.admit(now_ns) {
            log::info!(port = self.name.as_str(), suppressed = more; "{event}");
        }
    }

    /// Returns the membership of the port in the forwarding service.
    pub fn membership(&self, id: LinkId, policy: PolicyCell) -> Membership {
        Membership {
            id,
            name: self.name.clone(),
            peer: String::from("a process of this host"),
            metric: 0,
            transit: false,
            segment: false,
            notices: None,
            station: Some(Station { address: self.mac, learns: self.learns, policy }),
            carrier: Box::new(PortCarrier::new(self.output.clone(), self.frame_max)),
        }
    }
}

/// Returns the longest frame of a port, in bytes.
fn frame_max(mtu: u16) -> usize {
    usize::from(mtu).saturating_add(LINK_HEADER_BYTES_MAX)
}

/// The side of a port towards its peer.
#[derive(Debug)]
pub(crate) enum End {
    Stream(StreamEnd),
    Datagram(DatagramEnd),
}

/// A port.
#[derive(Debug)]
pub(crate) struct Port {
    pub core: PortCore,
    pub end: End,
}

impl Port {
    /// Opens a port, whose sources and watches have `value` and the next.
    ///
    /// # Errors
    /// A socket cannot be bound, or the options exclude each other.
    pub fn open(
        cx: &mut Context<'_>,
        id: PortId,
        spec: &PortSpec,
        value: u32,
    ) -> Result<Self, CommandError> {
        let failed =
            |at: &str, e: io::Error| CommandError::Host(format!("port {}: {at}: {e}", spec.name));
        if spec.access.allowed_users.is_some() && has_no_users(spec) {
            return Err(CommandError::Invalid(format!(
                "port {}: allowed_users: the kernel reports users of Unix stream sockets only; use \
                 socket_owner, socket_group and socket_mode of a Unix socket",
                spec.name
            )));
        }
        if let Some(options) = spec.kind.get::<StreamSpec>() {
            let (connects, users) = (spec.access.connect, spec.access.socket_users());
            let end = match (options.tcp, connects) {
                (None, false) => StreamEnd::at_unix_socket(value),
                (None, true) => {
                    StreamEnd::connecting(value, Remote::Unix(spec.socket.clone(), users))
                }
                (Some(tcp), true) => StreamEnd::connecting(value, Remote::Tcp(tcp)),
                (Some(tcp), false) => StreamEnd::at_tcp(cx, value, tcp)
                    .map_err(|error| failed(&format!("tcp {tcp}"), error))?,
            };
            let output = stream_end::output(frame_max(options.mtu));
            let common = (options.mac, options.learn, options.mtu);
            let core = PortCore::new(id, spec.name.clone(), common, output);
            return Ok(Self { core, end: End::Stream(end) });
        }
        let gone = || CommandError::Host("the port has another kind".into());
        let options: DgramSpec = spec.kind.get().ok_or_else(gone)?;
        let (end, output) = DatagramEnd::open(cx, value, spec, &options, frame_max(options.mtu))?;
        let common = (options.mac, options.learn, options.mtu);
        let core = PortCore::new(id, spec.name.clone(), common, output);
        Ok(Self { core, end: End::Datagram(end) })
    }

    /// Returns the time at which [`Self::tick`] must be called.
    pub fn deadline_ns(&self) -> Option<u64> {
        match &self.end {
            End::Stream(end) => end.deadline_ns(),
            End::Datagram(end) => end.deadline_ns(),
        }
    }

    /// Handles the deadline if it has passed.
    pub fn tick(&mut self, cx: &mut Context<'_>) {
        if self.deadline_ns().is_none_or(|at| at > cx.now_ns) {
            return;
        }
        match &mut self.end {
            End::Stream(end) => end.advance(cx, &mut self.core),
            End::Datagram(end) => end.retry(cx.now_ns, &self.core),
        }
    }

    /// Returns the state of the attachment, for the operator.
    pub fn status(&self) -> AttachmentStatus {
        match &self.end {
            End::Stream(end) => AttachmentStatus {
                state: end.state(),
                connects_total: end.connects_total,
                connect_error: end.connect_error(),
            },
            End::Datagram(end) => AttachmentStatus {
                state: end.state(&self.core),
                connects_total: end.connects_total,
                connect_error: None,
            },
        }
    }

    /// Returns the number of refused connections.
    pub fn refused_total(&self) -> u64 {
        match &self.end {
            End::Stream(end) => end.refused_total,
            End::Datagram(_) => 0,
        }
    }
}

/// Returns whether the kernel does not report the users of the peers of a port.
fn has_no_users(spec: &PortSpec) -> bool {
    spec.kind.address().is_some() || spec.kind.get::<DgramSpec>().is_some()
}
