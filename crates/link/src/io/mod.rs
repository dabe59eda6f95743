//! The service of links: sockets, timers and threads around the core.
//!
//! A single shard of the daemon owns the links of all groups. It receives for them, runs their
//! handshakes and timers, and passes received frames to the groups' shards through mailboxes.
//! Groups send frames themselves, in their own threads, through the
//! [`causeway_fabric::carrier::Carrier`] of each link. The shard of links is on the TX path of
//! `tcp` and `tls` links alone: it writes queued frames when a full socket has room again, and with
//! TLS also after it has read. It forwards no frames between links; `ethernet` does.
//!
//! # Limits
//! Received frames that find a mailbox full are dropped and counted ([`inbox`]); a carrier refuses
//! frames to a link that is down or has no room; `ethernet` counts them, and so does the carrier of
//! an open link. The module retransmits no frame. An error of a UDP socket costs the datagrams that
//! were to be sent, and the link stays. An error of a connection ends the connection, and
//! [`stream`] connects again or waits for the peer. While an interface is gone, [`raw`] tries to
//! open it every second. A second link of the same name, a link that would receive the data of
//! another, and a link beyond 4,096 are refused (`control`, `open`). A file system that blocks
//! delays all links, because keys and certificates are read in their shard.
//!
//! | module | purpose |
//! |---|---|
//! | [`service`] | opens, closes, shows and serves links |
//! | `control` | configured links, and their commands |
//! | `cluster` | hosts and addresses of a site: links to them, and the addresses of this host |
//! | `verified` | verified claims of hosts of the site, on their way to shards |
//! | `noun` | `/v1/links` and `/v1/cluster` of the control API |
//! | `request` | requests of `control` to [`service`] |
//! | `open` | opens links by their kind: sockets, keys, conflicts |
//! | `view` | views of links for the operator |
//! | `addresses` | exchanges address claims between groups and peers |
//! | [`bare`] | `vnet` and `vxlan`: one frame per datagram |
//! | [`tunnels`] | `causeway` and `causeway-plain`: the tunnels of a socket |
//! | [`tunnel_carrier`] | the transmit path of a link on a tunnel |
//! | [`stream`] | `tcp` and `tls`: frames on a byte stream |
//! | [`raw`] | `raw`: the local network behind an interface |
//! | [`tls`] | mutual certificate authentication |
//! | [`names`] | resolution of peers' host names, in threads of their own |
//! | `pending` | retries for links that could not be opened, and for host names |
//! | `local_address` | which of our addresses a peer sends to |
//! | `udp_batch` | batches of datagrams, and the fall-back to single sends |
//! | [`path`] | MTUs of routes and interfaces |
//! | `section` | the section `[[link]]` of the configuration file |
//! | [`inbox`] | a link's access to its group's mailbox |
//! | [`stats`] | counters of links |
//! | [`limits`] | limits and timing constants of the I/O |

mod addresses;
pub mod bare;
mod cluster;
mod control;
pub mod inbox;
pub mod limits;
mod local_address;
mod metrics;
pub mod names;
mod noun;
mod open;
pub mod path;
mod pending;
mod policies;
pub mod raw;
mod request;
mod section;
pub mod service;
pub mod stats;
pub mod stream;
pub mod tls;
pub mod tunnel_carrier;
pub mod tunnels;
mod udp_batch;
mod verified;
mod view;

use causeway_fabric::ServiceRegistration;

/// Registration of the service with a fabric.
pub const SERVICE: ServiceRegistration =
    ServiceRegistration::new(service::NAME, || Box::new(service::Links::new()))
        .with_controller(|| Box::<control::LinkController>::default())
        .with_nouns(noun::NOUNS)
        .with_sections(section::SECTIONS)
        .with_start(names::start)
        .with_counters(stats::TABLES)
        .with_metrics(metrics::METRICS);
