//! vhost-user: the messages ([`message`]), the connection that carries them ([`stream`]), the
//! backend ([`server`]), and its errors ([`fault`]).
//!
//! The specification is QEMU's `docs/interop/vhost-user.rst`; [`codes`] has its numbers. The module
//! serves the control path of a port: its messages configure rings and memory. The dispatcher
//! drives the backend; [`crate::native`] uses messages and connection for the frontend's side, and
//! the relays of `causeway-holder` for both sides.
//!
//! No frame or packet passes through the module. It sends no backend requests, and does not
//! implement postcopy, IOTLB or in-band notifications; a frontend that uses a request that was not
//! negotiated loses its attachment.

pub mod codes;
pub mod fault;
pub mod message;
pub mod server;
pub mod stream;

pub use codes::{FrontendReq, VhostUserProtocolFeatures};
