//! The C objects of the provider: fabrics, event queues and domains, and the objects of a domain:
//! endpoints, completion queues, counters, address vectors and memory regions. The functions convert
//! arguments, take the domain's lock and call `rdm`; they keep no protocol state of their own.
//! Completions return through the queues and counters in `domain`.
//!
//! # Limits
//! Pointers are checked for NULL where the interface allows NULL; otherwise the application must
//! pass valid objects, as libfabric requires. A domain with open objects, and a queue, counter or
//! vector that an endpoint is bound to, refuse to close with `FI_EBUSY`; endpoints and memory
//! regions close at any time. No other thread may use an object that is being closed, or wait on
//! it. Functions of the interface that the provider does not support return `-FI_ENOSYS`, or 0 or
//! NULL if their result is no error number. All objects of a domain share one lock, so calls of
//! several threads take turns; a call that sleeps or waits for a close releases it meanwhile, and
//! the first operation to a peer does not while it waits for the connect (at most 2 ms).
//!
//! # Place
//! libfabric's inline functions call the tables of functions that each module fills. `provider`
//! names [`fabric::open`] only; `fabric` opens domains and event queues, `domain` the other objects.
//! Below the functions are the objects that they share: `fabric_object`, `domain_object`,
//! `endpoint_object` and `object`.

mod arguments;
mod atomic;
mod av;
mod cntr;
mod cq;
mod domain;
mod domain_object;
mod endpoint;
mod endpoint_object;
mod eq;
pub mod fabric;
mod fabric_object;
mod mr;
mod msg;
mod object;
mod rma;
mod tagged;
mod wait_object;
