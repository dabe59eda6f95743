//! Engines that run guests: QEMU under one of its accelerators, or user-mode Linux.
//!
//! A test, the demo or [`crate::rdma`] creates a [`Machine`] and starts any number of
//! [`Guest`](crate::Guest)s on it; `launch` makes the command and the control channel of a guest,
//! which [`crate::guest`] starts. [`Machine::qemu`] and [`Machine::user_mode`] look for programs
//! and prepare the image, and the first chooses the accelerator, which may take minutes at the
//! first run; a part that is missing is an error. [`crate::rdma`] makes machines of its own. The
//! machine has no process of its own.

use crate::accel::Accelerator;
use crate::error::{Error, Result};
use crate::image::{Flavour, Image};
use crate::qemu::Qemu;
use crate::rundir::RunDir;
use crate::spec::GuestSpec;
use crate::{bridge, process, uml};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

/// Execution engine of a guest's kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engine {
    /// A virtual machine.
    Qemu(Qemu, Accelerator),
    /// The kernel as a host process: not a virtual machine, not isolated.
    UserMode,
}

/// An engine and its boot image.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The execution engine.
    pub engine: Engine,
    /// The boot image.
    pub image: Image,
}

/// Control channel of a starting guest.
#[derive(Debug)]
pub(crate) enum Channel {
    /// The engine will connect to this listener.
    Awaited(UnixListener),
    /// The engine inherited the other end.
    Open(UnixStream),
}

impl Machine {
    /// Returns the QEMU of [`Qemu::find`] with the accelerator of [`Accelerator::choose`] and the
    /// stock cloud kernel.
    ///
    /// # Errors
    /// When QEMU or a part of the image is not available.
    pub fn qemu() -> Result<Self> {
        let qemu = Qemu::find()?;
        let image = Image::prepare(Flavour::Cloud)?;
        let accel = Accelerator::choose(&qemu, &image)?;
        Ok(Self { engine: Engine::Qemu(qemu, accel), image })
    }

    /// Returns Debian's user-mode Linux.
    ///
    /// # Errors
    /// When it or a part of the image is not available.
    pub fn user_mode() -> Result<Self> {
        Ok(Self { engine: Engine::UserMode, image: Image::prepare(Flavour::UserMode)? })
    }

    /// Returns the machine with more files in its image ([`Image::with_files`]).
    ///
    /// # Errors
    /// As [`Image::with_files`].
    pub fn with_files(self, files: &[(&str, Vec<u8>)]) -> Result<Self> {
        Ok(Self { image: self.image.with_files(files)?, ..self })
    }

    /// Returns a description of the engine for display.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.engine {
            Engine::Qemu(qemu, accel) => format!("{}, QEMU {}", accel.name(), qemu.version_text),
            Engine::UserMode => "user-mode Linux (no virtual machine)".into(),
        }
    }

    /// Returns the engine's short name: `kvm`, `tcg` or `uml`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match &self.engine {
            Engine::Qemu(_, accel) => accel.option(),
            Engine::UserMode => "uml",
        }
    }

    /// Returns the command that starts a guest; its console is on the streams piped to this
    /// process.
    pub(crate) fn launch(&self, spec: &GuestSpec, dir: &RunDir) -> Result<(Command, Channel)> {
        match &self.engine {
            Engine::Qemu(qemu, accel) => {
                let control = dir.join("control.sock");
                let listener = UnixListener::bind(&control)
                    .and_then(|l| l.set_nonblocking(true).map(|()| l))
                    .map_err(Error::io(format!("listen on {}", control.display())))?;
                let mut command = tied(spec, &qemu.program);
                command.args(qemu.arguments(spec, &self.image, *accel, &control));
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                Ok((command, Channel::Awaited(listener)))
            }
            Engine::UserMode => {
                let pair = || {
                    let (ours, theirs) = UnixStream::pair()?;
                    let input = OwnedFd::from(theirs.try_clone()?);
                    Ok((ours, input, OwnedFd::from(theirs)))
                };
                let (ours, input, output) = pair().map_err(Error::io("make a socket pair"))?;
                let mut command = tied(spec, &self.image.kernel.image);
                command.args(uml::arguments(spec, &self.image, dir.path()));
                command.stdin(input).stdout(output).stderr(Stdio::piped());
                Ok((command, Channel::Open(ours)))
            }
        }
    }
}

/// Returns a command that ends with this process, in the guest's namespace if the spec has one.
fn tied(spec: &GuestSpec, program: &Path) -> Command {
    match spec.namespace_of {
        Some(pid) => bridge::inside(pid, program),
        None => process::tied(program),
    }
}
