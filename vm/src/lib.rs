//! Boots real Linux guests: a stock Debian kernel, a small initramfs, QEMU.
//!
//! A [`Guest`] is a running guest that takes commands from the host. It is killed and its files are
//! removed when it is dropped, when the process is interrupted ([`rundir::clean_on_signals`]), and
//! by the kernel when the process ends in any other way ([`process`]). [`Machine`] is the engine
//! and the boot image of guests, [`Daemon`] runs `causewayd` for them, and [`Bridge`] is the
//! reference path of comparisons.
//!
//! The crate serves tests and the demo; no production program depends on it.

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
