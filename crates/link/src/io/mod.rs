//! Links at work: sockets, and the service that drives them.
//!
//! One shard has all links. It receives for them, keeps their peers in touch and brings what came
//! to the groups' shards, by mailbox. What groups send they send themselves, in their own threads,
//! by the [`causeway_fabric::carrier::Carrier`]s that they are given.
//!
//! | module | idea |
//! |---|---|
//! | [`service`] | links opened, closed, shown, served |
//! | `control` | the links that are configured, and their commands |
//! | `request` | requests of `control` to [`service`] |
//! | `addresses` | which addresses are where, told between groups and peers |
//! | [`bare`] | `vnet` and `vxlan`: a datagram is a frame |
//! | [`tunnels`] | `causeway` and `causeway-plain`: tunnels of a socket |
//! | [`stream`] | `tcp` and `tls`: frames on a byte stream |
//! | [`raw`] | the local network behind an interface |
//! | [`tls`] | certificates on both sides |
//! | [`names`] | host names of peers, resolved in threads of their own |
//! | `pending` | links that could not be opened, and names to be resolved anew |
//! | `called` | which of our addresses a peer calls |
//! | [`path`] | how long packets may be below us |
//! | [`inbox`] | to a group's mailbox |
//! | [`tally`] | what is counted |

mod addresses;
pub mod bare;
mod called;
mod control;
pub mod inbox;
pub mod limits;
pub mod names;
mod open;
pub mod path;
mod pending;
pub mod raw;
mod request;
pub mod service;
pub mod stream;
pub mod tally;
pub mod tls;
mod together;
pub mod tunnels;
mod view;

use causeway_fabric::Registration;

/// Adds the service to a fabric.
pub const SERVICE: Registration =
    Registration::new(service::NAME, || Box::new(service::Links::new()))
        .with_controller(|| Box::<control::LinkController>::default());
