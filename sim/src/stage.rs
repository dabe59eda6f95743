//! A stage: a shard and its frontends in one thread, with simulated time and simulated doorbells.
//!
//! A frontend is a native port over a socket pair. While the frontend waits for an answer the shard
//! works, so that a complete set-up is one call. Otherwise the shard works only in [`Stage::step`],
//! in [`Stage::step_elsewhere`] and for a command ([`Stage::with`]), and time changes only in
//! [`Stage::advance`]. A port attached by [`Stage::net`] or [`Stage::vsock`] never rings a doorbell
//! itself: [`causeway_attach::native::DriverQueue::ring_due`] returns whether a guest would ring,
//! and `ring` rings. [`Stage::step_elsewhere`] alone uses another thread, for one step.
//! [`crate::ether`], [`crate::sock`], [`crate::lan`] and [`crate::boards`] own stages, in the
//! thread of the world, and tests and fuzz targets drive one directly. A command that the shard
//! refuses, a failed system call and a frontend that runs out of answers ([`Stage::patience`]) are
//! a [`StageError`]; nothing is retried.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_attach::native::{
    Client, NativeError, NetOptions, NetPort, Pump, VsockOptions, VsockPort,
};
use causeway_fabric::{PollConfig, Service, Shard};
use causeway_model::Name;
use causeway_model::{CommandError, PortView};
use causeway_model::{Mac, NetSpec, PortKind, PortSpec, VsockSpec};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// Turns of the shard each time a frontend waits for an answer.
const PUMP_TURNS: usize = 4;

/// A failure to set up or run a stage.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// A system call failed, or the protocol with a process of an MX NIC was violated.
    #[error(transparent)]
    Host(#[from] io::Error),
    /// The shard refused a command.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The conversation failed, or reached the limit set by [`Stage::patience`].
    #[error(transparent)]
    Native(#[from] NativeError),
}

#[derive(Debug)]
struct Core {
    shard: Shard,
    now_ns: u64,
    /// The number of answers a frontend may still wait for.
    patience: Option<usize>,
}

impl Core {
    fn step(&mut self, turns: usize) -> io::Result<()> {
        self.shard.step(self.now_ns, turns)
    }
}

/// A shard, its simulated clock and the sockets of its ports.
#[derive(Debug)]
pub struct Stage {
    core: Arc<Mutex<Core>>,
    group: Name,
}

/// The hook that a client calls while it waits for the shard.
#[derive(Debug)]
struct Prompter(Arc<Mutex<Core>>);

fn lock(core: &Mutex<Core>) -> MutexGuard<'_, Core> {
    core.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pump for Prompter {
    fn pump(&mut self) -> bool {
        let mut core = lock(&self.0);
        if let Some(left) = &mut core.patience {
            match left.checked_sub(1) {
                Some(less) => *left = less,
                None => return false,
            }
        }
        core.step(PUMP_TURNS).is_ok()
    }
}

/// Returns the specification of a net port of `group`, as an operator requests it.
pub fn net_spec(group: &Name, name: &Name, net: NetSpec) -> PortSpec {
    spec(group, name, PortKind::of(net))
}

/// Returns the specification of a vsock port of `group`, as an operator requests it.
pub fn vsock_spec(group: &Name, name: &Name, cid: u32) -> PortSpec {
    spec(
        group,
        name,
        PortKind::of(VsockSpec { cid, guest_cid: None, host_socket: None, processes: false }),
    )
}

fn spec(group: &Name, name: &Name, kind: PortKind) -> PortSpec {
    // The socket is never listened on: the stage passes connections to the shard directly.
    PortSpec {
        name: name.clone(),
        group: group.clone(),
        socket: PathBuf::from("/staged"),
        access: Default::default(),
        memory_max: None,
        kind,
    }
}

/// Returns a net port with one queue pair and without address learning.
pub fn plain_net(mac: [u8; 6], mtu: u16) -> NetSpec {
    NetSpec {
        mac: Mac(mac),
        guest_mac: None,
        mtu,
        queue_pairs: 1,
        learn: false,
        offloads: Default::default(),
    }
}

impl Stage {
    /// Creates a stage for ports of `group` and of one service, at time zero.
    ///
    /// # Errors
    /// The host is out of descriptors.
    pub fn new(
        group: Name,
        service: Box<dyn Service>,
        poll_config: PollConfig,
    ) -> io::Result<Self> {
        let shard = Shard::new(group.clone(), service, poll_config)?;
        let core = Core { shard, now_ns: 0, patience: None };
        Ok(Self { core: Arc::new(Mutex::new(core)), group })
    }

    /// Returns the group of the ports.
    pub fn group(&self) -> &Name {
        &self.group
    }

    /// Returns the time, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        lock(&self.core).now_ns
    }

    /// Advances time by `ns` nanoseconds.
    pub fn advance(&self, ns: u64) {
        let mut core = lock(&self.core);
        core.now_ns = core.now_ns.saturating_add(ns);
    }

    /// Lets the shard read its events and serve its queues, at most `turns` times each. Returns
    /// true if the shard has work left.
    ///
    /// # Errors
    /// A system call of the shard fails.
    pub fn step(&self, turns: usize) -> io::Result<bool> {
        let mut core = lock(&self.core);
        core.step(turns)?;
        Ok(core.shard.is_busy())
    }

    /// Runs [`Self::step`] in another thread, as after a move of the shard to another dispatcher.
    ///
    /// # Errors
    /// A system call of the shard fails.
    pub fn step_elsewhere(&self, turns: usize) -> io::Result<bool> {
        let mut core = lock(&self.core);
        let core = &mut *core;
        let moved = std::thread::scope(|scope| scope.spawn(|| core.step(turns)).join());
        moved.map_err(|_| io::Error::other("the shard panicked"))??;
        Ok(core.shard.is_busy())
    }

    /// Returns the time at which the service wants to be called without an event.
    pub fn deadline_ns(&self) -> Option<u64> {
        lock(&self.core).shard.deadline_ns()
    }

    /// Calls `call` with the shard.
    pub fn with<R>(&self, call: impl FnOnce(&mut Shard) -> R) -> R {
        call(&mut lock(&self.core).shard)
    }

    /// Ends every conversation after frontends have waited for `answers` more answers together,
    /// which simulates a frontend that dies during set-up. `None` removes the limit.
    pub fn patience(&self, answers: Option<usize>) {
        lock(&self.core).patience = answers;
    }

    /// Adds a port.
    ///
    /// # Errors
    /// The shard refuses the port.
    pub fn add(&self, spec: PortSpec) -> Result<(), StageError> {
        self.with(|shard| shard.port_add(spec, false))?;
        Ok(())
    }

    /// Deletes a port.
    ///
    /// # Errors
    /// No port has this name.
    pub fn delete(&self, name: &Name) -> Result<(), StageError> {
        Ok(self.with(|shard| shard.port_delete(name))?)
    }

    /// Returns the view of a port that an operator gets.
    ///
    /// # Errors
    /// No port has this name.
    pub fn view(&self, name: &Name) -> Result<PortView, StageError> {
        Ok(self.with(|shard| shard.port_view(name))?)
    }

    /// Returns the frontend's end of a new connection to a port, for processes of MX NICs, and for
    /// tests that write raw bytes.
    ///
    /// # Errors
    /// The port is in use, or the host is out of descriptors.
    pub fn stream(&self, name: &Name) -> Result<OwnedFd, StageError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(io::Error::from)?;
        self.with(|shard| shard.connect(name, theirs.into()))?;
        Ok(ours)
    }

    /// Returns a conversation with a port in which only the protocol has been negotiated.
    ///
    /// # Errors
    /// As [`Self::stream`], or the conversation fails.
    pub fn client(&self, name: &Name) -> Result<Client, StageError> {
        let stream = self.stream(name)?;
        Ok(Client::pumped(stream, Box::new(Prompter(Arc::clone(&self.core))))?)
    }

    /// Attaches a net frontend that declines the features `declined`.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub fn net(
        &self,
        name: &Name,
        options: NetOptions,
        declined: u64,
    ) -> Result<NetPort, StageError> {
        self.net_over(self.client(name)?, options, declined)
    }

    /// Attaches a net frontend as [`Self::net`] does, over an open conversation.
    ///
    /// # Errors
    /// The conversation fails.
    pub fn net_over(
        &self,
        mut client: Client,
        options: NetOptions,
        declined: u64,
    ) -> Result<NetPort, StageError> {
        client.decline(declined);
        let pairs = usize::from(options.pairs);
        let mut port = NetPort::over(client, options)?;
        for queue in 0..pairs * 2 {
            port.frontend().driver_queue(queue)?.1.set_quiet(true);
        }
        Ok(port)
    }

    /// Attaches a vsock frontend that declines the features `declined`.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub fn vsock(
        &self,
        name: &Name,
        options: VsockOptions,
        declined: u64,
    ) -> Result<VsockPort, StageError> {
        self.vsock_over(self.client(name)?, options, declined)
    }

    /// Attaches a vsock frontend as [`Self::vsock`] does, over an open conversation.
    ///
    /// # Errors
    /// The conversation fails.
    pub fn vsock_over(
        &self,
        mut client: Client,
        options: VsockOptions,
        declined: u64,
    ) -> Result<VsockPort, StageError> {
        client.decline(declined);
        let mut port = VsockPort::over(client, options)?;
        for queue in 0..3 {
            port.frontend().driver_queue(queue)?.1.set_quiet(true);
        }
        Ok(port)
    }
}
