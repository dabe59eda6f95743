//! A channel in memory of its own.

use std::os::fd::AsFd;
use std::sync::Arc;

use causeway_channel::{Layout, Receiver, Sender, Side, format, open};
use causeway_memory::{Mapping, View, create};

/// One side.
pub type End = (Sender, Receiver);

/// Zeroed memory for `layout`.
pub fn memory(layout: Layout) -> View {
    let len = layout.bytes();
    let file = create("channel", len as u64).unwrap();
    let mapping = Mapping::new(file.as_fd(), 0, len as u64).unwrap();
    View::new(Arc::new(mapping), 0, len).unwrap()
}

/// Both sides, and the memory that they share.
pub fn pair(layout: Layout) -> (View, End, End) {
    let memory = memory(layout);
    format(&memory, layout).unwrap();
    let first = open(&memory, Side::First).unwrap();
    let second = open(&memory, Side::Second).unwrap();
    (memory, first, second)
}
