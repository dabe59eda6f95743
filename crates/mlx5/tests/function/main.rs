//! A driver against the function: commands and queues in the memory of a guest.

mod capability;
mod completion;
mod connection;
mod cost;
mod datagram;
mod driver;
mod events;
mod faults;
mod hostile;
mod mechanisms;
mod quotas;
mod rate;
// The steps of a record exist in debug builds.
#[cfg(debug_assertions)]
mod record;
mod registration;
#[cfg(debug_assertions)]
mod restoration;
mod seen;
mod shared;
mod start;
mod table;
mod wakeup;
mod watch;
mod xrc;
