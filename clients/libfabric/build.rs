//! Links the library under the name that libfabric looks for.

use std::path::{Path, PathBuf};

const NAME: &str = "libcauseway_provider.so";
/// Provider names end with `-fi.so`, which Cargo cannot give a library.
const ALIAS: &str = "libcauseway-fi.so";

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{ALIAS}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    // The library installs a fault handler, so it must stay loaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    // OUT_DIR is target/profile/build/package/out.
    if let Some(profile) = out.ancestors().nth(3) {
        alias(profile)?;
    }
    Ok(())
}

/// Links the alias beside the library.
fn alias(profile: &Path) -> std::io::Result<()> {
    let link = profile.join(ALIAS);
    match std::os::unix::fs::symlink(NAME, link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
