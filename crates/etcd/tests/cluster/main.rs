//! Daemons, `causeway-directory` and etcd as real processes on loopback.

mod hostile;
mod hosts;
mod join;
mod moves;
mod outage;
mod rights;
mod tls;
