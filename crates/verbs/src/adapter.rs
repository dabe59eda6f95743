//! An adapter: the queue pairs, regions and queues of an owner.
//!
//! An adapter belongs to a [`crate::Subnet`], which creates, changes and destroys its queue pairs.
//! Regions are created and destroyed through [`Adapter::regions_mut`] directly. The numbers of
//! queue pairs and regions are the adapter's own. Other adapters reach its regions only through a
//! connected queue pair that names theirs as its peer, and its datagram queue pairs by number or
//! multicast group, with the queue key. The limits are in [`AdapterConfig`], by default 16,384
//! queue pairs and those of [`RegionLimits`]; an object beyond a limit is refused, and none is
//! replaced.
//!
//! Failed queue pairs and expired waiting times are listed in the adapter until `mlx5::poll` takes
//! them ([`crate::Subnet::next_due`]) and calls [`crate::Subnet::progress`], which flushes or fails
//! the work requests. The adapter belongs to the dispatcher that serves the subnet's shard; no
//! method waits.

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::adapter_id::AdapterId;
use crate::attributes::{Kind, State};
use crate::error_counts::ErrorCounts;
use crate::limits::QUEUE_PAIRS_MAX;
use crate::number::Table;
use crate::peer_traffic::{PeerTable, PeerTraffic};
use crate::queue_pair::QueuePair;
use crate::queues::{AsyncEvent, Queues};
use crate::region::{RegionLimits, Regions};
use crate::session::Sessions;
use crate::work::{Completion, ReceiveQueue, Status};

/// The values of an adapter that the operator decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdapterConfig {
    /// Ethernet address, unique in the subnet.
    pub mac: [u8; 6],
    /// Most queue pairs; above 16,384 the adapter has 16,384.
    pub queue_pairs: usize,
    /// Most regions, registered bytes and page list entries.
    pub regions: RegionLimits,
    /// Most reliable requests that wait for their responders at the same time.
    pub waiting_requests: usize,
}

impl AdapterConfig {
    /// Returns the limits of [`crate::limits`] with an Ethernet address.
    pub fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            queue_pairs: QUEUE_PAIRS_MAX,
            regions: RegionLimits::default(),
            waiting_requests: QUEUE_PAIRS_MAX,
        }
    }
}

/// Sums since the adapter was added; a device reset ([`crate::Subnet::clear`]) keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Send work requests that ended with success.
    pub requests: u64,
    /// Payload bytes of these.
    pub request_bytes: u64,
    /// Receive work requests that ended with success.
    pub received: u64,
    /// Payload bytes of these.
    pub received_bytes: u64,
    /// Send and receive work requests that ended with an error other than a flush.
    pub errors: u64,
    /// Flushed work requests.
    pub flushed: u64,
    /// Messages that waited for a receive work request of their responder, or for room in a
    /// session.
    pub not_ready: u64,
    /// Messages that waited for a responder.
    pub unanswered: u64,
    /// Messages that failed because as many waited as the adapter permits.
    pub not_waited: u64,
    /// Datagrams that this adapter dropped as receiver (no receiving queue pair, wrong key, or no
    /// receive work request), and messages of unreliable connections without a receive work
    /// request. Datagrams that find a broken receive queue are not counted.
    pub dropped: u64,
    /// Datagrams that were sent to no adapter of the subnet, and deliveries that the policy denied.
    pub unroutable: u64,
    /// Datagrams to general service interfaces beyond the rate of this adapter; they were dropped.
    pub throttled: u64,
    /// Requests of peers that this adapter refused.
    pub refused: u64,
    /// [`Self::errors`] by status.
    pub by_status: ErrorCounts,
}

/// Objects that a reset took out of an adapter. The drop takes time for each, so that the caller
/// leaves it to another thread.
#[derive(Debug)]
pub struct Retired {
    pub(crate) queue_pairs: Table<QueuePair>,
    /// Queue pairs that may have a message which their peers receive in part.
    pub(crate) unfinished: BTreeSet<u32>,
    _regions: Regions,
    _general_all: BTreeSet<u32>,
    _failed: VecDeque<u32>,
    _deadlines: BTreeSet<(u64, u32)>,
    _shared_limits: HashMap<u32, u32, foldhash::fast::RandomState>,
}

/// An adapter of a subnet.
#[derive(Debug)]
pub struct Adapter<Q> {
    /// Identity in the subnet.
    pub(crate) id: AdapterId,
    /// Ethernet address, unique in the subnet.
    pub(crate) mac: [u8; 6],
    /// Work and completion queues in the owner's memory.
    pub(crate) queues: Q,
    /// Memory regions by key.
    pub(crate) regions: Regions,
    /// Queue pairs by number.
    pub(crate) queue_pairs: Table<QueuePair>,
    /// The queue pair of the general service interface.
    pub(crate) general: Option<u32>,
    /// All queue pairs of kind [`Kind::Gsi`].
    pub(crate) general_all: BTreeSet<u32>,
    /// Time until which the rate of datagrams to general service interfaces is used.
    pub(crate) general_used_ns: u64,
    /// Queue pairs that failed since the last call of `next_due`.
    pub(crate) failed: VecDeque<u32>,
    /// Requests that wait.
    waiting: usize,
    /// Most requests that wait.
    waiting_max: usize,
    /// Ends of waiting times, with the queue pair.
    pub(crate) deadlines: BTreeSet<(u64, u32)>,
    /// Time until which requests of restored queue pairs wait for adapters that are not restored
    /// yet.
    pub(crate) peers_until_ns: u64,
    /// Shared receive queues that report when they have fewer entries than this limit.
    pub(crate) shared_limits: HashMap<u32, u32, foldhash::fast::RandomState>,
    /// Queue pairs that may have a message which their peers receive in part.
    pub(crate) unfinished: BTreeSet<u32>,
    /// Queue pairs that resets took, with messages that have not ended.
    pub(crate) retired: VecDeque<Retired>,
    /// Sums since the adapter was added.
    pub(crate) counters: Counters,
    /// Messages by peer.
    pub(crate) traffic: PeerTable,
    /// Sessions of queue pairs with the service of the adapter.
    pub(crate) sessions: Sessions,
    /// The adapter is in the subnet's list of changed adapters.
    pub(crate) is_touched: bool,
}

impl Counters {
    /// Counts a work request that ended with an error.
    pub(crate) fn count_error(&mut self, status: Status) {
        self.errors = self.errors.wrapping_add(1);
        self.by_status.add(status);
    }
}

impl<Q: Queues> Adapter<Q> {
    /// Returns an adapter without objects.
    pub(crate) fn new(id: AdapterId, config: &AdapterConfig, queues: Q) -> Self {
        Self {
            id,
            mac: config.mac,
            queues,
            regions: Regions::new(config.regions),
            queue_pairs: Table::new(config.queue_pairs.min(QUEUE_PAIRS_MAX)),
            general: None,
            general_all: BTreeSet::new(),
            general_used_ns: 0,
            failed: VecDeque::new(),
            waiting: 0,
            waiting_max: config.waiting_requests,
            deadlines: BTreeSet::new(),
            peers_until_ns: 0,
            shared_limits: HashMap::default(),
            unfinished: BTreeSet::new(),
            retired: VecDeque::new(),
            counters: Counters::default(),
            traffic: PeerTable::default(),
            sessions: Sessions::default(),
            is_touched: false,
        }
    }

    /// Takes all objects out, as after power-on.
    pub(crate) fn retire(&mut self) -> Retired {
        // Sessions end now; the objects may be dropped later in another thread.
        self.sessions.end_all();
        self.general = None;
        self.waiting = 0;
        Retired {
            queue_pairs: self.queue_pairs.retire(),
            unfinished: std::mem::take(&mut self.unfinished),
            _regions: self.regions.retire(),
            _general_all: std::mem::take(&mut self.general_all),
            _failed: std::mem::take(&mut self.failed),
            _deadlines: std::mem::take(&mut self.deadlines),
            _shared_limits: std::mem::take(&mut self.shared_limits),
        }
    }

    /// Returns whether queue pairs that a reset took have messages which
    /// [`crate::Subnet::cut_retired`] has to end.
    pub fn has_unfinished(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Returns whether queue pairs failed that [`crate::Subnet::next_due`] has not returned yet.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Returns the number of requests that wait, and the most.
    pub fn waiting_requests(&self) -> (usize, usize) {
        (self.waiting, self.waiting_max)
    }

    /// Counts a request that begins to wait. Returns false if as many wait as the adapter permits.
    pub(crate) fn begin_wait(&mut self) -> bool {
        if self.waiting >= self.waiting_max {
            self.counters.not_waited = self.counters.not_waited.wrapping_add(1);
            return false;
        }
        self.waiting = self.waiting.saturating_add(1);
        true
    }

    /// Counts a request that ends its wait.
    pub(crate) fn end_wait(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Returns the earliest time at which a waiting queue pair is due, in nanoseconds.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Makes requests of queue pairs that [`crate::Subnet::resume`] restored wait until `until_ns`
    /// for peers whose adapters are missing or have no queue pairs. Their retries begin then, or
    /// when the peer's adapter has queue pairs.
    pub fn await_peers(&mut self, until_ns: u64) {
        self.peers_until_ns = until_ns;
    }

    /// Returns the identity.
    pub fn id(&self) -> AdapterId {
        self.id
    }

    /// Returns the Ethernet address.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Returns the sums since the adapter was added.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes the traffic with each peer since the last call, of peers with traffic.
    pub fn take_traffic(&mut self) -> impl Iterator<Item = PeerTraffic> + '_ {
        self.traffic.take()
    }

    /// Returns the queues.
    pub fn queues(&self) -> &Q {
        &self.queues
    }

    /// Returns the queues, for changes.
    pub fn queues_mut(&mut self) -> &mut Q {
        &mut self.queues
    }

    /// Returns the number of sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.queue_pairs().count()
    }

    /// Returns the regions.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Returns the regions, for changes.
    pub fn regions_mut(&mut self) -> &mut Regions {
        &mut self.regions
    }

    /// Returns the queues and the regions.
    pub fn parts_mut(&mut self) -> (&mut Q, &mut Regions) {
        (&mut self.queues, &mut self.regions)
    }

    /// Returns the queue pair of a number.
    pub fn queue_pair(&self, number: u32) -> Option<&QueuePair> {
        self.queue_pairs.get(number)
    }

    /// Returns all queue pairs with their numbers.
    pub fn queue_pairs(&self) -> impl Iterator<Item = (u32, &QueuePair)> {
        self.queue_pairs.iter()
    }

    /// Makes a shared receive queue report [`AsyncEvent::SharedReceiveLimit`] once, when fewer than
    /// `limit` of its entries are posted. A limit of 0 never reports. The owner removes the limit
    /// of a destroyed queue with a limit of 0.
    pub fn arm_shared_limit(&mut self, shared: u32, limit: u32) {
        if limit == 0 {
            self.shared_limits.remove(&shared);
        } else {
            self.shared_limits.insert(shared, limit);
            self.check_shared_limit(shared);
        }
    }

    /// Reports the limit of a shared receive queue if it is reached.
    pub(crate) fn check_shared_limit(&mut self, shared: u32) {
        if let Some(limit) = self.shared_limits.get(&shared).copied()
            && self.queues.posted(ReceiveQueue::Shared(shared)) < limit
        {
            self.shared_limits.remove(&shared);
            self.queues.report(AsyncEvent::SharedReceiveLimit(shared));
        }
    }

    /// Moves a queue pair to the error state. Its work requests are flushed when
    /// [`crate::Subnet::progress`] is called for it next.
    pub(crate) fn fail(&mut self, number: u32) {
        self.stop(number, State::Error);
    }

    /// Moves a queue pair to the state after a failed send work request.
    pub(crate) fn fail_requester(&mut self, number: u32) {
        if let Some(next) = self.state_of_failed_requester(number) {
            self.stop(number, next);
        }
    }

    /// Returns the state after a failed send work request; `None` if it does not change.
    pub(crate) fn state_of_failed_requester(&self, number: u32) -> Option<State> {
        let queue_pair = self.queue_pairs.get(number)?;
        let datagram_rules = matches!(queue_pair.kind(), Kind::Uc | Kind::Ud | Kind::Gsi);
        let next = if datagram_rules { State::SendQueueError } else { State::Error };
        (queue_pair.state() != State::Error).then_some(next)
    }

    /// Moves a queue pair to an error state and lists it.
    pub(crate) fn stop(&mut self, number: u32, state: State) {
        let Some(queue_pair) = self.queue_pairs.get_mut(number) else { return };
        queue_pair.set_state(state);
        if state == State::Error {
            self.sessions.end(number);
        }
        self.queues.fails(number, state, true);
        if !queue_pair.is_listed {
            queue_pair.is_listed = true;
            self.failed.push_back(number);
        }
    }

    /// Adds a completion. If the completion queue overruns, the queue pair fails.
    pub(crate) fn complete(&mut self, completion_queue: u32, completion: &Completion) {
        if self.queues.complete(completion_queue, completion).is_ok() {
            return;
        }
        let number = completion.queue_pair;
        if self.queue_pairs.get(number).is_some_and(|pair| pair.state() != State::Error) {
            self.queues.report(AsyncEvent::CompletionQueueError(completion_queue));
            self.fail(number);
        }
    }
}
