//! Command line of `causeway doctor`.

use clap::Args;

/// `causeway doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// User of QEMU, who must reach the sockets of ports [default: libvirt-qemu or qemu, or the
    /// caller]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
}
