//! Every bound of this crate, in one place. Most are what [`crate::info`] tells applications.

use std::time::Duration;

/// Longest message, in bytes: 4 GiB, less room for what goes before it.
pub const MESSAGE_MAX: usize = 0xffff_ffff - 64;
/// Longest message that is taken at once, so that its buffer may be used again, in bytes.
pub const INJECT_MAX: usize = 4096;
/// Operations of an endpoint that may go on at a time, sending, and as many receiving.
pub const OPERATIONS_MAX: usize = 1024;
/// Pieces of memory of one operation on this side.
pub const PIECES_MAX: usize = 8;
/// The same on the other side.
pub const REMOTE_PIECES_MAX: usize = 1;
/// Up to this length reads and writes of the same memory are done in their order, in bytes.
pub const ORDERED_MAX: usize = INJECT_MAX;
/// Bits of a tag that are the application's; the others are ours.
pub const TAG_BITS: u32 = 61;
/// Length of the data that a message carries beside its bytes.
pub const DATA_BYTES: usize = 8;
/// Length of the key of registered memory, in bytes.
pub const KEY_BYTES: usize = 8;
/// Completion queues, counters and memory regions of a domain, each.
pub const OBJECTS_MAX: usize = 1 << 16;
/// Endpoints of a domain: a board has no more.
pub const ENDPOINTS_MAX: usize = 255;
/// Events of a queue that nobody read.
pub const EVENTS_MAX: usize = 1024;
/// Longest event, in bytes.
pub const EVENT_BYTES_MAX: usize = 4096;
/// What is kept of messages that no receive was posted for, of one endpoint, in MiB, unless
/// `FI_CAUSEWAY_UNEXPECTED_MIB` says otherwise: MPI promises that who sends behind them is heard.
pub const UNEXPECTED_MIB: usize = 1024;
/// For so many of these bytes one message: as many are kept at most.
pub const UNEXPECTED_GRAIN: usize = 256;
/// Operations of one endpoint at a time, ours among them: their numbers have 20 bits.
pub const NUMBERS_MAX: usize = 1 << 20;
/// Operations of the application that send and have not ended, of one endpoint.
pub const SENDS_MAX: usize = 1 << 16;
/// Long messages to other hosts that are offered before they are asked for, of one endpoint: of 256
/// windows, others are for those that are.
pub const AHEAD_MAX: usize = 64;
/// The same in bytes, 64 MiB: each may keep a slab of staging from being given back, and all of
/// them leave room for one of any length ([`causeway_endpoint::limits::STAGING_ROOM_BYTES`]).
pub const AHEAD_BYTES_MAX: usize = 64 << 20;
/// Reads, writes and atomic operations that have not ended, of one endpoint.
pub const CALLS_MAX: usize = 1 << 12;
/// The same of what one partner is asked for: it takes twice as much of anybody
/// ([`SERVED_OF_ONE_MIN`]), as it may hear last that one of them ended.
pub const CALLS_OF_ONE_MAX: u32 = 1 << 8;
/// The same that one partner asked for: one that has more does not keep to the rules.
pub const SERVED_MAX: u32 = 1 << 12;
/// The same that all partners asked for: none has more of it than what is left for others...
pub const SERVED_ALL_MAX: usize = 1 << 16;
/// ... and each has so much however much the others have: what is asked beyond is not heard.
pub const SERVED_OF_ONE_MIN: u32 = 2 * CALLS_OF_ONE_MAX;
/// Completions that wait in a queue before what others send and write waits too, where nothing the
/// application asked for bounds it. What it began itself is told of all the same.
pub const COMPLETIONS_MAX: usize = 1 << 16;
/// Long messages on their way into one buffer for many; then the next waits.
pub const PARTS_MAX: usize = 1 << 10;
/// Longest write whose bytes go with the question, and longest operands of an atomic operation, in
/// bytes: with what is before them they go whole through a channel.
pub const INLINE_BYTES_MAX: usize = 4096;
/// Names in one address vector.
pub const NAMES_MAX: usize = 1 << 20;
/// Registered pieces of memory of one domain.
pub const REGIONS_MAX: usize = 1 << 16;
/// Least room in a buffer for many messages, unless it is said, in bytes.
pub const MULTI_RECEIVE_MIN: usize = 64;
/// Where messages in such a buffer begin: at multiples of so many bytes.
pub const MULTI_RECEIVE_GRAIN: usize = 16;
/// How often one call goes on at most.
pub const STEPS_AT_ONCE: usize = 4;
/// After so many looks in a row that found nothing, every so many of them give the processor away:
/// where there are more processes than processors, what is waited for needs it, and so does the
/// daemon by which it comes from another host. Many more than a message of a few bytes takes to come.
pub const VAIN_LOOKS: (u32, u32) = (64, 4);
/// How many of them are taken to have been where the daemon brought the last message: what is
/// answered leaves by the daemon too, which may be waiting for this very processor.
pub const VAIN_FAR: u32 = 60;
/// How long a call that waits looks before it sleeps.
pub const LOOK: Duration = Duration::from_micros(50);
/// Longest sleep; whatever is waited for wakes.
pub const SLEEP_MAX: Duration = Duration::from_secs(1);
/// How long an application makes no calls until its domain goes on without them, if it asked for that.
pub const QUIET: Duration = Duration::from_millis(2);
/// Endpoint numbers that an endpoint of a service may have: so many endpoints of other processes
/// may have numbers that its hash selects.
pub const SERVICE_PLACES: u32 = 8;
/// How long one endpoint number is waited for when a service is looked up. A host of the same
/// network answers in less than a millisecond.
pub const SERVICE_ASK: Duration = Duration::from_secs(1);
/// How long a service is looked up for an application that wants this provider by name: its server
/// may be started at the same moment.
pub const SERVICE_WAIT: Duration = Duration::from_secs(1);
/// The pause between two such look-ups.
pub const SERVICE_LOOK: Duration = Duration::from_millis(20);
/// How long an endpoint that is closed looks without a pause whether its receivers took what was
/// sent, and the shortest and longest pause after that.
pub const CLOSE_LOOK: Duration = Duration::from_millis(1);
/// See [`CLOSE_LOOK`].
pub const CLOSE_PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));
/// How long the first operation to an endpoint waits for the connect before it leaves that to a
/// thread. The daemon answers in some 50 us where it has a processor.
pub const CONNECT_AT_ONCE: Duration = Duration::from_millis(2);
/// Long messages that were said not to come, of which it is remembered until a receive takes what told
/// of them.
pub const BODIES_LOST_MAX: usize = 1024;
/// How often a connect is tried while the daemon goes and another comes.
pub const CONNECT_TRIES: u8 = 4;
/// Shortest and longest pause of that thread between two looks.
pub const HELP_PAUSE: (Duration, Duration) =
    (Duration::from_micros(500), Duration::from_millis(20));
/// How long a connect may take, in ns; 10 s.
pub const CONNECT_NS: u64 = 10_000_000_000;
/// The same where partners are at the network themselves; an hour.
pub const CONNECT_PAST_NS: u64 = 3_600_000_000_000;

const _: () = {
    use causeway_endpoint::limits::{SLAB_BYTES, STAGING_BYTES_MAX, STAGING_ROOM_BYTES};
    let most = AHEAD_BYTES_MAX as u64 + AHEAD_MAX as u64 * SLAB_BYTES;
    assert!(most <= STAGING_ROOM_BYTES && STAGING_ROOM_BYTES <= STAGING_BYTES_MAX);
};

#[cfg(test)]
mod tests {
    use super::{
        COMPLETIONS_MAX, DATA_BYTES, INJECT_MAX, MESSAGE_MAX, OPERATIONS_MAX, PIECES_MAX, TAG_BITS,
    };

    #[test]
    fn the_manual_says_the_same() {
        let page = include_str!("../fi_causeway.7").replace('\n', " ");
        for said in [
            format!("up to {MESSAGE_MAX} bytes in up to {PIECES_MAX} pieces"),
            format!("{INJECT_MAX} bytes are taken at once"),
            format!("up to {OPERATIONS_MAX} operations"),
            format!("Where {COMPLETIONS_MAX} completions wait"),
            format!("{TAG_BITS} bits; a message carries {DATA_BYTES} bytes"),
            format!("{} bytes, of no format", crate::address::BYTES),
        ] {
            assert!(page.contains(&said), "{said}");
        }
    }
}
