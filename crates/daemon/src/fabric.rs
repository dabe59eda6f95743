//! The interface between the control plane and the dispatchers.
//!
//! [`FabricControl`] executes commands of [`causeway_model`]. The daemon stacks three wrappers on
//! the real fabric ([`causeway_fabric::Handle`]): [`crate::held_ports::HeldPortsFabric`] moves held
//! ports behind the holder, outside of it [`SocketOwner`] sets owners and permissions of new
//! sockets, and outermost [`crate::kept::Kept`] follows changes for the state file. The module also
//! fills a fabric from a configuration ([`apply`]) and empties it ([`close_all`]).
//!
//! A call blocks its thread until the dispatcher answers, without a time limit, and may come from
//! any thread. The fabric executes one command at a time, those of several threads in no defined
//! order: while a dispatcher hangs, all calls wait. After the fabric has stopped, commands that
//! need a dispatcher fail. *Held* ports are those whose frontends the holder keeps connected. No
//! frame passes here. A function that stops at an error leaves its earlier commands in effect; only
//! the addition of a port is undone if the access to its socket cannot be set. Differences between
//! a running fabric and a file are the subject of [`crate::plan`].
//!
//! Callers are [`crate::lifecycle`] at the start, at SIGHUP, for the watchdog and at the end, and
//! [`crate::kept`], [`crate::api`], [`crate::plan`], [`crate::vnet`] and [`crate::metrics`].

use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use causeway_model::Name;
use causeway_model::{
    Answer, Command, CommandError, PortState, PortView, SectionDefinition, SectionOrder,
    ServiceRequest, ServiceResponse, TableContext, TableReader, TypedRequest,
};
use causeway_model::{FileMode, PortSpec, SocketPermissions, message_socket, schema};
use rustix::fs::{AtFlags, FileType, Gid, OFlags, Uid};
use rustix::io::Errno;

use crate::accounts::{group_id, user_id};
use crate::config::Config;
use crate::plan::SectionObject;
use crate::sandbox::add_remedy;
use causeway_model::draft::host;

/// Executes commands: the dispatchers, or a model of them in tests.
pub trait FabricControl: Send + Sync {
    /// Executes a command and waits for its answer.
    ///
    /// # Errors
    /// The fabric or a service refuses the command.
    fn call(&self, command: Command) -> Result<Answer, CommandError>;

    /// Returns whether the port's frontend stays connected while causewayd is replaced.
    fn is_held(&self, _port: &Name) -> bool {
        false
    }

    /// Returns the pid of the holder, if a holder runs.
    fn holder(&self) -> Option<u32> {
        None
    }

    /// Ends the dispatchers and leaves the ports that are open as they are, before the process
    /// ends. Returns when no dispatcher serves any more.
    fn leave_ports(&self) {}
}

/// Executes a command of a service and waits for its answer.
///
/// # Errors
/// The service refuses the command, or no service of `fabric` has it.
pub fn ask<T: TypedRequest>(
    fabric: &(impl FabricControl + ?Sized),
    command: T,
) -> Result<T::Answer, CommandError> {
    fabric.call(Command::service(command))?.to_service::<T>()
}

/// Executes an erased command of a service and waits for its answer.
///
/// # Errors
/// The service refuses the command, or no service of `fabric` has it.
pub fn ask_service(
    fabric: &(impl FabricControl + ?Sized),
    request: ServiceRequest,
) -> Result<ServiceResponse, CommandError> {
    match fabric.call(Command::Service(request))? {
        Answer::Service(response) => Ok(response),
        other => Err(CommandError::Host(format!("a service's command got {other:?}"))),
    }
}

/// Adds the objects of a configuration to an empty fabric: groups, rules, ports, and the tables of
/// sections that services registered, in the order of [`SectionOrder`].
///
/// Rules and policies are in force before the first port is opened: `further` are requests for
/// policies that follow later, such as the routes of a file of VNET commands. Policies are completed
/// when their ports and paths exist.
///
/// `before_ports` is called when groups and rules are there and policies are in force, before the
/// first port is opened. `stops` is called before each port and path; if it returns true, the
/// remaining objects are left out and the function returns `Ok`. Objects that cannot work yet, such
/// as links that cannot be opened, are kept and retried; names of peers are resolved in the
/// background.
///
/// # Errors
/// The first refusal; objects added before it remain.
pub fn apply(
    fabric: &dyn FabricControl,
    config: &Config,
    further: Vec<ServiceRequest>,
    before_ports: &dyn Fn(),
    stops: &dyn Fn() -> bool,
) -> Result<(), CommandError> {
    let cx = TableContext { key_file: &config.daemon.key_file, resolve: host::resolve_later };
    let complete = config.objects.iter().map(|object| SectionObject::of_config(object, cx));
    let mut objects: Vec<_> = complete.collect::<Result<_, _>>().map_err(CommandError::Invalid)?;
    objects.sort_by_key(|object| object.section.order);
    for group in &config.groups {
        fabric.call(Command::GroupAdd(group.clone()))?;
    }
    // Before the ports, so that no connect precedes the rules.
    for rule in &config.rules {
        fabric.call(Command::RuleAdd { index: None, rule: rule.clone() })?;
    }
    for object in &objects {
        if let Some(prepare) = object.section.requests.prepare {
            send(fabric, object, prepare)?;
        }
    }
    for request in further {
        ask_service(fabric, request)?;
    }
    before_ports();
    for port in &config.ports {
        if stops() {
            return Ok(());
        }
        fabric.call(Command::PortAdd(port.clone()))?;
    }
    for object in &objects {
        if object.section.order == SectionOrder::Path && stops() {
            return Ok(());
        }
        send(fabric, object, object.section.requests.keep.unwrap_or(object.section.read))?;
    }
    Ok(())
}

/// Sends a request about an object of a section.
fn send(
    fabric: &dyn FabricControl,
    object: &SectionObject,
    read: TableReader,
) -> Result<(), CommandError> {
    let request = read(&object.complete).map_err(|problems| {
        CommandError::Invalid(schema::joined(object.section.title, &problems))
    })?;
    ask_service(fabric, request).map(drop)
}

/// Closes the objects of `sections` and every port, so that peers are notified and no socket file
/// remains. A failed deletion is logged, and the next object follows; if objects or ports cannot be
/// listed, they stay open, without a log line.
pub fn close_all(fabric: &dyn FabricControl, sections: &[SectionDefinition]) {
    close(fabric, sections, |_| true);
}

/// Closes the objects of `sections`, and every port that is neither held nor resumed by its
/// processes.
pub fn close_all_but_held(fabric: &dyn FabricControl, sections: &[SectionDefinition]) {
    close(fabric, sections, |port| !is_kept(fabric, port));
}

/// Returns whether a port is left as it is at a stop: its frontend is held, or its processes resume
/// their endpoints through the next daemon. Closing the port would close the endpoints.
fn is_kept(fabric: &dyn FabricControl, port: &PortView) -> bool {
    port.spec.kind.kind().resumes || fabric.is_held(&port.spec.name)
}

/// Returns whether a frontend is connected to a held port, or a process to a port that its
/// processes resume (`resumes`); also true if the fabric does not answer.
pub fn has_held_guests(fabric: &dyn FabricControl) -> bool {
    let is_attached = |port: &PortView| {
        matches!(port.state, PortState::Connected | PortState::Running) && is_kept(fabric, port)
    };
    match fabric.call(Command::PortList) {
        Ok(Answer::Ports(ports)) => ports.iter().any(is_attached),
        // A dispatcher that does not answer is no reason to disconnect guests.
        _ => true,
    }
}

/// Closes the objects of `sections`, then the ports that `wanted` selects.
fn close(
    fabric: &dyn FabricControl,
    sections: &[SectionDefinition],
    wanted: impl Fn(&PortView) -> bool,
) {
    for close in sections.iter().filter_map(|section| section.requests.close) {
        close(&|request| ask_service(fabric, request));
    }
    let Ok(Answer::Ports(ports)) = fabric.call(Command::PortList) else { return };
    for port in ports.into_iter().filter(|port| wanted(port)) {
        if let Err(error) = fabric.call(Command::PortDel(port.spec.name.clone())) {
            log::warn!(
                port:% = port.spec.name, error:% = error;
                "cannot close a port: its socket file may remain"
            );
        }
    }
}

/// Wraps a fabric and sets owner, group and permissions of the sockets of new ports, so that a QEMU
/// process of another user can connect; also looks up the users that may.
pub struct SocketOwner {
    /// The fabric that executes the commands.
    pub inner: Arc<dyn FabricControl>,
    /// Permission bits of ports that have none of their own; `None` leaves those of the umask.
    pub mode: Option<u32>,
    /// Group of ports that have none of their own; `None` leaves the daemon's group.
    pub group: Option<u32>,
}

impl std::fmt::Debug for SocketOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SocketOwner")
            .field("mode", &self.mode)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

impl FabricControl for SocketOwner {
    fn call(&self, mut command: Command) -> Result<Answer, CommandError> {
        let added = match &mut command {
            Command::PortAdd(spec) => {
                let found = spec.access.resolve_users(user_id);
                found.map_err(|text| {
                    CommandError::Invalid(format!("port {}: allowed_users: {text}", spec.name))
                })?;
                Some(spec.clone())
            }
            _ => None,
        };
        let answer = self.inner.call(command).map_err(add_remedy)?;
        if let Some(spec) = added
            && let Err(text) = self.set_port_access(&spec)
        {
            let _ = self.inner.call(Command::PortDel(spec.name.clone()));
            return Err(CommandError::Host(format!("port {}: {text}", spec.name)));
        }
        Ok(answer)
    }

    fn is_held(&self, port: &Name) -> bool {
        self.inner.is_held(port)
    }

    fn holder(&self) -> Option<u32> {
        self.inner.holder()
    }

    fn leave_ports(&self) {
        self.inner.leave_ports();
    }
}

impl SocketOwner {
    /// Sets the access of a port's socket, and of the sockets in the host that it serves.
    fn set_port_access(&self, spec: &PortSpec) -> Result<(), String> {
        let mut sockets = spec.paths();
        // The VMM decides who reaches a socket at which it listens.
        if let Some(socket) = sockets.next().filter(|_| spec.listens_at_socket()) {
            self.set_access(socket, spec.access.of_socket())?;
        }
        sockets.try_for_each(|host| {
            self.set_access(host, spec.access.of_host_socket())?;
            self.set_access(&message_socket(host), spec.access.of_host_socket())
        })
    }

    /// Sets the access of a socket: the given values, else the defaults of this wrapper.
    fn set_access(&self, path: &Path, given: SocketPermissions) -> Result<(), String> {
        let owner = given.owner.as_deref().map(user_id).transpose()?;
        let group = given.group.as_deref().map(group_id).transpose()?;
        let mode = given.mode.map(|FileMode(mode)| mode).or(self.mode);
        set_socket_access(path, mode, (owner, group.or(self.group)))
    }
}

/// Sets owner and group, then permission bits (`mode`), of a socket. `None` leaves a property as it
/// is.
///
/// The path is opened once, without following a symbolic link, and all changes apply to the opened
/// file: a link that replaces the path later has no effect.
///
/// # Errors
/// The path is no socket, or a system call fails.
pub fn set_socket_access(
    path: &Path,
    mode: Option<u32>,
    (owner, group): (Option<u32>, Option<u32>),
) -> Result<(), String> {
    if mode.is_none() && owner.is_none() && group.is_none() {
        return Ok(());
    }
    let failed =
        |action: &str, error: std::io::Error| format!("{action} {}: {error}", path.display());
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = rustix::fs::open(path, flags, rustix::fs::Mode::empty())
        .map_err(|e| failed("cannot look at", e.into()))?;
    let stat = rustix::fs::fstat(&socket).map_err(|e| failed("cannot look at", e.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(format!("{}: expected a socket", path.display()));
    }
    if owner.is_some() || group.is_some() {
        let (uid, gid) = (owner.map(Uid::from_raw), group.map(Gid::from_raw));
        rustix::fs::chownat(&socket, "", uid, gid, AtFlags::EMPTY_PATH).map_err(|e| {
            let remedy = match (e, owner) {
                (Errno::PERM, Some(_)) => "; only root gives sockets to another user",
                (Errno::PERM, None) => "; the daemon's user must be a member of the group",
                _ => "",
            };
            failed("cannot set the owner of", e.into()) + remedy
        })?;
    }
    if let Some(mode) = mode {
        // fchmod(2) refuses an O_PATH descriptor; the path in /proc names the same file.
        let opened = format!("/proc/self/fd/{}", socket.as_raw_fd());
        std::fs::set_permissions(opened, std::fs::Permissions::from_mode(mode))
            .map_err(|e| failed("cannot set the permissions of", e))?;
    }
    Ok(())
}

impl FabricControl for causeway_fabric::Handle {
    fn call(&self, command: Command) -> Result<Answer, CommandError> {
        self.call(command)
    }

    fn leave_ports(&self) {
        self.leave_ports();
    }
}
