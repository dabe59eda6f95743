//! Test channels in private memory.

use std::os::fd::AsFd;
use std::sync::Arc;

use causeway_channel::{Layout, Receiver, Sender, Side, format, open};
use causeway_memory::{Mapping, View, create};

/// Both ends that a side has.
pub type End = (Sender, Receiver);

/// Returns zeroed memory for `layout`.
pub fn memory(layout: Layout) -> View {
    let len = layout.bytes();
    let file = create("channel", len as u64).unwrap();
    let mapping = Mapping::new(file.as_fd(), 0, len as u64).unwrap();
    View::new(Arc::new(mapping), 0, len).unwrap()
}

/// Returns the memory of a new channel, and both sides.
pub fn pair(layout: Layout) -> (View, End, End) {
    let memory = memory(layout);
    format(&memory, layout).unwrap();
    let first = open(&memory, Side::First).unwrap();
    let second = open(&memory, Side::Second).unwrap();
    (memory, first, second)
}
