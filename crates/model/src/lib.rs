//! All that an operator can say to Causeway and see of it.
//!
//! Specifications of ports, groups, links, routes and rules, the commands of the control plane, and
//! the views that it answers with, each as one type with its JSON form, defaults, ranges and checks.
//! The configuration file, the command line, the control socket and the VNET language read and print
//! these types. The crate has no I/O on the data path and knows no service.
#![forbid(unsafe_code)]

mod access;
mod ask;
mod capture;
mod command;
pub mod commands;
mod date;
pub mod draft;
mod error;
mod group;
pub mod keys;
pub mod limits;
mod link;
mod mac;
mod name;
mod poll;
pub mod port;
mod route;
mod rule;
pub mod schema;
mod traffic_class;
mod view;

pub use access::{FileMode, SocketAccess, SocketPermissions};
pub use ask::{Ask, Dispatch, Request, Response};
pub use capture::{CaptureSpec, Fetched, Filter};
pub use command::{Command, CommandError, SocketKind, TraceQuery};
pub use date::date;
pub use error::SpecError;
pub use group::{Forwarding, GroupKind, GroupSpec, weight_default};
pub use link::{
    LinkKind, LinkSpec, PublicKey, RawSpec, StreamSpec, TlsSpec, TunnelSpec, UdpSpec, VXLAN_BYTES,
    datagram_mtu, metric_default, udp_headers,
};
pub use mac::Mac;
pub use name::Name;
pub use poll::{PollMode, PollPolicy};
pub use port::{
    CID_GUEST_MIN, CID_HOST, Kind, KindInfo, MxPeer, MxSpec, MxUdp, NetSpec, Offloads, PortContext,
    PortKind, PortOptions, PortSpec, VsockSpec, message_socket,
};
pub use route::{MacMatch, RouteEnd, RouteSpec};
pub use rule::{RuleAction, RuleSide, RuleSpec};
pub use traffic_class::{DSCP_MAX, Dscp, TrafficClass, ecn_default};
pub use view::{
    Answer, CaptureView, DispatcherView, GroupView, LinkState, LinkView, PairView, PeerView,
    PortState, PortView, QueueView, RouteView, RuleView, ShardView, TraceView, TrafficPair,
    TrafficView, Whose,
};
