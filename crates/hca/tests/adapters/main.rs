//! Ports of kind `hca` in a shard that the tests drive with a clock of their own. The guests attach
//! by the native vfio-user client, and run the driver of `causeway-mlx5-driver`.

mod capture;
mod doorbell;
mod idle;
mod record;
mod restart;
mod rig;
mod share;
mod trace;
