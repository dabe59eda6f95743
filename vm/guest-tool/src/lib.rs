//! Traffic with checked content, and the program of test guests: `/init`, the agent that runs the
//! host's commands, and violations of device rules.
//!
//! Client and server of the traffic are the same code on both sides: in a guest (`causeway-guest`,
//! a link to `/init`), and in a host process at the other end of a connection. `vm`, its tests and
//! its demo use the crate as a library; no production program does.

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
