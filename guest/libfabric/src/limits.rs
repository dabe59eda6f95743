//! Every bound of this crate, in one place. Most are what [`crate::info`] tells applications.

/// Longest message, in bytes: 4 GiB, less room for what goes before it.
pub const MESSAGE_MAX: usize = 0xffff_ffff - 64;
/// Longest message that is taken at once, so that its buffer may be used again, in bytes.
pub const INJECT_MAX: usize = 4096;
/// Operations of an endpoint that may go on at a time, sending, and as many receiving.
pub const OPERATIONS_MAX: usize = 1024;
/// Pieces of memory of one operation, on either side.
pub const PIECES_MAX: usize = 8;
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

#[cfg(test)]
mod tests {
    use super::{DATA_BYTES, INJECT_MAX, MESSAGE_MAX, OPERATIONS_MAX, PIECES_MAX, TAG_BITS};

    #[test]
    fn the_manual_says_the_same() {
        let page = include_str!("../fi_causeway.7").replace('\n', " ");
        for said in [
            format!("up to {MESSAGE_MAX} bytes in up to {PIECES_MAX} pieces"),
            format!("{INJECT_MAX} bytes are taken at once"),
            format!("up to {OPERATIONS_MAX} operations"),
            format!("{TAG_BITS} bits; a message carries {DATA_BYTES} bytes"),
            format!("{} bytes, of no format", crate::address::BYTES),
        ] {
            assert!(page.contains(&said), "{said}");
        }
    }
}
