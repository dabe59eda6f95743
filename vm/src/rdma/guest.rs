//! A running guest with an RDMA device.
//!
//! Tests, [`Pair`](super::Pair), [`Group`](super::Group) and [`unplug`](super::unplug()) start an
//! [`RdmaGuest`] on the vfio-user socket of an adapter, wait until the unmodified `mlx5` driver has
//! set the function up (400 polls after the boot, 60 s at most; times `CAUSEWAY_PATIENCE`), and run
//! programs in it. A failure of the driver is an error with the kernel's messages. A broken driver
//! may still pass traffic: the caller asks for messages of the kernel, such as a warning or a
//! fault, by [`RdmaGuest::check_kernel`] after the programs. The guest is QEMU, a child process
//! that is killed on drop, with 512 MiB; [`machine`](super::machine) chooses the accelerator.

use crate::error::{Error, Result};
use crate::guest::Guest;
use crate::limits::{BOOT, LISTENING, RDMA_DEVICE, RDMA_GUEST_MIB, patient};
use crate::machine::Machine;
use crate::spec::GuestSpec;
use crate::{RunDir, process};
use causeway_guest_tool::protocol::CommandResult;
use std::path::Path;
use std::time::Duration;

use super::image::MODULE_SETS;

/// First three bytes of the guests' IPv4 addresses.
const NETWORK: &str = "10.79.0";
/// The network interface of the device.
pub const INTERFACE: &str = "eth0";
/// The RDMA device.
pub const DEVICE: &str = "mlx5_0";
/// Kernel messages after which a test fails: a broken driver may still pass traffic.
const BAD_MESSAGES: &str = "BUG:|Oops|WARNING:|Call Trace|hw csum failure|general protection|\
                            Fatal error|mlx5_core.*(fail|timeout|error)|infiniband.*(fail|error)";
/// Kernel messages of a crash or a hang.
const CRASH_MESSAGES: &str = "BUG:|Oops|WARNING:|Call Trace|general protection|blocked for more";
/// The driver's message after the recovery of a function.
const RECOVERED: &str = "health recovery succeeded";

/// Characters of a file in one command: the kernel bounds an argument to 128 KiB.
const INSTALL_CHUNK: usize = 96 << 10;

/// A guest with a PCI function; killed when dropped.
#[derive(Debug)]
pub struct RdmaGuest {
    guest: Guest,
    number: u8,
    gid_index: u32,
}

impl RdmaGuest {
    /// Starts a guest with the function on `socket` and returns at once; see
    /// [`RdmaGuest::await_ready`]. The `number` is the last byte of its IPv4 address.
    ///
    /// # Errors
    /// When its program cannot be started.
    pub fn start(machine: &Machine, name: &str, socket: &Path, number: u8) -> Result<Self> {
        Self::start_with(machine, GuestSpec::new(name).function(socket.into()), number)
    }

    /// As [`RdmaGuest::start`], with a function that the monitor on `monitor` can unplug as
    /// `function0`.
    ///
    /// # Errors
    /// As [`RdmaGuest::start`].
    pub fn start_unpluggable(
        machine: &Machine,
        name: &str,
        socket: &Path,
        number: u8,
        monitor: &Path,
    ) -> Result<Self> {
        let mut spec = GuestSpec::new(name).function(socket.into());
        spec.unpluggable = true;
        spec.monitor = Some(monitor.into());
        Self::start_with(machine, spec, number)
    }

    fn start_with(machine: &Machine, mut spec: GuestSpec, number: u8) -> Result<Self> {
        spec.memory_mib = RDMA_GUEST_MIB;
        spec.may_restart = true;
        Ok(Self { guest: Guest::start(machine, spec)?, number, gid_index: 0 })
    }

    /// Waits until the guest has booted, its port is active, and its IPv4 address is a GID.
    ///
    /// # Errors
    /// When the guest or its driver failed, with the kernel's messages.
    pub fn await_ready(&mut self) -> Result<()> {
        self.guest.await_ready(BOOT)?;
        self.set_up()
    }

    /// Removes the driver from the function, with the RDMA device, and binds it again.
    ///
    /// # Errors
    /// When the driver fails, with the kernel's messages.
    pub fn rebind(&mut self) -> Result<()> {
        self.with_function(
            "cd /sys/bus/pci/drivers/mlx5_core && echo $f >unbind && \
             [ ! -e /sys/class/infiniband/$d ] && echo $f >bind",
        )
    }

    /// Removes the driver from the function; nothing binds it again.
    ///
    /// # Errors
    /// When the driver fails, or keeps the RDMA device; with the kernel's messages.
    pub fn unbind(&self) -> Result<()> {
        self.on_function(
            "cd /sys/bus/pci/drivers/mlx5_core && echo $f >unbind && \
             [ ! -e /sys/class/infiniband/$d ]",
        )
    }

    /// Reloads the driver by `devlink`, as after a change of its parameters.
    ///
    /// # Errors
    /// As [`RdmaGuest::rebind`].
    pub fn reload(&mut self) -> Result<()> {
        self.with_function("devlink dev reload pci/$f")
    }

    /// Removes the function from the guest's bus, and lets the guest search the bus again.
    ///
    /// # Errors
    /// As [`RdmaGuest::rebind`].
    pub fn remove_and_rescan(&mut self) -> Result<()> {
        self.with_function(
            "echo 1 >/sys/bus/pci/devices/$f/remove && [ ! -e /sys/class/infiniband/$d ] && \
             echo 1 >/sys/bus/pci/rescan",
        )
    }

    /// Runs a script after which the driver uses the function anew.
    fn with_function(&mut self, script: &str) -> Result<()> {
        self.on_function(script)?;
        self.set_up()
    }

    /// Runs a script: `$f` is the function's address on the bus, `$d` the RDMA device.
    fn on_function(&self, script: &str) -> Result<()> {
        let script = format!(
            "d={DEVICE}; f=$(basename $(readlink -f /sys/class/net/{INTERFACE}/device)); {script}"
        );
        self.run(&["sh", "-c", &script], RDMA_DEVICE).map(|_| ())
    }

    /// Waits, for 40 s (times `CAUSEWAY_PATIENCE`), until the driver has recovered the function
    /// from `count` internal errors since the boot, and sets the address again.
    ///
    /// # Errors
    /// When the driver does not recover in time, with the kernel's messages.
    pub fn await_recovery(&mut self, count: u32) -> Result<()> {
        let script = format!(
            "t=0; until [ $(dmesg | grep -c '{RECOVERED}') -ge {count} ]; do t=$((t+1)); \
             [ $t -lt {tenths} ] || exit 1; sleep 0.1; done",
            tenths = patient(RDMA_DEVICE).as_millis() / 100,
        );
        self.run(&["sh", "-c", &script], RDMA_DEVICE + LISTENING)?;
        self.set_up()
    }

    /// Restarts the guest's kernel at once, without an unbind of the driver, and waits as
    /// [`RdmaGuest::await_ready`].
    ///
    /// # Errors
    /// As [`RdmaGuest::await_ready`].
    pub fn reboot(&mut self) -> Result<()> {
        self.guest.restart(BOOT)?;
        self.set_up()
    }

    /// Writes a file into the guest; the mode permits execution. The file travels compressed, in
    /// the arguments of commands.
    ///
    /// # Errors
    /// When `gzip` or `base64` is missing on the host, or the guest cannot write the file.
    pub fn install(&self, path: &str, content: &[u8]) -> Result<()> {
        let dir = RunDir::new()?;
        let file = dir.join("content");
        std::fs::write(&file, content).map_err(Error::io("write a file for guests"))?;
        let mut pack = process::tied("sh");
        pack.args(["-c", "gzip -9c \"$1\" | base64 -w 0", "sh"]).arg(&file);
        let text = process::output(&mut pack)?;
        for (index, part) in text.trim().as_bytes().chunks(INSTALL_CHUNK).enumerate() {
            let part = String::from_utf8_lossy(part);
            let to = if index == 0 { ">" } else { ">>" };
            self.run(&["sh", "-c", &format!("echo -n {part} {to}{path}.b64")], LISTENING)?;
        }
        let script =
            format!("base64 -d {path}.b64 | gunzip >{path} && chmod +x {path} && rm {path}.b64");
        self.run(&["sh", "-c", &script], LISTENING).map(|_| ())
    }

    /// Waits for the device, sets the address, and finds its GID.
    fn set_up(&mut self) -> Result<()> {
        let ip = self.ip();
        let setup = format!(
            "t=0; await() {{ until eval \"$1\"; do t=$((t+1)); \
             [ $t -lt {tenths} ] || {{ echo \"$2\" >&2; exit 1; }}; sleep 0.1; done; }}\n\
             await '[ -e /sys/class/net/{INTERFACE} ]' 'no network interface {INTERFACE}'\n\
             await '[ -e /sys/class/infiniband/{DEVICE} ]' 'no RDMA device {DEVICE}'\n\
             ip link set lo up && ip addr replace {ip}/24 dev {INTERFACE} && \
             ip link set {INTERFACE} up || exit 1\n\
             cd /sys/class/infiniband/{DEVICE}/ports/1\n\
             await 'grep -q ACTIVE state' 'the port is not active'\n\
             gid() {{ for i in $(ls gid_attrs/types); do \
             grep -qs 'RoCE v2' gid_attrs/types/$i && grep -q '{gid}' gids/$i && return; done; \
             return 1; }}\n\
             await gid 'no RoCE v2 GID of {ip}'\n\
             echo $i",
            tenths = patient(RDMA_DEVICE).as_millis() / 100,
            gid = self.gid(),
        );
        let index = self.run(&["sh", "-c", &setup], RDMA_DEVICE + LISTENING)?;
        self.gid_index = index.trim().parse().map_err(|_| {
            self.error("set up the RDMA device", format!("'{index}' is no GID index"))
        })?;
        Ok(())
    }

    /// Returns the RoCE v2 GID of its IPv4 address, as the kernel prints it.
    fn gid(&self) -> String {
        let bytes: Vec<u8> = NETWORK.split('.').filter_map(|byte| byte.parse().ok()).collect();
        match bytes.as_slice() {
            [a, b, c] => format!("ffff:{a:02x}{b:02x}:{c:02x}{:02x}", self.number),
            _ => String::new(),
        }
    }

    /// Returns its IPv4 address.
    #[must_use]
    pub fn ip(&self) -> String {
        format!("{NETWORK}.{}", self.number)
    }

    /// Returns the last byte of its IPv4 address.
    #[must_use]
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Returns the index of its RoCE v2 GID, for options such as `-g` of `ibv_rc_pingpong`.
    #[must_use]
    pub fn gid_index(&self) -> String {
        self.gid_index.to_string()
    }

    /// Returns the guest.
    #[must_use]
    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    /// Runs a command in the guest, killed there after `limit`, and returns its output.
    ///
    /// # Errors
    /// When the command fails or exceeds the limit, or the guest fails; with the command's output
    /// and the end of the kernel's messages.
    pub fn run(&self, argv: &[&str], limit: Duration) -> Result<String> {
        let ran = self.guest.run(argv, limit).map_err(|e| {
            // A command in a system call that does not end cannot be killed; SysRq w prints its
            // stack.
            let _ = self.guest.run(&["sh", "-c", "echo w >/proc/sysrq-trigger"], LISTENING);
            self.error(&argv.join(" "), e.to_string())
        })?;
        self.check(argv, &ran)?;
        Ok(ran.stdout)
    }

    /// Returns an error with the kernel's messages if the command failed.
    ///
    /// # Errors
    /// As [`RdmaGuest::run`].
    pub(super) fn check(&self, argv: &[&str], ran: &CommandResult) -> Result<()> {
        let why = match (ran.timed_out, ran.code) {
            (false, Some(0)) => return Ok(()),
            (true, _) => "exceeded its time limit".to_owned(),
            (false, Some(code)) => format!("exit code {code}"),
            (false, None) => "did not start, or was killed by a signal".to_owned(),
        };
        let [stdout, stderr] = [&ran.stdout, &ran.stderr].map(|text| tail(text));
        Err(self.error(&argv.join(" "), format!("{why}\n{stdout}\n{stderr}")))
    }

    /// Returns an error with the end of the guest's console beside `why`. An assertion of QEMU that
    /// failed, which QEMU reports there, comes first.
    pub(super) fn explain(&self, what: &str, why: &Error) -> Error {
        let (name, console) = (self.guest.name(), self.guest.console().tail());
        let cause = assertion(&console).map(|line| format!("QEMU aborts: {line}\n"));
        let cause = cause.unwrap_or_default();
        Error::Traffic {
            what: format!(
                "{cause}guest {name}: {what}: {why}\n--- console of {name} ---\n{console}"
            ),
        }
    }

    fn error(&self, what: &str, why: String) -> Error {
        // The messages of the boot are on the console.
        let script = "dmesg | sed '1,/Run .init/d' | tail -n 40";
        let messages = self.guest.run(&["sh", "-c", script], LISTENING);
        let messages = messages.map_or_else(|e| e.to_string(), |ran| ran.stdout);
        let name = self.guest.name();
        Error::Traffic { what: format!("guest {name}: `{what}`: {why}\n--- dmesg ---\n{messages}") }
    }

    /// Loads a set of modules that is not loaded at boot, such as `smc`.
    ///
    /// # Errors
    /// When the set is unknown, or a module cannot be loaded.
    pub fn load(&self, set: &str) -> Result<()> {
        if !MODULE_SETS.iter().any(|(name, _)| *name == set) {
            return Err(self.error("load modules", format!("there is no set {set}")));
        }
        let script = format!(
            "for f in $(cat /etc/modules-{set}); do n=${{f##*/}}; \
             [ -e /sys/module/${{n%.ko}} ] || insmod $f || exit 1; done"
        );
        self.run(&["sh", "-c", &script], RDMA_DEVICE).map(|_| ())
    }

    /// Checks that the kernel reported no fault since its boot, its own or of the driver.
    ///
    /// # Errors
    /// When it did, with the messages.
    pub fn check_kernel(&self) -> Result<()> {
        self.check_messages(BAD_MESSAGES)
    }

    /// Checks that the kernel did not crash or hang since its boot. Errors that the driver reports
    /// are no fault.
    ///
    /// # Errors
    /// As [`RdmaGuest::check_kernel`].
    pub fn check_kernel_alive(&self) -> Result<()> {
        self.check_messages(CRASH_MESSAGES)
    }

    /// Returns an error if the kernel has printed a message that matches `pattern`.
    fn check_messages(&self, pattern: &str) -> Result<()> {
        let script = format!("dmesg | grep -E -A 20 '{pattern}' | head -n 60; true");
        let bad = self.run(&["sh", "-c", &script], LISTENING)?;
        if bad.trim().is_empty() {
            return Ok(());
        }
        Err(self.error("dmesg", format!("the kernel reported a fault:\n{bad}")))
    }
}

/// Returns the last assertion that failed in QEMU, without the program's name.
fn assertion(console: &str) -> Option<&str> {
    let mut lines =
        console.lines().rev().filter_map(|line| line.strip_prefix("qemu-system-x86_64: "));
    lines.find(|line| line.contains(": Assertion `"))
}

/// Returns the end of a program's output.
fn tail(text: &str) -> String {
    const LINES: usize = 20;
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rdma_guest_names_the_assertion_that_ended_qemu() {
        let console = "qemu-system-x86_64: a warning\n[    0.1] usb: up\n\
                       qemu-system-x86_64: memory.c:1: del: Assertion `a == b' failed.\n";
        assert_eq!(assertion(console), Some("memory.c:1: del: Assertion `a == b' failed."));
        assert_eq!(assertion("[    1.0] kernel: Assertion `x' failed"), None);
    }
}
