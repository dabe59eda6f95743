//! Bounds of the values that an operator gives.

/// Longest name of a port or a group, in bytes.
pub const NAME_BYTES_MAX: usize = 63;
/// Longest name of a user or group, in bytes (useradd(8) and groupadd(8) allow 32).
pub const ACCOUNT_BYTES_MAX: usize = 64;
/// Longest path of a Unix socket, in bytes (unix(7), less the ending zero).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Longest `_<port>` behind a host socket's path, in bytes.
pub const HOST_SUFFIX_BYTES: usize = 11;
/// Longest name of a board, in bytes (`MX_MAX_HOSTNAME_LEN` without its end).
pub const HOSTNAME_BYTES_MAX: usize = 79;
/// Boards of other hosts that one board is told of.
pub const MX_PEERS_MAX: usize = 1024;
/// Addresses of other hosts to which one board sends datagrams.
pub const MX_UDP_PEERS_MAX: usize = 64;
/// Most ports one daemon serves.
pub const PORTS_MAX: usize = 1024;
/// Most groups one daemon knows.
pub const GROUPS_MAX: usize = 1024;
/// Most rules in the ordered list.
pub const RULES_MAX: usize = 4096;
/// Most queue pairs of one net port.
pub const QUEUE_PAIRS_MAX: u16 = 8;
/// Smallest MTU, in bytes (RFC 791: every IPv4 hop carries 68).
pub const MTU_MIN: u16 = 68;
/// Largest weight of a group.
pub const WEIGHT_MAX: u32 = 100;
/// How long a VMM-driven queue is polled in vain by default, in microseconds: the gap between
/// two chains at the lower rate.
pub const SPIN_US_DEFAULT: u64 = 1000;
/// Longest such spin that may be configured, in microseconds.
pub const SPIN_US_MAX: u64 = 100_000;
/// Most `memory_max` of a port, in MiB (16 TiB).
pub const MEMORY_MAX_MIB: u32 = 1 << 24;
/// More chains a second than this make a queue VMM-driven, by default (VNET/P's figure).
pub const UPPER_RATE_DEFAULT: u32 = 10_000;
/// Fewer chains a second than this make it guest-driven, by default (VNET/P's figure).
pub const LOWER_RATE_DEFAULT: u32 = 1_000;
/// Largest rate that may be configured or is shown, in chains a second.
pub const RATE_MAX: u32 = 1_000_000_000;
/// Over how long rates are measured by default, in microseconds (VNET/P's figure).
pub const PERIOD_US_DEFAULT: u64 = 10_000;
/// Shortest such period that may be configured, in microseconds.
pub const PERIOD_US_MIN: u64 = 100;
/// Longest such period that may be configured, in microseconds.
pub const PERIOD_US_MAX: u64 = 10_000_000;
/// Most dispatchers.
pub const DISPATCHERS_MAX: usize = 64;
/// What IP is taken to carry between hosts, where nothing else is known, in bytes.
pub const UNDERLAY_MTU: u16 = 1500;
/// Most links one daemon has.
pub const LINKS_MAX: usize = 1024;
/// Most routes one daemon has.
pub const ROUTES_MAX: usize = 16_384;
/// Largest number that tells groups apart on a wire: 24 bits (RFC 7348).
pub const VNI_MAX: u32 = 0xff_ffff;
/// Longest name of a host's interface, in bytes (IFNAMSIZ less the ending zero).
pub const INTERFACE_BYTES_MAX: usize = 15;
/// Bytes of a host's name (RFC 1035, 2.3.4).
pub const HOST_BYTES_MAX: usize = 253;
/// Addresses of one host name that are looked at.
pub const RESOLVED_MAX: usize = 16;
/// Bytes of a machine's identity (machine-id(5): 32 digits and a line feed), with some to spare.
pub const MACHINE_ID_BYTES_MAX: u64 = 64;
