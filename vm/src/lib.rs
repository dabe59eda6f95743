//! Boots real Linux guests: a stock Debian kernel and a small initramfs, in QEMU or as user-mode
//! Linux.
//!
//! A [`Guest`] is a running guest that takes commands from the host. The kernel kills it when this
//! process ends in any way ([`process`]); a drop kills it and removes its files. Signals remove the
//! files too where [`rundir::clean_on_signals`] was called, and a later process removes the files
//! of a killed one ([`rundir`]). [`Machine`] is the engine and the boot image of guests, [`Daemon`]
//! runs `causewayd` for them, and [`Bridge`] is the reference path of comparisons.
//!
//! | module | content |
//! |---|---|
//! | [`guest`], [`spec`], [`control`], [`console`] | a running guest, its configuration, its commands, its last output |
//! | [`machine`], [`accel`], [`mod@qemu`], [`uml`], [`monitor`] | engines of guests: accelerators, QEMU, user-mode Linux, QMP |
//! | [`image`], [`kernel`], [`modules`], [`cpio`] | the boot image: kernel, modules, initramfs |
//! | [`daemon`], [`setup`], [`key`] | causewayd for guests, its configuration and keys |
//! | [`namespace`], [`bridge`] | network namespaces as hosts; the reference path |
//! | [`rundir`], [`process`], [`place`], [`build`] | directories, children, paths, programs built on demand |
//! | [`rdma`], [`traffic`] | guests with RDMA; exchanges of the demo and the tests |
//! | [`error`], [`limits`] | errors with the output of the failed component; shared limits |
//!
//! Calls block the calling thread. Waits for guests, daemons and commands in guests have time
//! limits; builds, downloads, other commands on the host and locks of the cache have none. Several
//! guests and daemons of one process or of several do not disturb each other, because each has a
//! directory of its own.
//!
//! The crate serves tests, the demo, the matrix and `causeway-guest-image`; no production program
//! depends on it.

pub mod accel;
pub mod bridge;
pub mod build;
pub mod console;
pub mod control;
pub mod cpio;
pub mod daemon;
pub mod error;
pub mod guest;
pub mod image;
pub mod kernel;
pub mod key;
pub mod limits;
pub mod machine;
pub mod modules;
pub mod monitor;
pub mod namespace;
pub mod place;
pub mod process;
pub mod qemu;
pub mod rdma;
pub mod rundir;
pub mod setup;
pub mod spec;
pub mod traffic;
pub mod uml;

pub use accel::Accelerator;
pub use bridge::Bridge;
pub use daemon::Daemon;
pub use error::{Error, Result};
pub use guest::Guest;
pub use image::Image;
pub use key::Key;
pub use machine::Machine;
pub use namespace::Namespace;
pub use qemu::Qemu;
pub use rundir::RunDir;
pub use spec::{GuestSpec, Nic, NicBackend};
