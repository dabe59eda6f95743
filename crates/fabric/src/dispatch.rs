//! The dispatch loop: one thread that serves all ports.
//!
//! Queues with work are *active* and served in turn, a bounded batch each. A
//! queue that stays empty for the idle spin has its doorbell armed and is left
//! ([`causeway_ring`] tells how none is missed); when no queue is active the
//! thread parks in the kernel until a doorbell, a message, a command or a
//! deadline. Per batch the guest is notified at most once per ring, and only
//! if it asked.
//!
//! # Budget
//! Serving costs no system call but the notifications that guests asked for,
//! and one look at the kernel's events every
//! [`SERVES_PER_LOOK`](crate::limits::SERVES_PER_LOOK) queues served: however
//! many are busy, a doorbell, a command or a deadline does not wait for all.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering};
use std::time::{Duration, Instant};

use causeway_ring::Rescue;
use rustix::event::EventfdFlags;

use crate::control::{Answer, Command, CommandError};
use crate::limits::{
    COMMANDS_WAITING_MAX, EVENTS_MAX, SERVE_CHAINS_MAX, SERVES_PER_LOOK, SPIN_US_DEFAULT,
};
use crate::port::{PortId, Ports, PublishError};
use crate::rules::Rules;
use crate::service::{Context, Progress, Service};
use crate::watch::{Event, Poller, Token, Watch, When};

type Reply = Result<Answer, CommandError>;

/// A command and where its answer goes.
struct Request {
    command: Command,
    reply: SyncSender<Reply>,
}

/// Reaches a running dispatcher from other threads.
#[derive(Debug, Clone)]
pub struct Handle {
    requests: SyncSender<Request>,
    doorbell: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.command.fmt(f)
    }
}

impl Handle {
    fn ring(&self) {
        let _ = rustix::io::write(&*self.doorbell, &1_u64.to_ne_bytes());
    }

    /// Has the dispatcher carry out `command`, and waits for its answer.
    pub fn call(&self, command: Command) -> Reply {
        let gone = || CommandError::Host("the dispatcher has stopped".into());
        let (reply, answer) = sync_channel(1);
        self.requests.send(Request { command, reply }).map_err(|_| gone())?;
        self.ring();
        answer.recv().map_err(|_| gone())?
    }

    /// Has the dispatcher close everything and return from [`Dispatcher::run`].
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }
}

/// The loop and all that it drives.
#[derive(Debug)]
pub struct Dispatcher {
    pub(crate) poller: Poller,
    pub(crate) ports: Ports,
    pub(crate) rules: Rules,
    pub(crate) services: Vec<Box<dyn Service>>,
    pub(crate) now_ns: u64,
    handle: Handle,
    requests: Receiver<Request>,
    _doorbell: Watch,
    start: Instant,
    spin_ns: u64,
    active: VecDeque<(PortId, usize)>,
    dirty: Vec<(PortId, usize)>,
    woken: Vec<(PortId, usize)>,
    pub(crate) faults: Vec<(PortId, String)>,
}

impl Dispatcher {
    /// A dispatcher with these services and no ports.
    pub fn new(services: Vec<Box<dyn Service>>) -> io::Result<Self> {
        let poller = Poller::new()?;
        let doorbell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let watch = poller.watch(doorbell.as_fd(), Token::Command, When::Rung)?;
        let (sender, requests) = sync_channel(COMMANDS_WAITING_MAX);
        let handle = Handle {
            requests: sender,
            doorbell: Arc::new(doorbell),
            stop: Arc::new(AtomicBool::new(false)),
        };
        Ok(Self {
            poller,
            ports: Ports::default(),
            rules: Rules::default(),
            services,
            now_ns: 0,
            handle,
            requests,
            _doorbell: watch,
            start: Instant::now(),
            spin_ns: SPIN_US_DEFAULT.saturating_mul(1000),
            active: VecDeque::new(),
            dirty: Vec::new(),
            woken: Vec::new(),
            faults: Vec::new(),
        })
    }

    /// How long an idle queue is looked at before its doorbell is armed; see
    /// [`SPIN_US_MAX`](crate::limits::SPIN_US_MAX).
    pub fn set_spin(&mut self, spin: Duration) {
        let most = crate::limits::SPIN_US_MAX.saturating_mul(1000);
        self.spin_ns = u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX).min(most);
    }

    /// For other threads to reach this dispatcher.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves until [`Handle::stop`]; then closes all ports and removes their sockets.
    pub fn run(mut self) -> io::Result<()> {
        // A frontend cannot keep this thread in a notification.
        let _rescue = Rescue::new()?;
        let mut events: Vec<Event> = Vec::new();
        let mut left = 0_usize;
        while !self.handle.stop.load(Ordering::Acquire) {
            if self.active.is_empty() || left == 0 {
                left = SERVES_PER_LOOK;
                // Read once a look, not once a round: on some machines the clock is a system call.
                self.now_ns = self.elapsed();
                let timeout = if self.active.is_empty() { self.until_deadline() } else { Some(0) };
                self.poller.wait(&mut events, EVENTS_MAX, timeout)?;
                self.now_ns = self.elapsed();
                for event in &events {
                    self.handle_event(*event);
                }
                self.tick();
            }
            left = left.saturating_sub(self.serve_round(left));
        }
        self.close_all();
        Ok(())
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Nanoseconds until the first service wants its tick; `None`: no service does.
    fn until_deadline(&self) -> Option<u64> {
        let first = self.services.iter().filter_map(|s| s.deadline_ns()).min()?;
        Some(first.saturating_sub(self.now_ns))
    }

    fn tick(&mut self) {
        for index in 0..self.services.len() {
            let due = self.services.get(index).and_then(|s| s.deadline_ns());
            if due.is_some_and(|at| at <= self.now_ns) {
                self.with(index, |service, cx| service.tick(cx));
                self.settle();
            }
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event.token {
            Token::Command => {
                while let Ok(request) = self.requests.try_recv() {
                    let answer = self.execute(request.command);
                    self.settle();
                    let _ = request.reply.try_send(answer);
                }
            }
            Token::Listener { slot, serial } => self.accept(PortId { slot, serial }),
            Token::Frontend { slot, serial } => self.receive(PortId { slot, serial }),
            Token::Doorbell { slot, queue, serial } => {
                let queue = usize::from(queue);
                let id = self.ports.at_slot(slot).map(|p| p.id).filter(|id| id.serial == serial);
                if let Some(id) = id {
                    self.activate(id, queue);
                }
            }
            Token::Service { service, value } => {
                let (readable, writable) = (event.readable, event.writable);
                let index = usize::from(service);
                self.with(index, |service, cx| service.ready(cx, value, readable, writable));
                self.settle();
            }
        }
    }

    /// Calls a service with all that it may reach.
    pub(crate) fn with<R>(
        &mut self,
        index: usize,
        call: impl FnOnce(&mut dyn Service, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let service = self.services.get_mut(index)?;
        let mut cx = Context {
            ports: &mut self.ports,
            rules: &mut self.rules,
            now_ns: self.now_ns,
            service: u8::try_from(index).unwrap_or(u8::MAX),
            poller: &self.poller,
            dirty: &mut self.dirty,
            woken: &mut self.woken,
            faults: &mut self.faults,
        };
        Some(call(&mut **service, &mut cx))
    }

    /// Puts a queue on the list of those to serve.
    pub(crate) fn activate(&mut self, id: PortId, queue: usize) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(id) else { return };
        let Some(work) = port.queues.get_mut(queue) else { return };
        work.worked_ns = now;
        if !work.active {
            work.active = true;
            if let Some((_, ring)) = port.queue(queue) {
                // A broken ring shows its error again when it is served.
                let _ = ring.disarm();
            }
            self.active.push_back((id, queue));
        }
    }

    /// Serves each active queue once, at most `most` of them; says how many.
    fn serve_round(&mut self, most: usize) -> usize {
        let count = self.active.len().min(most);
        for _ in 0..count {
            let Some((id, queue)) = self.active.pop_front() else { break };
            if self.serve(id, queue) {
                self.active.push_back((id, queue));
            } else if let Some(work) = self.ports.get_mut(id).and_then(|p| p.queues.get_mut(queue))
            {
                work.active = false;
            }
            // After the flag is settled: a wake of this very queue must find it parked.
            self.settle();
        }
        count
    }

    /// Serves one queue once; says whether it stays active.
    fn serve(&mut self, id: PortId, queue: usize) -> bool {
        let Some(port) = self.ports.get(id) else { return false };
        if !port.runs(queue) {
            return false;
        }
        if port.memory_lost() {
            self.faults.push((id, crate::frontend::MEMORY_LOST.into()));
            return false;
        }
        let service = port.service;
        let progress = self.with(service, |s, cx| s.serve(cx, id, queue, SERVE_CHAINS_MAX));
        let (now, spin) = (self.now_ns, self.spin_ns);
        let Some(port) = self.ports.get_mut(id) else { return false };
        let Some(work) = port.queues.get_mut(queue) else { return false };
        match progress {
            Some(Progress::Worked) => {
                work.worked_ns = now;
                true
            }
            Some(Progress::Idle) if now.saturating_sub(work.worked_ns) < spin => true,
            Some(Progress::Idle) => match port.queue(queue).map(|(_, ring)| ring.arm()) {
                Some(Ok(more)) => more,
                Some(Err(error)) => {
                    self.faults.push((id, format!("queue {queue}: {error}")));
                    false
                }
                None => false,
            },
            Some(Progress::Parked) | None => false,
        }
    }

    /// Does what services asked for while they were called: publish, wake, close.
    pub(crate) fn settle(&mut self) {
        loop {
            // Emptied in place: these lists fill once a batch and keep their room.
            for index in 0..self.dirty.len() {
                let Some(&(id, queue)) = self.dirty.get(index) else { break };
                let Some(port) = self.ports.get_mut(id) else { continue };
                if let Some(work) = port.queues.get_mut(queue) {
                    work.dirty = false;
                }
                if let Err(error) = port.publish(queue) {
                    if matches!(error, PublishError::Notification(_)) {
                        port.bar(self.now_ns);
                    }
                    self.faults.push((id, format!("queue {queue}: {error}")));
                } else if port.memory_lost() {
                    // Others may have sent to a guest that has not rung since.
                    self.faults.push((id, crate::frontend::MEMORY_LOST.into()));
                }
            }
            self.dirty.clear();
            for index in 0..self.woken.len() {
                let Some(&(id, queue)) = self.woken.get(index) else { break };
                self.activate(id, queue);
            }
            self.woken.clear();
            if self.faults.is_empty() {
                return;
            }
            for (id, reason) in std::mem::take(&mut self.faults) {
                self.fault(id, reason);
            }
        }
    }
}
