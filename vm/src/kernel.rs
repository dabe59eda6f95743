//! A stock Debian kernel: downloaded as a package, unpacked, never installed.
//!
//! [`crate::image`] fetches a kernel of each flavour once; the cache keeps it until the cache is
//! emptied, so that runs are repeatable. `apt-get download` and `dpkg-deb` run as child processes
//! and need no root. Without the network and without a cached kernel the fetch is an error. The
//! newest cloud kernel that the machine's apt knows is taken, or its package `user-mode-linux`; the
//! machine's own kernel is not used. [`crate::rdma`] has kernels of other suites from a script, and
//! only searches the unpacked package here.

use crate::error::{Error, Result};
use crate::image::Flavour;
use crate::{place, process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package that depends on the newest kernel.
const META_PACKAGE: &str = "linux-image-cloud-amd64";

/// The package of user-mode Linux.
const USER_MODE_PACKAGE: &str = "user-mode-linux";

/// An unpacked kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its release, as in `uname -r`.
    pub release: String,
    /// The bootable image; the program itself for user-mode Linux.
    pub image: PathBuf,
    /// The folder of its modules.
    pub modules: PathBuf,
}

/// Returns the kernel in the cache, after a download when there is none. The caller must hold a
/// lock of the cache.
///
/// # Errors
/// When the package cannot be found, downloaded or unpacked.
pub fn fetch(flavour: Flavour) -> Result<Kernel> {
    let (name, find): (_, fn(&Path) -> Option<Kernel>) = match flavour {
        Flavour::Cloud => ("kernel", find_cloud),
        Flavour::UserMode => ("kernel-uml", find_user_mode),
    };
    let dir = place::cache()?.join(name);
    if let Some(kernel) = find(&dir) {
        return Ok(kernel);
    }
    let new = place::cache()?.join(format!("{name}.new"));
    let _ = fs::remove_dir_all(&new);
    fs::create_dir_all(&new).map_err(Error::io(format!("create {}", new.display())))?;
    let package = match flavour {
        Flavour::Cloud => newest()?,
        Flavour::UserMode => USER_MODE_PACKAGE.into(),
    };
    process::output(Command::new("apt-get").args(["download", "-q", &package]).current_dir(&new))?;
    let archive = only_deb(&new)?;
    process::output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&new))?;
    let _ = fs::remove_file(archive);
    let _ = fs::remove_dir_all(&dir);
    fs::rename(&new, &dir).map_err(Error::io(format!("rename {}", new.display())))?;
    find(&dir).ok_or_else(|| Error::Missing {
        what: format!("{package} contains no kernel with modules"),
        remedy: format!("examine {}", dir.display()),
    })
}

/// Returns the versioned package that the meta-package depends on.
fn newest() -> Result<String> {
    let depends = process::output(Command::new("apt-cache").args(["depends", META_PACKAGE]))
        .unwrap_or_default();
    parse_depends(&depends).ok_or_else(|| Error::Missing {
        what: format!("apt knows no package {META_PACKAGE}"),
        remedy: "run `apt-get update` as root, on Debian 12 or later".into(),
    })
}

fn parse_depends(depends: &str) -> Option<String> {
    depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .map(str::trim)
        .find(|name| name.starts_with("linux-image-"))
        .map(String::from)
}

fn only_deb(dir: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(dir).map_err(Error::io(format!("read {}", dir.display())))?;
    entries
        .filter_map(|e| Some(e.ok()?.path()))
        .find(|p| p.extension().is_some_and(|x| x == "deb"))
        .ok_or_else(|| Error::Missing {
            what: format!("apt-get download left no package in {}", dir.display()),
            remedy: "check the network and apt's sources".into(),
        })
}

/// Returns the kernel of an unpacked package.
pub(crate) fn find_cloud(dir: &Path) -> Option<Kernel> {
    find_in_boot(dir).or_else(|| {
        // Packages of Linux 7 have the image among the modules.
        let modules = fs::read_dir(dir.join("usr/lib/modules")).ok()?.flatten().next()?.path();
        let release = modules.file_name()?.to_str()?.to_string();
        let image = modules.join("vmlinuz");
        image.is_file().then_some(Kernel { release, image, modules })
    })
}

fn find_in_boot(dir: &Path) -> Option<Kernel> {
    let boot = fs::read_dir(dir.join("boot")).ok()?;
    for entry in boot.flatten() {
        let name = entry.file_name();
        let Some(release) = name.to_str().and_then(|n| n.strip_prefix("vmlinuz-")) else {
            continue;
        };
        // With a merged /usr the modules are under usr/lib.
        for base in ["lib/modules", "usr/lib/modules"] {
            let modules = dir.join(base).join(release);
            if modules.is_dir() {
                return Some(Kernel { release: release.into(), image: entry.path(), modules });
            }
        }
    }
    None
}

fn find_user_mode(dir: &Path) -> Option<Kernel> {
    let image = dir.join("usr/bin/linux.uml");
    let modules = fs::read_dir(dir.join("usr/lib/uml/modules")).ok()?.flatten().next()?.path();
    let release = modules.file_name()?.to_str()?.to_string();
    image.is_file().then_some(Kernel { release, image, modules })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunDir;

    #[test]
    fn kernel_is_found_in_boot_and_among_its_modules() {
        for (image, modules) in [
            ("boot/vmlinuz-6.1", "lib/modules/6.1"),
            ("usr/lib/modules/7.3/vmlinuz", "usr/lib/modules/7.3"),
        ] {
            let dir = RunDir::new().unwrap();
            let image = dir.join(image);
            fs::create_dir_all(image.parent().unwrap()).unwrap();
            fs::create_dir_all(dir.join(modules)).unwrap();
            fs::write(&image, "").unwrap();
            let kernel = find_cloud(dir.path()).unwrap();
            assert_eq!((kernel.image, kernel.modules), (image, dir.join(modules)));
        }
    }

    #[test]
    fn kernel_selects_the_versioned_package() {
        let text = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
        assert_eq!(parse_depends(text).as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(parse_depends("x\n  Depends: other\n"), None);
    }
}
