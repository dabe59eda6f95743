//! Sets the name and the symbol versions of the library.
//!
//! The compiler passes its own version script to the linker, and linkers do not accept it together
//! with a script with versions. A wrapper of the linker therefore removes the compiler's script.
//! The C compiler that drives the link finds the wrapper in the directory of `-B`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const NAME: &str = "libmyriexpress.so";
/// Library name in programs that were linked against Open-MX.
const ALIAS: &str = "libopen-mx.so.0";

const LINKER: &str = r#"#!/bin/sh
# The linker without the compiler's version script.
set -f
skip=
n=$#
while [ "$n" -gt 0 ]; do
    n=$((n - 1))
    arg=$1
    shift
    if [ -n "$skip" ]; then
        skip=
        continue
    fi
    case $arg in
    --version-script=*/list | --version-script=list) continue ;;
    --version-script) skip=1; continue ;;
    esac
    set -- "$@" "$arg"
done
exec ld.bfd "$@"
"#;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=myriexpress.map");
    let get = |name| std::env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let (out, here) = (get("OUT_DIR"), get("CARGO_MANIFEST_DIR"));
    let linker = out.join("ld.bfd");
    std::fs::write(&linker, LINKER)?;
    std::fs::set_permissions(&linker, std::fs::Permissions::from_mode(0o755))?;
    for arg in [
        format!("-B{}", out.display()),
        "-fuse-ld=bfd".to_owned(),
        format!("-Wl,-soname,{NAME}"),
        "-Wl,--exclude-libs,ALL".to_owned(),
        // The library installs a fault handler and must not be unloaded.
        "-Wl,-z,nodelete".to_owned(),
        format!("-Wl,--version-script={}", here.join("myriexpress.map").display()),
    ] {
        println!("cargo::rustc-cdylib-link-arg={arg}");
    }
    // OUT_DIR is target/profile/build/package/out.
    if let Some(profile) = out.ancestors().nth(3) {
        alias(profile)?;
    }
    Ok(())
}

/// Creates the alias beside the library.
fn alias(profile: &Path) -> std::io::Result<()> {
    let link = profile.join(ALIAS);
    match std::os::unix::fs::symlink(NAME, link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
