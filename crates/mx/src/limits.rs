//! Every bound of this crate, in one place.

/// Processes that are attached to one board.
pub const CLIENTS_PER_BOARD_MAX: usize = 256;
/// Of them, those of one user: some are left for others.
pub const CLIENTS_PER_USER_MAX: usize = 224;
/// Messages that a process leaves unread until others cannot connect to it.
pub const BACKLOG_MAX: usize = 256;
/// Messages that a process leaves unread until it is not listened to.
pub const UNREAD_MAX: usize = 16;
/// Descriptors that the processes of one user leave unread until others cannot connect to them.
pub const UNREAD_DESCRIPTORS_OF_USER_MAX: usize = 8192;
/// What the socket of a process holds beside, in bytes: descriptors too are under way in it.
pub const UNREAD_BYTES: usize = 16 << 10;
/// Endpoints of one user on one board: some are left for others.
pub const ENDPOINTS_PER_USER_MAX: usize = 224;
/// Ways from one user's processes to one endpoint.
pub const WAYS_OF_USER_MAX: usize = 896;
/// Ways from one process to one endpoint.
pub const WAYS_OF_CLIENT_MAX: usize = 64;
/// Ways of one endpoint.
pub const WAYS_PER_ENDPOINT_MAX: usize = 1024;
/// Questions of one process that are answered before others have their turn.
pub const ASKS_PER_TURN_MAX: usize = 32;
/// What a question that makes the host work (for an endpoint, a way, memory) is taken to cost a
/// process, and a user, in ns: so many in a second are answered at most.
pub const WORK_NS: u64 = 1_000_000;
/// See [`WORK_NS`].
pub const WORK_OF_USER_NS: u64 = 125_000;
/// How far ahead of what it may ask a process or a user is at most, in ns: that much at once.
pub const WORK_AHEAD_NS: u64 = 1_024_000_000;
/// Least time until a process that asked too much, or that could not be told something for want of
/// descriptors, has its turn again; 10 ms.
pub const REST_NS: u64 = 10_000_000;
/// Any endpoint that is free.
pub const ENDPOINT_ANY: u8 = 255;

/// What a socket of the interface holds in each direction, in bytes; 4 MiB.
pub const SOCKET_BYTES: usize = 4 << 20;
/// How long processes that a daemon before served may take to resume their endpoints: nothing is refused
/// in the name of these meanwhile. 60 s: a process that computes does so with its next call.
pub const SERVED_AWAITED_NS: u64 = 60_000_000_000;
/// Time between two looks whether an interface is there again; 1 s.
pub const AGAIN_NS: u64 = 1_000_000_000;
/// Most bytes of datagrams that are sent in one system call.
pub const SEND_BYTES: usize = 65_000;
/// Runs of datagrams to one address that leave one by one, where the kernel did not send them
/// together, before it is asked to again.
pub const ALONE_RUNS: u32 = 4_096;
/// Boards that are behind one address, where frames are carried in datagrams.
pub const BOARDS_PER_ADDRESS_MAX: usize = 256;
/// A board that was silent for so long may be behind another address; 30 s.
pub const MOVED_NS: u64 = 30_000_000_000;
/// How long the address where it was has to answer; 1 s.
pub const MOVES_NS: u64 = 1_000_000_000;
/// How long such a question stands until it is asked again; 5 s.
pub const ASKED_NS: u64 = 5_000_000_000;
/// Regions of one process: each is a mapping of the daemon's.
pub const REGIONS_PER_CLIENT_MAX: usize = 512;
/// Endpoints of one user that are on a network, on all boards of its group: of each the daemon keeps at most
/// [`SEND_BYTES_MAX`](causeway_mxoe::limits::SEND_BYTES_MAX) and
/// [`PARKED_BYTES_MAX`](causeway_mxoe::limits::PARKED_BYTES_MAX) of messages, so of all 7.5 GiB.
pub const ENDPOINTS_HELD_PER_USER_MAX: usize = 320;
/// Regions of one board.
pub const REGIONS_PER_BOARD_MAX: usize = 8192;
/// Regions of one user, on all boards of its group: some are left for others.
pub const REGIONS_PER_USER_MAX: usize = 6144;
/// Regions of all users on all boards: half of what the daemon maps.
pub const REGIONS_MAX: usize = 28_672;
/// All regions of one user, on all boards of its group, in bytes; 64 GiB.
pub const REGION_BYTES_PER_USER_MAX: u64 = 64 << 30;
/// Time between two looks whether processes that outlived a daemon ended; 250 ms: whoever waits for
/// one is told within two seconds.
pub const OUTLIVED_LOOK_NS: u64 = 250_000_000;
/// Estimated time of a request of an endpoint, in nanoseconds, by which turns are limited: one to three
/// frames that leave by the kernel.
pub const REQUEST_NS: u64 = 5_000;
/// Estimated time of a frame that came, in nanoseconds.
pub const FRAME_NS: u64 = 3_000;
/// Users whose accounts of wake-ups are kept after their processes are gone.
pub const USERS_MAX: usize = 4096;
