//! Gives the library the name by which libfabric looks for providers.

use std::path::{Path, PathBuf};

const NAME: &str = "libcauseway_provider.so";
/// Providers are called `*-fi.so`, which no Rust library can be.
const ALIAS: &str = "libcauseway-fi.so";

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{ALIAS}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    // It leaves a handler of faults behind.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    // OUT_DIR is target/profile/build/package/out.
    if let Some(profile) = out.ancestors().nth(3) {
        alias(profile)?;
    }
    Ok(())
}

/// The alias lies beside the library.
fn alias(profile: &Path) -> std::io::Result<()> {
    let link = profile.join(ALIAS);
    match std::os::unix::fs::symlink(NAME, link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
