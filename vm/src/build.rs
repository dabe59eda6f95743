//! Programs of this workspace that a run needs, built when asked for.

use crate::error::{Error, Result};
use crate::{place, process};
use std::path::PathBuf;
use std::process::Command;

/// The one target whose static C library every Debian with a C compiler has.
const STATIC_TARGET: &str = "x86_64-unknown-linux-gnu";

fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(place::workspace());
    // What a surrounding `cargo test` set for itself must not change this build.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        command.env_remove(name);
    }
    command
}

/// Builds the guest's `/init` as a static program and returns its path.
///
/// # Errors
/// When the build fails, with the end of what it said.
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

/// The daemon and the operator's tool: those in the folder that
/// `CAUSEWAY_BIN_DIR` names, or a release build of this workspace.
///
/// # Errors
/// When they are not there, or the build fails.
pub fn daemon() -> Result<(PathBuf, PathBuf)> {
    let dir = match std::env::var_os("CAUSEWAY_BIN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => {
            let _lock = place::lock("daemon")?;
            process::output(cargo().args([
                "build",
                "--release",
                "-q",
                "-p",
                "causeway-daemon",
                "-p",
                "causeway-cli",
            ]))?;
            place::target().join("release")
        }
    };
    let (daemon, cli) = (dir.join("causewayd"), dir.join("causeway"));
    for program in [&daemon, &cli] {
        if !program.is_file() {
            return Err(Error::Missing {
                what: format!("there is no {}", program.display()),
                remedy: "build it, or set CAUSEWAY_BIN_DIR to the folder that holds it".into(),
            });
        }
    }
    Ok((daemon, cli))
}
