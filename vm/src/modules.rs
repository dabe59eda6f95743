//! Selection and load order of a guest's kernel modules.
//!
//! An unpacked package has no `modules.dep` (its installation would create it), but each module
//! lists its dependencies in its `.modinfo` section.
//!
//! [`crate::image`] and [`crate::rdma`] resolve the modules that go into an initramfs, in the order
//! in which the guest loads them. Compressed modules are uncompressed by child processes. A module
//! that is found nowhere counts as built into the kernel, without an error; a guest without it
//! fails later, if at all. Each call reads a module once, in the thread of the caller; a module
//! that cannot be read or uncompressed is an error.

use crate::error::{Error, Result};
use crate::process;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Modules used by guests without RDMA; their dependencies are added.
pub const WANTED: [&str; 4] =
    ["virtio_pci", "virtio_net", "vmw_vsock_virtio_transport", "vsock_loopback"];

/// One module, ready for the initramfs.
#[derive(Debug)]
pub struct Module {
    /// Its name, with `_` for `-`.
    pub name: String,
    /// The uncompressed module.
    pub content: Vec<u8>,
}

/// Reads `wanted` and all dependencies, each after its own dependencies. A module without a file is
/// assumed to be built in.
///
/// # Errors
/// When the folder or a module cannot be read, or a module cannot be uncompressed.
pub fn resolve(modules: &Path, wanted: &[&str]) -> Result<Vec<Module>> {
    let mut files = HashMap::new();
    index(modules, &mut files).map_err(Error::io(format!("read {}", modules.display())))?;
    let mut ordered = Vec::new();
    let mut seen = HashSet::new();
    for name in wanted {
        visit(name, &files, &mut seen, &mut ordered)?;
    }
    Ok(ordered)
}

fn visit(
    name: &str,
    files: &HashMap<String, PathBuf>,
    seen: &mut HashSet<String>,
    ordered: &mut Vec<Module>,
) -> Result<()> {
    if !seen.insert(name.into()) {
        return Ok(());
    }
    let Some(path) = files.get(name) else { return Ok(()) };
    let content = read(path)?;
    for needed in depends(&content) {
        visit(&needed, files, seen, ordered)?;
    }
    ordered.push(Module { name: name.into(), content });
    Ok(())
}

fn index(dir: &Path, files: &mut HashMap<String, PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            index(&entry.path(), files)?;
        } else if let Some((stem, _)) = entry.file_name().to_str().and_then(|n| n.split_once(".ko"))
        {
            files.insert(stem.replace('-', "_"), entry.path());
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let tool = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).map_err(Error::io(format!("read {}", path.display()))),
    };
    let done = Command::new(tool)
        .args(["-dc", "--"])
        .arg(path)
        .output()
        .map_err(Error::io(format!("run {tool}")))?;
    if done.status.success() && !done.stdout.is_empty() {
        return Ok(done.stdout);
    }
    // Run again for its error message.
    process::output(Command::new(tool).arg("-t").arg(path))?;
    Err(Error::Missing {
        what: format!("{} is empty after decompression", path.display()),
        remedy: "remove the kernel from the cache and fetch it again".into(),
    })
}

/// Returns the names after `depends=` in a module's `.modinfo`.
fn depends(content: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = content.windows(KEY.len()).position(|w| w == KEY) else {
        return Vec::new();
    };
    let value = content[at + KEY.len()..].split(|&b| b == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value);
    names.split(',').filter(|n| !n.is_empty()).map(|n| n.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rundir::RunDir;

    #[test]
    fn modules_load_after_their_dependencies() {
        let dir = RunDir::new().unwrap();
        fs::create_dir_all(dir.join("kernel/net")).unwrap();
        for (file, needs) in [
            ("kernel/net/virtio_net.ko", "virtio,net-failover"),
            ("kernel/virtio.ko", "virtio-ring,built_in"),
            ("kernel/virtio-ring.ko", ""),
            ("kernel/net-failover.ko", "virtio"),
        ] {
            let content = format!("ELF\0license=GPL\0depends={needs}\0name=x\0");
            fs::write(dir.join(file), content).unwrap();
        }
        let order = resolve(dir.path(), &["virtio_net", "virtio", "absent"]).unwrap();
        let names: Vec<&str> = order.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, ["virtio_ring", "virtio", "net_failover", "virtio_net"]);
    }
}
