//! Held ports: their frontends stay connected while causewayd is replaced.
//!
//! For a held port the dispatcher listens on an inner socket in the holder's directory, and the
//! holder process ([`causeway_holder`]) listens on the public socket and passes frontends on.
//! [`HeldPortsFabric`] wraps the fabric and translates: commands to the fabric carry the inner
//! path, views from it the public path. [`HoldPolicy`] decides which kinds of ports are held; ports
//! that connect to their VMM are not, and no kinds to which processes attach.
//!
//! [`crate::run`] makes the starter of the holder before the sandbox forbids it, and
//! [`crate::lifecycle`] the wrapper. The module starts the holder when the first held port is added
//! and none runs, and registers all held ports again with a new holder. It does not watch the
//! holder: after a holder ended, its frontends are disconnected until the next addition of a held
//! port starts another; until then the addition of a port that is not held fails, and a deletion
//! succeeds with a warning. The decision to keep or release frontends at a stop is that of
//! [`crate::lifecycle`].
//!
//! Calls may come from any thread. A mutex serialises the use of the holder: additions, deletions
//! and views of held ports, and [`FabricControl::is_held`] and [`FabricControl::holder`]. Each
//! request to the holder blocks the calling thread for at most 5 s, or 30 s while causewayd starts
//! and while it registers its ports with a new holder; the start of a holder takes up to 10 s more.
//! An addition that the holder refuses is undone. [`crate::fabric::SocketOwner`] is the wrapper
//! outside, [`causeway_fabric::Handle`] the fabric inside.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use causeway_holder::client::{Client, HolderError};
use causeway_holder::directory::holder_dir;
use causeway_holder::protocol::{HeldPort, HeldProtocol};
use causeway_model::Name;
use causeway_model::port::{DeviceInfo, FrontendProtocol, HELD_EXTENSION, VSOCK};
use causeway_model::{Answer, Command, CommandError, PortView};
use causeway_model::{PortKind, PortSpec};

use crate::fabric::FabricControl;
use crate::held_files::{HASH_DIGITS, remove_stale};
use causeway_model::limits::SOCKET_PATH_BYTES_MAX;
use causeway_model::settings::HoldPolicy;

/// File name of the holder's program, in the directory of causewayd.
const PROGRAM: &str = "causeway-holder";

/// Starts the holder's program from a thread outside the sandbox, because the program would inherit
/// the sandbox. `None` with [`HoldPolicy::None`]: then no thread exists.
#[derive(Debug)]
pub struct HolderStarter(Option<Mutex<StartRequests>>);

/// The channels to and from the starter thread.
#[derive(Debug)]
struct StartRequests {
    /// Holder's directories, to the starter thread.
    requests: Sender<PathBuf>,
    /// A result for each request, in order.
    answers: Receiver<Result<(), HolderError>>,
}

impl HolderStarter {
    /// Creates the thread if ports are held. Must be called before the sandbox is entered.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn new(policy: HoldPolicy) -> std::io::Result<Self> {
        if policy == HoldPolicy::None {
            return Ok(Self(None));
        }
        let program = std::env::current_exe().unwrap_or_default().with_file_name(PROGRAM);
        let ((requests, requested), (answer, answers)) = (channel::<PathBuf>(), channel());
        let serve = move || {
            for dir in requested {
                if answer.send(causeway_holder::client::start(&dir, &program)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("holder-start".into()).spawn(serve)?;
        Ok(Self(Some(Mutex::new(StartRequests { requests, answers }))))
    }

    /// Starts a holder for `dir` and waits for the result.
    fn start(&self, dir: &Path) -> Result<(), HolderError> {
        let Some(channel) = &self.0 else { return Err(HolderError::Silent(dir.to_owned())) };
        let channel = channel.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = || HolderError::Silent(dir.to_owned());
        channel.requests.send(dir.to_owned()).map_err(|_| gone())?;
        channel.answers.recv().map_err(|_| gone())?
    }
}

/// A fabric with held ports.
pub struct HeldPortsFabric {
    /// The fabric, whose held ports listen on inner sockets.
    inner: Arc<dyn FabricControl>,
    /// Kinds of ports that are held.
    policy: HoldPolicy,
    /// The holder's directory, with the inner sockets.
    dir: PathBuf,
    starter: HolderStarter,
    /// Whether a holder ran before this process: guests of an earlier causewayd may be connected to
    /// it.
    found: bool,
    /// Locked while a request to the holder is in progress.
    state: Mutex<HolderState>,
}

/// The connection to the holder, and the ports that it holds.
#[derive(Debug, Default)]
struct HolderState {
    /// The connection to the holder; `None` if no holder is used, or it may have ended.
    client: Option<Client>,
    /// The held ports, as they were described to the holder.
    ports: BTreeMap<Name, HeldPort>,
    /// All configured ports were added: a holder that answers late delays an operator's call.
    has_started: bool,
}

impl std::fmt::Debug for HeldPortsFabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldPortsFabric").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl HeldPortsFabric {
    /// Wraps `inner`; `policy` selects the kinds of ports that are held, with the holder's files
    /// below `run_dir`. Connects to a holder that runs already, and starts none.
    ///
    /// # Errors
    /// A holder runs and its protocol fails.
    pub fn new(
        inner: Arc<dyn FabricControl>,
        policy: HoldPolicy,
        run_dir: &Path,
        starter: HolderStarter,
    ) -> Result<Self, HolderError> {
        let dir = holder_dir(run_dir);
        let client = match Client::connect(&dir) {
            Ok(client) => Some(client),
            Err(HolderError::System(_)) => None,
            Err(error) => return Err(error),
        };
        let found = client.is_some();
        let state = Mutex::new(HolderState { client, ..HolderState::default() });
        Ok(Self { inner, policy, dir, starter, found, state })
    }

    /// Returns whether a holder ran before this process started.
    pub fn found_holder(&self) -> bool {
        self.found
    }

    fn state(&self) -> MutexGuard<'_, HolderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies the holder that all configured ports have been added; it releases ports of earlier
    /// configurations, and their files are removed.
    ///
    /// # Errors
    /// The holder does not answer.
    pub fn confirm_ports(&self) -> Result<(), HolderError> {
        let mut state = self.state();
        state.has_started = true;
        if let Some(client) = &mut state.client {
            client.synced()?;
            client.end_start()?;
        }
        let held = state.ports.values().map(|port| port.inner.clone()).collect();
        remove_stale(&self.dir, &held);
        Ok(())
    }

    /// Notifies the holder to release all frontends.
    pub fn release_all(&self) {
        let mut state = self.state();
        state.ports.clear();
        if let Some(Err(error)) = state.client.take().map(Client::let_go) {
            log::warn!(
                error:% = error;
                "cannot reach the holder: it may keep frontends of held ports connected"
            );
        }
    }

    /// Returns the device of a port that is to be held, `None` for other ports. A port that
    /// connects is not held: after a restart it connects again, and its VMM accepts again.
    ///
    /// # Errors
    /// The VMMs of a port that connects do not accept again.
    fn held_device(&self, spec: &PortSpec) -> Result<Option<DeviceInfo>, CommandError> {
        let kind: &PortKind = &spec.kind;
        let is_held = match self.policy {
            HoldPolicy::All => true,
            HoldPolicy::Needed => kind.kind().loses_frontend,
            HoldPolicy::Vsock => kind.kind().name == VSOCK.name,
            HoldPolicy::None => false,
        };
        if is_held && spec.access.connect {
            if kind.kind().loses_frontend {
                return Err(CommandError::Invalid(format!(
                    "port {}: connect: VMMs do not accept a {} device again after a restart of \
                     causewayd, and the holder keeps only ports that listen: let the VMM connect, \
                     or set hold = \"none\" in [daemon] and restart the VM after causewayd",
                    spec.name,
                    kind.name()
                )));
            }
            return Ok(None);
        }
        Ok(kind.device().filter(|_| is_held))
    }

    /// Adds a port; a held port to the fabric first and then to the holder.
    fn add(&self, spec: PortSpec) -> Result<Answer, CommandError> {
        let Some(device) = self.held_device(&spec)? else {
            check_unheld(&spec.socket)?;
            if let Some(client) = &mut self.state().client {
                // An earlier configuration may have held the port.
                client.delete(spec.name.as_str()).map_err(host)?;
            }
            return self.inner.call(Command::PortAdd(spec));
        };
        let name = spec.name.clone();
        let held = describe(&spec, device, &self.dir)?;
        let mut state = self.state();
        // Before the dispatcher listens: the holder creates the directory of the inner socket.
        let client = state.reach(&self.dir, &self.starter).map_err(host)?;
        let inner = PortSpec { socket: held.inner.clone(), ..spec };
        let answer = self.inner.call(Command::PortAdd(inner))?;
        if let Err(error) = client.add(held.clone()) {
            let _ = self.inner.call(Command::PortDel(name));
            return Err(host(error));
        }
        state.ports.insert(name, held);
        Ok(answer)
    }

    /// Deletes a port. A failure of the holder is logged: the port is gone.
    fn delete(&self, name: Name) -> Result<Answer, CommandError> {
        let answer = self.inner.call(Command::PortDel(name.clone()))?;
        let mut state = self.state();
        if state.ports.remove(&name).is_some()
            && let Some(client) = &mut state.client
            && let Err(error) = client.delete(name.as_str())
        {
            log::warn!(
                port:% = name, error:% = error;
                "cannot reach the holder: it may keep listening for the deleted port"
            );
        }
        Ok(answer)
    }

    /// Replaces the inner path by the public path.
    fn show(&self, view: &mut PortView) {
        let mut state = self.state();
        let HolderState { client, ports, .. } = &mut *state;
        let Some(held) = ports.get(&view.spec.name) else { return };
        view.spec.socket.clone_from(&held.public);
        // The holder checks the users of held ports. If it does not answer, the numbers stay 0.
        if held.users.is_some()
            && let Some(Ok((total, user))) =
                client.as_mut().map(|client| client.refused_users(&held.name))
        {
            (view.refused_users_total, view.refused_user) = (total, user);
        }
    }
}

impl HolderState {
    /// Returns the connection to the holder. Starts a holder if none runs, and registers the held
    /// ports with it.
    fn reach(&mut self, dir: &Path, starter: &HolderStarter) -> Result<&mut Client, HolderError> {
        let client = match self.client.take().filter(Client::is_there) {
            Some(client) => client,
            None => {
                let mut client = Client::reach(dir, |dir| starter.start(dir))?;
                for port in self.ports.values() {
                    client.add(port.clone())?;
                }
                if self.has_started {
                    client.end_start()?;
                }
                client
            }
        };
        Ok(self.client.insert(client))
    }
}

impl FabricControl for HeldPortsFabric {
    fn call(&self, command: Command) -> Result<Answer, CommandError> {
        let mut answer = match command {
            Command::PortAdd(spec) => self.add(spec),
            Command::PortDel(name) => self.delete(name),
            other => self.inner.call(other),
        }?;
        match &mut answer {
            Answer::Port(view) => self.show(view),
            Answer::Ports(views) => views.iter_mut().for_each(|view| self.show(view)),
            _ => {}
        }
        Ok(answer)
    }

    fn is_held(&self, name: &Name) -> bool {
        self.state().ports.contains_key(name)
    }

    fn holder(&self) -> Option<u32> {
        self.state().client.as_ref().map(Client::pid)
    }

    fn leave_ports(&self) {
        self.inner.leave_ports();
    }
}

/// Checks the socket of a port that is not held: services take the extension of inner sockets as
/// the mark of a port behind the holder.
fn check_unheld(socket: &Path) -> Result<(), CommandError> {
    if socket.extension().is_some_and(|extension| extension == HELD_EXTENSION) {
        return Err(CommandError::Invalid(format!(
            "socket {}: the extension .{HELD_EXTENSION} is reserved for sockets of the holder; give \
             the socket another name",
            socket.display()
        )));
    }
    Ok(())
}

/// Returns the error of a command that the holder failed.
fn host(error: HolderError) -> CommandError {
    CommandError::Host(error.to_string())
}

/// Returns the description of a port for the holder.
fn describe(spec: &PortSpec, device: DeviceInfo, dir: &Path) -> Result<HeldPort, CommandError> {
    // A short and stable file name (FNV-1a), by which the next causewayd finds the port's ledger.
    let hash = spec.name.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let inner = dir.join(format!("{hash:0HASH_DIGITS$x}.{HELD_EXTENSION}"));
    if inner.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(CommandError::Invalid(format!(
            "port {}: {} is too long for a Unix socket; give a shorter run_dir, or hold = \"none\" \
             in [daemon]",
            spec.name,
            inner.display()
        )));
    }
    let DeviceInfo { protocol, queues, ring_size_max: ring_size, identity: device } = device;
    let protocol = match protocol {
        FrontendProtocol::VhostUser => HeldProtocol::VhostUser,
        FrontendProtocol::VfioUser => HeldProtocol::VfioUser,
    };
    let public = spec.socket.clone();
    let (name, users) = (spec.name.to_string(), spec.access.socket_users());
    Ok(HeldPort { users, name, public, inner, protocol, queues, ring_size, device })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_ports_alone_have_sockets_of_the_holder() {
        let refused = check_unheld(Path::new("/run/public/vm.inner"));
        assert!(matches!(refused, Err(CommandError::Invalid(text)) if text.contains("reserved")));
        for socket in ["/run/vm.sock", "/run/inner", "/run/vm.inner.sock", ""] {
            check_unheld(Path::new(socket)).unwrap();
        }
    }
}
