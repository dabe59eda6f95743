//! The engine with queues in private memory and guests in memory files.

mod atomic;
mod connected;
mod datagram;
mod faults;
mod flush;
mod hostile;
mod lifecycle;
mod observe;
mod policy;
mod random;
mod region;
mod registration;
mod session;
mod states;
mod testing;
mod waiting;
mod xrc;
