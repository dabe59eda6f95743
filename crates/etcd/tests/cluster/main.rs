//! Daemons, `causeway-directory` and etcd as real processes on loopback.

mod contention;
mod hostile;
mod hosts;
mod join;
mod keys;
mod members;
mod moves;
mod on_demand;
mod outage;
mod partition;
mod policies;
mod proxy;
mod rights;
mod sockets;
mod tls;
mod tokens;
