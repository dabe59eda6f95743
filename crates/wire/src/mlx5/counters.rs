//! Formats of counters: of the virtual port (QUERY_VPORT_COUNTER) and of counter sets, which queue
//! pairs and Ethernet receive queues name (QUERY_Q_COUNTER).
//!
//! Guests send the inputs; the device (`mlx5::ethernet::command::counter`) answers. The module
//! counts nothing and checks lengths only. Of the virtual port the device fills all counters but
//! those of RDMA multicast and the bytes of errors, which stay 0; *RDMA* there means messages of
//! queue pairs, because no packet exists between two adapters of a host. Of a set it fills
//! [`QueueOutput::out_of_buffer`] alone, with the frames of Ethernet receive queues: messages of
//! queue pairs are not counted in sets. It ignores requests to clear (`clears`): drivers of a
//! virtual function compute differences. Counters wrap around at their width. The device runs in
//! the dispatcher's turn.

use super::field::{at, layout};

layout! {
    /// Packets and bytes of one kind.
    pub struct Traffic("traffic counter", 16) {
        /// Packets.
        packets: u64 = at(0x00, 0, 64),
        /// Bytes.
        bytes: u64 = at(0x08, 0, 64),
    }
}

layout! {
    /// The input of QUERY_VPORT_COUNTER.
    pub struct VportInput("QUERY_VPORT_COUNTER input", 0x20) {
        /// The counters return to zero.
        clears: bool = at(0x18, 0, 1),
    }
}

layout! {
    /// The output of QUERY_VPORT_COUNTER.
    pub struct VportOutput("QUERY_VPORT_COUNTER output", 0x210) {
        /// Received with an error.
        receive_errors: Traffic = at(0x10, 0, 128),
        /// Not sent because of an error.
        transmit_errors: Traffic = at(0x20, 0, 128),
        /// RDMA packets to this adapter.
        received_rdma: Traffic = at(0x30, 0, 128),
        /// RDMA packets to other adapters.
        transmitted_rdma: Traffic = at(0x40, 0, 128),
        /// RDMA packets to multicast groups, received.
        received_rdma_multicast: Traffic = at(0x50, 0, 128),
        /// RDMA packets to multicast groups, sent.
        transmitted_rdma_multicast: Traffic = at(0x60, 0, 128),
        /// Ethernet broadcasts, received.
        received_broadcast: Traffic = at(0x70, 0, 128),
        /// Ethernet broadcasts, sent.
        transmitted_broadcast: Traffic = at(0x80, 0, 128),
        /// Ethernet frames to this adapter.
        received_unicast: Traffic = at(0x90, 0, 128),
        /// Ethernet frames to other adapters.
        transmitted_unicast: Traffic = at(0xa0, 0, 128),
        /// Ethernet multicasts, received.
        received_multicast: Traffic = at(0xb0, 0, 128),
        /// Ethernet multicasts, sent.
        transmitted_multicast: Traffic = at(0xc0, 0, 128),
    }
}

layout! {
    /// The input of QUERY_Q_COUNTER.
    pub struct QueueInput("QUERY_Q_COUNTER input", 0x20) {
        /// The counters return to zero.
        clears: bool = at(0x18, 0, 1),
        /// Set.
        set: u8 = at(0x1f, 0, 8),
    }
}

layout! {
    /// The output of QUERY_Q_COUNTER.
    pub struct QueueOutput("QUERY_Q_COUNTER output", 0x100) {
        /// Received writes.
        write_requests: u32 = at(0x10, 0, 32),
        /// Received reads.
        read_requests: u32 = at(0x18, 0, 32),
        /// Received atomic operations.
        atomic_requests: u32 = at(0x20, 0, 32),
        /// Messages that found no receive work request.
        out_of_buffer: u32 = at(0x30, 0, 32),
        /// Packets out of sequence.
        out_of_sequence: u32 = at(0x38, 0, 32),
        /// Repeated requests.
        duplicate_requests: u32 = at(0x40, 0, 32),
        /// Time-outs of acknowledgements.
        ack_timeouts: u32 = at(0x60, 0, 32),
        /// Requests that failed because the receiver was not ready.
        rnr_retries_exceeded: u32 = at(0x70, 0, 32),
        /// Receives of messages that are too long.
        responder_length_errors: u32 = at(0x78, 0, 32),
        /// Requests that are too long.
        requester_length_errors: u32 = at(0x7c, 0, 32),
        /// Completions with an error, of receives.
        responder_completion_errors: u32 = at(0x90, 0, 32),
        /// Completions with an error, of requests.
        requester_completion_errors: u32 = at(0x94, 0, 32),
        /// Requests that the responder refused.
        requester_remote_invalid: u32 = at(0xa0, 0, 32),
        /// Refused requests of the peer.
        responder_remote_invalid: u32 = at(0xa4, 0, 32),
        /// Requests without sufficient rights.
        requester_remote_access: u32 = at(0xa8, 0, 32),
        /// Requests of the peer without sufficient rights.
        responder_remote_access: u32 = at(0xac, 0, 32),
        /// Requests that the peer did not answer.
        retries_exceeded: u32 = at(0xb4, 0, 32),
        /// Overruns of completion queues.
        completion_overflow: u32 = at(0xb8, 0, 32),
        /// Flushed receives.
        responder_flushed: u32 = at(0xbc, 0, 32),
        /// Flushed requests.
        requester_flushed: u32 = at(0xc0, 0, 32),
    }
}
