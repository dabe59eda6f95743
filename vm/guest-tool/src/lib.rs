//! Traffic with checked content, and the agent that generates it inside a guest.
//!
//! Client and server are the same code on both sides: in a guest (as `/init`), and in a host
//! process at the other end of a connection.

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
pub mod shell;
pub mod transport;
