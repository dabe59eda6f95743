//! Queue pairs: the context of CREATE_QP and of the commands that change the state, and the path to
//! the peer (the queue pair at the other end).
//!
//! The buffer of a queue pair has the receive queue first and the send queue behind. The doorbell
//! record has two counters of 16 bits: posted receive work requests, and posted blocks of the send
//! queue.
//!
//! Guests write contexts; the device parses them (`mlx5::command::queue_pair` and
//! `modify_queue_pair`), checks the objects that they name, and emits them for QUERY_QP. This
//! module checks lengths only: not services, states, transitions or sizes. The device creates RC,
//! UC, XRC, UD, QP1 and UMR queue pairs and refuses the other services with *bad parameter*. It
//! applies of a path the destination's Ethernet address and GID and the acknowledgement time-out;
//! it has no alternate path, signatures, rate limits or congestion notification, and ignores fields
//! about them. Local identifiers of InfiniBand links are only described. The device runs in the
//! dispatcher's turn.

use super::field::{at, codes, layout};

/// Offset of the mask of optional parameters, in the input of commands that change the state and in
/// the output of QUERY_QP.
pub const OPTIONAL_MASK: usize = 0x10;
/// Offset of the context, in the input of CREATE_QP and of commands that change the state, and in
/// the output of QUERY_QP.
pub const CONTEXT: usize = 0x18;
/// Offset of the page list in the input of CREATE_QP.
pub const PAGES: usize = 0x110;
/// Length of a block of the send queue, in bytes.
pub const SEND_BLOCK: usize = 64;
/// Number of the queue pair that receives management datagrams (QP1), on the wire; CREATE_QP
/// returns another number.
pub const GSI_NUMBER: u32 = 1;
/// Number of a datagram's destination that is a multicast group.
pub const MULTICAST_NUMBER: u32 = 0xff_ffff;

codes! {
    /// Service of a queue pair.
    pub enum Service: u8 {
        /// Reliable connection.
        ReliableConnection = 0x0 "RC",
        /// Unreliable connection.
        UnreliableConnection = 0x1 "UC",
        /// Unreliable datagram.
        UnreliableDatagram = 0x2 "UD",
        /// Extended reliable connection.
        ExtendedReliableConnection = 0x3 "XRC",
        /// Initiator of dynamic connections.
        DynamicInitiator = 0x5 "DCI",
        /// Target of dynamic connections.
        DynamicTarget = 0x6 "DCT",
        /// Subnet management.
        SubnetManagement = 0x7 "QP0",
        /// General services: management datagrams.
        GeneralServices = 0x8 "QP1",
        /// Raw Ethernet.
        RawEthernet = 0x9 "raw Ethernet",
        /// Memory registration.
        Registration = 0xc "UMR",
    }
}

impl Service {
    /// Returns true if each send work request names its destination.
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::UnreliableDatagram | Self::SubnetManagement | Self::GeneralServices)
    }

    /// Returns true if the queue pair has a single peer.
    pub const fn is_connected(self) -> bool {
        use Service as S;
        matches!(
            self,
            S::ReliableConnection | S::UnreliableConnection | S::ExtendedReliableConnection
        )
    }
}

codes! {
    /// State of a queue pair.
    pub enum State: u8 {
        /// Created, or reset.
        Reset = 0 "reset",
        /// Receives may be posted.
        Init = 1 "init",
        /// Receives messages.
        ReadyToReceive = 2 "ready to receive",
        /// Sends and receives messages.
        ReadyToSend = 3 "ready to send",
        /// The send queue failed.
        SendQueueError = 4 "send queue error",
        /// The send queue is drained.
        SendQueueDrained = 5 "send queue drained",
        /// Both queues flush.
        Error = 6 "error",
        /// The send queue drains.
        SendQueueDraining = 7 "send queue draining",
    }
}

codes! {
    /// Receive queue of a queue pair.
    pub enum ReceiveQueueType: u8 {
        /// Its own.
        Own = 0 "own",
        /// A shared receive queue, by number.
        Shared = 1 "shared",
        /// A receive queue of cyclic entries, by number.
        Cyclic = 2 "cyclic",
        /// None.
        None = 3 "none",
    }
}

codes! {
    /// Largest payload of a packet.
    pub enum PathMtu: u8 {
        /// 256 bytes.
        Bytes256 = 1 "256",
        /// 512 bytes.
        Bytes512 = 2 "512",
        /// 1024 bytes.
        Bytes1024 = 3 "1024",
        /// 2048 bytes.
        Bytes2048 = 4 "2048",
        /// 4096 bytes.
        Bytes4096 = 5 "4096",
    }
}

impl PathMtu {
    /// Returns the length, in bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Bytes256 => 256,
            Self::Bytes512 => 512,
            Self::Bytes1024 => 1024,
            Self::Bytes2048 => 2048,
            Self::Bytes4096 => 4096,
        }
    }
}

/// Bits of the mask of optional parameters.
pub mod optional {
    /// Alternate path.
    pub const ALTERNATE_PATH: u32 = 1 << 0;
    /// Right of remote reads.
    pub const REMOTE_READ: u32 = 1 << 1;
    /// Right of remote atomic operations.
    pub const REMOTE_ATOMIC: u32 = 1 << 2;
    /// Right of remote writes.
    pub const REMOTE_WRITE: u32 = 1 << 3;
    /// Index of the partition key.
    pub const PARTITION_KEY: u32 = 1 << 4;
    /// Queue key.
    pub const QUEUE_KEY: u32 = 1 << 5;
    /// Timer of a receiver that is not ready.
    pub const RNR_TIMEOUT: u32 = 1 << 6;
    /// Primary path.
    pub const PRIMARY_PATH: u32 = 1 << 7;
    /// Outstanding reads and atomic operations of the requester.
    pub const REQUESTER_RESOURCES: u32 = 1 << 8;
    /// Outstanding reads and atomic operations of the responder.
    pub const RESPONDER_RESOURCES: u32 = 1 << 9;
    /// State of path migration.
    pub const MIGRATION_STATE: u32 = 1 << 10;
    /// Retries of the transport.
    pub const RETRY_COUNT: u32 = 1 << 12;
    /// Retries when the receiver is not ready.
    pub const RNR_RETRY: u32 = 1 << 13;
    /// Time-out of acknowledgements.
    pub const ACK_TIMEOUT: u32 = 1 << 14;
    /// Port.
    pub const PRIMARY_PORT: u32 = 1 << 16;
    /// Shared receive queue.
    pub const SHARED_RECEIVE_QUEUE: u32 = 1 << 18;
    /// Completion queue of receives.
    pub const RECEIVE_COMPLETION_QUEUE: u32 = 1 << 19;
    /// Set of counters.
    pub const COUNTER_SET: u32 = 1 << 25;
}

layout! {
    /// The path to the peer of a connected queue pair.
    pub struct AddressPath("address path", 0x2c) {
        /// Packets return to the sending function.
        is_forced_loopback: bool = at(0x00, 0, 1),
        /// Packets may take several ways (adaptive routing).
        is_free: bool = at(0x00, 1, 1),
        /// Index of the partition key.
        partition_key_index: u16 = at(0x02, 0, 16),
        /// Packets have a global route header; always set on Ethernet.
        has_grh: bool = at(0x05, 0, 1),
        /// Lower bits of the source's local identifier.
        lid_path_bits: u8 = at(0x05, 1, 7),
        /// Local identifier of the destination, on InfiniBand links.
        destination_lid: u16 = at(0x06, 0, 16),
        /// Time-out of acknowledgements: 4.096 us times 2 to this power; 0 never.
        ack_timeout: u8 = at(0x08, 0, 5),
        /// Index of the source in the GID table.
        source_gid_index: u8 = at(0x09, 0, 8),
        /// Rate limit, in the codes of InfiniBand.
        static_rate: u8 = at(0x0a, 4, 4),
        /// Hop limit.
        hop_limit: u8 = at(0x0b, 0, 8),
        /// Traffic class.
        traffic_class: u8 = at(0x0c, 4, 8),
        /// Flow label.
        flow_label: u32 = at(0x0d, 4, 20),
        /// GID of the destination.
        destination_gid: [u8; 16] = at(0x10, 0, 128),
        /// Explicit congestion notification.
        ecn: u8 = at(0x21, 0, 2),
        /// Differentiated services code point.
        dscp: u8 = at(0x21, 2, 6),
        /// Source UDP port (RoCE version 2).
        udp_source_port: u16 = at(0x22, 0, 16),
        /// Priority of the VLAN tag.
        ethernet_priority: u8 = at(0x24, 1, 3),
        /// Service level.
        service_level: u8 = at(0x24, 4, 4),
        /// Port, from 1.
        port: u8 = at(0x25, 0, 8),
        /// Ethernet address of the destination.
        destination_mac: [u8; 6] = at(0x26, 0, 48),
    }
}

layout! {
    /// Context of a queue pair.
    pub struct QueuePairContext("queue pair context", 0xe8) {
        /// Code of a [`State`]; valid in output only.
        state: u8 = at(0x00, 0, 4),
        /// Code of a [`Service`].
        service: u8 = at(0x01, 0, 8),
        /// State of path migration; 3 migrated.
        migration_state: u8 = at(0x02, 3, 2),
        /// Padding of messages to cache lines; 0 none.
        end_padding: u8 = at(0x03, 4, 2),
        /// Work queue entries have a signature.
        has_signature: bool = at(0x04, 0, 1),
        /// Multicast messages do not return to their sender.
        blocks_multicast_loopback: bool = at(0x04, 1, 1),
        /// Latency matters more than throughput.
        is_latency_sensitive: bool = at(0x04, 3, 1),
        /// Signature errors drain the queue.
        drains_signature_errors: bool = at(0x04, 5, 1),
        /// Protection domain.
        domain: u32 = at(0x05, 0, 24),
        /// Code of a [`PathMtu`].
        mtu: u8 = at(0x08, 0, 3),
        /// Binary logarithm of the largest message, in bytes.
        log_message_max: u8 = at(0x08, 3, 5),
        /// Binary logarithm of the number of entries of the receive queue.
        log_receive_size: u8 = at(0x09, 1, 4),
        /// Binary logarithm of the size of these entries, minus 4.
        log_receive_stride: u8 = at(0x09, 5, 3),
        /// There is no send queue.
        has_no_send_queue: bool = at(0x0a, 0, 1),
        /// Binary logarithm of the number of blocks of the send queue.
        log_send_size: u8 = at(0x0a, 1, 4),
        /// Format of time stamps.
        timestamp_format: u8 = at(0x0b, 0, 2),
        /// The reserved local key may be used.
        has_reserved_key: bool = at(0x0b, 3, 1),
        /// Special treatment of payloads (IPoIB); 0 none.
        stateless_offload: u8 = at(0x0b, 4, 4),
        /// Set of counters.
        counter_set: u8 = at(0x0c, 0, 8),
        /// Doorbell page.
        uar_page: u32 = at(0x0d, 0, 24),
        /// Number that completions carry.
        user_index: u32 = at(0x11, 0, 24),
        /// Binary logarithm of the page size, minus 12.
        log_page_size: u8 = at(0x14, 3, 5),
        /// Number of the peer.
        remote_number: u32 = at(0x15, 0, 24),
        /// Path to the peer.
        primary_path: AddressPath = at(0x18, 0, 352),
        /// Alternate path to the peer.
        secondary_path: AddressPath = at(0x44, 0, 352),
        /// Binary logarithm of the number of packets between requests for an acknowledgement.
        log_ack_frequency: u8 = at(0x70, 0, 4),
        /// Binary logarithm of the requester's outstanding reads and atomic operations.
        log_requester_resources: u8 = at(0x71, 0, 3),
        /// Retries of the transport.
        retry_count: u8 = at(0x71, 5, 3),
        /// Retries when the receiver is not ready; 7 without end.
        rnr_retry: u8 = at(0x72, 0, 3),
        /// Fast registration is permitted.
        has_fast_registration: bool = at(0x72, 4, 1),
        /// Sequence number of the next packet to send.
        next_send_psn: u32 = at(0x79, 0, 24),
        /// Completion queue of sends.
        send_completion_queue: u32 = at(0x7d, 0, 24),
        /// Queue pair number in the headers of datagrams; 0 its own.
        datagram_source: u32 = at(0x81, 0, 24),
        /// Sequence number of the last acknowledged packet.
        last_acked_psn: u32 = at(0x89, 0, 24),
        /// Send sequence number.
        send_sequence: u32 = at(0x8d, 0, 24),
        /// Binary logarithm of the responder's outstanding reads and atomic operations.
        log_responder_resources: u8 = at(0x91, 0, 3),
        /// Mode of atomic operations; 1 as InfiniBand has, 2 the device's own.
        atomic_mode: u8 = at(0x91, 4, 4),
        /// Remote reads are permitted.
        remote_read: bool = at(0x92, 0, 1),
        /// Remote writes are permitted.
        remote_write: bool = at(0x92, 1, 1),
        /// Remote atomic operations are permitted.
        remote_atomic: bool = at(0x92, 2, 1),
        /// Begin of the buffer in its first page, in 64ths of a page.
        page_offset: u8 = at(0x92, 4, 6),
        /// Cross-channel synchronisation of receives.
        is_receive_slave: bool = at(0x93, 5, 1),
        /// Cross-channel synchronisation of sends.
        is_send_slave: bool = at(0x93, 6, 1),
        /// Cross-channel synchronisation: master.
        is_master: bool = at(0x93, 7, 1),
        /// Timer that a receiver without a work request asks for, in the codes of InfiniBand.
        min_rnr_timer: u8 = at(0x94, 3, 5),
        /// Sequence number of the next packet to receive.
        next_receive_psn: u32 = at(0x95, 0, 24),
        /// XRC domain.
        xrc_domain: u32 = at(0x99, 0, 24),
        /// Completion queue of receives.
        receive_completion_queue: u32 = at(0x9d, 0, 24),
        /// Address of the [`DoorbellRecord`].
        doorbell_record: u64 = at(0xa0, 0, 64),
        /// Queue key.
        queue_key: u32 = at(0xa8, 0, 32),
        /// Code of a [`ReceiveQueueType`].
        receive_queue_type: u8 = at(0xac, 5, 3),
        /// Number of the shared receive queue.
        shared_receive_queue: u32 = at(0xad, 0, 24),
        /// Number of blocks that the device has taken from the send queue.
        device_send_counter: u16 = at(0xb4, 0, 16),
        /// Number of blocks that the driver has posted.
        driver_send_counter: u16 = at(0xb6, 0, 16),
        /// Number of entries that the device has taken from the receive queue.
        device_receive_counter: u32 = at(0xb8, 0, 32),
        /// Number of entries that the driver has posted.
        driver_receive_counter: u32 = at(0xbc, 0, 32),
    }
}

impl QueuePairContext {
    /// Returns the service, or `None` if the code is not known.
    pub const fn service(&self) -> Option<Service> {
        Service::from_raw(self.service)
    }

    /// Returns the receive queue's type, or `None` if the code is not known.
    pub const fn receive_queue_type(&self) -> Option<ReceiveQueueType> {
        ReceiveQueueType::from_raw(self.receive_queue_type)
    }

    /// Returns whether the queue pair is the receiving end of an extended reliable connection.
    /// Linux makes these, and only these, without a send queue.
    pub fn is_xrc_target(&self) -> bool {
        self.service() == Some(Service::ExtendedReliableConnection) && self.has_no_send_queue
    }

    /// Returns the size of an entry of the receive queue, in bytes: 16 to 2048.
    pub const fn receive_stride(&self) -> u32 {
        16_u32.wrapping_shl(self.log_receive_stride as u32 & 7)
    }

    /// Returns the number of entries of the queue pair's own receive queue.
    pub const fn receive_entries(&self) -> u32 {
        match self.receive_queue_type() {
            Some(ReceiveQueueType::Own) => 1_u32.wrapping_shl(self.log_receive_size as u32 & 15),
            _ => 0,
        }
    }

    /// Returns the number of blocks of the send queue.
    pub const fn send_blocks(&self) -> u32 {
        if self.has_no_send_queue {
            return 0;
        }
        1_u32.wrapping_shl(self.log_send_size as u32 & 15)
    }

    /// Returns the offset of the send queue in the buffer, in bytes: the receive queue's length.
    pub const fn send_offset(&self) -> u64 {
        (self.receive_entries() as u64).wrapping_mul(self.receive_stride() as u64)
    }

    /// Returns the length of both queues, in bytes.
    pub const fn buffer_len(&self) -> u64 {
        let send = (self.send_blocks() as u64).wrapping_mul(SEND_BLOCK as u64);
        self.send_offset().wrapping_add(send)
    }
}

layout! {
    /// The doorbell record of a queue pair, send queue or receive queue, in the driver's memory.
    pub struct DoorbellRecord("work queue doorbell record", 8) {
        /// Number of receive work requests that the driver has posted.
        receive: u16 = at(0x02, 0, 16),
        /// Number of blocks of the send queue that the driver has posted.
        send: u16 = at(0x06, 0, 16),
    }
}

/// Offset of the GID in the input of ATTACH_TO_MCG and DETACH_FROM_MCG; 16 bytes.
pub const MULTICAST_GID: usize = 0x10;
