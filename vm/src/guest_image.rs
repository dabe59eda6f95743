//! `causeway-guest-image`: prints the boot image and the engine of guests as assignments for a
//! shell.
//!
//! `examples/guests.sh`, `examples/ssh/run` and `scripts/package-guest.sh` evaluate the output:
//! `kernel`, `release`, `initramfs`, `qemu` and `accel`, each quoted for a POSIX shell. The first
//! run downloads the kernel, builds the agent and the initramfs, and tries KVM once, which takes
//! minutes. An error is printed to standard error, with exit status 1 and without assignments. QEMU
//! and cargo are required. The cache (`place`) keeps kernel and initramfs. No guest is left
//! running.

use causeway_vm::machine::Engine;
use causeway_vm::{Error, Machine, Result};
use std::process::ExitCode;

fn main() -> ExitCode {
    match assignments() {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("causeway-guest-image: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns a line `name='value'` for each value.
fn assignments() -> Result<String> {
    let Machine { engine, image } = Machine::qemu()?;
    let Engine::Qemu(qemu, accel) = engine else {
        return Err(Error::Missing {
            what: "the engine of the guests is not QEMU".into(),
            remedy: "install the package qemu-system-x86".into(),
        });
    };
    let values = [
        ("kernel", image.kernel.image.display().to_string()),
        ("release", image.kernel.release),
        ("initramfs", image.initramfs.display().to_string()),
        ("qemu", qemu.program.display().to_string()),
        ("accel", accel.option().to_owned()),
    ];
    let line = |(name, value): (&str, String)| format!("{name}={}\n", quoted(&value));
    Ok(values.map(line).concat())
}

/// Quotes a value for a POSIX shell.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[test]
fn quoted_values_stay_one_word() {
    assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
}
