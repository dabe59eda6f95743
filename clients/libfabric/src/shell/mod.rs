//! The C side of what sends and receives.

mod atomic;
mod auto;
mod av;
mod cntr;
mod cq;
pub mod domain;
mod endpoint;
mod helper;
mod mr;
mod msg;
mod object;
mod process;
mod rma;
mod sleep;
mod state;
mod tagged;
pub mod wait;
