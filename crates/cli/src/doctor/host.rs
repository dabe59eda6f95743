//! Checks of the host: KVM, QEMU, shared memory and the clock.
//!
//! [`super::examine`] calls each check once, in the main thread. They open /dev/kvm and close it
//! again, read files, and run QEMU and `timedatectl` for at most 5 s each; a program that is
//! missing or fails is a warning (QEMU) or skips the check (the clock). All findings here are good,
//! warnings or skipped: no check of the host fails.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;

use super::Finding;
use crate::program::output;
use crate::table::bytes;
use crate::vmm::QemuTarget;

/// Shared memory below which a guest hardly fits: 1 GiB.
const SHARED_MEMORY_MIN: u64 = 1 << 30;

/// Checks whether this user can use KVM.
pub fn kvm() -> Finding {
    let slow = "guests run under emulation, ten to a hundred times slower";
    match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(_) => Finding::ok("kvm", "/dev/kvm can be opened"),
        Err(error) if error.kind() == ErrorKind::NotFound => Finding::warn(
            "kvm",
            format!("/dev/kvm does not exist: {slow}"),
            "enable virtualisation in the firmware and load kvm_intel or kvm_amd; in a virtual \
             machine, enable nested virtualisation on its host",
        ),
        Err(error) => Finding::warn(
            "kvm",
            format!("/dev/kvm cannot be opened by this user ({error}): {slow}"),
            "add the user of QEMU to the group kvm: usermod -aG kvm USER, then log in again",
        ),
    }
}

/// Checks the version of QEMU.
pub fn qemu() -> Finding {
    let Some(version) = QemuTarget::Installed.choose().version() else {
        let remedy = "install qemu-system-x86 (Debian, Ubuntu) or qemu-kvm (Fedora), unless another \
                      VMM is used";
        return Finding::warn("qemu", "no QEMU is installed", remedy);
    };
    if version.needs_no_vectors() && !Path::new("/dev/kvm").exists() {
        return Finding::warn(
            "qemu",
            format!("QEMU {version} without KVM crashes with MSI-X vectors of vhost-user devices"),
            "use the arguments of causeway port show NAME --for qemu, which have vectors=0, or QEMU 10",
        );
    }
    if !version.has_vfio_user() {
        let text = format!("QEMU {version}; RDMA (ports of kind hca) needs QEMU 10.1 or later");
        return Finding::ok("qemu", text);
    }
    Finding::ok("qemu", format!("QEMU {version}"))
}

/// Checks the size of the file system of shared memory.
pub fn shared_memory() -> Finding {
    let statistics = match rustix::fs::statvfs("/dev/shm") {
        Ok(statistics) => statistics,
        Err(error) => {
            let text = format!("/dev/shm cannot be examined: {error}");
            return Finding::warn("memory", text, "mount it: mount -t tmpfs tmpfs /dev/shm");
        }
    };
    let all = statistics.f_blocks.saturating_mul(statistics.f_frsize);
    let free = statistics.f_bavail.saturating_mul(statistics.f_frsize);
    let (all_text, free_text) = (bytes(all), bytes(free));
    if free < SHARED_MEMORY_MIN {
        return Finding::warn(
            "memory",
            format!("/dev/shm has {free_text} free of {all_text}: a guest's memory may not fit"),
            "use memory-backend-memfd as causeway port show prints it, or enlarge /dev/shm: \
             mount -o remount,size=SIZE /dev/shm",
        );
    }
    Finding::ok("memory", format!("/dev/shm has {free_text} free of {all_text}"))
}

/// Reports the huge pages of the host.
pub fn huge_pages() -> Finding {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match (meminfo(&text, "HugePages_Total"), meminfo(&text, "HugePages_Free")) {
        (Some(0), _) => Finding::ok("hugepages", "none reserved; guests use pages of 4 KiB"),
        (Some(all), Some(0)) => Finding::warn(
            "hugepages",
            format!("all {all} huge pages are in use: a guest with hugetlb=on does not start"),
            "reserve more: sysctl vm.nr_hugepages=NUMBER",
        ),
        (Some(all), Some(free)) => Finding::ok("hugepages", format!("{free} of {all} free")),
        _ => Finding::skipped("hugepages", "/proc/meminfo does not report huge pages"),
    }
}

/// Returns a number of /proc/meminfo.
fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Checks whether the clock is synchronised: handshakes of tunnels carry the time.
pub fn clock() -> Finding {
    match output("timedatectl", &["show", "--property=NTPSynchronized", "--value"]) {
        Some(text) if text.trim() == "yes" => Finding::ok("clock", "synchronised by NTP"),
        Some(text) if text.trim() == "no" => Finding::warn(
            "clock",
            "not synchronised: peers refuse handshakes of links after the clock was set back, and \
             certificates may seem expired",
            "timedatectl set-ntp true, or install chrony",
        ),
        _ => Finding::skipped("clock", "timedatectl does not report whether the clock is set"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doctor_reads_huge_pages_of_meminfo() {
        let text = "MemTotal: 1 kB\nHugePages_Total:      12\nHugePages_Free:  0\n";
        assert_eq!(meminfo(text, "HugePages_Total"), Some(12));
        assert_eq!(meminfo(text, "HugePages_Free"), Some(0));
        assert_eq!(meminfo(text, "HugePages"), None);
    }
}
