//! The fabric: starts, reaches and stops all dispatchers.
//!
//! The daemon starts a [`Fabric`] with its services and sends commands through a [`Handle`], from
//! any thread. A command runs under the lock of the registry (`crate::registry`), which sends
//! orders to the dispatchers and waits for their answers. The data path runs in the dispatchers'
//! threads (`crate::dispatcher`); of this module it passes [`ManualFabric::turn`] only, once a
//! round.
//!
//! Commands are executed one after the other and block their caller; a dispatcher's own thread must
//! not send a command, as the dispatcher would wait for itself. Threads beside the dispatchers: the
//! watchdog of each dispatcher ([`Watchdog`]), a balancer if there are at least two dispatchers, a
//! ticker while a controller needs ticks ([`CONTROL_TICK`] (1 s)), and the sampler of
//! `crate::memory_charge`, once in a process. If a dispatcher fails or panics, all stop, and
//! [`Fabric::wait`] returns the error. Then no port is closed, and the caller must end the process,
//! which has the effect of its crash: only so do held frontends and the records of adapters stay
//! for the next process. [`Handle::stop`] closes all ports. After a stop, commands that need a
//! dispatcher fail with [`CommandError::Host`].
//!
//! [`ManualFabric`] is for a caller with its own event loop, such as a test. It has one dispatcher,
//! which runs in the caller's thread, with a watchdog and a ticker as above; it starts neither
//! balancer nor sampler. Commands that need its dispatcher wait for the next turn; after the last
//! turn they wait until the value is dropped, and then fail.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use causeway_host::Watchdog;

use crate::dispatch_mode::PollConfig;
use crate::dispatcher::{Dispatcher, Worker};
use crate::limits::{BALANCE_MS, CONTROL_TICK};
use crate::registration::ServiceRegistration;
use crate::registry::Registry;
use causeway_model::limits::{DISPATCHERS_MAX, SPIN_US_MAX};
use causeway_model::{Answer, Command, CommandError, TypedRequest};

/// Options of dispatching. The number of dispatchers and the idle spin (at most [`SPIN_US_MAX`],
/// 100 ms) are clamped to their range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Number of dispatchers, 1 to [`DISPATCHERS_MAX`] (64); 0 counts as 1.
    pub dispatchers: usize,
    /// CPU of each dispatcher, by its number; dispatchers beyond the list are not bound to a CPU. A
    /// CPU that the thread cannot use is a failure of the dispatcher: [`Fabric::wait`] returns it.
    pub cpus: Vec<usize>,
    /// Parameters of polling.
    pub poll_config: PollConfig,
}

/// The running dispatchers. Dropping the value stops them and waits for their end.
#[derive(Debug)]
pub struct Fabric {
    handle: Handle,
    threads: Vec<JoinHandle<io::Result<()>>>,
    balancer: Option<JoinHandle<()>>,
}

/// A handle of the fabric for any thread.
#[derive(Debug, Clone)]
pub struct Handle(Arc<Inner>);

/// The state that all handles share.
#[derive(Debug)]
struct Inner {
    /// The control plane; one command at a time.
    registry: Mutex<Registry>,
    /// Dispatchers, by number.
    workers: Vec<Arc<Worker>>,
    stopped: AtomicBool,
}

impl Handle {
    /// Executes `command`, and blocks until its answer is there.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn call(&self, command: Command) -> Result<Answer, CommandError> {
        let mut registry = self.registry();
        let answer = registry.execute(command);
        if registry.begin_ticks() && self.start_ticks().is_err() {
            // The next command retries.
            registry.end_ticks();
        }
        answer
    }

    /// Executes a command of a service, and blocks until its answer is there.
    ///
    /// # Errors
    /// See [`CommandError`]; also if no registered service knows the command.
    pub fn ask<T: TypedRequest>(&self, request: T) -> Result<T::Answer, CommandError> {
        self.call(Command::service(request))?.to_service::<T>()
    }

    /// Starts a thread that calls the controllers' ticks while at least one controller needs them.
    fn start_ticks(&self) -> io::Result<()> {
        let inner = Arc::downgrade(&self.0);
        let ticks = move || {
            loop {
                thread::sleep(CONTROL_TICK);
                let Some(inner) = inner.upgrade() else { return };
                let handle = Handle(inner);
                if !handle.registry().tick() || handle.is_stopped() {
                    return;
                }
            }
        };
        thread::Builder::new().name("control-tick".into()).spawn(ticks).map(drop)
    }

    /// Requests every dispatcher to close its ports and end; does not wait ([`Fabric::wait`] does).
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        for worker in &self.0.workers {
            worker.stop();
        }
    }

    /// Ends the dispatchers between two turns, and leaves the ports as they are: the next process
    /// continues their rings, and no frame is half delivered. Returns when the dispatchers have
    /// ended; the connections are open until the process ends.
    pub fn leave_ports(&self) {
        self.abandon();
        for worker in &self.0.workers {
            // An order may be executed before the last turn. With an error, the dispatcher has ended.
            while worker.run(|_| ()).is_ok() {}
        }
    }

    /// Requests every dispatcher to end and to leave its ports as they are.
    fn abandon(&self) {
        // Of all before the first is stopped: a dispatcher that ends stops the others.
        self.0.workers.iter().for_each(|worker| worker.keep_ports());
        self.stop();
    }

    /// Locks the registry; waits for the present command.
    fn registry(&self) -> std::sync::MutexGuard<'_, Registry> {
        // After a panic the registry still matches the shards that the dispatchers serve.
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a stop was requested.
    fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }
}

impl Fabric {
    /// Starts the dispatchers, without groups and ports.
    ///
    /// # Errors
    /// The host refuses a thread or a descriptor.
    pub fn start(services: &[ServiceRegistration], options: Options) -> io::Result<Self> {
        crate::memory_charge::start_sampling()?;
        let (handle, made) = make(services, options)?;
        let count = made.len();
        let mut fabric = Self { handle, threads: Vec::new(), balancer: None };
        for (number, dispatcher) in made.into_iter().enumerate() {
            let handle = fabric.handle.clone();
            let serve = move || serve(dispatcher, &handle);
            let name = format!("dispatcher-{number}");
            fabric.threads.push(thread::Builder::new().name(name).spawn(serve)?);
        }
        if count > 1 {
            let handle = fabric.handle.clone();
            let named = thread::Builder::new().name("balancer".into());
            fabric.balancer = Some(named.spawn(move || balance(&handle))?);
        }
        Ok(fabric)
    }

    /// Returns a handle for other threads.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits until the fabric is stopped.
    ///
    /// # Errors
    /// A dispatcher failed; all dispatchers were stopped then, and the ports are open.
    pub fn wait(mut self) -> io::Result<()> {
        self.join()
    }

    /// Waits for the end of the dispatchers and of the balancer. Returns the first error of a
    /// dispatcher.
    fn join(&mut self) -> io::Result<()> {
        let mut ended = Ok(());
        for thread in self.threads.drain(..) {
            ended = ended.and(thread.join().unwrap_or_else(|_| Err(panicked())));
        }
        if let Some(balancer) = self.balancer.take() {
            balancer.thread().unpark();
            let _ = balancer.join();
        }
        ended
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.handle.stop();
        let _ = self.join();
    }
}

/// Makes dispatchers that do not run yet, and their handle.
fn make(
    services: &[ServiceRegistration],
    options: Options,
) -> io::Result<(Handle, Vec<Dispatcher>)> {
    let Options { dispatchers, cpus, mut poll_config } = options;
    poll_config.spin_ns = poll_config.spin_ns.min(SPIN_US_MAX.saturating_mul(1000));
    let start = Instant::now();
    let (mut made, mut workers) = (Vec::new(), Vec::new());
    for number in 0..dispatchers.clamp(1, DISPATCHERS_MAX) {
        let cpu = cpus.get(number).copied();
        let (dispatcher, worker) = Dispatcher::new(start, poll_config.spin_ns, cpu)?;
        made.push(dispatcher);
        workers.push(worker);
    }
    let registry = Registry::new(services, poll_config, workers.clone(), start);
    let stopped = AtomicBool::new(false);
    let inner = Inner { registry: Mutex::new(registry), workers, stopped };
    Ok((Handle(Arc::new(inner)), made))
}

/// A fabric with a single dispatcher that the caller's event loop turns.
#[derive(Debug)]
pub struct ManualFabric {
    handle: Handle,
    dispatcher: Dispatcher,
    /// Interrupts the turning thread if a frontend keeps it in a notification. Bound to the thread
    /// that made it, which keeps this value in that thread.
    _rescue: Watchdog,
}

impl ManualFabric {
    /// Makes a dispatcher without groups and ports, to be turned by this thread.
    ///
    /// # Errors
    /// The host refuses a descriptor or the watchdog's thread.
    pub fn new(services: &[ServiceRegistration], poll_config: PollConfig) -> io::Result<Self> {
        let (handle, made) = make(services, Options { poll_config, ..Options::default() })?;
        let none = || io::Error::other("no dispatcher was made");
        let mut dispatcher = made.into_iter().next().ok_or_else(none)?;
        dispatcher.begin();
        Ok(Self { handle, dispatcher, _rescue: Watchdog::new()? })
    }

    /// Returns a handle for other threads. The turning thread must not call it: it would wait for
    /// itself.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves waiting work for one round, and never waits. Returns false once the fabric was
    /// stopped.
    ///
    /// # Errors
    /// The host fails; no port is closed for it.
    pub fn turn(&mut self) -> io::Result<bool> {
        self.dispatcher.turn(false)
    }
}

/// Returns the error for a panic of a dispatcher.
fn panicked() -> io::Error {
    io::Error::other("a dispatcher panicked")
}

/// Runs a dispatcher, and stops the others at its end: its ports are no longer served. Ports are
/// closed only if all dispatchers end without a failure.
fn serve(mut dispatcher: Dispatcher, handle: &Handle) -> io::Result<()> {
    // A shard in which a dispatcher panicked is not used any more.
    let run = panic::catch_unwind(AssertUnwindSafe(|| dispatcher.run()));
    let ended = run.unwrap_or_else(|_| Err(panicked()));
    match &ended {
        Ok(()) => handle.stop(),
        Err(_) => handle.abandon(),
    }
    if ended.is_err() || dispatcher.keeps_ports() {
        dispatcher.leave_ports();
    }
    ended
}

/// Moves shards off busy dispatchers, every [`BALANCE_MS`] (1 s), until the fabric is stopped.
fn balance(handle: &Handle) {
    while !handle.is_stopped() {
        thread::park_timeout(Duration::from_millis(BALANCE_MS));
        handle.registry().balance();
    }
}
