//! A call of a port in the turn of its shard: how much it does, and when the next one follows.
//!
//! A call runs at most [`COMMANDS_PER_CALL_MAX`] (8) commands, and as much posted work and frames as
//! the rest of the turn, the port's share ([`crate::share`]) and its rate ([`crate::rate_limit`])
//! allow; the remainder stays in guest memory for the next call. A port at the limit of its rate
//! executes commands and reports events, and no work.
//!
//! | state of the port after a call | next call |
//! |---|---|
//! | had work | in this turn or the next |
//! | at the limit of its rate | when the rate is free; events are polled for as while idle |
//! | idle, `doorbell = "poll"` | every turn for the idle spin, then by [`crate::idle`] |
//! | idle, `doorbell = "trap"` | at the next doorbell; as with `poll` while a request waits |
//! | no queues | at the next command doorbell |

use causeway_fabric::{Context, PortId, Progress, SourceProgress, cost};
use causeway_model::port::HcaDoorbell;
use causeway_verbs::Budget;

use crate::limits::{
    BYTES_PER_CALL_MIN, COMMAND_BYTE_COPIES, COMMAND_NS, COMMANDS_PER_CALL_MAX, MESSAGE_NS, POLL_NS,
};
use crate::recent::Sums;
use crate::service::HcaService;

impl HcaService {
    /// Serves a port in the turn of its shard.
    pub(crate) fn serve_port(&mut self, cx: &mut Context<'_>, id: PortId) -> SourceProgress {
        match self.call(cx, id) {
            // The port cedes to others, and is asked again.
            None => SourceProgress { progress: Progress::Worked, count: 0 },
            Some(0) => SourceProgress { progress: self.idle_progress(cx, id), count: 0 },
            Some(count) => SourceProgress { progress: Progress::Worked, count },
        }
    }

    /// Calls a port at the end of its pause. Returns whether the shard serves the port in its turns.
    pub(crate) fn poll_paused(&mut self, cx: &mut Context<'_>, id: PortId) -> bool {
        match self.call(cx, id) {
            Some(0) => self.idle_progress(cx, id) != Progress::Parked,
            _ => {
                if let Some(port) = self.ports.get_mut(&id) {
                    port.schedule.stop();
                }
                self.set_deadline(id);
                true
            }
        }
    }

    /// Runs a call for the port's share of the turn. Returns the number of pieces of work, or `None`
    /// if other ports have their share first.
    fn call(&mut self, cx: &mut Context<'_>, id: PortId) -> Option<u32> {
        let Self { ports, shares, .. } = self;
        let share = ports.get_mut(&id).map(|port| &mut port.share);
        let most_ns = share.map_or(Some(0), |share| shares.begin(share))?;
        let turn = *cx.slice;
        let began_ns = turn.now_ns();
        *cx.slice = turn.until(began_ns.saturating_add(most_ns.min(turn.left_ns())));
        let count = self.run(cx, id);
        self.after(cx);
        let used_ns = cx.slice.now_ns().saturating_sub(began_ns);
        let mut rest = turn;
        rest.take_time(cx.slice);
        *cx.slice = rest;
        if let Some(port) = self.ports.get_mut(&id) {
            self.shares.end(&mut port.share, used_ns, count > 0);
        }
        Some(count)
    }

    /// Runs commands, posted work and frames of one port. Returns the number of pieces of work.
    fn run(&mut self, cx: &mut Context<'_>, id: PortId) -> u32 {
        let Self { subnet, ports, switch, uplink, traffic, .. } = self;
        let Some(port) = ports.get_mut(&id) else { return 0 };
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
        let count = commands.saturating_add(messages).saturating_add(frames);
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
        progress
    }

    /// Decides how a port without work is served next.
    fn next_progress(&mut self, cx: &Context<'_>, id: PortId) -> Progress {
        let Self { subnet, ports, .. } = self;
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
        if port.options.doorbell == HcaDoorbell::Trap {
            if function.has_unlooked() {
                return Progress::Idle;
            }
            if !function.has_waiting_work() {
                port.schedule.stop();
                return Progress::Parked;
            }
        }
        if cx.now_ns.saturating_sub(port.worked_ns) < cx.idle_spin_ns() {
            return Progress::Idle;
        }
        port.schedule.pause(cx.now_ns);
        Progress::Parked
    }
}

/// Returns the estimated time of a copy, in nanoseconds.
fn bytes_ns(bytes: u64) -> u64 {
    cost::bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Returns the budget of a call: the rest of the slice, in messages and bytes, and at least a message
/// with some bytes, so that a port with work is never found idle.
fn budget(cx: &Context<'_>) -> Budget {
    let messages = u32::try_from(cx.steps(MESSAGE_NS)).unwrap_or(u32::MAX);
    Budget::new(messages, cost::bytes_within(cx.left_ns()).max(BYTES_PER_CALL_MIN))
}
