//! Command line of `causeway doctor`.
//!
//! The name of the user is not checked here: a user that does not exist is a failed check of
//! `crate::doctor`. `commands::doctor` uses the value.

use clap::Args;

/// `causeway doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// User of QEMU, who must reach the sockets of ports [default: libvirt-qemu or qemu, or the
    /// caller]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
}
