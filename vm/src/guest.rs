//! A running guest.
//!
//! A test, the demo or [`crate::rdma`] starts a [`Guest`] on a [`Machine`] and waits for it
//! ([`Guest::await_ready`]): the agent in the guest greets over the control channel, and the
//! network devices get their addresses. Then commands run in the guest: [`Guest::run`] blocks its
//! thread until the command ends, and several threads may call it at once. The VMM, or user-mode
//! Linux, is a child process that is killed on drop and dies with the test. A guest that ends,
//! panics, reports an error of its start, or is not up within the caller's limit (120 s for most)
//! is an error with its console's last lines. A command that exceeds its limit is killed in
//! the guest and is a result; a guest that then does not answer for 20 s is an error, and keeps
//! running. `CAUSEWAY_PATIENCE` multiplies the limits of the boot and of commands, not the 20 s.
//! The guest's disk is its memory: nothing survives a restart.

use crate::console::Console;
use crate::control::Control;
use crate::error::{Error, Result};
use crate::limits::{BOOT, CHECK, REPLY_SLACK, patient};
use crate::machine::{Channel, Machine};
use crate::process::{self, Process};
use crate::rundir::RunDir;
use crate::spec::{GuestSpec, Nic};
use causeway_guest_tool::protocol::{CommandResult, Hello, Operation};
use serde::de::DeserializeOwned;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::{Duration, Instant};

/// A guest that boots or runs; killed when dropped.
#[derive(Debug)]
pub struct Guest {
    spec: GuestSpec,
    process: Process,
    console: Console,
    listener: Option<UnixListener>,
    control: Option<Control>,
    hello: Option<Hello>,
    _dir: RunDir,
}

impl Guest {
    /// Starts a guest and returns at once; see [`Guest::await_ready`].
    ///
    /// # Errors
    /// When its program cannot be started.
    pub fn start(machine: &Machine, spec: GuestSpec) -> Result<Self> {
        let dir = RunDir::new()?;
        let (command, channel) = machine.launch(&spec, &dir)?;
        let mut process = Process::start(&format!("guest {}", spec.name), command)?;
        let console = Console::default();
        if let Some(stdout) = process.child().stdout.take() {
            console.follow(stdout);
        }
        if let Some(stderr) = process.child().stderr.take() {
            console.follow(stderr);
        }
        let (listener, control) = match channel {
            Channel::Awaited(listener) => (Some(listener), None),
            Channel::Open(stream) => (None, Some(control(stream)?)),
        };
        Ok(Self { spec, process, console, listener, control, hello: None, _dir: dir })
    }

    /// Boots all guests concurrently and returns when all are up. The guests are awaited in order,
    /// each for at most [`BOOT`] (120 s) after the one before.
    ///
    /// # Errors
    /// The first guest that failed to boot; the others are killed.
    pub fn boot_all(machine: &Machine, specs: Vec<GuestSpec>) -> Result<Vec<Self>> {
        let starts = specs.into_iter().map(|spec| Self::start(machine, spec));
        let mut guests = starts.collect::<Result<Vec<_>>>()?;
        for guest in &mut guests {
            guest.await_ready(BOOT)?;
        }
        Ok(guests)
    }

    /// Waits for the agent's greeting, then configures the network devices.
    ///
    /// # Errors
    /// When the guest ended, panicked, was not up in time, or reported an error of its start, or a
    /// network device is missing or has another MTU; with its console's last lines.
    pub fn await_ready(&mut self, limit: Duration) -> Result<()> {
        let (start, limit) = (Instant::now(), patient(limit));
        while !self.poll_ready()? {
            if start.elapsed() > limit {
                return Err(self.error(format!("not up after {} s", limit.as_secs())));
            }
            thread::sleep(CHECK);
        }
        if let Some(trouble) = self.hello.as_ref().and_then(|h| h.troubles.first()) {
            return Err(self.error(format!("booted with an error: {trouble}")));
        }
        for nic in self.spec.nics.clone() {
            self.configure(&nic)?;
        }
        Ok(())
    }

    /// Returns whether the agent has greeted.
    ///
    /// # Errors
    /// When the guest has ended or panicked.
    pub fn poll_ready(&mut self) -> Result<bool> {
        if let (None, Some(listener)) = (&self.control, &self.listener) {
            match listener.accept() {
                Ok((stream, _)) => self.control = Some(control(stream)?),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(Error::io("accept a guest's control channel")(e)),
            }
        }
        if let Some(hello) = self.control.as_ref().and_then(Control::hello) {
            self.hello = Some(hello);
        }
        if self.hello.is_none() {
            self.check_alive()?;
        }
        Ok(self.hello.is_some())
    }

    /// Fails if the guest has ended or panicked.
    fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.process.ended() {
            // The console's threads read the rest of the pipes.
            thread::sleep(Duration::from_millis(50));
            return Err(self.error(format!("its process ended: {status}")));
        }
        match self.console.fatal() {
            Some(line) => {
                thread::sleep(Duration::from_millis(50));
                Err(self.error(line))
            }
            None => Ok(()),
        }
    }

    /// Sets the address of a device, not its MTU: the guest must have taken the MTU from the device
    /// (VIRTIO_NET_F_MTU), or this fails.
    fn configure(&self, nic: &Nic) -> Result<()> {
        let script = format!(
            "ip link set lo up; for d in /sys/class/net/*; do \
             [ \"$(cat $d/address)\" = {} ] || continue; i=${{d##*/}}; \
             [ \"$(cat $d/mtu)\" = {} ] || {{ echo its MTU is $(cat $d/mtu) >&2; exit 1; }}; \
             ip link set $i up && ip addr add {} dev $i && exit 0; exit 1; \
             done; echo no such device >&2; exit 1",
            nic.mac, nic.mtu, nic.address
        );
        let ran = self.run_unshown(&["sh", "-c", &script], Duration::from_secs(20))?;
        if ran.code == Some(0) {
            return Ok(());
        }
        Err(self.error(format!(
            "configure {} as {}: {}",
            nic.mac,
            nic.address,
            failure_reason(&ran)
        )))
    }

    /// Runs a command in the guest, killed there after `limit`.
    ///
    /// # Errors
    /// When the guest is not up yet, ends, restarts, panics or does not answer; not when the
    /// command fails.
    pub fn run(&self, argv: &[&str], limit: Duration) -> Result<CommandResult> {
        process::show(&format!("{}#", self.spec.name), &process::quoted(argv));
        self.run_unshown(argv, limit)
    }

    /// As [`Guest::run`], for commands of this module, which are not printed.
    fn run_unshown(&self, argv: &[&str], limit: Duration) -> Result<CommandResult> {
        let control =
            self.control.as_ref().ok_or_else(|| self.error("not connected yet".to_string()))?;
        let limit = patient(limit);
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
        let what = argv.join(" ");
        let reply = control
            .ask(Operation::Run { argv, limit_ms })
            .map_err(|e| self.error(format!("ask for `{what}`: {e}")))?;
        let start = Instant::now();
        loop {
            match reply.recv_timeout(Duration::from_millis(100)) {
                Ok(ran) => return Ok(ran),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.error(format!("ended or restarted during `{what}`")));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(line) = self.console.fatal() {
                return Err(self.error(format!("during `{what}`: {line}")));
            }
            if start.elapsed() > limit + REPLY_SLACK {
                return Err(self.error(format!("no answer to `{what}`")));
            }
        }
    }

    /// Runs a command that prints one JSON object, and parses the object.
    ///
    /// # Errors
    /// As [`Guest::run`], and when the command fails or prints anything else.
    pub fn run_json<T: DeserializeOwned>(&self, argv: &[&str], limit: Duration) -> Result<T> {
        let ran = self.run(argv, limit)?;
        let failed = |why: String| Error::Traffic {
            what: format!("guest {}: `{}`: {why}", self.spec.name, argv.join(" ")),
        };
        if ran.code != Some(0) {
            return Err(failed(failure_reason(&ran)));
        }
        serde_json::from_str(&ran.stdout)
            .map_err(|e| failed(format!("printed '{}': {e}", ran.stdout.trim())))
    }

    /// Restarts the guest's kernel in the same process and waits until it is up again. The spec
    /// must permit it ([`GuestSpec::may_restart`]): otherwise QEMU ends.
    ///
    /// # Errors
    /// As [`Guest::await_ready`].
    pub fn restart(&mut self, limit: Duration) -> Result<()> {
        self.hello = None;
        if let Some(control) = &self.control {
            control
                .ask(Operation::Reboot)
                .map_err(|e| self.error(format!("ask to restart: {e}")))?;
        }
        self.await_ready(limit)
    }

    /// Kills its process with SIGKILL, like a crash.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Returns the process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the guest's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the guest's spec.
    #[must_use]
    pub fn spec(&self) -> &GuestSpec {
        &self.spec
    }

    /// Returns the guest's console.
    #[must_use]
    pub fn console(&self) -> &Console {
        &self.console
    }

    /// Returns the agent's greeting, if the guest is up.
    #[must_use]
    pub fn hello(&self) -> Option<&Hello> {
        self.hello.as_ref()
    }

    fn error(&self, what: String) -> Error {
        Error::Guest { guest: self.spec.name.clone(), what, console: self.console.tail() }
    }
}

fn control(stream: UnixStream) -> Result<Control> {
    let taken = stream.set_nonblocking(false).and_then(|()| Control::new(stream));
    taken.map_err(Error::io("take over a guest's control channel"))
}

/// Returns the reason of a command's failure, on a single line.
fn failure_reason(ran: &CommandResult) -> String {
    let said = if ran.stderr.trim().is_empty() { &ran.stdout } else { &ran.stderr };
    match (ran.timed_out, ran.code) {
        (true, _) => format!("exceeded its time limit: {}", said.trim()),
        (false, Some(code)) => format!("exit code {code}: {}", said.trim()),
        (false, None) => format!("did not start, or was killed by a signal: {}", said.trim()),
    }
}
