//! A stage: a shard and its frontends in one thread, with time and doorbells by hand.
//!
//! A frontend is a native port over a socket pair. While it waits for an answer the shard works,
//! so that a whole set-up is one call. Afterwards the shard works when [`Stage::step`] says so,
//! time stands where [`Stage::advance`] put it, and a port attached here rings no doorbell by
//! itself: [`causeway_attach::native::DriverQueue::ring_due`] tells of one that a guest would ring, and
//! `ring` rings it.

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

/// Turns of the shard for each time that a frontend waits for an answer.
const PUMP_TURNS: usize = 4;

/// Why something cannot be staged.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The host gives no descriptor.
    #[error(transparent)]
    Host(#[from] io::Error),
    /// The shard refuses.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The conversation failed, or was cut short as [`Stage::patience`] had it.
    #[error(transparent)]
    Native(#[from] NativeError),
}

#[derive(Debug)]
struct Core {
    shard: Shard,
    now_ns: u64,
    /// How often a frontend may still wait for an answer.
    patience: Option<usize>,
}

impl Core {
    fn step(&mut self, turns: usize) -> io::Result<()> {
        self.shard.step(self.now_ns, turns)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Stage {
    core: Arc<Mutex<Core>>,
    group: Name,
}

/// What a client calls while it waits for the shard.
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

/// A net port of `group` as the operator asks for it.
pub fn net_spec(group: &Name, name: &Name, net: NetSpec) -> PortSpec {
    spec(group, name, PortKind::of(net))
}

/// A vsock port of `group` as the operator asks for it.
pub fn vsock_spec(group: &Name, name: &Name, cid: u32) -> PortSpec {
    spec(group, name, PortKind::of(VsockSpec { cid, host_socket: None }))
}

fn spec(group: &Name, name: &Name, kind: PortKind) -> PortSpec {
    // Nobody listens there: frontends are handed in.
    PortSpec {
        name: name.clone(),
        group: group.clone(),
        socket: PathBuf::from("/staged"),
        access: Default::default(),
        memory_max: None,
        kind,
    }
}

/// A net port of one queue pair that does not learn.
pub fn plain_net(mac: [u8; 6], mtu: u16) -> NetSpec {
    NetSpec { mac: Mac(mac), mtu, queue_pairs: 1, learn: false, offloads: Default::default() }
}

impl Stage {
    /// A stage for ports of `group` and of one service, at time zero.
    ///
    /// # Errors
    /// The host gives no descriptor.
    pub fn new(
        group: Name,
        service: Box<dyn Service>,
        poll_config: PollConfig,
    ) -> io::Result<Self> {
        let shard = Shard::new(group.clone(), service, poll_config)?;
        let core = Core { shard, now_ns: 0, patience: None };
        Ok(Self { core: Arc::new(Mutex::new(core)), group })
    }

    /// Whose ports play here.
    pub fn group(&self) -> &Name {
        &self.group
    }

    /// The time, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        lock(&self.core).now_ns
    }

    /// Moves time on by `ns` nanoseconds.
    pub fn advance(&self, ns: u64) {
        let mut core = lock(&self.core);
        core.now_ns = core.now_ns.saturating_add(ns);
    }

    /// Lets the shard look at what came and serve its queues, at most `turns` times each; says
    /// whether it has work left.
    ///
    /// # Errors
    /// The host fails us.
    pub fn step(&self, turns: usize) -> io::Result<bool> {
        let mut core = lock(&self.core);
        core.step(turns)?;
        Ok(core.shard.is_busy())
    }

    /// As [`Self::step`], in another thread: the shard has moved to another dispatcher.
    ///
    /// # Errors
    /// The host fails us.
    pub fn step_elsewhere(&self, turns: usize) -> io::Result<bool> {
        let mut core = lock(&self.core);
        let core = &mut *core;
        let moved = std::thread::scope(|scope| scope.spawn(|| core.step(turns)).join());
        moved.map_err(|_| io::Error::other("the shard panicked"))??;
        Ok(core.shard.is_busy())
    }

    /// When the service wants to be called without a cause.
    pub fn deadline_ns(&self) -> Option<u64> {
        lock(&self.core).shard.deadline_ns()
    }

    /// Reaches the shard itself.
    pub fn with<R>(&self, call: impl FnOnce(&mut Shard) -> R) -> R {
        call(&mut lock(&self.core).shard)
    }

    /// Has every conversation end after its frontend has waited `answers` times more for an
    /// answer: a frontend that dies in the middle. `None`: they go on.
    pub fn patience(&self, answers: Option<usize>) {
        lock(&self.core).patience = answers;
    }

    /// Adds a port.
    ///
    /// # Errors
    /// The shard refuses it.
    pub fn add(&self, spec: PortSpec) -> Result<(), StageError> {
        self.with(|shard| shard.port_add(spec, false))?;
        Ok(())
    }

    /// Deletes a port.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn delete(&self, name: &Name) -> Result<(), StageError> {
        Ok(self.with(|shard| shard.port_delete(name))?)
    }

    /// A port as the operator sees it.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn view(&self, name: &Name) -> Result<PortView, StageError> {
        Ok(self.with(|shard| shard.port_view(name))?)
    }

    /// The frontend's end of a new connection to a port, for those who write bytes of their own.
    ///
    /// # Errors
    /// The port is taken, or the host gives no descriptor.
    pub fn stream(&self, name: &Name) -> Result<OwnedFd, StageError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(io::Error::from)?;
        self.with(|shard| shard.connect(name, theirs.into()))?;
        Ok(ours)
    }

    /// A conversation with a port, which has negotiated the protocol and no more.
    ///
    /// # Errors
    /// As [`Self::stream`], or the conversation fails.
    pub fn client(&self, name: &Name) -> Result<Client, StageError> {
        let stream = self.stream(name)?;
        Ok(Client::pumped(stream, Box::new(Prompter(Arc::clone(&self.core))))?)
    }

    /// Attaches a net frontend that leaves out the features `declined`.
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

    /// As [`Self::net`], over a conversation that has begun.
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

    /// Attaches a vsock frontend that leaves out the features `declined`.
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

    /// As [`Self::vsock`], over a conversation that has begun.
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
