//! Bounds of the values that an operator gives. Each description states the unit.
//!
//! The checks of this crate and the executors of commands apply them; a value out of range is
//! refused with the expected range and is never clamped. A further object of a full list is
//! refused, and the list stays. They are fixed at compile time. Limits that an operator does not
//! see are in the `limits` modules of the other crates.
//!
//! | constants | read by |
//! |---|---|
//! | names, accounts, paths, hosts | `name`, `access`, `port`, `settings`, `draft` |
//! | options of ports | the modules of `port`; `causeway_fabric` for `weight` and rates of queues |
//! | polling, dispatchers | `settings`; `causeway_fabric` |
//! | numbers of ports, groups, rules | `config` of the daemon; `causeway_fabric`, and the holder for its ports |
//! | numbers of links, routes, forwards, tables | `config` and `vnet` of the daemon; the controllers of `causeway_link`, `causeway_ethernet`, `causeway_socket` |
//! | views, pages | `causeway_hca`, `causeway_socket`: a longer view is cut and counts the omitted queue pairs, a larger page is refused |
//!
//! The threads are those of the readers of tables ([`crate::schema`]) and of requests.

/// Longest [`Name`](crate::Name), in bytes.
pub const NAME_BYTES_MAX: usize = 63;
/// Longest name of a user or group, in bytes (useradd(8) and groupadd(8) allow 32).
pub const ACCOUNT_BYTES_MAX: usize = 64;
/// Most users in the list of a socket.
pub const ALLOWED_USERS_MAX: usize = 64;
/// Longest path of a Unix socket, in bytes (unix(7), less the ending zero).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Longest `_<port>` suffix of a host socket's path, in bytes.
pub const HOST_SUFFIX_BYTES: usize = 11;
/// Longest hostname of a NIC, in bytes (`MX_MAX_HOSTNAME_LEN` without the ending zero).
pub const HOSTNAME_BYTES_MAX: usize = 79;
/// Most NICs of other hosts that one NIC is configured with.
pub const MX_PEERS_MAX: usize = 1024;
/// Most addresses of other hosts to which one NIC sends datagrams.
pub const MX_UDP_PEERS_MAX: usize = 64;
/// Most forwards of one daemon; each is a process of the forwarder.
pub const FORWARDS_MAX: usize = 256;
/// Most connections of one forward.
pub const FORWARD_CONNECTIONS_MAX: u16 = 1024;
/// Default of the most connections of one forward.
pub const FORWARD_CONNECTIONS_DEFAULT: u16 = 256;
/// Most ports one daemon serves.
pub const PORTS_MAX: usize = 1024;
/// Most groups of one daemon.
pub const GROUPS_MAX: usize = 1024;
/// Most rules in the ordered list.
pub const RULES_MAX: usize = 4096;
/// Most rules that a site states for a group; its record with more is refused.
pub const SITE_RULES_MAX: usize = 64;
/// Most queue pairs of one net port.
pub const QUEUE_PAIRS_MAX: u16 = 8;
/// Smallest MTU, in bytes (RFC 791: every IPv4 hop carries 68).
pub const MTU_MIN: u16 = 68;
/// Largest MTU of an HCA port, in bytes. Receive buffers of the mlx5 driver without striding
/// receive queues hold no longer frames.
pub const HCA_MTU_MAX: u16 = 9000;
/// Most queue pairs that an HCA port may be configured with, as many as its function can have.
pub const HCA_QUEUE_PAIRS_MAX: u32 = 1 << 14;
/// Most completion queues that an HCA port may be configured with, as many as its function can have.
pub const HCA_COMPLETION_QUEUES_MAX: u32 = 1 << 16;
/// Most memory regions, or requests that wait, that an HCA port may be configured with.
pub const HCA_OBJECTS_MAX: u32 = 1 << 20;
/// Largest `registered_max` of an HCA port, in MiB (16 TiB).
pub const HCA_REGISTERED_MIB_MAX: u32 = 1 << 24;
/// Default of the longest time between two polls of an idle HCA, in microseconds.
pub const HCA_IDLE_POLL_US_DEFAULT: u32 = 2000;
/// Longest time between two polls of an idle HCA that may be configured, in microseconds.
pub const HCA_IDLE_POLL_US_MAX: u32 = 100_000;
/// Largest limit of an HCA port, in bytes a second: 1 TB/s.
pub const HCA_BYTE_RATE_MAX: u64 = 1_000_000_000_000;
/// Largest limit of an HCA port, in messages a second.
pub const HCA_MESSAGE_RATE_MAX: u64 = 1_000_000_000;
/// Most queue pairs in the view of one HCA.
pub const HCA_QUEUE_PAIRS_SHOWN_MAX: usize = 256;
/// Largest weight of a group.
pub const WEIGHT_MAX: u32 = 100;
/// Default idle spin: the time for which an empty VMM-driven queue is polled before its doorbell is
/// armed, in microseconds. It is the gap between two chains at the lower rate.
pub const SPIN_US_DEFAULT: u64 = 1000;
/// Longest idle spin that may be configured, in microseconds.
pub const SPIN_US_MAX: u64 = 100_000;
/// Largest `memory_max` of a port, in MiB (16 TiB).
pub const MEMORY_MAX_MIB: u32 = 1 << 24;
/// More chains a second than this make a queue VMM-driven, by default (VNET/P's figure).
pub const UPPER_RATE_DEFAULT: u32 = 10_000;
/// Fewer chains a second than this make a queue guest-driven, by default (VNET/P's figure).
pub const LOWER_RATE_DEFAULT: u32 = 1_000;
/// Largest rate that may be configured or shown, in chains a second.
pub const RATE_MAX: u32 = 1_000_000_000;
/// Default period over which rates are measured, in microseconds (VNET/P's figure).
pub const PERIOD_US_DEFAULT: u64 = 10_000;
/// Shortest measurement period that may be configured, in microseconds.
pub const PERIOD_US_MIN: u64 = 100;
/// Longest measurement period that may be configured, in microseconds.
pub const PERIOD_US_MAX: u64 = 10_000_000;
/// Most dispatchers.
pub const DISPATCHERS_MAX: usize = 64;
/// Assumed MTU of the IP path between hosts where it is not known, in bytes.
pub const UNDERLAY_MTU: u16 = 1500;
/// Most connections in one page of a list.
pub const CONNECTIONS_PAGE_MAX: usize = 1000;
/// Most links one daemon has.
pub const LINKS_MAX: usize = 4096;
/// Shortest idle time of a link, in seconds.
pub const LINK_IDLE_SECONDS_MIN: u32 = 10;
/// Longest idle time of a link, in seconds; one day.
pub const LINK_IDLE_SECONDS_MAX: u32 = 86_400;
/// Idle time of the links of a cluster, in seconds.
pub const LINK_IDLE_SECONDS: u32 = 120;
/// Most routes one daemon has.
pub const ROUTES_MAX: usize = 16_384;
/// Largest virtual network identifier (VNI), which separates groups on a wire: 24 bits (RFC 7348).
pub const VNI_MAX: u32 = 0xff_ffff;
/// Longest name of a host's interface, in bytes (IFNAMSIZ less the ending zero).
pub const INTERFACE_BYTES_MAX: usize = 15;
/// Longest name of a host, in bytes (RFC 1035, 2.3.4).
pub const HOST_BYTES_MAX: usize = 253;
/// Most addresses of one host name that are used.
pub const RESOLVED_MAX: usize = 16;
/// Most bytes read of a machine's identity file (machine-id(5): 32 digits and a line feed).
pub const MACHINE_ID_BYTES_MAX: u64 = 64;
/// Most tables of one section of a configuration file that a service registered.
pub const SECTION_TABLES_MAX: usize = 1024;
/// Most other hosts of a site; an update of the cluster with more is refused.
pub const CLUSTER_HOSTS_MAX: usize = 1_000;
/// Most addresses of other hosts; an update of the cluster with more is refused.
pub const CLUSTER_ADDRESSES_MAX: usize = 65_536;
/// Most groups with rules or a forwarding of the site; an update of the cluster with more is refused.
pub const CLUSTER_POLICIES_MAX: usize = 4_096;
/// Most hosts, addresses and groups in one update of the cluster; one with more is refused.
pub const CLUSTER_UPDATE_MAX: usize = 256;
/// Longest time for which a request for the addresses of this host waits for a change, in ms.
pub const CLUSTER_WAIT_MS_MAX: u64 = 5_000;
/// Interval in which such a request looks for a change, in ms. Guests' addresses therefore become
/// known to the cluster with up to this delay.
pub const CLUSTER_LOOK_MS: u64 = 20;
/// Time after which a daemon reads its groups for a waiting request, though no shard counted a change,
/// in milliseconds: a new group is not counted.
pub const CLUSTER_READ_MS: u64 = 200;
/// Time without a report after which the process `causeway-directory` counts as ended, in seconds.
pub const CLUSTER_REPORT_SECONDS_MAX: u64 = 10;
