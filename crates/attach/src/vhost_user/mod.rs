//! vhost-user: the messages, the connection that carries them, and the backend's half.
//!
//! The specification is QEMU's `docs/interop/vhost-user.rst`; request codes and
//! flags come from the `vhost` crate.

pub mod fault;
pub mod message;
pub mod server;
pub mod stream;

pub use vhost::vhost_user::message::{
    FrontendReq, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
