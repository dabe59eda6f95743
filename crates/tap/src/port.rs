//! A TAP port: its interface, which may disappear and return.
//!
//! [`crate::service`] makes a [`TapPort`] when the operator adds a port. [`TapPort::open`] opens
//! the interface, at first and then once a second while it is missing, in the dispatcher's thread,
//! which waits for the kernel's lock of network interfaces. A reason for a failure is logged once
//! until it changes. An interface that is down stays open: the kernel refuses its frames until it
//! is up again, and [`TapPort::warnings`] names the remedy. A renamed interface, or an interface
//! that moved to another network namespace, goes on. While the interface is not open, frames of the
//! group are dropped and counted. [`TapPort::close`] and [`TapPort::end`] close it at once,
//! although the carrier may live longer; a second call has no effect. A persistent interface stays
//! in the kernel.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use causeway_fabric::carrier::{LinkId, Membership, Message};
use causeway_fabric::mailbox::Sender;
use causeway_fabric::station::{PolicyCell, Station};
use causeway_fabric::{Context, ServiceWatch};
use causeway_host::net::tap::{TapError, TapInterface, TapOptions, TapState};
use causeway_model::port::{TapOffloads, TapSpec};
use causeway_model::{Mac, Name};
use causeway_wire::ethernet;

use crate::carrier::{TapCarrier, TapShared};
use crate::limits::OPEN_AGAIN_NS;
use crate::receive::{FrameReader, FrameRules};

/// A port of the service.
#[derive(Debug)]
pub(crate) struct TapPort {
    pub(crate) name: Name,
    spec: TapSpec,
    pub(crate) shared: Arc<TapShared>,
    /// `None` until the port joined the forwarding service.
    pub(crate) reader: Option<FrameReader>,
    /// Watch of the interface, while it is open.
    watch: Option<ServiceWatch>,
    /// Times that the interface was opened.
    pub(crate) opens: u64,
    /// Why the interface is not open.
    pub(crate) error: Option<String>,
    /// Time at which the port is served again without an event.
    pub(crate) due_ns: Option<u64>,
}

impl TapPort {
    /// Returns a port without interface.
    pub(crate) fn new(name: Name, spec: TapSpec) -> Self {
        Self {
            name,
            spec,
            shared: Arc::default(),
            reader: None,
            watch: None,
            opens: 0,
            error: None,
            due_ns: None,
        }
    }

    /// Opens the interface and watches it as source `value`. Returns whether the interface is open;
    /// if not, the next attempt is due in a second, and a new reason is logged.
    pub(crate) fn open(&mut self, cx: &Context<'_>, value: u32) -> bool {
        let options = TapOptions {
            address: (!self.spec.learn).then_some(self.spec.mac.0),
            ip: self.spec.ip_address(),
            mtu: self.spec.mtu,
            offloads: self.spec.offloads == TapOffloads::All,
            persistent: self.spec.persistent,
        };
        let opened = TapInterface::open(&self.spec.interface, &options).and_then(|interface| {
            let watch = cx.watch_source(interface.as_fd(), value);
            let name = self.spec.interface.clone();
            Ok((watch.map_err(|e| TapError::Host(name, "watch it", e))?, interface))
        });
        match opened {
            Ok((watch, interface)) => {
                let (port, name) = (self.name.as_str(), self.spec.interface.as_str());
                log::info!(port, interface = name, created = interface.is_created; "interface open");
                self.shared.set_interface(Some(Arc::new(interface)));
                self.opens = self.opens.wrapping_add(1);
                (self.watch, self.error, self.due_ns) = (Some(watch), None, None);
                true
            }
            Err(error) => {
                self.fail(cx.now_ns, error.to_string());
                false
            }
        }
    }

    /// Records why the interface is not open, and plans the next attempt.
    fn fail(&mut self, now_ns: u64, error: String) {
        if self.error.as_ref() != Some(&error) {
            let port = self.name.as_str();
            log::warn!(port, reason = error.as_str(); "the port has no interface: its frames are dropped; causewayd tries again every second");
        }
        self.error = Some(error);
        self.due_ns = Some(now_ns.saturating_add(OPEN_AGAIN_NS));
    }

    /// Closes an interface that failed.
    pub(crate) fn close(&mut self, now_ns: u64, reason: &rustix::io::Errno) {
        self.watch = None;
        self.shared.set_interface(None);
        let name = &self.spec.interface;
        let error = match *reason {
            rustix::io::Errno::BADFD => format!("interface {name} was deleted"),
            other => format!("interface {name} failed: {other}"),
        };
        self.fail(now_ns, error);
    }

    /// Ends the port. The carrier may outlive it in the forwarding service, so the interface is
    /// closed here.
    pub(crate) fn end(&mut self) {
        self.watch = None;
        self.shared.set_interface(None);
    }

    /// Returns the membership of the port, and reads frames for the mailbox `to` from now on.
    pub(crate) fn join(
        &mut self,
        id: LinkId,
        to: Sender<Message>,
        policy: PolicyCell,
    ) -> Membership {
        let TapSpec { mac, mtu, learn, .. } = self.spec;
        let source = (!learn).then(|| ethernet::number(mac.0));
        self.reader = Some(FrameReader::new(id, to, FrameRules { source, mtu: mtu.into() }));
        let takes_offloads = self.spec.offloads == TapOffloads::All;
        let station = Station { address: mac, learns: learn, policy };
        Membership {
            id,
            name: self.name.clone(),
            peer: format!("interface {}", self.spec.interface),
            metric: 0,
            transit: false,
            segment: false,
            notices: None,
            station: Some(station),
            carrier: Box::new(TapCarrier::new(self.shared.clone(), mtu, takes_offloads)),
        }
    }

    /// Returns the conditions that impair the port, each with its remedy.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let (own, own_mtu) = (self.spec.interface.as_str(), usize::from(self.spec.mtu));
        let Some(interface) = self.shared.interface() else { return Vec::new() };
        let mut warnings = Vec::new();
        let name = match interface.state() {
            // The next event of the descriptor closes it.
            TapState::Gone => return vec![format!("interface {own} was deleted")],
            TapState::Elsewhere { name } => {
                warnings.push(format!(
                    "interface {name} is in another network namespace: after a restart causewayd \
                     does not find it there; move it back before, or let the namespace end it"
                ));
                name
            }
            TapState::Here { name, is_up, mtu, address } => {
                if !is_up {
                    warnings.push(format!(
                        "interface {name} is down: its frames are dropped until `ip link set {name} up`"
                    ));
                }
                if !self.spec.learn && address != self.spec.mac.0 {
                    let (mac, address) = (self.spec.mac, Mac(address));
                    warnings.push(format!(
                        "interface {name} has address {address}, the port {mac}: frames from \
                         {address} are dropped; run `ip link set {name} address {mac}`"
                    ));
                }
                if mtu > own_mtu {
                    warnings.push(format!(
                        "interface {name} has an MTU of {mtu}, the port of {own_mtu}: longer frames \
                         are dropped; run `ip link set {name} mtu {own_mtu}`"
                    ));
                }
                name
            }
        };
        if name != own {
            warnings.push(format!(
                "interface {own} was renamed to {name}: after a restart causewayd looks for {own}; \
                 rename it back, or add the port with interface = {name:?}"
            ));
        }
        warnings
    }
}
