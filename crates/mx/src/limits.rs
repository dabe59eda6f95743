//! Limits of the service: quotas of processes and users, and times.
//!
//! Every NIC, process and user has its quota here, so that a hostile process exhausts neither the
//! daemon nor other users. At a quota a request is answered with an error, unless the constant
//! states another effect; at a rate, a process is paused; a process that leaves 1,024 messages
//! unread is disconnected ([`causeway_attach::limits`]). Limits of the protocol are in
//! [`causeway_mxoe::limits`], those of regions in [`causeway_mxoe::driver::limits`]. Limits are not
//! configurable; times are in ns.
//!
//! `mx::service` applies the limits of processes, rates and turns, `mx::client` those of unread
//! messages, `mx::requests` and `mx::quotas` those of endpoints and regions, `mx::connects` those
//! of channels, `mx::sessions` and `mx::session_requests` those of guests, `mx::exchange` those
//! between NICs, and the modules of `mx::network` those of frames and addresses: all in causewayd,
//! in the turns of the dispatcher that serves the group.

use std::time::Duration;

/// Number of processes that are attached to a NIC. The daemon closes the socket of a further
/// process without an answer, counts the refusal and notes it at the port.
pub const CLIENTS_PER_NIC_MAX: usize = 256;
/// Number of processes of one user that are attached to a NIC: less than all, for other users. A
/// further process is refused as at [`CLIENTS_PER_NIC_MAX`].
pub const CLIENTS_PER_USER_MAX: usize = 224;
/// Number of messages to a process that its socket has not taken at which other processes cannot
/// connect to it: their connects end with `NoResources`.
pub const BACKLOG_MAX: usize = 256;
/// Number of messages to a process that its socket has not taken at which its requests are not
/// read: they wait in its socket until it reads.
pub const UNREAD_MAX: usize = 16;
/// Number of descriptors unread by the processes of a user at which connects to those of these
/// processes that have unread descriptors end with `NoResources`.
pub const UNREAD_DESCRIPTORS_OF_USER_MAX: usize = 8192;
/// Size of the send buffer of a process's socket in bytes: descriptors in flight occupy it too.
pub const UNREAD_BYTES: usize = 16 << 10;
/// Number of endpoints of a user on a NIC: less than all, for other users. A further open is
/// answered with `MX_NO_RESOURCES`.
pub const ENDPOINTS_PER_USER_MAX: usize = 224;
/// Number of channels from the processes of a user to an endpoint. A further connect ends with
/// `NoResources`.
pub const CHANNELS_OF_USER_MAX: usize = 896;
/// Number of channels from a process to an endpoint of another process. A further connect ends with
/// `NoResources`.
pub const CHANNELS_OF_CLIENT_MAX: usize = 64;
/// Number of channels of an endpoint. A further connect from or to it ends with `NoResources`.
pub const CHANNELS_PER_ENDPOINT_MAX: usize = 1024;
/// Number of requests of a process that are answered in a turn. Further requests wait for the next
/// turn.
pub const REQUESTS_PER_TURN_MAX: usize = 32;
/// Charge in ns to a process for a request that costs system calls (endpoints, channels, regions).
/// It limits the rate of such requests.
pub const WORK_NS: u64 = 1_000_000;
/// Charge in ns of the same request to the user of the process.
pub const WORK_OF_USER_NS: u64 = 125_000;
/// Burst of charges in ns that a process or a user may run up. Beyond it, the process is paused.
pub const WORK_AHEAD_NS: u64 = 1_024_000_000;
/// Minimum pause in ns of a process that exceeded its rate, or whose socket accepts no descriptors:
/// 10 ms.
pub const PAUSE_NS: u64 = 10_000_000;
/// Number of notices of the services that carry sessions of guests' processes, which are handled in
/// a turn. Further ones wait for the next turn.
pub const NOTICES_PER_TURN_MAX: usize = 64;
/// Number of such notices that wait when a process of a guest is refused a session. A session has
/// at most two notices under way.
pub const SESSION_NOTICES_MAX: usize = 16_384;
/// Number of runs of adjacent pages in which the rings of the endpoints of a guest's processes lie,
/// on a NIC, and at most half of the runs that other NICs leave of all: each is a mapping in the
/// daemon. Rings have 138 pages; those in adjacent memory of the guest, such as a huge page, take
/// no mapping. A further open is answered with `MX_NO_RESOURCES`.
pub const RUNS_PER_PORT_MAX: usize = 1024;
/// Estimated time of mapping a run of pages in ns.
pub const MIRROR_RUN_NS: u64 = 2_000;
/// Number of endpoints and regions that are closed in a turn after their guests took the memory
/// away. Further closes follow in the next turns, and so does the disconnection of their processes.
pub const CLOSES_PER_TURN_MAX: usize = 16;
/// Estimated time of such a close in ns.
pub const CLOSE_NS: u64 = 10_000;
/// Estimated time to store a range of an offered region, in nanoseconds.
pub const RANGE_NS: u64 = 40;
/// Time for which an endpoint has no room for an event before the operator is warned.
pub const UNREAD_EVENTS_WARNED: Duration = Duration::from_secs(2);
/// Endpoints without room that a warning names.
pub const UNREAD_ENDPOINTS_NAMED_MAX: usize = 8;
/// Endpoint number in a request for any free endpoint.
pub const ENDPOINT_ANY: u8 = 255;

/// Size of the socket buffer of an interface in each direction in bytes: 4 MiB.
pub const SOCKET_BYTES: usize = 4 << 20;
/// Time in ns for the processes of the previous daemon to resume their endpoints: 60 s. A computing
/// process resumes with its next call. Meanwhile their numbers are not assigned, and a packet to
/// such an endpoint is dropped without a refusal, so that its sender retransmits instead of giving
/// up. Afterwards the numbers are free and packets to them are refused (`network::survivors`).
pub const SERVED_AWAITED_NS: u64 = 60_000_000_000;
/// Time in ns after the creation of a NIC in which connects to unknown NICs wait for discovery: 1
/// s. Afterwards such a connect fails at once.
pub const DISCOVERY_NS: u64 = 1_000_000_000;
/// Interval in ns of attempts to bind an interface that is down: 1 s.
pub const REBIND_NS: u64 = 1_000_000_000;
/// Maximum number of bytes of the datagrams in one system call. Further datagrams take another
/// call.
pub const SEND_BYTES: usize = 65_000;
/// Number of batches to an address that are sent in single datagrams after the kernel failed to
/// segment a batch.
pub const SINGLE_BATCHES: u32 = 4_096;
/// Number of NICs behind one address in datagram mode. Frames of a further NIC from this address
/// are dropped (`network::address_table`).
pub const NICS_PER_ADDRESS_MAX: usize = 256;
/// Silence in ns after which a NIC may have moved to another address: 30 s.
pub const MOVED_NS: u64 = 30_000_000_000;
/// Time in ns that the previous address of a NIC has to answer: 1 s.
pub const MOVE_ANSWER_NS: u64 = 1_000_000_000;
/// Time in ns until an unanswered query of a moved NIC is repeated: 5 s.
pub const QUERY_NS: u64 = 5_000_000_000;
/// Number of regions of a process: each is a mapping in the daemon. At this and at the other limits
/// of regions, a further region is refused with an error, and the process stays attached.
pub const REGIONS_PER_CLIENT_MAX: usize = 512;
/// Number of endpoints of a user for which the daemon runs the NIC side, on all NICs of its group:
/// the NIC has a network (an interface or datagrams), or the endpoint sends through the daemon, and
/// it is not in direct mode. A further open is answered with `MX_NO_RESOURCES`. For each the daemon
/// keeps at most [`SEND_BYTES_MAX`](causeway_mxoe::limits::SEND_BYTES_MAX) and
/// [`PENDING_BYTES_MAX`](causeway_mxoe::limits::PENDING_BYTES_MAX) of messages, 7.5 GiB in total,
/// and 32 KiB for each remote NIC.
pub const ENDPOINTS_HELD_PER_USER_MAX: usize = 320;
/// Number of regions of a NIC. A further region is refused.
pub const REGIONS_PER_NIC_MAX: usize = 8192;
/// Number of regions of a user on all NICs of its group: less than all, for other users. A further
/// region is refused.
pub const REGIONS_PER_USER_MAX: usize = 6144;
/// Number of regions of all users on all NICs: less than half of the mappings of the daemon
/// (`causeway_memory::limits::MAPPINGS_MAX`, 60,000), which guests' memory needs too. The limit of
/// an endpoint (256) is `causeway_wire::mx::limits::REGIONS_MAX`. A further region is refused.
pub const REGIONS_MAX: usize = 28_672;
/// Length of all regions of a user on all NICs of its group in bytes: 64 GiB. A further region is
/// refused.
pub const REGION_BYTES_PER_USER_MAX: u64 = 64 << 30;
/// Interval in ns of checks whether surviving processes have ended: 250 ms. Peers that wait for
/// such a process learn its end within two seconds.
pub const SURVIVORS_CHECK_NS: u64 = 250_000_000;
/// Estimated time of a request of an endpoint in ns, for the budget of a turn: one to three sent
/// frames.
pub const REQUEST_NS: u64 = 5_000;
/// Estimated time of a received frame in ns, for the budget of a turn.
pub const FRAME_NS: u64 = 3_000;
/// Number of users whose wake-up accounts are kept after their processes ended. With so many
/// accounts, the next attaching process discards the accounts of all users without a process, whose
/// debts are then forgotten.
pub const USERS_MAX: usize = 4096;
/// Number of steps between the NICs of a group (`mxoe::local`) in a turn. Further steps wait for
/// the next turn of their NIC.
pub const LOCAL_STEPS_PER_TURN_MAX: usize = 64;
/// Number of bytes that are copied between the NICs of a group in a turn: 256 KiB, about 40 us. One
/// more step may exceed it. The rest waits for the next turn.
pub const LOCAL_BYTES_PER_TURN: u64 = 256 << 10;
/// Estimated time of a step without its copy in ns.
pub const LOCAL_STEP_NS: u64 = 200;
/// Estimated number of bytes that are copied in a microsecond.
pub const LOCAL_BYTES_PER_US: u64 = 6_000;
