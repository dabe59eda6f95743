//! The boot image of RDMA guests: agent, busybox, the kernel's RDMA modules and Debian's programs.
//!
//! The archive has a merged /usr for packages of every suite: `bin`, `lib`, `lib64` and `sbin` are
//! links into `usr`.
//!
//! [`fetch`] runs `scripts/rdma-guest.sh`, which downloads missing parts into the cache, and
//! [`machine`] builds the image there, under a lock of the cache. The demo, the matrix and tests
//! call [`fetch`]; [`Pair`](super::Pair), [`Group`](super::Group), [`unplug`](super::unplug()) and
//! tests call [`machine`]. Only the first run of a suite, and the first with [`Programs::Mpi`],
//! needs the network. A part that cannot be fetched is an error with the script's reason and
//! remedy. The agent is built by cargo, and busybox is the host's. Nothing is installed on the
//! host.

use crate::accel::Accelerator;
use crate::cpio::Archive;
use crate::error::{Error, Result};
use crate::image::{Image, busybox, renew};
use crate::kernel::{self, Kernel};
use crate::machine::{Engine, Machine};
use crate::qemu::Qemu;
use crate::{build, modules, place, process};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Modules loaded at boot, with their dependencies. The agent serves AF_VSOCK.
const BOOT_MODULES: [&str; 5] = ["vsock_loopback", "mlx5_ib", "ib_uverbs", "rdma_ucm", "ib_umad"];
/// Modules loaded by [`RdmaGuest::load`](super::RdmaGuest::load), by the name of their set: loading
/// them at each boot would take a second.
pub(super) const MODULE_SETS: [(&str, &[&str]); 5] = [
    ("smc", &["smc", "smc_diag"]),
    ("nvme-host", &["nvme_rdma"]),
    ("nvme-target", &["nvmet_rdma", "loop"]),
    ("nfs-client", &["nfsv4", "rpcrdma"]),
    ("nfs-server", &["nfsd", "rpcrdma"]),
];
/// Links that packages make by `update-alternatives` when they are installed, with their targets,
/// which only some suites have: libfabric of Debian 12 needs PSM.
const ALTERNATIVES: [(&str, &str); 1] = [(
    "usr/lib/x86_64-linux-gnu/libpsm_infinipath.so.1",
    "usr/lib/libpsm1/libpsm_infinipath.so.1.16",
)];
/// Folders that are links into `usr`.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];
/// Remedy of a damaged cache.
const REMEDY: &str = "remove target/vm/rdma and run scripts/rdma-guest.sh";

/// The Debian suite of a guest's kernel and programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// Debian 12.
    Bookworm,
    /// Debian 13.
    Trixie,
    /// Debian 13 with the kernel of its backports.
    Backports,
}

impl Suite {
    /// All suites, by age.
    pub const ALL: [Self; 3] = [Self::Bookworm, Self::Trixie, Self::Backports];

    /// Returns the suite of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.as_str() == name)
    }

    /// Returns the name, as the script takes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
            Self::Backports => "backports",
        }
    }
}

/// Programs of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Programs {
    /// rdma-core, perftest and iproute2.
    Verbs,
    /// UCX, libfabric and Open MPI as well: 28 MB.
    Mpi,
}

impl Programs {
    /// Returns the folders of the programs, in a suite's folder.
    fn folders(self) -> &'static [&'static str] {
        match self {
            Self::Verbs => &["root"],
            Self::Mpi => &["root", "mpi"],
        }
    }

    /// Returns the name of the image and of its recipe.
    fn image(self) -> &'static str {
        match self {
            Self::Verbs => "initramfs",
            Self::Mpi => "initramfs-mpi",
        }
    }

    /// Returns the file that the script writes last.
    fn marker(self) -> &'static str {
        match self {
            Self::Verbs => "complete",
            Self::Mpi => "mpi-complete",
        }
    }
}

/// Fetches the parts of a suite's guests that are missing, by `scripts/rdma-guest.sh`.
///
/// # Errors
/// When a part is missing and cannot be fetched, with the reason and the remedy of the script.
pub fn fetch(suite: Suite, programs: Programs) -> Result<()> {
    let script = place::workspace().join("scripts/rdma-guest.sh");
    let mut command = Command::new(script);
    command.arg(cache()?).arg(suite.as_str());
    if programs == Programs::Mpi {
        command.arg("mpi");
    }
    process::output(&mut command).map(|_| ())
}

fn cache() -> Result<PathBuf> {
    Ok(place::cache()?.join("rdma"))
}

/// Returns the machine of guests of a suite after [`fetch`]; builds its image where that is missing
/// or older than its parts.
///
/// Guests run under emulation, or under KVM if `CAUSEWAY_ACCEL` is `kvm`, without a check of KVM.
///
/// # Errors
/// When a part is missing or cannot be built.
pub fn machine(suite: Suite, programs: Programs) -> Result<Machine> {
    let _lock = place::lock("rdma")?;
    let cache = cache()?;
    let qemu = Qemu::at(cache.join("qemu/run"), REMEDY)?;
    let accel = match std::env::var("CAUSEWAY_ACCEL").as_deref() {
        Ok("kvm") => Accelerator::Kvm,
        _ => Accelerator::Tcg,
    };
    let image = prepare(&cache.join(suite.as_str()), programs)?;
    Ok(Machine { engine: Engine::Qemu(qemu, accel), image })
}

/// Returns the image of the suite in `dir`, assembled again when it is older than a part.
fn prepare(dir: &Path, programs: Programs) -> Result<Image> {
    let kernel = kernel::find_cloud(&dir.join("kernel")).ok_or_else(|| Error::Missing {
        what: format!("{} contains no kernel with modules", dir.display()),
        remedy: REMEDY.into(),
    })?;
    let tool = build::guest_tool()?;
    let busybox = busybox()?;
    let initramfs = dir.join(programs.image()).with_extension("cpio");
    let recipe = format!("{BOOT_MODULES:?} {MODULE_SETS:?} {ALTERNATIVES:?}\n");
    renew(&initramfs, &recipe, &[&tool, &busybox, &dir.join(programs.marker())], || {
        let roots: Vec<_> = programs.folders().iter().map(|folder| dir.join(folder)).collect();
        assemble(&kernel, &roots, &tool, &busybox)
    })?;
    Ok(Image { kernel, initramfs, _folder: None })
}

fn assemble(kernel: &Kernel, roots: &[PathBuf], tool: &Path, busybox: &Path) -> Result<Vec<u8>> {
    let mut tree = Tree::default();
    for dir in ["dev", "etc", "proc", "run", "sys", "tmp", "usr"] {
        tree.directory(dir);
    }
    for dir in MERGED {
        tree.directory(&format!("usr/{dir}"));
        tree.archive.link(dir, &format!("usr/{dir}"));
    }
    tree.archive.device("dev/console", 5, 1);
    tree.archive.file("init", &read(tool)?);
    for root in roots {
        tree.copy(root, "")?;
    }
    tree.choose(&ALTERNATIVES);
    tree.archive.link("usr/bin/causeway-guest", "/init");
    tree.archive.file("usr/bin/busybox", &read(busybox)?);
    for applet in process::output(Command::new(busybox).arg("--list"))?.lines() {
        // Debian's program has precedence.
        if !tree.has_program(applet) {
            tree.archive.link(&format!("usr/bin/{applet}"), "busybox");
        }
    }
    tree.directory("usr/lib/modules");
    tree.modules(kernel, "modules", &BOOT_MODULES)?;
    for (set, names) in MODULE_SETS {
        tree.modules(kernel, &format!("modules-{set}"), names)?;
    }
    Ok(tree.archive.finish())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(Error::io(format!("read {}", path.display())))
}

/// An archive and the names in it.
#[derive(Default)]
struct Tree {
    archive: Archive,
    names: BTreeSet<String>,
}

impl Tree {
    fn directory(&mut self, name: &str) {
        if self.names.insert(name.into()) {
            self.archive.directory(name);
        }
    }

    fn has_program(&self, name: &str) -> bool {
        ["usr/bin", "usr/sbin"].iter().any(|dir| self.names.contains(&format!("{dir}/{name}")))
            || name == "busybox"
    }

    /// Adds the content of `dir` under `name`.
    fn copy(&mut self, dir: &Path, name: &str) -> Result<()> {
        let what = || format!("read {}", dir.display());
        for entry in fs::read_dir(dir).map_err(Error::io(what()))? {
            let entry = entry.map_err(Error::io(what()))?;
            let kind = entry.file_type().map_err(Error::io(what()))?;
            let file = entry.file_name();
            let Some(file) = file.to_str() else { continue };
            let name = match name {
                "" if MERGED.contains(&file) => format!("usr/{file}"),
                "" => file.into(),
                _ => format!("{name}/{file}"),
            };
            if kind.is_dir() {
                self.directory(&name);
                self.copy(&entry.path(), &name)?;
            } else if self.names.contains(&name) {
                // A file of an earlier folder has precedence.
            } else if kind.is_symlink() {
                let to = fs::read_link(entry.path()).map_err(Error::io(what()))?;
                self.archive.link(&name, &to.display().to_string());
                self.names.insert(name);
            } else {
                self.archive.file(&name, &read(&entry.path())?);
                self.names.insert(name);
            }
        }
        Ok(())
    }

    /// Adds the links of `alternatives` that lead to files of the tree, and that the tree lacks.
    fn choose(&mut self, alternatives: &[(&str, &str)]) {
        for (link, target) in alternatives {
            if self.names.contains(*target) && self.names.insert((*link).into()) {
                self.archive.link(link, &format!("/{target}"));
            }
        }
    }

    /// Adds modules with their dependencies, and the file `etc/LIST` with their load order.
    fn modules(&mut self, kernel: &Kernel, list: &str, wanted: &[&str]) -> Result<()> {
        let mut order = String::new();
        for module in modules::resolve(&kernel.modules, wanted)? {
            let path = format!("usr/lib/modules/{}.ko", module.name);
            if self.names.insert(path.clone()) {
                self.archive.file(&path, &module.content);
            }
            let _ = writeln!(order, "/{path}");
        }
        self.archive.file(&format!("etc/{list}"), order.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunDir;

    #[test]
    fn rdma_image_merges_usr_and_adds_each_name_once() {
        let dir = RunDir::new().unwrap();
        fs::create_dir_all(dir.join("lib/x86_64")).unwrap();
        fs::create_dir_all(dir.join("usr/lib/x86_64")).unwrap();
        fs::create_dir_all(dir.join("usr/bin")).unwrap();
        fs::write(dir.join("lib/x86_64/libc.so"), "c").unwrap();
        fs::write(dir.join("usr/lib/x86_64/libm.so"), "m").unwrap();
        fs::write(dir.join("usr/bin/ip"), "ip").unwrap();
        let mut tree = Tree::default();
        tree.directory("usr/lib");
        tree.copy(dir.path(), "").unwrap();
        for want in ["usr/lib/x86_64/libc.so", "usr/lib/x86_64/libm.so"] {
            assert!(tree.names.contains(want), "{want}");
        }
        assert!(tree.has_program("ip") && !tree.has_program("ping"));
        let bytes = tree.archive.finish();
        let entry = b"usr/lib/x86_64\0";
        assert_eq!(bytes.windows(entry.len()).filter(|w| w == entry).count(), 1);
    }

    #[test]
    fn rdma_image_links_an_alternative_whose_target_exists() {
        let dir = RunDir::new().unwrap();
        fs::create_dir_all(dir.join("usr/lib/psm")).unwrap();
        fs::write(dir.join("usr/lib/psm/libpsm.so.1.16"), "psm").unwrap();
        let mut tree = Tree::default();
        tree.copy(dir.path(), "").unwrap();
        let psm = ("usr/lib/libpsm.so.1", "usr/lib/psm/libpsm.so.1.16");
        tree.choose(&[psm, psm, ("usr/lib/libnone.so.1", "usr/lib/none/libnone.so.1")]);
        assert!(!tree.names.contains("usr/lib/libnone.so.1"));
        let bytes = tree.archive.finish();
        let target = b"/usr/lib/psm/libpsm.so.1.16";
        assert_eq!(bytes.windows(target.len()).filter(|w| w == target).count(), 1);
    }
}
