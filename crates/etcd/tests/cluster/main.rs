//! Daemons, `causeway-directory` and etcd as real processes on loopback.

mod hostile;
mod hosts;
mod join;
mod keys;
mod moves;
mod on_demand;
mod outage;
mod rights;
mod sockets;
mod tls;
