//! Limits of the directory.
//!
//! Constants only. The limits hold per list of advertised addresses, per directory (one for each
//! group) or per address. Where a limit is reached, claims of peers are dropped and requested again
//! later; addresses of own ports always find room in a directory. Epochs are times of day in ns
//! since 1970.
//!
//! `advertisement` reads the limit of a list, `table` and `claims` the others, and `link` compares
//! with that of a list before it announces; all run in the shard of links, on its dispatcher's
//! thread.

/// Most addresses that one peer advertises, over all virtual networks. A further own address is
/// announced when there is room; a further address of a peer is dropped and counted.
pub const ADDRESSES_MAX: usize = 4_096;
/// Most addresses in one [`Directory`](crate::Directory) for which it accepts a further address
/// from a peer; addresses of own ports count and are always added. A claim of a peer on a further
/// address is dropped, and requested again once there is room.
pub const DIRECTORY_MAX: usize = 65_536;
/// Most claims on one address. If there are more, the directory drops the worst claim of an
/// unreachable place, else the worst claim of a peer; never that of an own port.
pub const CLAIMS_MAX: usize = 8;
/// How far an epoch may lie ahead of the local time of day, in ns; 1 day. A claim with a later
/// epoch is followed only if no other reachable place claims the address.
pub const EPOCH_AHEAD_NS: u64 = 86_400_000_000_000;
/// How far ahead an epoch of a peer may lie and still advance the epochs given here, in ns; half a
/// day. The bound keeps a peer with a wrong clock from making other peers reject this daemon.
pub const EPOCH_FOLLOWED_NS: u64 = EPOCH_AHEAD_NS / 2;
