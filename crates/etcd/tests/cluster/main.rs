//! Daemons, `causeway-directory` and etcd as real processes on loopback.

mod hostile;
mod hosts;
mod join;
mod keys;
mod outage;
mod rights;
mod tls;
