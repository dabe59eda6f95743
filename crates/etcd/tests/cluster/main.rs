//! Daemons, `causeway-directory` and etcd as real processes on loopback.

mod contention;
mod hostile;
mod hosts;
mod join;
mod members;
mod outage;
mod partition;
mod proxy;
mod rights;
mod tls;
mod tokens;
