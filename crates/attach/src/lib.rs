//! Attachments: how a frontend grants memory, rings and doorbells to a port.
//!
//! A guest's *frontend* (QEMU, user-mode Linux, DPDK, or a process that uses [`native`]) connects
//! to a port's Unix socket and grants memory, rings and doorbells by messages.
//!
//! # Place
//!
//! Fourth floor: above `memory`, `ring` and `host`, below `fabric` and the services. The dispatcher
//! owns one [`Connection`] for each attached port, polls it for messages, and passes its [`Event`]s
//! to the port's service; the service `mx` owns the [`local`] attachments of its ports. On the way
//! of a frame, the crate only provides the queues ([`VirtQueue`]) and the memory map; it moves no
//! payload.
//!
//! # Limits
//!
//! The crate knows no device type and no service. The daemon treats received bytes and descriptors
//! as hostile, and the native clients check the messages of their backend, too; only a process of a
//! [`local`] attachment trusts the daemon's descriptors. A broken rule ends one attachment and
//! affects no other, and the port accepts the next frontend. A [`Connection`] serves one frontend:
//! `fabric` closes the connection of a second frontend of the port at once. [`limits`] has the
//! bounds. More descriptors or bytes of a message than permitted end the attachment, and with
//! vhost-user more regions, too; vfio-user refuses further mappings with an errno. Messages of
//! vhost-user beyond those of a turn (64) wait for the next turn; a process that does not read
//! 1,024 messages is disconnected; a control thread that used its processor time up pauses for at
//! most 100 ms ([`allowance`]). Only a native port that was attached by path with a `reconnect`
//! time connects again by itself. No call of the dispatcher waits for a frontend, except a
//! notification that a hostile frontend blocks, until the watchdog ends it. The control threads of
//! [`vfio_user`] wait, and so do the calls of [`native`] that exchange requests or are named
//! `wait…`.
//!
//! # Main types
//!
//! - [`attachment`]: the backend's interface, the same for every protocol.
//! - [`vhost_user::server`]: vhost-user for one port. The accepted state is a [`Device`]: a memory
//!   map, and queues that each have a ring while they run.
//! - [`vfio_user`]: PCI devices over vfio-user, each frontend served by a thread of its own.
//! - [`local`]: messages and descriptors between a process and the daemon.
//! - [`native`]: the frontend and driver side, for processes without a VM.
//! - [`stream`]: framed messages with descriptors over a Unix stream socket, for vhost-user and
//!   vfio-user.
//! - [`doorbell`]: doorbells between two processes, for paths between processes of the host.
//! - [`allowance`]: processor time of the threads that answer frontends.
//! - [`limits`]: bounds of messages, descriptors, queues, costs and times.
//!
//! # Example
//!
//! A process sends one Ethernet frame through a port:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use causeway_attach::native::{NetOptions, NetPort};
//!
//! let path = Path::new("/run/causeway/ports/vm1.sock");
//! let mut port = NetPort::attach(path, NetOptions::default())?;
//! port.send(&[0xff; 60])?;
//! # Ok::<(), causeway_attach::native::NativeError>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

pub mod allowance;
pub mod attachment;
pub mod doorbell;
pub mod limits;
pub mod local;
pub mod native;
pub mod stream;
pub mod vfio_user;
pub mod vhost_user;

pub use attachment::{Attachment, AttachmentError, Connection, DoorbellSource, Event, FaultKind};
pub use vhost_user::fault::{Fault, Reason};
pub use vhost_user::server::{Device, Model, Server, VirtQueue};
