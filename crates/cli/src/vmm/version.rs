//! Versions of QEMU: the printed arguments differ between versions.
//!
//! [`QemuTarget::choose`] returns the version that the operator gives, or that of the first of
//! three programs that prints one; each is run with `--version` by [`crate::program`] for at most 5
//! s and killed then. [`QemuVersion`] knows four differences: the option to reconnect, whether
//! `-netdev stream` has it, a crash without KVM, and devices that attach by vfio-user. Micro
//! versions and distributors' patches are ignored; QEMU of another architecture or outside of
//! `PATH` and /usr/libexec is not found. Nothing is cached: each call runs the program again.
//!
//! `crate::args` parses `--qemu-version` and `--qemu[=VERSION]`; [`super::attach`] and
//! [`super::attach_frames`] choose the version, and [`super::qemu`], [`super::libvirt`] and
//! [`super::frames`] print for it. `causeway doctor` (`crate::doctor`) chooses it for its report.
//! All run in the tool's main thread.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::program::output;

/// The first version whose `-chardev socket` accepts `reconnect-ms`; version 11 refuses
/// `reconnect`.
const RECONNECT_MS: QemuVersion = QemuVersion { major: 9, minor: 2 };
/// The first version whose `-netdev stream` accepts `reconnect`.
const STREAM_RECONNECT: QemuVersion = QemuVersion { major: 8, minor: 0 };
/// The first version in which a vhost-user network device with MSI-X vectors starts without KVM;
/// older versions crash with a segmentation fault.
const VECTORS_WITHOUT_KVM: QemuVersion = QemuVersion { major: 10, minor: 0 };
/// The first version with the device `vfio-user-pci`.
const VFIO_USER: QemuVersion = QemuVersion { major: 10, minor: 1 };

/// A version of QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QemuVersion {
    major: u32,
    minor: u32,
}

impl QemuVersion {
    /// Returns the option that makes a socket reconnect once a second.
    pub fn reconnect(self) -> &'static str {
        if self >= RECONNECT_MS { "reconnect-ms=1000" } else { "reconnect=1" }
    }

    /// Returns the option that makes `-netdev stream` reconnect once a second; `None` if the
    /// version has none.
    pub fn stream_reconnect(self) -> Option<&'static str> {
        (self >= STREAM_RECONNECT).then(|| self.reconnect())
    }

    /// Returns whether a vhost-user network device with vectors crashes without KVM.
    pub fn needs_no_vectors(self) -> bool {
        self < VECTORS_WITHOUT_KVM
    }

    /// Returns whether a device can attach by vfio-user.
    pub fn has_vfio_user(self) -> bool {
        self >= VFIO_USER
    }
}

impl FromStr for QemuVersion {
    type Err = String;

    /// Parses `MAJOR`, `MAJOR.MINOR` or `MAJOR.MINOR` with any text behind a second dot, which is
    /// ignored. A suffix of `MINOR`, as in `10.0-rc1`, is an error.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: expected a version of QEMU, as 7.2");
        let mut parts = text.split('.');
        let major = parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?;
        let minor = parts.next().map_or(Ok(0), |part| part.parse().map_err(|_| wrong()))?;
        Ok(Self { major, minor })
    }
}

impl fmt::Display for QemuVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The version for which arguments are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QemuTarget {
    /// The version that is installed on this host.
    Installed,
    /// The version that the operator gave.
    Named(QemuVersion),
}

impl FromStr for QemuTarget {
    type Err = String;

    /// Parses `installed`, or a version as [`QemuVersion`] does.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "installed" { Ok(Self::Installed) } else { text.parse().map(Self::Named) }
    }
}

impl QemuTarget {
    /// Returns the version to print for, and its source.
    pub fn choose(self) -> QemuChoice {
        match self {
            Self::Named(version) => QemuChoice::Named(version),
            Self::Installed => {
                let found = |program: PathBuf| Some((installed(&program)?, program));
                programs()
                    .into_iter()
                    .find_map(found)
                    .map_or(QemuChoice::Unknown, |(version, program)| {
                        QemuChoice::Installed(version, program)
                    })
            }
        }
    }
}

/// A version of QEMU, with its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QemuChoice {
    /// The operator gave the version.
    Named(QemuVersion),
    /// The version of a program on this host.
    Installed(QemuVersion, PathBuf),
    /// No version is given, and no program on this host prints one.
    Unknown,
}

impl QemuChoice {
    /// Returns the version, or `None` if it is unknown.
    pub fn version(&self) -> Option<QemuVersion> {
        match self {
            Self::Named(version) | Self::Installed(version, _) => Some(*version),
            Self::Unknown => None,
        }
    }

    /// Returns whether a device with interrupt vectors works on a host with or without KVM;
    /// [`Vectors::Work`] if no version is known.
    pub fn vectors(&self, has_kvm: bool) -> Vectors {
        match (self.version().is_some_and(QemuVersion::needs_no_vectors), has_kvm) {
            (false, _) => Vectors::Work,
            (true, true) => Vectors::CrashWithoutKvm,
            (true, false) => Vectors::Crash,
        }
    }
}

/// Returns whether this host has KVM.
pub fn has_kvm() -> bool {
    Path::new("/dev/kvm").exists()
}

/// Whether a vhost-user network device can have MSI-X vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vectors {
    /// The device works with vectors.
    Work,
    /// The device works with vectors under KVM, which this host has; without KVM, QEMU crashes.
    CrashWithoutKvm,
    /// QEMU crashes if the device has vectors: this host has no KVM.
    Crash,
}

/// Returns the program names of QEMU for guests of this host's architecture, in order of
/// preference.
fn programs() -> [PathBuf; 3] {
    let system = format!("qemu-system-{}", std::env::consts::ARCH);
    [system.into(), "/usr/libexec/qemu-kvm".into(), "qemu-kvm".into()]
}

/// Returns the version that a program prints, or `None` if it is missing, fails, does not end in
/// time or prints no version.
fn installed(program: &Path) -> Option<QemuVersion> {
    reported(&output(program, &["--version"])?)
}

/// Parses a line such as "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)".
fn reported(text: &str) -> Option<QemuVersion> {
    text.split_once("version ")?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_versions_are_read_and_refused() {
        let debian = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright";
        assert_eq!(reported(debian), Some(QemuVersion { major: 7, minor: 2 }));
        assert_eq!(reported("QEMU emulator version 11.1.3").unwrap().to_string(), "11.1");
        assert_eq!(reported("something else"), None);
        assert_eq!("10".parse(), Ok(QemuTarget::Named(QemuVersion { major: 10, minor: 0 })));
        assert_eq!("installed".parse(), Ok(QemuTarget::Installed));
        for bad in ["", "x", "7.x", "-1.0", "7,2"] {
            assert!(bad.parse::<QemuTarget>().is_err(), "{bad}");
        }
    }

    #[test]
    fn qemu_options_follow_the_version() {
        let version = |text: &str| text.parse::<QemuVersion>().unwrap();
        for (text, reconnect, no_vectors) in [
            ("7.2", "reconnect=1", true),
            ("9.1", "reconnect=1", true),
            ("9.2", "reconnect-ms=1000", true),
            ("10.0", "reconnect-ms=1000", false),
            ("11.1", "reconnect-ms=1000", false),
        ] {
            let version = version(text);
            assert_eq!((version.reconnect(), version.needs_no_vectors()), (reconnect, no_vectors));
        }
        assert!(!version("10.0").has_vfio_user() && version("10.1").has_vfio_user());
        let choice = QemuChoice::Named(version("7.2"));
        assert_eq!(choice.vectors(true), Vectors::CrashWithoutKvm);
        assert_eq!(choice.vectors(false), Vectors::Crash);
        assert_eq!(QemuChoice::Unknown.vectors(false), Vectors::Work);
    }
}
