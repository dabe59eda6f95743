//! Daemons, `causeway-directory` and etcd as real processes on loopback.

mod hosts;
mod outage;
