//! QEMU: detection of the installed version, and the command line of a guest.
//!
//! [`crate::machine`] and [`crate::rdma`] find the program for each machine; [`crate::machine`]
//! asks for the arguments of each guest, and [`crate::guest`] starts the program as a child
//! process. The arguments depend on the version and the accelerator, because some versions refuse
//! or break options. A program that is missing, or has an unreadable version, is an error with the
//! remedy. Nothing of a guest is checked here: QEMU reports a wrong option on the console.

use crate::accel::Accelerator;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::process;
use crate::spec::{GuestSpec, Nic, NicBackend};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kernel options for emulated processors: a boot of Debian 12 takes an eighth less processor time,
/// of Debian 13 a fourth. Emulation does not speculate, self-tests of ciphers take a second, and a
/// clear on each allocation of the kernel doubles its writes. The watchdogs of the kernel wait
/// minutes: on a busy host a processor of a guest stands still for 20 s, which is no fault of the
/// guest.
const EMULATED_WORDS: &str = " mitigations=off nokaslr init_on_alloc=0 cryptomgr.notests \
                              initcall_blacklist=crypto_kdf108_init,jent_mod_init \
                              watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120";

/// The emulated processor: without page tables of five levels, of which each miss of the TLB reads
/// one level more, and without fast string instructions, for which Linux copies and clears bytes one
/// by one that emulation handles one by one too. A boot takes a seventh less processor time.
const EMULATED_CPU: &str = "max,la57=off,erms=off";
/// Further features of this kind, which QEMU emulates and knows since 8.2.
const EMULATED_CPU_NEWER: &str = "max,la57=off,erms=off,fsrm=off,fzrm=off,fsrs=off,fsrc=off";

/// An installed QEMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qemu {
    /// The program.
    pub program: PathBuf,
    /// Major and minor version.
    pub version: (u32, u32),
    /// The version as the program prints it, e.g. `7.2.22`.
    pub version_text: String,
}

impl Qemu {
    /// Returns the program that `CAUSEWAY_QEMU` names, or the system's QEMU.
    ///
    /// # Errors
    /// When it is missing or its version cannot be read.
    pub fn find() -> Result<Self> {
        let program = std::env::var_os("CAUSEWAY_QEMU")
            .map_or_else(|| PathBuf::from("qemu-system-x86_64"), PathBuf::from);
        Self::at(program, "run scripts/setup.sh demo, or install the package qemu-system-x86")
    }

    /// Returns the QEMU of a program; `remedy` is a part of errors.
    ///
    /// # Errors
    /// When it is missing or its version cannot be read.
    pub fn at(program: PathBuf, remedy: &str) -> Result<Self> {
        let said = process::output(Command::new(&program).arg("--version"));
        let missing = |why: String| Error::Missing {
            what: format!("no usable QEMU ({}): {why}", program.display()),
            remedy: remedy.into(),
        };
        let said = said.map_err(|e| missing(e.to_string()))?;
        let (version, version_text) = parse_version(&said)
            .ok_or_else(|| missing(format!("its version is not in '{}'", said.trim())))?;
        Ok(Self { program, version, version_text })
    }

    /// Returns whether network devices must have no MSI-X vectors: QEMU 7.2 with emulation crashes
    /// when a vhost-user network device sets up its vectors.
    fn net_without_vectors(&self, accel: Accelerator) -> bool {
        accel == Accelerator::Tcg && self.version < (10, 0)
    }

    /// Returns the processor of guests.
    fn cpu(&self, accel: Accelerator) -> &'static str {
        match accel {
            Accelerator::Kvm => "host",
            Accelerator::Tcg if self.version >= (8, 2) => EMULATED_CPU_NEWER,
            Accelerator::Tcg => EMULATED_CPU,
        }
    }

    /// Returns the arguments that boot `spec`. The console is on standard output; the agent's
    /// channel connects to the listening socket `control`.
    #[must_use]
    pub fn arguments(
        &self,
        spec: &GuestSpec,
        image: &Image,
        accel: Accelerator,
        control: &Path,
    ) -> Vec<OsString> {
        let mut line = Line::default();
        line.add("-name", &format!("causeway-{}", spec.name));
        for flag in ["-nodefaults", "-no-user-config"] {
            line.flag(flag);
        }
        line.add("-display", "none");
        line.add("-accel", accel.option());
        line.add("-cpu", self.cpu(accel));
        line.add("-smp", "1");
        // QEMU before 9.0 loses writes of an emulated processor during migration if the memory
        // length is a multiple of its log's word size; other lengths use another code path, which
        // is correct.
        let odd = spec.monitor.is_some() || spec.incoming.is_some();
        let memory = format!("{}K", spec.memory_mib * 1024 + if odd { 8 } else { 0 });
        line.add("-m", &memory);
        // Shared memory behind a file descriptor: a vhost-user backend maps it.
        line.add("-object", &format!("memory-backend-memfd,id=ram,size={memory},share=on"));
        line.add("-machine", "q35,memory-backend=ram");
        line.add("-chardev", "stdio,id=console,signal=off");
        line.add("-serial", "chardev:console");
        line.add("-chardev", &format!("socket,id=control,path={}", control.display()));
        line.add("-serial", "chardev:control");
        line.add("-kernel", &image.kernel.image.display().to_string());
        line.add("-initrd", &image.initramfs.display().to_string());
        // On a busy host, an emulated timer is late, and the kernel's check of it would panic.
        let mut words = String::from("console=ttyS0 loglevel=5 random.trust_cpu=on no_timer_check");
        if accel == Accelerator::Tcg {
            words.push_str(EMULATED_WORDS);
        }
        line.add("-append", &words);
        if !spec.may_restart {
            line.flag("-no-reboot");
        }
        if let Some(monitor) = &spec.monitor {
            line.add("-qmp", &format!("unix:{},server=on,wait=off", monitor.display()));
        }
        if let Some(from) = &spec.incoming {
            line.add("-incoming", &format!("unix:{}", from.display()));
        }
        for (i, nic) in spec.nics.iter().enumerate() {
            self.nic(&mut line, i, nic, accel, spec);
        }
        if let Some(socket) = &spec.vsock {
            line.add("-chardev", &format!("socket,id=vsock,path={}", socket.display()));
            line.add("-device", "vhost-user-vsock-pci,chardev=vsock");
        }
        for (i, socket) in spec.functions.iter().enumerate() {
            let socket = json!({"type": "unix", "path": socket.display().to_string()});
            // The firmware would probe a ROM that the function has not.
            let mut device = json!({"driver": "vfio-user-pci", "rombar": 0, "socket": socket});
            if spec.unpluggable {
                // Devices on the root bus cannot be unplugged.
                let number = i + 1;
                let port = format!("pcie-root-port,id=port{i},chassis={number},slot={number}");
                line.add("-device", &port);
                device["id"] = json!(format!("function{i}"));
                device["bus"] = json!(format!("port{i}"));
            }
            line.add("-device", &device.to_string());
        }
        line.0
    }

    /// Appends a network device and its backend.
    fn nic(&self, line: &mut Line, i: usize, nic: &Nic, accel: Accelerator, spec: &GuestSpec) {
        let mut device =
            format!("virtio-net-pci,netdev=net{i},mac={},host_mtu={},romfile=", nic.mac, nic.mtu);
        match &nic.backend {
            NicBackend::VhostUser(socket) => {
                let again = match spec.reconnects {
                    false => "",
                    // QEMU 9.2 introduced the new option; QEMU 11 refuses the old one.
                    true if self.version >= (9, 2) => ",reconnect-ms=1000",
                    true => ",reconnect=1",
                };
                let path = socket.display();
                line.add("-chardev", &format!("socket,id=nic{i},path={path}{again}"));
                line.add("-netdev", &format!("vhost-user,id=net{i},chardev=nic{i},queues=1"));
                if self.net_without_vectors(accel) {
                    device.push_str(",vectors=0");
                }
            }
            NicBackend::Qemu(backend) => line.add("-netdev", &format!("{backend},id=net{i}")),
            NicBackend::Tap(name) => {
                let options = "script=no,downscript=no,vhost=off";
                line.add("-netdev", &format!("tap,id=net{i},ifname={name},{options}"));
            }
        }
        if spec.packed {
            device.push_str(",packed=on");
        }
        line.add("-device", &device);
    }
}

/// A command line under construction.
#[derive(Default)]
struct Line(Vec<OsString>);

impl Line {
    fn flag(&mut self, flag: &str) {
        self.0.push(flag.into());
    }

    fn add(&mut self, option: &str, value: &str) {
        self.0.extend([OsString::from(option), OsString::from(value)]);
    }
}

fn parse_version(said: &str) -> Option<((u32, u32), String)> {
    let text = said.split_once("version ")?.1.split_whitespace().next()?;
    let mut numbers = text.split('.').map(str::parse::<u32>);
    let version = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some((version, text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;

    fn qemu(version: (u32, u32)) -> Qemu {
        Qemu { program: "qemu".into(), version, version_text: String::new() }
    }

    fn line(qemu: &Qemu, spec: &GuestSpec, accel: Accelerator) -> String {
        let kernel = Kernel { release: "6.1".into(), image: "/k".into(), modules: "/m".into() };
        let image = Image { kernel, initramfs: "/i".into(), _folder: None };
        let arguments = qemu.arguments(spec, &image, accel, Path::new("/run/ctl"));
        arguments.iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    fn spec() -> GuestSpec {
        let nic = Nic {
            backend: NicBackend::VhostUser("/run/a.sock".into()),
            mac: "52:54:00:00:00:01".into(),
            address: "10.0.0.1/24".into(),
            mtu: 1500,
        };
        GuestSpec::new("a").nic(nic).vsock("/run/v.sock".into()).function("/run/f.sock".into())
    }

    #[test]
    fn qemu_version_is_parsed() {
        let said = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright";
        assert_eq!(parse_version(said), Some(((7, 2), "7.2.22".into())));
        assert_eq!(parse_version("QEMU emulator version 11.1.3").unwrap().0, (11, 1));
        assert_eq!(parse_version("something else"), None);
    }

    #[test]
    fn qemu_7_2_with_emulation_has_no_vectors() {
        let spec = spec();
        assert!(line(&qemu((7, 2)), &spec, Accelerator::Tcg).contains("romfile=,vectors=0"));
        assert!(!line(&qemu((7, 2)), &spec, Accelerator::Kvm).contains("vectors"));
        assert!(!line(&qemu((10, 0)), &spec, Accelerator::Tcg).contains("vectors"));
    }

    #[test]
    fn qemu_emulates_a_processor_without_slow_features_that_it_knows() {
        let cpu = |version, accel| {
            let line = line(&qemu(version), &spec(), accel);
            line.split(' ').skip_while(|word| *word != "-cpu").nth(1).unwrap().to_owned()
        };
        assert_eq!(cpu((7, 2), Accelerator::Kvm), "host");
        assert_eq!(cpu((7, 2), Accelerator::Tcg), "max,la57=off,erms=off");
        assert!(
            cpu((11, 1), Accelerator::Tcg)
                .ends_with(",erms=off,fsrm=off,fzrm=off,fsrs=off,fsrc=off")
        );
    }

    #[test]
    fn qemu_arguments_have_shared_memory_and_devices() {
        let line = line(&qemu((7, 2)), &spec(), Accelerator::Tcg);
        let function = r#"{"driver":"vfio-user-pci","rombar":0,"socket":{"path":"/run/f.sock","type":"unix"}}"#;
        for want in
            ["share=on", "memory-backend=ram", "vhost-user-vsock-pci", "-no-reboot", function]
        {
            assert!(line.contains(want), "{want} not in {line}");
        }
    }
}
