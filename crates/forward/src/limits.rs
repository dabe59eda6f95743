//! Limits of this crate.
//!
//! Constants only, fixed at compile time. `relay` reads the numbers of forwards and connections and
//! the times of pauses and reports, `listener` the backlog, `dial` the times and the length of the
//! handshake, `pipe`, `connection` and `stdio` the sizes of buffers and turns. One thread of the
//! process `causeway forward` runs all of them, but for `stdio`, which has two. At each limit
//! clients or senders wait, or a connection fails; no byte of an open connection is dropped.

use std::time::Duration;

/// Most forwards of a process, 256. With more, `Relay::open` fails with `ForwardError::TooMany`,
/// and none is opened.
pub const FORWARDS_MAX: usize = causeway_model::limits::FORWARDS_MAX;
/// Most connections of a process, 1,024. While it has as many, its listeners accept no further
/// ones: clients wait in the kernel's queue.
pub const CONNECTIONS_MAX: usize = causeway_model::limits::FORWARD_CONNECTIONS_MAX as usize;
/// Connections that wait in the kernel's queue of a TCP listener; the queue of a Unix socket has
/// `net.core.somaxconn` (4,096 by default). A further client waits in connect(2), or gets EAGAIN
/// from a Unix socket if it does not block.
pub const BACKLOG: i32 = 128;
/// Most bytes of one direction of a connection that its receiver has not taken yet; the sender
/// waits.
pub const BUFFER_BYTES: usize = 64 * 1024;
/// Bytes that a connection moves in each direction before the next connection is served. The rest
/// waits for its next turn.
pub const TURN_BYTES: usize = 256 * 1024;
/// Time in which a target must accept a connection, and a host socket answer `CONNECT`; 10 s. Then
/// the connection fails, is closed and reported.
pub const DIAL_TIME: Duration = Duration::from_secs(10);
/// Interval of attempts while the queue of a Unix socket is full, and pause of a listener after
/// the process has no descriptor left; 50 ms.
pub const RETRY_TIME: Duration = Duration::from_millis(50);
/// Longest answer of a host socket, in bytes with its newline: `OK <port>`, or `ERR <reason>`. A
/// longer answer fails the connection as refused.
pub const ANSWER_BYTES_MAX: usize = 256;
/// Interval of reports about failed connections of a forward; failures in between are counted.
pub const REPORT_TIME: Duration = Duration::from_secs(1);
