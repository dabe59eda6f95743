//! A service with a single kind of ports, `loopback`: each frame that a guest sends returns to it.
//!
//! The crate demonstrates and tests how a service adds a kind of ports: the options
//! ([`LoopbackSpec`]), the [`KIND`], the [`Service`] of a shard and the [`SERVICE`] for the
//! daemon's list; and how it adds objects beside ports, with a section of the configuration file, a
//! noun of the control API and a trace (the module `labels`). No other crate knows the kind. `port add`, the configuration file, `port show`,
//! `stats`, the control API and manual pages derive it from these. The crate is no example of
//! performance: it copies each frame into a buffer of its own.
#![forbid(unsafe_code)]

mod labels;

use std::collections::BTreeMap;

use causeway_attach::Model;
use causeway_fabric::{Context, PortId, Ports, Progress, Rules, Service, ServiceRegistration};
use causeway_model::port::{DeviceInfo, FrontendProtocol, GUEST_FIELDS, PortContext, unicast};
use causeway_model::schema::{DefaultValue, ValueType, table};
use causeway_model::{
    CommandError, KindDefinition, Mac, PortOptions, PortSpec, TraceQuery, TraceView,
};
use causeway_ring::Chain;

/// Number of virtqueues: a receive queue and a transmit queue.
const QUEUES: u16 = 2;
/// Index of the guest's receive queue (virtio 1.3, 5.1.2).
const RECEIVE: usize = 0;
/// Index of the guest's transmit queue.
const TRANSMIT: usize = 1;
/// Length of a virtio-net header, in bytes (virtio 1.3, 5.1.6).
const HEADER_BYTES: usize = 12;
/// The device gives its address to the driver (virtio 1.3, 5.1.3).
const VIRTIO_NET_F_MAC: u64 = 1 << 5;
/// Time budget for returning a frame, in nanoseconds.
const FRAME_NS: u64 = 500;

table! {
    /// A loopback port.
    pub struct LoopbackSpec, pub const LOOPBACK_FIELDS {
        /// Address of the guest's interface.
        mac: Mac => unicast(), DefaultValue::Derived("derived from the machine, the group and the name");
        /// Longest frame that comes back, in bytes.
        frame_max: u16 => ValueType::Integer { min: 60, max: 9018, unit: "BYTES" },
            DefaultValue::Number(1518);
    }
}

/// The kind of ports.
pub static KIND: KindDefinition = KindDefinition::new::<LoopbackSpec>(
    "loopback",
    "A network interface that receives the frames that it sends",
    &[LOOPBACK_FIELDS, GUEST_FIELDS],
);

const KINDS: &[&KindDefinition] = &[&KIND];

/// The registration, for the daemon's list of services.
pub const SERVICE: ServiceRegistration =
    ServiceRegistration::new("loopback", || Box::new(Loopback::default()))
        .with_kinds(KINDS)
        .with_controller(|| Box::<labels::Labels>::default())
        .with_sections(labels::SECTIONS)
        .with_nouns(labels::NOUNS)
        .with_traces(labels::TRACES);

impl PortOptions for LoopbackSpec {
    fn kind() -> &'static KindDefinition {
        &KIND
    }

    fn complete(values: &mut serde_json::Map<String, serde_json::Value>, port: &PortContext<'_>) {
        values.entry("mac").or_insert_with(|| port.derived_mac().to_string().into());
    }

    fn device(&self) -> Option<DeviceInfo> {
        let identity = format!("loopback {}", self.mac);
        let protocol = FrontendProtocol::VhostUser;
        Some(DeviceInfo { protocol, queues: QUEUES, ring_size_max: 1024, identity })
    }
}

/// The loopback ports of a group.
#[derive(Debug, Default)]
struct Loopback {
    ports: BTreeMap<PortId, Port>,
    sent: Chain,
    received: Chain,
}

/// A loopback port.
#[derive(Debug)]
struct Port {
    frame_max: usize,
    returned: u64,
    /// Frames that were too long, or for which no receive buffer was available: also while the receive
    /// queue does not run.
    dropped: u64,
}

impl Loopback {
    /// Returns a frame to the guest. `None` if the guest sent none.
    fn return_one(&mut self, cx: &mut Context<'_>, id: PortId) -> Option<()> {
        let state = self.ports.get_mut(&id)?;
        let port = cx.ports.get_mut(id)?;
        let (map, queue) = port.queue(TRANSMIT)?;
        if !queue.pop(map, &mut self.sent).ok()? {
            return None;
        }
        let most = state.frame_max.saturating_add(HEADER_BYTES);
        let len = usize::try_from(self.sent.readable_bytes()).ok().filter(|len| *len <= most);
        let mut frame = vec![0; len.unwrap_or_default()];
        let is_read = len.is_some_and(|len| len >= HEADER_BYTES)
            && self.sent.reader().read(map, &mut frame).is_ok();
        queue.push(self.sent.head(), 0).ok()?;
        let is_returned = is_read && {
            // A header without offloads, in a single buffer.
            frame[..HEADER_BYTES].fill(0);
            frame[HEADER_BYTES - 2] = 1;
            match port.queue(RECEIVE) {
                None => false,
                Some((map, queue)) => {
                    queue.pop(map, &mut self.received).is_ok_and(|is_popped| is_popped) && {
                        let is_written = self.received.writer().write(map, &frame).is_ok();
                        let written = if is_written { frame.len() as u32 } else { 0 };
                        queue.push(self.received.head(), written).is_ok() && is_written
                    }
                }
            }
        };
        let counter = if is_returned { &mut state.returned } else { &mut state.dropped };
        *counter += 1;
        cx.touch(id, TRANSMIT);
        cx.touch(id, RECEIVE);
        cx.charge(FRAME_NS);
        Some(())
    }
}

impl Service for Loopback {
    fn model(&self, spec: &PortSpec) -> Model {
        let mac = spec.kind.get::<LoopbackSpec>().map_or([0; 6], |spec| spec.mac.0);
        Model::new(usize::from(QUEUES), VIRTIO_NET_F_MAC, mac.to_vec())
    }

    fn added(&mut self, cx: &mut Context<'_>, id: PortId) -> Result<(), CommandError> {
        let gone = || CommandError::Host("the port is gone".into());
        let spec = &cx.ports.get(id).ok_or_else(gone)?.spec;
        let spec: LoopbackSpec = spec.kind.get().ok_or_else(gone)?;
        let frame_max = usize::from(spec.frame_max);
        self.ports.insert(id, Port { frame_max, returned: 0, dropped: 0 });
        Ok(())
    }

    fn removed(&mut self, _cx: &mut Context<'_>, id: PortId) {
        self.ports.remove(&id);
    }

    fn serve(&mut self, cx: &mut Context<'_>, id: PortId, queue: usize, budget: usize) -> Progress {
        if queue != TRANSMIT {
            return Progress::Parked;
        }
        let mut done = 0;
        while done < budget && !cx.is_over() {
            if self.return_one(cx, id).is_none() {
                break;
            }
            done += 1;
        }
        if done > 0 { Progress::Worked } else { Progress::Idle }
    }

    fn trace(
        &self,
        ports: &Ports,
        _rules: &Rules,
        query: &TraceQuery,
    ) -> Option<Result<TraceView, CommandError>> {
        let returned = |labels::PortTrace { from }| {
            let missing = || CommandError::NotFound { what: "port", name: from.to_string() };
            let port = ports.by_name(&from).filter(|port| self.ports.contains_key(&port.id()));
            let name = port.ok_or_else(missing)?.spec.name.to_string();
            let steps = vec!["a loopback port gets its own frames".to_owned()];
            Ok(TraceView { verdict: "forward".to_owned(), to: vec![name], steps })
        };
        Some(query.get::<labels::PortTrace>()?.and_then(returned))
    }

    fn counters(&self, id: PortId) -> BTreeMap<String, u64> {
        let Some(port) = self.ports.get(&id) else { return BTreeMap::new() };
        [("returned_frames_total", port.returned), ("drop_frames_total", port.dropped)]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }
}
