//! Bounds of adapters and of the engine. Counts of objects and bytes are per adapter, so that an
//! owner that exhausts them harms no other.
//!
//! A creation or registration beyond a limit fails with an error of its module and changes nothing;
//! a message beyond [`MESSAGE_BYTES_MAX`] fails with a length error. `STEP_` limits delay work;
//! only a datagram or a session's message in more ranges than a step has is refused. The
//! configuration of a port (`causeway-hca`) may lower the limits of adapters.
//!
//! | constants | read by | at the limit |
//! |---|---|---|
//! | objects, numbers | `adapter`, `number`, `subnet` | the creation fails; a table is full |
//! | regions, pages, bytes | `region`, `engine::registration` | the registration fails, or its work request with a length error |
//! | steps, costs | `engine` | the message continues in a later step or pass |
//! | datagrams to service interfaces | `engine::datagram` | the datagram is dropped and counted, as on a lossy network |
//! | retries | `engine::wait` | the request fails |
//! | policy results | `policy` | the table is emptied; checks cost budget again |
//! | multicast | `multicast` | the attachment fails |
//! | resets | `subnet` | messages of the oldest reset end at once |
//! | observed messages | `engine::observe` | further messages are counted only |
//!
//! All run in the dispatcher's thread that serves the group. Numbers have no unit, times are in ns.

/// Queue pair number of multicast datagrams (InfiniBand specification, 9.6.2).
pub const MULTICAST_QPN: u32 = 0xff_ffff;

/// Queue pair number that addresses the general service interface of an adapter.
pub const GENERAL_SERVICE_QPN: u32 = 1;

/// Queue pair number of the service of an adapter ([`crate::session`]). Numbers of queue pairs have
/// an index other than 0 in their low 20 bits.
pub const SERVICE_QPN: u32 = 0xf0_0000;

/// Most bytes of a message to the service, and the length of its messages.
pub const SESSION_MESSAGE_BYTES: usize = 160;

/// Queue key of the general service interface (InfiniBand specification, 10.2.4).
pub const GENERAL_SERVICE_QUEUE_KEY: u32 = 0x8001_0000;

/// Time between datagrams of an adapter to general service interfaces, in nanoseconds: 10,000 a
/// second. Connection managers send a few for each connection.
pub const GENERAL_INTERVAL_NS: u64 = 100_000;

/// Most datagrams to general service interfaces that an adapter may send at once after a pause: the
/// receive work requests that Linux posts there. A further one is dropped and counted.
pub const GENERAL_BURST: u64 = 512;

/// Bits of an object number.
pub const NUMBER_BITS: u32 = 24;

/// Most slots of a [`crate::number::Table`], of which two are never used: at least 16 generations
/// of each slot remain. A further object is refused.
pub const TABLE_MAX: usize = 1 << 20;

/// Most adapters of a subnet. A further adapter is refused.
pub const ADAPTERS_MAX: usize = 4096;

/// Most queue pairs of an adapter. A further one is refused.
pub const QUEUE_PAIRS_MAX: usize = 1 << 14;

/// Most memory regions of an adapter; the table has two fewer. A further one is refused.
pub const REGIONS_MAX: usize = TABLE_MAX;

/// Most registered bytes of an adapter: 1 TiB. A registration beyond it is refused.
pub const REGISTERED_BYTES_MAX: u64 = 1 << 40;

/// Most entries in the page lists of an adapter's regions: 128 MiB of the daemon's memory. A
/// registration beyond it is refused.
pub const REGION_PAGES_MAX: u64 = 1 << 24;

/// Most users outside of the engine to whom a region is lent: a deregistration ends each use before
/// it completes.
pub const LENDS_PER_REGION_MAX: usize = 64;

/// Page list entries of a region beyond the pages of its length: partial pages at both ends, and
/// the padding of drivers to whole units.
pub const LIST_PADDING_ENTRIES: u64 = 16;

/// Smallest binary logarithm of a region's page size.
pub const PAGE_SHIFT_MIN: u8 = 12;

/// Largest binary logarithm of a region's page size.
pub const PAGE_SHIFT_MAX: u8 = 40;

/// Most page list entries in a fast registration. A work request with more ends with a length
/// error.
pub const PAGES_PER_UPDATE_MAX: u32 = 1 << 17;

/// Most bytes of a message (InfiniBand specification, 9.7.1). A longer message ends with a length
/// error.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 31;

/// Most bytes that the engine copies before it looks at the budget again.
pub const STEP_BYTES_MAX: u64 = 64 << 10;

/// Most guest address ranges on either side of a step; the step ends earlier instead.
pub const STEP_SPANS_MAX: usize = 256;

/// Bytes whose copy takes as long as the delivery of a datagram without payload: 200 ns.
pub const DELIVERY_BYTES: u64 = 1600;

/// Bytes whose copy takes as long as the look-up of a further guest address range: 40 ns.
pub const SPAN_BYTES: u64 = 320;

/// Bytes of network header before a received datagram.
pub const NETWORK_HEADER_BYTES: u32 = 40;

/// Most nanoseconds that a requester waits for an unreachable responder, over all retries. Then the
/// request fails.
pub const RETRY_NS_MAX: u64 = 120_000_000_000;

/// Receiver-not-ready retries that mean "without end".
pub const RNR_RETRY_ENDLESS: u8 = 7;

/// Most results of a group's policy that a subnet keeps. With so many, the table is emptied.
pub const POLICY_RESULTS_MAX: usize = 4096;

/// Bytes whose copy takes as long as a check of a policy with many rules: 16 us.
pub const POLICY_CHECK_BYTES: u64 = 128 << 10;

/// Most queue pairs of an adapter in a multicast group. A further attachment is refused.
pub const MULTICAST_MEMBERS_MAX: usize = 16;

/// Most multicast memberships of an adapter. A further attachment is refused.
pub const MEMBERSHIPS_PER_ADAPTER_MAX: usize = 1024;

/// Most resets of an adapter whose messages have not ended; a further reset ends those of the
/// oldest.
pub const RETIRED_MAX: usize = 4;

/// Most observed messages that wait for the caller of a pass. Further messages are counted only.
pub const OBSERVATIONS_MAX: usize = 1024;
