//! The boot image of guests: the kernel, and an initramfs with the agent as `/init`.
//!
//! [`crate::machine`] prepares the image for each machine, in the calling process and under a lock
//! of the cache, so that tests that start together build it once; images with RDMA are those of
//! [`crate::rdma`]. Kernel and initramfs are kept in the cache; each call lets cargo bring the
//! agent up to date, and the initramfs is built again if the agent, busybox or the kernel is newer,
//! or the list of modules differs from that in the recipe beside it. The first call may download a
//! package and build the agent, which takes minutes; a part that is missing and cannot be had is an
//! error.

use crate::cpio::Archive;
use crate::error::{Error, Result};
use crate::kernel::{self, Kernel};
use crate::{RunDir, build, modules, place, process};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Kind of kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// The stock cloud kernel, for virtual machines.
    Cloud,
    /// The kernel built as a host program: user-mode Linux.
    UserMode,
}

/// A kernel and its initramfs, ready to boot.
#[derive(Debug, Clone)]
pub struct Image {
    /// The kernel.
    pub kernel: Kernel,
    /// The initramfs, uncompressed.
    pub initramfs: PathBuf,
    /// Folder of an initramfs that is not in the cache.
    pub(crate) _folder: Option<Arc<RunDir>>,
}

impl Image {
    /// Returns the image of this workspace; fetches the kernel where it is missing, and builds the
    /// initramfs where it is missing, older than its parts, or of another list of modules.
    ///
    /// # Errors
    /// When a part cannot be fetched, built or written.
    pub fn prepare(flavour: Flavour) -> Result<Self> {
        let _lock = place::lock("image")?;
        let kernel = kernel::fetch(flavour)?;
        let tool = build::guest_tool()?;
        let busybox = busybox()?;
        let name = match flavour {
            Flavour::Cloud => "initramfs.cpio",
            Flavour::UserMode => "initramfs-uml.cpio",
        };
        let initramfs = place::cache()?.join(name);
        let recipe = format!("{:?}\n", modules::WANTED);
        renew(&initramfs, &recipe, &[&tool, &busybox, &kernel.image], || {
            assemble(&kernel, &tool, &busybox)
        })?;
        Ok(Self { kernel, initramfs, _folder: None })
    }

    /// Returns the image with more files, by absolute paths; their folders are made. The new
    /// initramfs lies in a run directory, which is removed with the last clone of the returned
    /// image.
    ///
    /// # Errors
    /// When the image cannot be read or written.
    pub fn with_files(&self, files: &[(&str, Vec<u8>)]) -> Result<Self> {
        let mut archive = Archive::default();
        let mut folders = BTreeSet::new();
        for (path, content) in files {
            let name = path.trim_start_matches('/');
            for (at, _) in name.match_indices('/') {
                let folder = name.get(..at).unwrap_or_default();
                if folders.insert(folder) {
                    archive.directory(folder);
                }
            }
            archive.file(name, content);
        }
        let folder = RunDir::new()?;
        let initramfs = folder.join("initramfs.cpio");
        let what = || format!("extend {}", self.initramfs.display());
        fs::copy(&self.initramfs, &initramfs).map_err(Error::io(what()))?;
        // The kernel unpacks one archive after the other.
        let mut end = File::options().append(true).open(&initramfs).map_err(Error::io(what()))?;
        end.write_all(&archive.finish()).map_err(Error::io(what()))?;
        Ok(Self { kernel: self.kernel.clone(), initramfs, _folder: Some(Arc::new(folder)) })
    }
}

/// Replaces `initramfs` by the bytes that `assemble` returns, if it is missing or older than any of
/// `parts`, or was made by another recipe: the list of its content, kept in a file beside it.
///
/// # Errors
/// That of `assemble`, and when a file cannot be written.
pub(crate) fn renew(
    initramfs: &Path,
    recipe: &str,
    parts: &[&Path],
    assemble: impl FnOnce() -> Result<Vec<u8>>,
) -> Result<()> {
    let recipe_file = initramfs.with_extension("recipe");
    let is_current = fs::read_to_string(&recipe_file).is_ok_and(|known| known == recipe);
    if is_current && !older(initramfs, parts) {
        return Ok(());
    }
    let bytes = assemble()?;
    let new = initramfs.with_extension("new");
    // Without the recipe an image of an interrupted call is never taken for current.
    remove(&recipe_file)
        .and_then(|()| fs::write(&new, bytes))
        .and_then(|()| fs::rename(&new, initramfs))
        .and_then(|()| fs::write(&recipe_file, recipe))
        .map_err(Error::io(format!("write {}", initramfs.display())))
}

/// Removes a file, if it exists.
fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Returns whether `made` is missing or older than any of `parts`.
fn older(made: &Path, parts: &[&Path]) -> bool {
    let time = |p: &Path| fs::metadata(p).and_then(|m| m.modified()).ok();
    let Some(made) = time(made) else { return true };
    parts.iter().any(|p| time(p).is_none_or(|t| t > made))
}

/// Returns the path of Debian's busybox-static, which differs between releases.
///
/// # Errors
/// When it is not installed.
pub fn busybox() -> Result<PathBuf> {
    ["/usr/bin/busybox", "/bin/busybox"]
        .into_iter()
        .map(PathBuf::from)
        .find(|p| is_static(p))
        .ok_or_else(|| Error::Missing {
            what: "there is no static busybox".into(),
            remedy: "run scripts/setup.sh demo, or install the package busybox-static".into(),
        })
}

/// Returns whether a program is static: it names no interpreter.
fn is_static(path: &Path) -> bool {
    let name = b"ld-linux-x86-64";
    fs::read(path).is_ok_and(|b| {
        let head = &b[..b.len().min(4096)];
        !head.windows(name.len()).any(|w| w == name)
    })
}

fn assemble(kernel: &Kernel, tool: &Path, busybox: &Path) -> Result<Vec<u8>> {
    let read = |path: &Path| fs::read(path).map_err(Error::io(format!("read {}", path.display())));
    let mut archive = Archive::default();
    for dir in ["bin", "dev", "etc", "lib", "lib/modules", "proc", "sys", "tmp"] {
        archive.directory(dir);
    }
    archive.device("dev/console", 5, 1);
    archive.file("init", &read(tool)?);
    archive.link("bin/causeway-guest", "/init");
    archive.file("bin/busybox", &read(busybox)?);
    for applet in process::output(Command::new(busybox).arg("--list"))?.lines() {
        if applet != "busybox" {
            archive.link(&format!("bin/{applet}"), "busybox");
        }
    }
    let mut list = String::new();
    for module in modules::resolve(&kernel.modules, &modules::WANTED)? {
        let path = format!("lib/modules/{}.ko", module.name);
        archive.file(&path, &module.content);
        list.push_str(&format!("/{path}\n"));
    }
    archive.file("etc/modules", list.as_bytes());
    Ok(archive.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn image_is_built_again_for_another_recipe_or_a_newer_part() {
        let dir = RunDir::new().unwrap();
        let (image, part) = (dir.join("initramfs.cpio"), dir.join("agent"));
        let age = |file: &Path, seconds: u64| {
            let time = SystemTime::now() - Duration::from_secs(seconds);
            File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
        };
        let mut count = 0_u8;
        let mut renewed = |recipe: &str| {
            let before = count;
            let assemble = || {
                count += 1;
                Ok(vec![count])
            };
            renew(&image, recipe, &[&part], assemble).unwrap();
            assert_eq!(fs::read(&image).unwrap(), [count], "{recipe}");
            count > before
        };
        fs::write(&part, "agent").unwrap();
        age(&part, 100);
        assert!(renewed("virtio"), "a missing image");
        assert!(!renewed("virtio"));
        assert!(renewed("virtio vsock"), "another recipe");
        assert!(renewed("virtio") && !renewed("virtio"), "the first recipe again");
        age(&image, 200);
        assert!(renewed("virtio"), "a newer part");
        fs::remove_file(image.with_extension("recipe")).unwrap();
        assert!(renewed("virtio"), "an image without a recipe");
    }
}
