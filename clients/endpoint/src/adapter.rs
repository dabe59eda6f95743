//! The connection over an adapter of this machine, for a process in a guest: a *session*
//! ([`causeway_wire::session`]).
//!
//! [`session`] speaks the protocol and owns the rings, `link` is the queue pair below, with its
//! receives, its queue of commands and the doorbells, and `search` finds the adapters of the
//! machine. The process needs libibverbs and access to `/dev/infiniband`, and no driver or module
//! of its own.
//!
//! # Limits
//! One queue pair for each endpoint. At most 32 commands are in flight and 1,024 wait, as on a
//! socket; a further command ends the session. The daemon holds back its messages while 32 are not
//! taken. The rings of an endpoint take 2 MiB of registered memory, in huge pages where the guest
//! has them. Memory that the process granted stays registered until the daemon has refused it, or
//! has executed the end of the grant. A child of `fork(2)` has no part in a session; as long as it
//! lives and executes no other program, the adapter keeps the session of a parent that was killed.
//! Opening, each registration and its end block for commands of the adapter, and
//! [`Connection::finish`](crate::connection::Connection::finish) for about 1 s at most; nothing
//! else blocks. A session does not outlive the daemon:
//! [`Connection::again`](crate::connection::Connection::again) opens another queue pair.

mod link;
mod search;
pub mod session;

use std::sync::Arc;

use causeway_ibverbs::Registration;

pub(crate) use link::Link;
pub(crate) use search::find_active;

/// The rings of an endpoint in memory of this process, formatted by the daemon.
#[derive(Debug)]
pub struct AdapterRings {
    /// The registered memory.
    pub(crate) memory: Arc<Registration>,
    /// Queue pair by which the daemon is woken.
    pub(crate) link: Arc<Link>,
}
