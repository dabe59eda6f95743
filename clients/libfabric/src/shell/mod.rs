//! The C objects of a domain: endpoints, completion queues, counters, address vectors and memory
//! regions. The functions convert arguments, take the domain's lock and call `rdm`; they keep no
//! protocol state of their own. Completions return through the queues and counters in `state`.

mod atomic;
mod av;
mod cntr;
mod connect_thread;
mod cq;
pub mod domain;
mod endpoint;
mod mr;
mod msg;
mod object;
mod process;
mod progress_thread;
mod rma;
mod state;
mod tagged;
pub mod wait;
mod wait_fd;
