//! Transport interfaces and tables of receive queues: the last step of a received frame.
//!
//! A transport interface for receive (TIR) sends a frame to a receive queue, or to an entry of a
//! table of receive queues (RQT) that the frame's hash selects. A transport interface for send
//! (TIS) holds values for its send queues that have no effect here. A table names receive queues by
//! number; a frame for a queue that does not exist or is not ready is dropped and counted.
//! `super::receive` selects the queue of each frame; `super::command` changes the objects, both in
//! the dispatcher's turn. There are at most 1,024 objects of each kind
//! ([`crate::limits::ETHERNET_QUEUES_MAX`]), and 1,024 queues in a table.

use causeway_verbs::number::Table;
use causeway_wire::mlx5::steering::{
    Dispatch, HASH_KEY_LEN, MatchHeaders, ReceiveInterface, SendInterface,
};

use super::hash::{Hash, HashMemo};

/// A transport interface for receive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interface {
    /// Context as the driver gave it.
    pub context: ReceiveInterface,
    /// Key of the Toeplitz hash.
    pub key: [u8; HASH_KEY_LEN],
}

/// A table of receive queues.
#[derive(Debug)]
pub(crate) struct QueueTable {
    /// Receive queues; at least one.
    pub queues: Vec<u32>,
    /// Largest number of queues that the driver may set.
    pub capacity: u16,
    /// Number of transport interfaces that use the table.
    pub users: u32,
}

/// All transport interfaces and tables of receive queues.
#[derive(Debug)]
pub(crate) struct Interfaces {
    /// Transport interfaces for receive (TIR).
    pub receive: Table<Interface>,
    /// Transport interfaces for send (TIS).
    pub send: Table<SendInterface>,
    /// Tables of receive queues (RQT).
    pub tables: Table<QueueTable>,
    /// The last hash.
    memo: HashMemo,
}

impl Interfaces {
    /// Returns no objects, with room for `capacity` of each kind.
    pub fn new(capacity: usize) -> Self {
        let (receive, send) = (Table::new(capacity), Table::new(capacity));
        Self { receive, send, tables: Table::new(capacity), memo: HashMemo::default() }
    }

    /// Returns the receive queue for a frame at a transport interface, and the frame's hash; `None`
    /// if the interface or its table does not exist. The queue may not exist.
    pub fn select(&mut self, interface: u32, headers: &MatchHeaders) -> Option<(u32, Hash)> {
        let interface = self.receive.get(interface)?;
        let context = &interface.context;
        match Dispatch::from_raw(context.dispatch)? {
            Dispatch::Direct => Some((context.receive_queue, Hash::default())),
            Dispatch::Indirect => {
                let hash = self.memo.hash(context, &interface.key, headers);
                let queues = &self.tables.get(context.table)?.queues;
                let index = hash.value.checked_rem(u32::try_from(queues.len()).ok()?)?;
                Some((*queues.get(usize::try_from(index).ok()?)?, hash))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ethernet_interface_keeps_a_flow_on_a_queue_and_spreads_flows() {
        let mut interfaces = Interfaces::new(4);
        let queues: Vec<u32> = (100..104).cycle().take(128).collect();
        let table = QueueTable { queues, capacity: 128, users: 0 };
        let table = interfaces.tables.insert(table).unwrap();
        let context = ReceiveInterface {
            dispatch: Dispatch::Indirect.raw(),
            table,
            hash: 2,
            hash_fields: 15,
            ..Default::default()
        };
        let key = std::array::from_fn(|byte| (byte * 37 + 11) as u8);
        let number = interfaces.receive.insert(Interface { context, key }).unwrap();
        let flow = |port: u16| MatchHeaders {
            ip_version: 4,
            protocol: 6,
            tcp_source: port,
            source_ip: [9; 16],
            ..Default::default()
        };
        let mut used = BTreeSet::new();
        for port in 1000..1100 {
            let (queue, hash) = interfaces.select(number, &flow(port)).unwrap();
            assert_eq!(interfaces.select(number, &flow(port)), Some((queue, hash)));
            assert_ne!(hash.covered, 0);
            used.insert(queue);
        }
        assert_eq!(used, (100..104).collect());
        // A frame without the interface's headers goes to the first queue.
        let other = MatchHeaders { ip_version: 6, ..flow(1) };
        assert_eq!(interfaces.select(number, &other), Some((100, Hash::default())));
    }

    #[test]
    fn ethernet_interface_without_its_table_selects_nothing() {
        let mut interfaces = Interfaces::new(4);
        let key = [0; HASH_KEY_LEN];
        let context = ReceiveInterface { dispatch: 1, table: 5, ..Default::default() };
        let number = interfaces.receive.insert(Interface { context, key }).unwrap();
        assert_eq!(interfaces.select(number, &MatchHeaders::default()), None);
        assert_eq!(interfaces.select(99, &MatchHeaders::default()), None);
        let context = ReceiveInterface { receive_queue: 12, ..Default::default() };
        let number = interfaces.receive.insert(Interface { context, key }).unwrap();
        assert_eq!(
            interfaces.select(number, &MatchHeaders::default()),
            Some((12, Hash::default()))
        );
    }
}
