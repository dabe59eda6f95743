//! The bounds of this crate: counts, sizes and times, with the reason for their value. The times of
//! the search for NICs are in `nics`. [`crate::info`] reports those of operations and objects to
//! applications, and the manual fi_causeway(7) repeats some, which a test compares.
//!
//! The bounds are constants; only the memory for unexpected messages can be set
//! ([`UNEXPECTED_MIB`]). Bounds of the layers below are in `causeway_endpoint::limits` and
//! `causeway_message::limits`.
//!
//! | constants | read by | at the bound |
//! |---|---|---|
//! | lengths and segments of an operation | modules of `shell`, `rdm` | the call fails (`-FI_EMSGSIZE`, `-FI_EINVAL`) and starts nothing |
//! | operations in progress | `rdm` | the call fails with `-FI_EAGAIN`; the application repeats it |
//! | operations of peers | `rdm::target` | the request is dropped without a reply |
//! | completions | `domain::route` | requests of peers wait at their senders |
//! | regions, addresses | `rdm::regions`, `rdm::address_vector` | `-FI_ENOMEM` |
//! | unexpected messages | `rdm::unexpected` | messages wait at their senders |
//! | connects, services | `rdm::connect`, `rdm::service` | waiting messages fail; no service is found |
//! | polls, sleeps, close | `rdm`, `domain`, `shell::endpoint` | speed only; messages that have not left at the close are lost |
//!
//! All run in the process of the application, in its calling threads, or in `progress_thread` and
//! `connect_thread`.

use std::time::Duration;

/// Longest message, in bytes: 4 GiB less room for headers.
pub const MESSAGE_MAX: usize = 0xffff_ffff - 64;
/// Longest injected message, in bytes: its buffer may be reused at once.
pub const INJECT_MAX: usize = 4096;
/// The queue size that `fi_info` and `fi_tx_size_left` report, for sends and receives each. It is
/// not enforced: the true bounds are [`SENDS_MAX`], [`CALLS_MAX`] and half of [`SLOTS_MAX`].
pub const OPERATIONS_MAX: usize = 1024;
/// Most local segments of an operation.
pub const SEGMENTS_MAX: usize = 8;
/// Most remote segments of an operation.
pub const REMOTE_SEGMENTS_MAX: usize = 1;
/// Longest read or write, in bytes, that is ordered with others of the same memory.
pub const ORDERED_MAX: usize = INJECT_MAX;
/// Bits of a tag for the application; the provider uses the others.
pub const TAG_BITS: u32 = 61;
/// Length of the immediate data of a message, in bytes.
pub const DATA_BYTES: usize = 8;
/// Length of a memory key, in bytes.
pub const KEY_BYTES: usize = 8;
/// Most completion queues, counters and memory regions of a domain, each, as `fi_info` reports it.
/// Only regions are bounded, by [`REGIONS_MAX`].
pub const OBJECTS_MAX: usize = 1 << 16;
/// Most endpoints of a domain, as `fi_info` reports it: all that a NIC has. The daemon refuses
/// more.
pub const ENDPOINTS_MAX: usize = 255;
/// Most unread events of an event queue.
pub const EVENTS_MAX: usize = 1024;
/// Longest event, in bytes.
pub const EVENT_BYTES_MAX: usize = 4096;
/// Memory for unexpected messages of an endpoint, in MiB, unless `FI_CAUSEWAY_UNEXPECTED_MIB` sets
/// another. MPI guarantees that messages sent behind unexpected ones arrive.
pub const UNEXPECTED_MIB: usize = 1024;
/// Bytes of that memory per message: the number of unexpected messages is bounded as well.
pub const UNEXPECTED_GRAIN: usize = 256;
/// Most operations of an endpoint, internal ones included: their numbers have 20 bits.
pub const SLOTS_MAX: usize = 1 << 20;
/// Most sends of the application in progress, per endpoint.
pub const SENDS_MAX: usize = 1 << 16;
/// Long messages to other hosts that are offered before the receiver requests them, per endpoint.
/// The NIC side sends at most 256 offers of an endpoint at a time; the others are for requested
/// messages.
pub const OFFERED_MAX: usize = 64;
/// Bytes of the messages that [`OFFERED_MAX`] counts (64 MiB). Each message may keep a slab of
/// staging memory; together they leave room for a message of any length
/// ([`causeway_endpoint::limits::STAGING_ROOM_BYTES`]).
pub const OFFERED_BYTES_MAX: usize = 64 << 20;
/// Most reads, writes and atomic operations in progress, per endpoint.
pub const CALLS_MAX: usize = 1 << 12;
/// Most reads, writes and atomic operations in progress, per target. A target accepts twice as many
/// ([`SERVED_PER_PEER_MIN`]), because it may learn later that an operation ended.
pub const CALLS_PER_TARGET_MAX: u32 = 1 << 8;
/// Most operations in progress at a target from an initiator. An initiator of this provider has at
/// most [`CALLS_PER_TARGET_MAX`]; more violate the protocol.
pub const SERVED_PER_PEER_MAX: u32 = 1 << 12;
/// Operations in progress at a target that all initiators share: an initiator gets more than
/// [`SERVED_PER_PEER_MIN`] only while it has fewer than are left of this number.
pub const SERVED_ALL_MAX: usize = 1 << 16;
/// Operations in progress at a target that each initiator may have, however many others there are.
/// Beyond both limits a request is dropped without a reply.
pub const SERVED_PER_PEER_MIN: u32 = 2 * CALLS_PER_TARGET_MAX;
/// Completions that wait in a queue before requests of peers (reads, writes, atomic operations) and
/// messages for multi-receive buffers wait as well: no operation of the application bounds their
/// completions. Completions of the application's own sends and receives are always queued.
pub const COMPLETIONS_MAX: usize = 1 << 16;
/// Most long messages on their way into a multi-receive buffer; then the next waits.
pub const MULTI_BODIES_MAX: usize = 1 << 10;
/// Longest write that is sent with its request, and longest operands of an atomic operation, in
/// bytes. With their header they fit an eager message.
pub const INLINE_BYTES_MAX: usize = 4096;
/// Most addresses that an address vector takes in its life, removed ones included.
pub const ADDRESSES_MAX: usize = 1 << 20;
/// Most registered regions of a domain.
pub const REGIONS_MAX: usize = 1 << 16;
/// Default of `FI_OPT_MIN_MULTI_RECV`, in bytes.
pub const MULTI_RECEIVE_MIN: usize = 64;
/// Alignment of messages in a multi-receive buffer, in bytes.
pub const MULTI_RECEIVE_GRAIN: usize = 16;
/// Most polls of an endpoint's paths in a call that makes progress.
pub const STEPS_PER_CALL: usize = 4;
/// Empty polls in a row after which polls yield the processor. A small message takes far fewer polls to
/// arrive.
pub const MISSES_BEFORE_YIELD: u32 = 64;
/// Behind them, a poll yields the processor whenever the count is a multiple of this number: with more
/// processes than processors, the sender needs the processor, and so does the daemon for messages of
/// other hosts.
pub const MISSES_PER_YIELD: u32 = 4;
/// The number of empty polls at which counting starts if the daemon delivered the last message: a
/// reply leaves by the daemon as well, which may wait for this processor.
pub const MISSES_FAR: u32 = 60;
/// How long a blocking call polls before it sleeps.
pub const SPIN: Duration = Duration::from_micros(50);
/// Longest sleep. Every awaited event wakes the sleeper earlier.
pub const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Time without calls of the application after which the progress thread of a domain takes over, if
/// the application requested automatic progress.
pub const AUTO_PROGRESS_DELAY: Duration = Duration::from_millis(2);
/// Endpoint numbers that a service may have. So many endpoints of other processes may have a number
/// that its hash selects.
pub const SERVICE_PLACES: u32 = 8;
/// How long a look-up of a service waits for each endpoint number. A host of the same network
/// answers in less than a millisecond.
pub const SERVICE_ASK: Duration = Duration::from_secs(1);
/// How long a service is looked up for an application that selects this provider by name: its
/// server may be starting.
pub const SERVICE_WAIT: Duration = Duration::from_secs(1);
/// The pause between two such look-ups.
pub const SERVICE_RETRY: Duration = Duration::from_millis(20);
/// How long the close of an endpoint polls without a pause for the delivery of its messages.
pub const CLOSE_SPIN: Duration = Duration::from_millis(1);
/// Shortest pause between two polls of a closing endpoint after [`CLOSE_SPIN`]; each pause is longer
/// by it.
pub const CLOSE_PAUSE: Duration = Duration::from_micros(50);
/// Longest pause between two such polls.
pub const CLOSE_PAUSE_MAX: Duration = Duration::from_millis(2);
/// How long the first operation to an endpoint waits for the connect before a thread continues it.
/// The daemon answers in about 50 us if it has a processor.
pub const CONNECT_AT_ONCE: Duration = Duration::from_millis(2);
/// Most long messages that were cancelled by their sender and are remembered until a receive takes
/// their notice.
pub const BODIES_LOST_MAX: usize = 1024;
/// Attempts of a connect while the daemon is replaced.
pub const CONNECT_TRIES: u8 = 4;
/// Shortest pause of the thread that continues connects, between two polls. The pause doubles.
pub const CONNECT_POLL: Duration = Duration::from_micros(500);
/// Longest pause between two such polls.
pub const CONNECT_POLL_MAX: Duration = Duration::from_millis(20);
/// Longest duration of a connect, in ns (10 s).
pub const CONNECT_NS: u64 = 10_000_000_000;
/// Longest duration of a connect in direct mode, in ns (1 h): a peer answers only while its process
/// makes calls.
pub const CONNECT_DIRECT_NS: u64 = 3_600_000_000_000;

const _: () = {
    use causeway_endpoint::limits::{SLAB_BYTES, STAGING_BYTES_MAX, STAGING_ROOM_BYTES};
    let most = OFFERED_BYTES_MAX as u64 + OFFERED_MAX as u64 * SLAB_BYTES;
    assert!(most <= STAGING_ROOM_BYTES && STAGING_ROOM_BYTES <= STAGING_BYTES_MAX);
};

#[cfg(test)]
mod tests {
    use super::{
        COMPLETIONS_MAX, DATA_BYTES, INJECT_MAX, MESSAGE_MAX, OPERATIONS_MAX, SEGMENTS_MAX,
        TAG_BITS,
    };

    #[test]
    fn limits_are_those_of_the_manual() {
        let page = include_str!("../fi_causeway.7").replace('\n', " ");
        for text in [
            format!("up to {MESSAGE_MAX} bytes in up to {SEGMENTS_MAX} segments"),
            format!("up to {INJECT_MAX} bytes can be injected"),
            format!("up to {OPERATIONS_MAX} operations"),
            format!("If {COMPLETIONS_MAX} completions wait"),
            format!("{TAG_BITS} bits; a message carries {DATA_BYTES} bytes"),
            format!("{} bytes in a format of the provider", crate::address::BYTES),
        ] {
            assert!(page.contains(&text), "{text}");
        }
    }
}
