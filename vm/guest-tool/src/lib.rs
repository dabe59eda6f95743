//! Traffic with checked content, and the agent that runs it inside a guest.
//!
//! The same code is the client and the server on both sides: in a guest (as
//! `/init`), and in the host process that plays the other end of a connection.

pub mod agent;
pub mod client;
pub mod flood;
pub mod hostile;
pub mod init;
pub mod limits;
pub mod pattern;
pub mod protocol;
pub mod report;
pub mod serve;
pub mod transport;
