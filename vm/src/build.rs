//! Programs of this workspace that a run needs, built on demand.
//!
//! Tests and demos call these functions before they start guests; each runs `cargo build --release`
//! as a child process and waits, which takes minutes for a first build and has no time limit. With
//! `CAUSEWAY_BIN_DIR` all programs and libraries but the guests' agent are taken from that folder
//! and not built. All packages are built together, so that cargo does not rebuild shared
//! dependencies. A failed build is an error with the end of cargo's output; nothing is installed.

use crate::error::{Error, Result};
use crate::{RunDir, place, process};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target whose static C library is part of every Debian C compiler.
const STATIC_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Prefixes of the variables that cargo sets for the package of a test.
const OF_PACKAGE: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];

fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(place::workspace());
    // Settings of a surrounding `cargo test` must not change this build.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        command.env_remove(name);
    }
    // Its package variables likewise: build scripts that depend on them would run again, with a
    // rebuild of all dependants.
    for (name, _) in std::env::vars_os() {
        let of_package = |name: &str| OF_PACKAGE.iter().any(|prefix| name.starts_with(prefix));
        if name.to_str().is_some_and(of_package) {
            command.env_remove(name);
        }
    }
    command
}

/// Packages built for guests and tests, always together, as in `make build`: for another selection
/// cargo would unify features differently and rebuild the shared dependencies.
const PACKAGES: [&str; 6] = [
    "causeway-daemon",
    "causeway-cli",
    "causeway-etcd",
    "causeway-vm",
    "causeway-myriexpress",
    "causeway-fi",
];

/// Builds the guest's `/init` as a static program and returns its path.
///
/// # Errors
/// When the build fails, with the end of its output.
pub fn guest_tool() -> Result<PathBuf> {
    let dir = place::cache()?.join("guest-build");
    process::output(
        cargo()
            .args(["build", "--release", "-q", "-p", "causeway-guest-tool"])
            .args(["--target", STATIC_TARGET])
            .arg("--target-dir")
            .arg(&dir)
            .env("RUSTFLAGS", "-C target-feature=+crt-static"),
    )?;
    Ok(dir.join(STATIC_TARGET).join("release/causeway-guest"))
}

/// Returns the daemon and the operator's tool: from the folder in `CAUSEWAY_BIN_DIR`, or from a
/// release build of this workspace.
///
/// # Errors
/// When a program is missing, or the build fails.
pub fn daemon() -> Result<(PathBuf, PathBuf)> {
    let [daemon, cli] = built(["causewayd", "causeway"])?;
    Ok((daemon, cli))
}

/// Returns the message benchmark, with the library beside it, from the daemon's folder.
///
/// # Errors
/// As [`daemon`].
pub fn message_tool() -> Result<PathBuf> {
    let files = ["causeway-mx", "libmyriexpress.so"];
    let [tool, _] = built(files)?;
    Ok(tool)
}

/// Returns the check of an adapter by `causeway-ibverbs`, from the daemon's folder.
///
/// # Errors
/// As [`daemon`].
pub fn adapter_check() -> Result<PathBuf> {
    let [program] = built(["causeway-adapter-check"])?;
    Ok(program)
}

/// Returns the content of a program or library without its symbols, for guests.
///
/// # Errors
/// When `strip` of binutils is missing or fails.
pub fn stripped(file: &Path) -> Result<Vec<u8>> {
    let dir = RunDir::new()?;
    let small = dir.join("stripped");
    process::output(process::tied("strip").arg("-o").arg(&small).arg(file))?;
    std::fs::read(&small).map_err(Error::io(format!("read {}", small.display())))
}

/// Returns the libfabric provider, under the name that libfabric searches for, from the daemon's
/// folder.
///
/// # Errors
/// As [`daemon`].
pub fn provider() -> Result<PathBuf> {
    let [provider] = built(["libcauseway-fi.so"])?;
    Ok(provider)
}

fn built<const N: usize>(files: [&str; N]) -> Result<[PathBuf; N]> {
    let dir = match std::env::var_os("CAUSEWAY_BIN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => {
            let _lock = place::lock("build")?;
            let packages = PACKAGES.iter().flat_map(|package| ["-p", package]);
            process::output(cargo().args(["build", "--release", "-q"]).args(packages))?;
            place::target().join("release")
        }
    };
    let files = files.map(|file| dir.join(file));
    match files.iter().find(|file| !file.is_file()) {
        Some(missing) => Err(Error::Missing {
            what: format!("there is no {}", missing.display()),
            remedy: "build it, or set CAUSEWAY_BIN_DIR to the folder that holds it".into(),
        }),
        None => Ok(files),
    }
}
