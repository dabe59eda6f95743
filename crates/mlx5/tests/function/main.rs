//! A driver against the function: commands and queues in the memory of a guest.

mod completion;
mod connection;
mod cost;
mod datagram;
mod driver;
mod events;
mod faults;
mod hostile;
mod rate;
mod registration;
mod shared;
mod start;
mod xrc;
