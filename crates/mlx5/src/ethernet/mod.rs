//! Objects of the Ethernet side: send and receive queues, and the objects that steer frames.
//!
//! Each object keeps the input of the command that created it, as the driver wrote it. Numbers are
//! given out per kind; each kind has a capacity, and an input a bounded length
//! ([`crate::limits::STEERING_INPUT_MAX`]).

pub(crate) mod command;

use causeway_verbs::number::Table;

/// The Ethernet side of a function.
#[derive(Debug)]
pub(crate) struct Ethernet {
    objects: [Table<Vec<u8>>; Kind::COUNT],
}

/// The kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Transport interface of receives.
    Tir,
    /// Transport interface of sends.
    Tis,
    /// Table of receive queues.
    ReceiveTable,
    /// Send queue.
    SendQueue,
    /// Receive queue.
    ReceiveQueue,
    /// Flow table.
    FlowTable,
    /// Flow group.
    FlowGroup,
    /// Flow counter.
    FlowCounter,
}

impl Kind {
    const COUNT: usize = 8;
}

impl Ethernet {
    /// Returns the side without objects, for at most `capacity` objects of each kind.
    pub fn new(capacity: usize) -> Self {
        Self { objects: std::array::from_fn(|_| Table::new(capacity)) }
    }

    /// Returns whether there are queues that must be polled.
    pub fn is_active(&self) -> bool {
        self.table(Kind::SendQueue).is_some_and(|table| !table.is_empty())
    }

    /// Returns the objects of a kind.
    pub fn table(&self, kind: Kind) -> Option<&Table<Vec<u8>>> {
        self.objects.get(kind as usize)
    }

    /// Returns the objects of a kind, for changes.
    pub fn table_mut(&mut self, kind: Kind) -> Option<&mut Table<Vec<u8>>> {
        self.objects.get_mut(kind as usize)
    }
}
