//! The service of links: opened, closed, shown, served.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use causeway_attach::Model;
use causeway_fabric::carrier::{LinkId, Membership, Message, Pool, Standing};
use causeway_fabric::control::{CommandError, LinkState, LinkView, TraceQuery, TraceView};
use causeway_fabric::mailbox::Sender;
use causeway_fabric::orders::{LINKS, Order, Outcome};
use causeway_fabric::spec::{LinkKind, LinkSpec, PortSpec, UdpSpec};
use causeway_fabric::{Context, PortId, Ports, Progress, Rules, Served, Service, ServiceWatch};

use super::bare::{BareSocket, Encapsulation};
use super::inbox::Inbox;
use super::limits::BARE_FRAME_MAX;
use super::tally::Tally;
use super::udp::{Cut, Udp};

/// One link.
#[derive(Debug)]
struct Link {
    spec: LinkSpec,
    inbox: Inbox,
    /// The source that receives for it.
    source: u32,
}

/// Something that receives, for one link or many.
#[derive(Debug)]
struct Source {
    receives: Receives,
    #[expect(dead_code, reason = "held for its drop")]
    watch: ServiceWatch,
}

#[derive(Debug)]
enum Receives {
    Bare { local: SocketAddr, encapsulation: Encapsulation, socket: Box<BareSocket> },
}

/// See the module.
#[derive(Debug, Default)]
pub struct Links {
    pool: Pool,
    links: BTreeMap<LinkId, Link>,
    last: u32,
    sources: BTreeMap<u32, Source>,
}

fn host(spec: &LinkSpec, error: &std::io::Error) -> CommandError {
    CommandError::Host(format!("link {}: {error}", spec.name))
}

impl Links {
    /// A service without links.
    pub fn new() -> Self {
        Self::default()
    }

    fn open(
        &mut self,
        cx: &Context<'_>,
        spec: LinkSpec,
        to: Sender<Message>,
    ) -> Result<Outcome, CommandError> {
        self.last = self.last.saturating_add(1);
        let id = LinkId(self.last);
        let inbox = Inbox { id, to, tally: Arc::new(Tally::default()), pool: self.pool.clone() };
        let (source, carrier) = match &spec.kind {
            LinkKind::Vnet(udp) => self.open_bare(cx, &spec, udp, Encapsulation::Vnet, &inbox)?,
            LinkKind::Vxlan(udp) => self.open_bare(cx, &spec, udp, Encapsulation::Vxlan, &inbox)?,
            other => {
                let text = format!("link {}: kind {} is not there yet", spec.name, other.name());
                return Err(CommandError::Invalid(text));
            }
        };
        let membership = Membership {
            id,
            name: spec.name.clone(),
            peer: spec.peer_label(),
            metric: spec.metric,
            transit: spec.transit,
            notices: None,
            carrier,
        };
        self.links.insert(id, Link { spec, inbox, source });
        Ok(Outcome::Opened(membership))
    }

    /// A link whose datagrams are frames, on the socket that it shares with others like it.
    fn open_bare(
        &mut self,
        cx: &Context<'_>,
        spec: &LinkSpec,
        udp: &UdpSpec,
        wanted: Encapsulation,
        inbox: &Inbox,
    ) -> Result<(u32, Box<dyn causeway_fabric::carrier::Carrier>), CommandError> {
        let shared = self.sources.iter().find_map(|(value, source)| match &source.receives {
            Receives::Bare { local, encapsulation, .. }
                if (*local, *encapsulation) == (udp.local, wanted) =>
            {
                Some(*value)
            }
            Receives::Bare { .. } => None,
        });
        let value = match shared {
            Some(value) => value,
            None => {
                let socket = Udp::bind(udp.local, Cut::Allowed).map_err(|e| {
                    CommandError::Host(format!("link {}: local {}: {e}", spec.name, udp.local))
                })?;
                let value = self.vacancy();
                let watch = cx.watch_source(socket.as_fd(), value).map_err(|e| host(spec, &e))?;
                let socket = Box::new(BareSocket::new(socket, wanted, self.pool.clone()));
                let receives = Receives::Bare { local: udp.local, encapsulation: wanted, socket };
                self.sources.insert(value, Source { receives, watch });
                value
            }
        };
        let Some(Source { receives: Receives::Bare { socket, .. }, .. }) =
            self.sources.get_mut(&value)
        else {
            return Err(CommandError::Host("a socket is gone".into()));
        };
        if let Err(other) = socket.add(udp.remote, udp.vni, inbox.clone()) {
            let other = self.links.get(&other).map_or("?", |link| link.spec.name.as_str());
            let text = format!("link {}: link {other} goes to {} already", spec.name, udp.remote);
            return Err(CommandError::Conflict(text));
        }
        let carrier = socket.carrier(udp.remote, udp.vni, inbox.tally.clone());
        Ok((value, Box::new(carrier)))
    }

    /// A number for a source that none has.
    fn vacancy(&self) -> u32 {
        (0..u32::MAX).find(|value| !self.sources.contains_key(value)).unwrap_or(u32::MAX)
    }

    /// The group hears of the link from now on.
    fn start(&self, id: LinkId) {
        if let Some(link) = self.links.get(&id) {
            link.inbox.stands(Standing { up: true, rtt_ns: None });
        }
    }

    fn close(&mut self, id: LinkId) {
        let Some(link) = self.links.remove(&id) else { return };
        match self.sources.get_mut(&link.source).map(|source| &mut source.receives) {
            Some(Receives::Bare { socket, .. }) => socket.remove(id),
            None => {}
        }
        if !self.links.values().any(|other| other.source == link.source) {
            self.sources.remove(&link.source);
        }
    }

    fn view(&self, link: &Link) -> LinkView {
        let mut counters = link.inbox.tally.by_name();
        let (state, reason) = match self.sources.get(&link.source).map(|s| &s.receives) {
            Some(Receives::Bare { socket, .. }) => {
                let strays = socket.strays;
                for (name, count) in [
                    ("unknown_peer", strays.unknown_peer),
                    ("wrong_vni", strays.wrong_vni),
                    ("truncated", strays.truncated),
                ] {
                    counters.insert(format!("socket_drop_{name}_total"), count);
                }
                (LinkState::Open, "this kind does not tell whether the peer is there")
            }
            None => (LinkState::Down, "its socket is gone"),
        };
        LinkView {
            spec: link.spec.clone(),
            state,
            reason: reason.to_owned(),
            endpoint: None,
            rtt_us: None,
            loss_percent: None,
            path_mtu: None,
            mtu: u16::try_from(BARE_FRAME_MAX.saturating_sub(14)).unwrap_or(u16::MAX),
            ups_total: 0,
            counters,
        }
    }
}

impl Service for Links {
    fn name(&self) -> &'static str {
        LINKS
    }

    fn serves(&self, _spec: &PortSpec) -> bool {
        false
    }

    fn model(&self, _spec: &PortSpec) -> Model {
        Model::new(0, 0, Vec::new())
    }

    fn added(&mut self, _cx: &mut Context<'_>, _port: PortId) -> Result<(), CommandError> {
        Err(CommandError::Invalid("links have no ports".into()))
    }

    fn removed(&mut self, _cx: &mut Context<'_>, _port: PortId) {}

    fn started(&mut self, _cx: &mut Context<'_>, _port: PortId, _queue: usize) {}

    fn paused(&mut self, _cx: &mut Context<'_>, _port: PortId, _queue: usize) {}

    fn stopped(&mut self, _cx: &mut Context<'_>, _port: PortId) {}

    fn serve(
        &mut self,
        _cx: &mut Context<'_>,
        _port: PortId,
        _queue: usize,
        _budget: usize,
    ) -> Progress {
        Progress::Parked
    }

    fn serve_source(&mut self, cx: &mut Context<'_>, value: u32, budget: usize) -> Served {
        let Some(source) = self.sources.get_mut(&value) else {
            return Served { progress: Progress::Parked, count: 0 };
        };
        let served = match &mut source.receives {
            Receives::Bare { socket, .. } => socket.serve(budget),
        };
        let empty = served.progress == Progress::Idle;
        match served.count {
            0 if empty && !cx.polls_source(value) => {
                Served { progress: Progress::Parked, ..served }
            }
            0 => served,
            _ => Served { progress: Progress::Worked, ..served },
        }
    }

    fn order(&mut self, cx: &mut Context<'_>, order: Order) -> Result<Outcome, CommandError> {
        match order {
            Order::LinkOpen(spec, to) => self.open(cx, *spec, to),
            Order::LinkStart(id) => {
                self.start(id);
                Ok(Outcome::Done)
            }
            Order::LinkClose(id) => {
                self.close(id);
                Ok(Outcome::Done)
            }
            Order::LinkViews => {
                Ok(Outcome::Links(self.links.values().map(|link| self.view(link)).collect()))
            }
            other => Err(CommandError::Invalid(format!("links do not know {other:?}"))),
        }
    }

    fn counters(&self, _port: PortId) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    fn trace(
        &self,
        _ports: &Ports,
        _rules: &Rules,
        _query: &TraceQuery,
    ) -> Option<Result<TraceView, CommandError>> {
        None
    }
}
