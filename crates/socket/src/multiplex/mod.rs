//! Reliable channels between two daemons, over datagrams: the protocol engine of sockets between
//! hosts. Sans-I/O: bytes, time and randomness are arguments, datagrams and events are values.
//!
//! A [`PeerSession`] joins the socket shards of a group on two hosts. Each connection has a
//! *channel*, a sequence of messages in each direction ([`causeway_wire::multiplex`]). Bytes of a
//! channel arrive in order and once; channels do not wait for each other, because packets are
//! numbered for the session and bytes for the channel, as in QUIC (RFC 9000): what a lost packet
//! carried is sent again in a new packet, and only its channels wait for it. Loss is detected by
//! selective acknowledgements and probes (RFC 9002, `loss`); a window bounds the bytes in flight
//! (`congestion`).
//!
//! The engine does not limit the bytes of a channel that wait to be sent: the credit of the
//! receiving guest does, which the messages carry from end to end, and the caller stops guests by
//! [`PeerSession::queued_by`]. The receiving side keeps at most `HELD_BYTES_MAX` (8 MiB) behind
//! gaps and a message of 4 KiB per channel. A session ends with all its channels
//! ([`PeerEvent::Down`]) if the peer breaks the protocol, acknowledges nothing of the bytes in
//! flight for 10 s or begins a new session, and if the caller ends it ([`PeerSession::restart`]);
//! then a new session is agreed.
//!
//! # Agreement
//! Each side has a random *tag*, and a new one for each session; a hello carries it, with the tag of
//! the other side if known. The pair names the session, so packets of an earlier session are
//! ignored, and a daemon that restarts is recognized by its new tag. Hellos are repeated until they
//! are answered; a peer without this protocol ignores them.
//!
//! Authenticity and replay protection of datagrams are those of the link. `socket::remote` calls
//! the engine in the thread of the shard.
//!
//! | module | content |
//! |---|---|
//! | `session` | agreement, packets, acknowledgements, channels; `receive` and `transmit` have the two directions |
//! | `event` | events, received messages, refusals |
//! | `loss` | packets in flight, loss, probes |
//! | `outgoing` | bytes of a channel to the peer |
//! | `byte_ring` | memory of these bytes |
//! | `incoming` | bytes of a channel from the peer |
//! | `congestion` | round-trip time and window |
//! | `ranges` | sets of numbers |

mod byte_ring;
mod congestion;
mod event;
mod incoming;
mod loss;
mod outgoing;
mod ranges;
mod session;

pub use event::{DownReason, MessageBytes, PacketRefusal, PeerEvent, Received};
pub use session::{DISOWNED, PeerSession, SessionView};
