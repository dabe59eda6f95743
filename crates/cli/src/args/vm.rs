//! Arguments of `causeway vm`, and the options that select a VMM for `port show` and `vm show`.
//!
//! `--qemu[=VERSION]` and `--libvirt` are earlier forms of `--for`. A version, a size of the memory
//! and `--lines` have no meaning without a VMM and are refused. `crate::vmm` uses the values.

use causeway_model::Name;
use clap::{Args, Subcommand};

use crate::vmm::{MemorySize, QemuTarget, Vmm};

/// `causeway vm …`
#[derive(Debug, Subcommand)]
pub enum VmVerb {
    /// List the VMs with their ports
    #[command(after_help = "\
A port belongs to the VM that its key vm names. Without the key, the VM is the port's name without
-net, -eth, -vsock, -hca or -rdma and a number at its end: vm1-net and vm1-vsock belong to vm1.

Examples:
  causeway vm list
  causeway vm list -o json")]
    List,
    /// Show the ports of a VM, or the options that attach its guest to all of them
    #[command(after_help = "\
Options of the guest's memory appear once; --memory is its size. With --lines the output is an
argument a line, without quotes and notes (these go to stderr).

Examples:
  causeway vm show vm1
  causeway vm show vm1 --for qemu --memory 2G
  causeway vm show vm1 --for libvirt
  mapfile -t options < <(causeway vm show vm1 --for qemu --lines)
  qemu-system-x86_64 \"${options[@]}\" -nographic disk.img")]
    Show {
        /// Name of the VM, as `causeway vm list` prints it
        vm: Name,
        /// The VMM and the form of its options.
        #[command(flatten)]
        attach: AttachOptions,
    },
}

/// The VMM for which options are printed, and their form.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of a VMM")]
pub struct AttachOptions {
    /// Print the options that attach a guest of this VMM
    #[arg(long = "for", value_name = "VMM", value_enum, group = "target")]
    vmm: Option<Vmm>,
    /// Same as --for qemu --qemu-version VERSION
    #[arg(long, value_name = "VERSION", group = "target", num_args = 0..=1, require_equals = true,
          default_missing_value = "installed", conflicts_with = "qemu_version")]
    qemu: Option<QemuTarget>,
    /// Same as --for libvirt
    #[arg(long, group = "target")]
    libvirt: bool,
    /// Version of QEMU, as 7.2 [default: the version installed on this host]
    #[arg(long, value_name = "VERSION", requires = "target")]
    qemu_version: Option<QemuTarget>,
    /// Memory of the guest, as 2G or 512M [default: 1G, an example]
    #[arg(long, value_name = "SIZE", requires = "target")]
    pub memory: Option<MemorySize>,
    /// Print an argument a line, without quotes, for scripts
    #[arg(long, requires = "target", conflicts_with = "json")]
    pub lines: bool,
}

impl AttachOptions {
    /// Returns the VMM, or `None` if the command shows the port or VM itself.
    pub fn vmm(&self) -> Option<Vmm> {
        let qemu = self.qemu.map(|_| Vmm::Qemu);
        self.vmm.or(qemu).or(self.libvirt.then_some(Vmm::Libvirt))
    }

    /// Returns the version of QEMU.
    pub fn qemu_target(&self) -> QemuTarget {
        self.qemu_version.or(self.qemu).unwrap_or(QemuTarget::Installed)
    }
}
