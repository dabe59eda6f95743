//! vhost-user: the messages, the connection that carries them, and the backend.
//!
//! The specification is QEMU's `docs/interop/vhost-user.rst`; request codes and flags come from the
//! `vhost` crate. The module serves the control path of a port: its messages configure rings and
//! memory. No frame or packet passes through it.

pub mod fault;
pub mod message;
pub mod server;
pub mod stream;

pub use vhost::vhost_user::message::{
    FrontendReq, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
