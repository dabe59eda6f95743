//! Selects KVM where it can run a stock kernel, else emulation.
//!
//! The existence of /dev/kvm is not sufficient: on some hosts a stock kernel hangs or crashes under
//! KVM. A trial guest is therefore booted once with a short time limit, and the result is cached
//! until the host restarts, or has another QEMU or guest kernel. `CAUSEWAY_ACCEL` (`kvm` or `tcg`)
//! selects without a trial; other values are ignored.
//!
//! [`Machine::qemu`] chooses for each machine, under a lock of the cache, so that tests that start
//! together make one trial; guests with RDMA have a rule of their own
//! ([`machine`](crate::rdma::machine)). Without access to /dev/kvm emulation is selected at once.
//! The trial takes at most 15 s ([`KVM_TRY`]), and 5 s without any output; a trial that fails
//! selects emulation and is no error. A result that cannot be written to its file is lost, and the
//! next choice makes a trial again; only a lock or a cache folder that cannot be had is an error.

use crate::error::Result;
use crate::guest::Guest;
use crate::image::Image;
use crate::limits::{KVM_FIRST_LINE, KVM_TRY};
use crate::machine::{Engine, Machine};
use crate::place;
use crate::qemu::Qemu;
use crate::spec::GuestSpec;
use std::fs::{self, OpenOptions};
use std::time::Instant;

/// Execution engine of guest code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor's virtualisation extensions.
    Kvm,
    /// QEMU's emulation: correct, and many times slower.
    Tcg,
}

impl Accelerator {
    /// Returns the value of QEMU's `-accel` option.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// Returns the display name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Tcg => "TCG (emulation)",
        }
    }

    /// Selects the accelerator: the value of `CAUSEWAY_ACCEL` (`kvm` or `tcg`), else KVM if a guest
    /// boots on it within [`KVM_TRY`], else emulation.
    ///
    /// # Errors
    /// Only when the cache folder cannot be created or its lock be taken: a failed trial is a
    /// result.
    pub fn choose(qemu: &Qemu, image: &Image) -> Result<Self> {
        match std::env::var("CAUSEWAY_ACCEL").as_deref() {
            Ok("kvm") => return Ok(Self::Kvm),
            Ok("tcg") => return Ok(Self::Tcg),
            _ => {}
        }
        if OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
            return Ok(Self::Tcg);
        }
        let _lock = place::lock("accel")?;
        let path = place::cache()?.join("accel");
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let key = format!("{} {} {}", boot.trim(), qemu.version_text, image.kernel.release);
        let known = fs::read_to_string(&path).unwrap_or_default();
        match known.strip_prefix(&format!("{key} ")) {
            Some("kvm") => return Ok(Self::Kvm),
            Some("tcg") => return Ok(Self::Tcg),
            _ => {}
        }
        let verdict = if kvm_boots(qemu, image) { Self::Kvm } else { Self::Tcg };
        let _ = fs::write(&path, format!("{key} {}", verdict.option()));
        Ok(verdict)
    }
}

fn kvm_boots(qemu: &Qemu, image: &Image) -> bool {
    let start = Instant::now();
    let engine = Engine::Qemu(qemu.clone(), Accelerator::Kvm);
    let machine = Machine { engine, image: image.clone() };
    let Ok(mut guest) = Guest::start(&machine, GuestSpec::new("kvm-try")) else {
        return false;
    };
    let silent =
        |guest: &Guest| start.elapsed() > KVM_FIRST_LINE && guest.console().total_bytes() == 0;
    while start.elapsed() < KVM_TRY {
        match guest.poll_ready() {
            Ok(true) => return true,
            Ok(false) if !silent(&guest) => std::thread::sleep(crate::limits::CHECK),
            Ok(false) | Err(_) => return false,
        }
    }
    false
}
