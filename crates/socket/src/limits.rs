//! Every limit of this crate.
//!
//! The modules apply them, in the dispatcher's thread, and state what happens at the limit: in
//! general a packet or connect is answered with a reset, or waits. Units are in the description or
//! the name: `_NS` nanoseconds, `_BYTES` bytes. The values are fixed at compile time. A limit *of a
//! port* counts one guest, *of a shard* the guests of a group.
//!
//! | constants | read by | at the limit |
//! |---|---|---|
//! | connections | `transmit`, `table`, `host` | the connect is answered with a reset |
//! | ended connections | `table` | the oldest is forgotten |
//! | resets that wait | `transmit`, `service`, `deliver` | the port's transmit ring stops until half of them were read |
//! | length of a packet, of a ring | `transmit`, `service` | the port of the guest is closed |
//! | staged and held data | `stall`, `pack`, `host_messages` | the sender's ring stops, a process's message waits in its socket; in a stopped queue, connections are reset |
//! | progress of receivers | `stall_tracker` | the connections to the receiver that stands still are reset |
//! | credit requests | `credit_requests`, `stall` | the next follows after a longer interval, or in the next turn |
//! | connects, lingering, data left | `expiry` | the connection is reset |
//! | handshakes of host processes | `host::listeners` | the process's stream is closed, or connections wait in the backlog |
//! | sockets between hosts | `multiplex`, `remote` | a connect is answered with a reset, a ring stops, datagrams are dropped and sent again, or the session with the peer ends |
//! | buffers of a turn, lists | `deliver`, `control` | the rest waits for the next turn |
//! | captures | `capture` | a further capture is refused |
//! | reports of the forwarder | `forwards` | a longer report is cut |

/// Connections of a port. A further connect is answered with a reset.
pub const CONNECTIONS_PER_PORT_MAX: usize = 16_384;
/// Connections of a shard. A further connect is answered with a reset.
pub const CONNECTIONS_MAX: usize = 262_144;
/// Ended connections of a shard whose addresses are remembered: late packets of an ended connection
/// may arrive while a new connection has the same addresses.
pub const ENDED_MAX: usize = 4096;
/// Resets queued for a port's receive buffers; then its transmit ring stops.
pub const RESETS_WAITING_MAX: usize = 256;
/// Data of a packet, in bytes; Linux sends at most as much, and vhost-vsock takes it. A longer
/// packet breaks the protocol: the sender's port is closed.
pub const PACKET_BYTES_MAX: u32 = 64 << 10;
/// Share of [`STAGED_BYTES_MAX`] that a pack of staged data uses besides its data, in bytes.
pub const STAGED_PACK_BYTES: usize = 256;
/// Share of [`STAGED_BYTES_MAX`] that each message in a pack uses, in bytes.
pub const STAGED_PIECE_BYTES: usize = 16;
/// Bytes of a pack: its memory is freed as a whole. Further data begins another pack.
pub const PACK_BYTES: usize = 64 << 10;
/// Staged bytes of a sender for receivers without room, besides the data in its descriptors.
/// Sixteen streams with the buffers of Linux (256 KiB) fit, whose receivers are all paused. Beyond
/// it, the transmit ring of the sender stops. Messages of processes to the guest count as well;
/// beyond it they wait in the socket of the process.
pub const STAGED_BYTES_MAX: usize = 4 << 20;
/// Accounting of Linux for a packet besides its bytes: `SKB_TRUESIZE(0)` on 64-bit machines.
pub const SKB_OVERHEAD_BYTES: u32 = 576;
/// Runs in which the unread packets of a connection are counted. With more, neighbours are merged.
pub const UNREAD_RUNS_MAX: usize = 64;
/// Interval of credit requests to a receiver that is held back; 1 ms. Linux before 6.7 sends no
/// credit update for a stream before three quarters of the buffer are read.
pub const CREDIT_REQUEST_SOON_NS: u64 = 1_000_000;
/// The interval after [`CREDIT_REQUESTS_SOON`] requests without progress; 100 ms.
pub const CREDIT_REQUEST_LATER_NS: u64 = 100_000_000;
/// Credit requests at the short interval.
pub const CREDIT_REQUESTS_SOON: u8 = 20;
/// Credit requests sent in a turn. The rest waits for the next turn.
pub const CREDIT_REQUESTS_PER_TURN: usize = 64;
/// Staged bytes of a sender whose transmit queue the frontend stops (as to pause the VM), so that
/// the data in its descriptors is copied too: twice the content of an ordinary ring of 128 packets.
/// Connections whose data exceeds it are reset.
pub const SAVED_BYTES_MAX: usize = 16 << 20;
/// Largest ring, in descriptors; bounds the memory of held chains. Linux and QEMU use 128. The port
/// of a guest with a larger ring is closed.
pub const RING_SIZE_MAX: u16 = causeway_model::port::VSOCK_RING_SIZE_MAX;
/// Divisor of a sender's transmit ring; the quotient is the number of chains held for one receiver.
/// Data beyond it is staged.
pub const HELD_PART_ONE: u16 = 4;
/// Divisor of a sender's transmit ring; the quotient is the number of chains held for all
/// receivers. Data beyond it is staged.
pub const HELD_PART_ALL: u16 = 2;
/// Interval at which a receiver is checked while a sender stands still for it; 100 ms.
pub const STALL_CHECK_NS: u64 = 100_000_000;
/// Time for which a sender stands still for a running receiver before the receiver must have made
/// progress; 1 s.
pub const STALL_WINDOW_NS: u64 = 1_000_000_000;
/// Bytes received in the window that count as progress.
pub const STALL_BYTES_MIN: u64 = 1 << 20;
/// Packets received in the window that count as progress: a guest with a tenth of a processor
/// receives hundreds.
pub const STALL_PACKETS_MIN: u64 = 64;
/// Packets consumed by applications in the window that count as progress, as far as credit shows
/// them.
pub const STALL_RETURNED_MIN: u64 = 8;
/// Time for which a sender stands still for a receiver that moves no index of any queue; 10 s. Its
/// VM may be paused, or wait for a processor.
pub const SILENT_NS_MAX: u64 = 10_000_000_000;
/// Time for which a connect may stay unanswered; 30 s, far above the limit of any guest (Linux: 2
/// s). Then the connection is reset.
pub const REQUEST_NS_MAX: u64 = 30_000_000_000;
/// Time for which a connection may stay open after both directions were shut down; 10 s. Linux
/// itself waits 8 s. Then the connection is reset.
pub const LINGER_NS_MAX: u64 = 10_000_000_000;
/// Time for which data of a departed guest may wait for a process that reads slowly; 5 min. Then
/// the connection is reset.
pub const DRAIN_NS_MAX: u64 = 300_000_000_000;
/// Receive buffer advertised to a guest on a connection with a host process, in bytes.
pub const HOST_BUFFER_BYTES: u32 = 256 << 10;
/// The same for messages, and the largest message between a guest and a process. It fits a Unix
/// socket of the default size, which is 208 KiB.
pub const HOST_MESSAGE_BYTES: u32 = 128 << 10;
/// Connections of a port with host processes; each uses two file descriptors. A further connect is
/// answered as at [`HOST_CONNECTIONS_MAX`].
pub const HOST_CONNECTIONS_PER_PORT_MAX: usize = 1024;
/// Connections of a shard with host processes; listeners and handshakes count as well. A further
/// connect of a guest is answered with a reset; a further process reads `ERR`.
pub const HOST_CONNECTIONS_MAX: usize = 16_384;
/// Host processes of a port that have connected and not yet sent `CONNECT <port>`. A further
/// process is closed at once and counted.
pub const HANDSHAKES_MAX: usize = 64;
/// Handshakes begun or refused before other work is done. Further processes wait in the backlog.
pub const HANDSHAKES_PER_TURN: usize = 4;
/// Host processes that a port's host socket accepts per second, and burst: each costs the
/// dispatcher some 20 to 50 us, which other ports lose.
pub const HOST_CONNECTS_PER_SECOND: u64 = 512;
/// Pause of a host socket that reached its rate limit; 100 ms. Connections wait in its backlog.
pub const HOST_LISTENER_PAUSE_NS: u64 = 100_000_000;
/// Time in which a host process must send its `CONNECT <port>` line; 5 s. Then the handshake ends.
pub const HANDSHAKE_NS_MAX: u64 = 5_000_000_000;
/// Longest `CONNECT <port>` line, in bytes. A longer line ends the handshake.
pub const HANDSHAKE_BYTES_MAX: usize = 32;
/// Cost of a connect to a host process in system calls: a socket, its path, its watch.
pub const CONNECT_CALLS: u64 = 5;
/// First source port of connections from host processes.
pub const HOST_PORT_FIRST: u32 = 1024;
/// Last source port: `OK <port>` with its newline has at most the nine bytes that systemd-ssh-proxy
/// reads.
pub const HOST_PORT_LAST: u32 = 65_535;
/// Receive buffers filled for a connection before the next connection is served.
pub const TURN_BUFFERS: usize = 16;
/// Most captures of one group at a time. A further capture is refused.
pub const CAPTURES_MAX: usize = 16;
/// Most connections that a list views between two turns.
pub const CONNECTIONS_VIEWED_AT_ONCE: usize = 16;
/// Most slots of the table that a list visits between two turns.
pub const SLOTS_VISITED_AT_ONCE: usize = 1024;
/// Time without a report after which the forwarder counts as ended; 5 s.
pub const FORWARDER_TIME: std::time::Duration = std::time::Duration::from_secs(5);
/// Most bytes of a forward's reason that a report may have; the rest is cut off.
pub const FORWARD_REASON_BYTES_MAX: usize = 512;
/// Most counters of a forward that a report may have; others are dropped.
pub const FORWARD_COUNTERS_MAX: usize = 16;
/// Connections that this daemon opens to a peer at a time; the peer may open as many, and is granted
/// twice as many for those that are just ending. A further connect is answered with a reset.
pub const CHANNELS_MAX: usize = 4096;
/// The same for one guest. A further connect is answered with a reset, and other guests still connect.
pub const CHANNELS_PER_OWNER_MAX: usize = CHANNELS_MAX / 4;
/// Bytes of a connection from a peer behind a gap, at most so far behind the last byte in order: four
/// buffers of Linux (256 KiB). A peer that sends more breaks the protocol.
pub const CHANNEL_WINDOW_BYTES: usize = 1 << 20;
/// Buffer that is advertised for a guest across a link, in bytes, at most: the data of a connection
/// that is under way stays below [`CHANNEL_WINDOW_BYTES`].
pub const REMOTE_BUFFER_BYTES: u32 = 512 << 10;
/// Data of a message between hosts, in bytes. Larger packets of a guest are cut.
pub const MESSAGE_DATA_BYTES: usize = 4096;
/// A message between hosts, in bytes. A peer that announces more, or less than
/// the 10 bytes of a message without data, breaks the protocol.
pub const MESSAGE_BYTES_MAX: usize = MESSAGE_DATA_BYTES + 10;
/// Bytes from a peer that wait behind gaps, or to be passed on, of all connections; 8 MiB. Packets
/// beyond it are dropped, and the peer sends them again.
pub const HELD_BYTES_MAX: usize = 8 << 20;
/// Messages of a peer, and pieces that held them, that pass on at once after a gap closed; the last
/// piece may exceed it. The others follow in the next ticks.
pub const HELD_MESSAGES_PER_TURN: usize = 1024;
/// Data of a guest for a peer that is not acknowledged, in bytes. With more, the transmit ring of the
/// guest stops until at most half of this is queued.
pub const PEER_QUEUED_BYTES_MAX: usize = 4 << 20;
/// Time for which a guest's transmit ring stops for a peer; 2 s, as 1 MiB/s of progress require. Then
/// the guest loses its connections with the peer.
pub const PEER_STOP_NS_MAX: u64 = 2_000_000_000;
/// Bytes for a peer that belong to lost connections, in bytes. With more, the session with the peer
/// ends.
pub const DISOWNED_BYTES_MAX: usize = 16 << 20;
/// Numbers of a peer's channels that were passed over and not used yet. Packets beyond it are dropped.
pub const UNOPENED_MAX: usize = 1024;
/// Memories of idle channels that a session keeps for the next ones.
pub const SPARES_MAX: usize = 2;
/// The largest of them; 1 MiB.
pub const SPARE_BYTES_MAX: usize = 1 << 20;
/// Time after which they are freed if no channel uses them; 1 s.
pub const SPARE_IDLE_NS: u64 = 1_000_000_000;
/// Ranges in an acknowledgement to a peer.
pub const ACK_RANGES_MAX: usize = 32;
/// Time after which a single packet of a peer is acknowledged; 1 ms. Two are acknowledged at once.
pub const ACK_DELAY_NS: u64 = 1_000_000;
/// Packets of a peer that may overtake a packet before it counts as lost.
pub const REORDERED_PACKETS: u64 = 8;
/// Bytes that may be under way to a peer at the beginning.
pub const WINDOW_BYTES_FIRST: usize = 128 << 10;
/// Bytes that may be under way to a peer.
pub const WINDOW_BYTES_MAX: usize = 16 << 20;
/// Least time without an acknowledgement after which packets are sent again; 10 ms.
pub const PROBE_NS_MIN: u64 = 10_000_000;
/// The most; 2 s.
pub const PROBE_NS_MAX: u64 = 2_000_000_000;
/// Time after which a peer that acknowledges nothing loses its connections; 10 s.
pub const PEER_SILENT_NS_MAX: u64 = 10_000_000_000;
/// Time after which a link that is down loses its connections; 10 s.
pub const LINK_DOWN_NS_MAX: u64 = 10_000_000_000;
/// First pause between two attempts to agree on a session with a peer; 250 ms.
pub const HELLO_NS_MIN: u64 = 250_000_000;
/// The longest; 10 s. A peer of an older version never answers.
pub const HELLO_NS_MAX: u64 = 10_000_000_000;
/// CIDs that a peer may claim in a group. Further claims are dropped and counted.
pub const PEER_CIDS_MAX: usize = 4096;
/// Messages of links that wait for a shard. Datagrams beyond it are dropped, and sent again.
pub const LINK_MESSAGES_MAX: usize = 256;
/// Links of a group that carry sockets. Further links carry none.
pub const SOCKET_LINKS_MAX: usize = 1024;
/// Pause before the next hello to a peer that did not answer until its link went dormant; 10 min. A
/// newly attached guest ends it.
pub const DORMANT_HELLO_NS: u64 = 600_000_000_000;
/// Reads from a process for a peer before others are served. The rest waits for the next tick.
pub const PROCESS_READS_PER_TURN: usize = 16;
/// Bytes that are read from a process for a peer before others are served; 64 KiB.
pub const PROCESS_BYTES_PER_TURN: usize = 64 << 10;
/// Datagrams to a peer in a turn. The rest waits for the next turn.
pub const DATAGRAMS_PER_TURN: usize = 256;
