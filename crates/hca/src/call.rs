//! A call of a port in the turn of its shard: how much it does, and when the next one follows.
//!
//! A call runs at most [`COMMANDS_PER_CALL_MAX`] (8) commands, and as much posted work and frames
//! as the rest of the turn, the port's share ([`crate::share`]) and its rate
//! ([`crate::rate_limit`]) allow; the remainder stays in guest memory for the next call. A port at
//! the limit of its rate executes commands and reports events, and no work. [`crate::service`]
//! makes the call in the dispatcher's thread when the fabric serves the port's source. The order
//! within a call: frames of the uplink, the group's rules, commands, answers of sessions, posted
//! work, frames of the guest.
//!
//! | state of the port after a call | next call |
//! |---|---|
//! | had work, or ceded to other ports | in the next turn |
//! | frames wait for room in the uplink | every turn for the idle spin, then after at most 20 us |
//! | at the limit of its rate | when the rate is free; events are polled for as while idle |
//! | idle, `doorbell = "poll"` | every turn for the idle spin, then by [`crate::idle`], and after pauses of full length when a watched word changed ([`crate::idle_watches`]) |
//! | idle, `doorbell = "trap"` | at the next doorbell; as with `poll` while a request waits |
//! | no queues | at the next command doorbell |
//!
//! A frame of the uplink and an answer of a session bring the call of an idle port at once.

use causeway_fabric::{Context, PortId, Progress, SourceProgress, cost};
use causeway_model::port::HcaDoorbell;
use causeway_verbs::Budget;

use crate::adapter_port::AdapterPort;
use crate::limits::{
    BYTES_PER_CALL_MIN, COMMAND_BYTE_COPIES, COMMAND_NS, COMMANDS_PER_CALL_MAX, MESSAGE_NS,
    POLL_NS, ROOM_PAUSE_NS, WAKE_NS,
};
use crate::recent::Sums;
use crate::service::{HcaService, source_of};
use crate::sessions::PortSessions;

impl HcaService {
    /// Serves a port in the turn of its shard. Returns whether the fabric serves the port again in
    /// the next turn, or after the next event.
    pub(crate) fn serve_port(&mut self, cx: &mut Context<'_>, id: PortId) -> SourceProgress {
        match self.call(cx, id) {
            // The port cedes to others, and is asked again.
            None => SourceProgress { progress: Progress::Worked, count: 0 },
            Some(0) => SourceProgress { progress: self.idle_progress(cx, id), count: 0 },
            Some(count) => SourceProgress { progress: Progress::Worked, count },
        }
    }

    /// Wakes the ports with passed deadlines, and the watched ports whose words changed, as far as
    /// the turn has time.
    pub(crate) fn wake_due(&mut self, cx: &mut Context<'_>) {
        while !cx.is_over()
            && let Some(id) = self.deadlines.take_due(cx.now_ns)
        {
            cx.charge(WAKE_NS);
            cx.wake_source(source_of(id));
        }
        let mut changed = std::mem::take(&mut self.changed);
        self.idle_watches.compare(cx.now_ns, cx.slice, &mut changed);
        for id in changed.drain(..) {
            self.unwatch(id);
            cx.wake_source(source_of(id));
        }
        self.changed = changed;
    }

    /// Ends the watch of a port, if the port is watched.
    pub(crate) fn unwatch(&mut self, id: PortId) {
        if let Some(port) = self.ports.get_mut(&id)
            && std::mem::take(&mut port.is_watched)
        {
            self.idle_watches.remove(id);
        }
    }

    /// Runs a call for the port's share of the turn. Returns the number of pieces of work, or
    /// `None` if other ports have their share first.
    fn call(&mut self, cx: &mut Context<'_>, id: PortId) -> Option<u32> {
        self.unwatch(id);
        let Self { ports, shares, .. } = self;
        let Some(port) = ports.get_mut(&id) else { return Some(0) };
        let call = shares.begin_call(&mut port.share, cx.slice)?;
        let mut turn = std::mem::replace(cx.slice, call);
        let count = self.run(cx, id);
        self.after(cx);
        if let Some(port) = self.ports.get_mut(&id) {
            self.shares.end_call(&mut port.share, &mut turn, *cx.slice, count > 0);
        }
        *cx.slice = turn;
        Some(count)
    }

    /// Runs commands, posted work and frames of one port. Returns the number of pieces of work.
    fn run(&mut self, cx: &mut Context<'_>, id: PortId) -> u32 {
        let Self { subnet, ports, switch, uplink, traffic, .. } = self;
        let Some(port) = ports.get_mut(&id) else { return 0 };
        let received = switch.receive(cx, subnet, port);
        cx.charge(POLL_NS);
        if let Some(uplink) = uplink {
            uplink.policy.adopt(subnet);
        }
        let run = causeway_mlx5::run_commands(subnet, port.adapter, COMMANDS_PER_CALL_MAX);
        let commands = run.commands;
        cx.charge(u64::from(commands).saturating_mul(COMMAND_NS));
        cx.charge(bytes_ns(run.bytes.saturating_mul(COMMAND_BYTE_COPIES)));
        if commands > 0
            && let Some(adapter) = subnet.adapter_mut(port.adapter)
        {
            // A queue pair that becomes ready may have posted work already.
            adapter.queues_mut().expect_work();
        }
        let AdapterPort { sessions, adapter, .. } = port;
        let answers = sessions.as_mut().map_or(0, |s| s.answer(cx, subnet, *adapter));
        let is_limited = port.limit.is_limited();
        let adapter = subnet.adapter(port.adapter);
        let sums_before = adapter.filter(|_| is_limited).map(Sums::of);
        let mut left = port.limit.bound(cx.now_ns, budget(cx));
        let before = left;
        let messages = causeway_mlx5::poll(subnet, port.adapter, cx.now_ns, &mut left);
        let spent = before.messages().saturating_sub(left.messages());
        cx.charge(u64::from(spent).saturating_mul(MESSAGE_NS));
        cx.charge(bytes_ns(before.bytes().saturating_sub(left.bytes())));
        let frames = match port.limit.resumes_ns(cx.now_ns) {
            None => switch.transmit(cx, subnet, port, (uplink.as_mut(), traffic)),
            Some(_) => 0,
        };
        let limited = sums_before.zip(subnet.adapter(port.adapter));
        if let Some((sums_before, adapter)) = limited {
            let sent = Sums::of(adapter).sent_since(&sums_before);
            let bytes = left.payload().saturating_add(sent.frame_bytes);
            port.charge_rate(cx.now_ns, bytes, sent.messages);
        }
        if let Some(fault) = port.sessions.as_ref().and_then(PortSessions::take_fault) {
            cx.note(id, fault);
        }
        let count =
            [messages, frames, received, answers].into_iter().fold(commands, u32::saturating_add);
        if count > 0 {
            port.worked_ns = cx.now_ns;
            port.schedule.stop();
        }
        count
    }

    /// Decides how a port without work is served next, and sets its deadline.
    fn idle_progress(&mut self, cx: &Context<'_>, id: PortId) -> Progress {
        let progress = self.next_progress(cx, id);
        self.set_deadline(id);
        let port = self.ports.get(&id);
        let station = port.and_then(|port| port.station.as_ref());
        let sessions = port.and_then(|port| port.sessions.as_ref());
        match progress {
            // A frame came since the inbox was found empty.
            Progress::Parked if station.is_some_and(|station| !station.arm()) => Progress::Worked,
            // An answer came.
            Progress::Parked if sessions.is_some_and(|s| !s.arm()) => Progress::Worked,
            progress => progress,
        }
    }

    /// Decides how a port without work is served next.
    fn next_progress(&mut self, cx: &Context<'_>, id: PortId) -> Progress {
        let Self { subnet, ports, idle_watches, .. } = self;
        let Some(port) = ports.get_mut(&id) else { return Progress::Parked };
        let adapter = subnet.adapter(port.adapter);
        let function = adapter.map(|adapter| adapter.queues());
        let Some(function) = function.filter(|function| function.is_active()) else {
            port.schedule.stop();
            return Progress::Parked;
        };
        if let Some(resumes_ns) = port.limit.resumes_ns(cx.now_ns) {
            port.schedule.pause_until(cx.now_ns, resumes_ns);
            return Progress::Parked;
        }
        let station = port.station.as_ref();
        // A process posts receive work requests without a doorbell.
        let waits = port.sessions.as_ref().is_some_and(|sessions| sessions.waits);
        let is_blocked = station.is_some_and(|station| station.sender.is_blocked());
        if port.options.doorbell == HcaDoorbell::Trap {
            if function.has_unlooked() {
                return Progress::Idle;
            }
            if !function.has_waiting_work() && !is_blocked && !waits {
                port.schedule.stop();
                return Progress::Parked;
            }
        }
        if cx.now_ns.saturating_sub(port.worked_ns) < cx.idle_spin_ns() {
            return Progress::Idle;
        }
        if is_blocked {
            port.schedule.pause_until(cx.now_ns, cx.now_ns.saturating_add(ROOM_PAUSE_NS));
            return Progress::Parked;
        }
        port.schedule.pause(cx.now_ns);
        if !waits
            && let Some(period_ns) = port.schedule.longest_ns()
            && let Some(watch) = function.watch()
        {
            port.schedule.watch();
            port.is_watched = true;
            if let Some(station) = &port.station {
                station.sender.free_buffers();
            }
            idle_watches.insert(id, watch, period_ns, cx.now_ns);
        }
        Progress::Parked
    }
}

/// Returns the estimated time of a copy, in nanoseconds.
fn bytes_ns(bytes: u64) -> u64 {
    cost::bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Returns the budget of a call: the rest of the slice, in messages and bytes, and at least a
/// message with some bytes, so that a port with work is never found idle.
fn budget(cx: &Context<'_>) -> Budget {
    let messages = u32::try_from(cx.steps(MESSAGE_NS)).unwrap_or(u32::MAX);
    Budget::new(messages, cost::bytes_within(cx.left_ns()).max(BYTES_PER_CALL_MIN))
}
