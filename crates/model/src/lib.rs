//! Values of the operator: specifications, commands and views.
//!
//! Ports, groups, links, routes and rules are *specifications*; requests to the control plane are
//! *commands*; the state that it answers with is a *view*. Each is one type, which states its JSON
//! form, defaults, ranges and checks. The configuration file, the command line, the control socket
//! and the VNET language read and print these types.
//!
//! The crate stands on the lowest floor: it imports only `causeway-wire`, and knows no service and
//! no operating-system object. It executes no command and never touches the data path; whether an
//! object exists or a name is in use is checked by the fabric and the services. Its only I/O is
//! name resolution ([`draft::host::resolve`]) and the identity and the host name of the machine
//! ([`draft::derived_mac`], [`draft::derived_nic_name`]). These two are kept from their first use
//! until the process ends; the crate keeps no other state.
//!
//! The crate has no thread: its functions run in the caller's. In causewayd these are the threads
//! of the start, of the connections to the control socket and of VNET sessions, and dispatchers
//! that answer a request; [`draft::host::resolve`] blocks, and no dispatcher may call it. Other
//! callers are `causeway`, with the forwarder and `causeway web`, and `causeway-directory`. A value
//! beyond a bound of [`limits`] is refused with the expected range; nothing is clamped. Two objects
//! of one name are accepted here; the checks of the configuration file (`daemon::config`) and the
//! owner of the objects refuse them.
//!
//! | module | content |
//! |---|---|
//! | [`port`], [`draft`] | specifications of ports and links, as an operator writes them and as they are executed |
//! | [`schema`] | keys of tables: types, ranges, defaults, help |
//! | [`settings`] | settings that the daemon reads at its start |
//! | [`commands`], [`noun`] | commands of single services; paths `/v1/NOUN` |
//! | [`counter`] | names and meanings of counters |
//! | [`keys`] | X25519 keys of daemons, in text form |
//! | [`limits`] | bounds of values and of numbers of objects |
//! | private modules | names, groups, links, routes, rules, forwards; answers and views |
//!
//! A command passes through this crate's types: `causeway` or `curl` sends JSON, the daemon reads
//! it into a draft or a specification ([`draft`], [`port::read`]), hands a [`Command`] to the
//! fabric, which answers it or passes it to a service ([`TypedRequest`], [`ServiceRequest`]), and
//! prints the [`Answer`].
//!
//! ```
//! use causeway_model::port::{KINDS, ReadContext, read};
//! use causeway_model::NetSpec;
//! use serde_json::json;
//!
//! let given = json!({ "name": "vm1", "group": "blue", "kind": "net", "mtu": 9000 });
//! let run_dir = std::path::Path::new("/run/causeway");
//! let context = ReadContext { kinds: &KINDS, run_dir, links_mtu: &|_| 65535 };
//! let port = read(given.as_object().unwrap(), &context).unwrap();
//! assert_eq!(port.socket, run_dir.join("vm1.sock"));
//! assert_eq!(port.kind.get::<NetSpec>().unwrap().mtu, 9000);
//! ```
#![forbid(unsafe_code)]

mod access;
mod ask;
mod capture;
mod command;
pub mod commands;
pub mod counter;
mod date;
pub mod draft;
mod error;
mod forward;
mod group;
pub mod keys;
pub mod limits;
mod link;
mod mac;
mod metric;
mod name;
pub mod noun;
mod poll;
pub mod port;
mod route;
mod rule;
pub mod schema;
mod section;
pub mod settings;
mod site_policy;
mod trace;
mod traffic_class;
mod view;

pub use access::{FileMode, SocketAccess, SocketPermissions, UserIds};
pub use ask::{RequestDispatch, ServiceRequest, ServiceResponse, TypedRequest};
pub use capture::{CaptureChunk, CaptureFormat, CaptureSpec, Filter};
pub use command::{Command, CommandError, SocketKind};
pub use counter::{CountedObject, CounterDefinition, CounterTable};
pub use date::date;
pub use error::SpecError;
pub use forward::{FORWARD_FIELDS, ForwardAddress, ForwardSpec};
pub use group::{Forwarding, GROUP_FIELDS, GroupKind, GroupSpec, weight_default};
pub use link::{
    LinkKind, LinkSpec, PublicKeyText, RawSpec, StreamSpec, TlsSpec, TunnelSpec, UdpSpec,
    VXLAN_BYTES, datagram_mtu, metric_default, udp_headers,
};
pub use mac::Mac;
pub use metric::{MetricLabels, MetricSink, MetricsDefinition, ServiceMetrics};
pub use name::Name;
pub use noun::{Asker, NounCall, NounDefaults, NounDefinition, NounError, NounReply, NounResult};
pub use poll::{PollMode, PollPolicy};
pub use port::{
    CID_GUEST_MIN, CID_HOST, KindDefinition, KindInfo, MxPeer, MxSpec, MxUdp, NetSpec, Offloads,
    PortContext, PortKind, PortOptions, PortSpec, VsockSpec, message_socket,
};
pub use route::{MacMatch, ROUTE_FIELDS, RouteEnd, RouteSpec};
pub use rule::{RULE_FIELDS, RULE_INDEX, RuleAction, RuleOrigin, RuleSide, RuleSpec};
pub use section::{
    ConflictFinder, GroupMtu, HostNeed, MtuLister, PathMtu, ReferenceTarget, RequestEffect,
    SectionDefinition, SectionOrder, SectionRequests, StatsReader, TableConflict, TableContext,
    TableForms, TableLister, TableReader, TableReference, TableRelations, TableValues,
};
pub use site_policy::{SitePolicy, SitePolicyError};
pub use trace::{TraceDefinition, TraceQuery, TraceRequest, TraceScope};
pub use traffic_class::{DSCP_MAX, Dscp, TrafficClass, ecn_default};
pub use view::{
    AddressKind, Answer, CaptureView, ClusterAddress, ClusterGroup, ClusterHost, ClusterHostView,
    ClusterLocal, ClusterLocalQuery, ClusterStatus, ClusterTunnel, ClusterUpdate, ClusterView,
    ConnectionEnd, ConnectionPage, ConnectionState, ConnectionView, DispatcherView, EventFrontend,
    ForwardReport, ForwardState, ForwardTask, ForwardView, ForwarderReport, GroupView, HcaActivity,
    HcaObjects, HcaQueuePairView, HcaRates, HcaState, HcaView, InfoView, LinkState, LinkStats,
    LinkView, LocalAddress, LogStats, NicEndpointView, NicProcessView, NicView, ObjectStats,
    PairView, PeerView, PortState, PortStats, PortView, QueueView, RefusalStats, RemoteAddress,
    RouteView, RuleView, ShardView, SpecValues, StatsView, Textual, TraceView, TrafficPair,
    TrafficView, TurnBucket, TurnTimesView, Typed, ViewForm, ViewText, ViewValue,
    is_claimable_nic_name,
};
