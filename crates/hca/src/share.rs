//! Shares of the ports of a group in the time of the group's turns: fair queueing by weight.
//!
//! `crate::call` asks before each call of a port ([`Shares::begin_call`]) and reports its end
//! ([`Shares::end_call`]), in the dispatcher's thread. Each port has a virtual time: the time of
//! its calls divided by its weight. A busy port is served unless it is ahead of the busy port with
//! the least virtual time by more than the time of a call; it then cedes its call to the others. A
//! port that becomes busy begins at the least virtual time, so that an idle port saves nothing, and
//! time by which its calls overran is paid back. A call lasts [`SHARE_NS`] (20 us) at most. So a
//! port within its share whose guest becomes busy waits, inside its group's turns, for at most a
//! call of each other busy port: 20 us, and the step (64 KiB, or a frame with its copies) by which
//! a call may overrun.
//!
//! A port that the shard no longer serves holds up no other: if a port asks twice and no port was
//! served between, the ports behind it are not counted as busy. Groups share dispatchers by weights
//! of their own (`fabric::schedule`).
//!
//! The time of a call is that from its own begin to its own end. A slice estimates the time and
//! reads the clock now and then; while several ports are busy, a call reads the clock at its begin
//! and at its end, so that no port pays for work that another did not charge. The module knows
//! times only.

use std::collections::BTreeSet;

use causeway_fabric::Slice;

use crate::limits::SHARE_NS;

/// The virtual times of a group's busy ports.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Busy ports by virtual time, each with its number.
    busy: BTreeSet<(u128, u32)>,
    /// Least virtual time of the busy ports, at the last call.
    least: u128,
    /// Calls so far.
    calls: u64,
}

/// The share of a port.
#[derive(Debug)]
pub(crate) struct Share {
    /// Number of the port, unique in the group.
    number: u32,
    /// Weight of the port, at least 1.
    weight: u32,
    /// Virtual time, in nanoseconds.
    at: u128,
    /// The port had work in its last call.
    is_busy: bool,
    /// [`Shares::calls`] when the port ceded last.
    ceded_at: Option<u64>,
    /// Begin of the call that is under way.
    began_ns: u64,
}

impl Share {
    /// Returns the share of a port with a number and a weight.
    pub(crate) fn new(number: u32, weight: u32) -> Self {
        Self { number, weight: weight.max(1), at: 0, is_busy: false, ceded_at: None, began_ns: 0 }
    }

    /// Returns the virtual time of a duration, in nanoseconds times 2^16 for exact shares.
    fn virtual_of(&self, ns: u64) -> u128 {
        let scaled = u128::from(ns) << 16;
        scaled.checked_div(u128::from(self.weight)).unwrap_or(scaled)
    }
}

impl Shares {
    /// Begins a call of a port in a turn. Returns the slice of the call, or `None` if the port
    /// cedes the call. The call ends by [`Self::end_call`].
    pub(crate) fn begin_call(&mut self, share: &mut Share, turn: &mut Slice) -> Option<Slice> {
        let most_ns = self.begin(share)?;
        if self.is_contended(share) {
            turn.read();
        }
        share.began_ns = turn.now_ns();
        Some(turn.until(share.began_ns.saturating_add(most_ns.min(turn.left_ns()))))
    }

    /// Ends a call of a port, which may have left work, and continues the turn from its end.
    pub(crate) fn end_call(
        &mut self,
        share: &mut Share,
        turn: &mut Slice,
        mut call: Slice,
        is_busy: bool,
    ) {
        if is_busy && self.is_contended(share) {
            call.read();
        }
        turn.take_time(&call);
        self.end(share, call.now_ns().saturating_sub(share.began_ns), is_busy);
    }

    /// Returns whether another port is busy.
    #[inline]
    fn is_contended(&self, share: &Share) -> bool {
        self.busy.len() > usize::from(share.is_busy)
    }

    /// Begins a call of a port. Returns its longest duration, in nanoseconds, or `None` if the port
    /// cedes the call.
    fn begin(&mut self, share: &mut Share) -> Option<u64> {
        if !share.is_busy {
            share.at = share.at.max(self.least);
        }
        let lead = share.virtual_of(SHARE_NS);
        while let Some((least, _)) = self.busy.first().copied() {
            self.least = self.least.max(least.min(share.at));
            if share.at <= least.saturating_add(lead) {
                break;
            }
            if share.ceded_at != Some(self.calls) {
                share.ceded_at = Some(self.calls);
                return None;
            }
            self.busy.pop_first();
        }
        share.ceded_at = None;
        self.calls = self.calls.wrapping_add(1);
        Some(SHARE_NS)
    }

    /// Ends a call of a port, which took `used_ns` and may have left work.
    fn end(&mut self, share: &mut Share, used_ns: u64, is_busy: bool) {
        if share.is_busy {
            self.busy.remove(&(share.at, share.number));
        }
        share.at = share.at.saturating_add(share.virtual_of(used_ns));
        share.is_busy = is_busy;
        if is_busy {
            self.busy.insert((share.at, share.number));
        }
    }

    /// Takes a port out of the busy ports until its next call. Further calls have no effect.
    pub(crate) fn leave(&mut self, share: &mut Share) {
        self.end(share, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves ports in turn for `calls` calls; `work` returns the time of a call of at most a
    /// duration, 0 if the port is idle. Returns the time of each port, and the longest time between
    /// two calls of each.
    fn serve(
        weights: &[u32],
        calls: usize,
        mut work: impl FnMut(usize, u64, u64) -> u64,
    ) -> (Vec<u64>, Vec<u64>) {
        let mut shares = Shares::default();
        let numbered = (0..).zip(weights);
        let mut ports: Vec<Share> = numbered.map(|(n, weight)| Share::new(n, *weight)).collect();
        let (mut times, mut gaps) = (vec![0; ports.len()], vec![0; ports.len()]);
        let (mut now, mut last) = (0, vec![0; ports.len()]);
        for call in 0..calls {
            let number = call % ports.len();
            let share = &mut ports[number];
            let Some(most) = shares.begin(share) else { continue };
            gaps[number] = gaps[number].max(now - last[number]);
            let used = work(number, most, now);
            shares.end(share, used, used > 0);
            now += used;
            (times[number], last[number]) = (times[number] + used, now);
        }
        (times, gaps)
    }

    #[test]
    fn share_weights_divide_the_time_of_busy_ports() {
        let (times, _) = serve(&[3, 1], 100_000, |_, most, _| most);
        let ratio = times[0] as f64 / times[1] as f64;
        assert!((2.9..3.1).contains(&ratio), "{times:?}");
        // Calls of the light port overrun by half a call each.
        let overrun = SHARE_NS / 2;
        let (times, _) = serve(&[3, 1], 100_000, |port, most, _| most + port as u64 * overrun);
        let ratio = times[0] as f64 / times[1] as f64;
        assert!((2.9..3.1).contains(&ratio), "{times:?}");
    }

    #[test]
    fn share_of_a_port_without_work_goes_to_the_others() {
        let (times, _) =
            serve(&[1, 1, 1], 30_000, |port, most, _| if port == 0 { 0 } else { most });
        assert_eq!(times[0], 0);
        let ratio = times[1] as f64 / times[2] as f64;
        assert!((0.95..1.05).contains(&ratio), "{times:?}");
        let (alone, _) = serve(&[1], 1000, |_, most, _| most);
        assert_eq!(alone[0], 1000 * SHARE_NS, "a port alone never cedes");
    }

    #[test]
    fn share_is_not_saved_while_a_port_is_idle() {
        // Port 0 begins after 0.5 s.
        let mut since = [0, 0];
        serve(&[1, 1], 100_000, |port, most, now| {
            let is_idle = port == 0 && now < 500_000_000;
            since[port] += if is_idle || now < 500_000_000 { 0 } else { most };
            if is_idle { 0 } else { most }
        });
        let ratio = since[0] as f64 / since[1] as f64;
        assert!((0.95..1.05).contains(&ratio), "{since:?}");
    }

    #[test]
    fn share_of_a_flood_delays_another_port_by_one_call() {
        // Port 1 has a short message at each of its calls; port 0 is always busy and heavy.
        let work = |port, most, _| if port == 0 { most } else { 100 };
        let (_, gaps) = serve(&[100, 1], 100_000, work);
        assert!(gaps[1] <= SHARE_NS, "{gaps:?}");
    }

    thread_local! {
        static NOW_NS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    /// Serves two ports in turn by a clock. Each call takes the time of `works`, of which the port
    /// charges a part; `between` passes uncharged between calls. Returns the time of each port.
    fn serve_by_clock(works: [(u64, u64); 2], between: u64) -> [u64; 2] {
        let mut turn = Slice::with_clock(|| NOW_NS.get());
        let mut shares = Shares::default();
        let mut ports = [Share::new(0, 1), Share::new(1, 1)];
        let mut times = [0; 2];
        for call in 0..20_000 {
            NOW_NS.set(NOW_NS.get() + between);
            let number = call % 2;
            let (taken, charged) = works[number];
            let share = &mut ports[number];
            let Some(mut slice) = shares.begin_call(share, &mut turn) else { continue };
            NOW_NS.set(NOW_NS.get() + taken);
            slice.charge(charged);
            shares.end_call(share, &mut turn, slice, true);
            times[number] += taken;
        }
        times
    }

    #[test]
    fn share_of_a_call_is_the_time_from_its_begin_to_its_end() {
        // Port 0 charges nothing of its calls, port 1 all of them.
        let times = serve_by_clock([(15_000, 0), (5_000, 5_000)], 0);
        let ratio = times[0] as f64 / times[1] as f64;
        assert!((0.95..1.05).contains(&ratio), "{times:?}");
        // Work of the shard between the calls counts for no port: the ports remain equal.
        let times = serve_by_clock([(15_000, 100), (5_000, 100)], 30_000);
        let ratio = times[0] as f64 / times[1] as f64;
        assert!((0.95..1.05).contains(&ratio), "{times:?}");
    }

    #[test]
    fn share_of_a_port_that_is_no_longer_served_holds_up_no_other() {
        let mut shares = Shares::default();
        let (mut gone, mut busy) = (Share::new(1, 1), Share::new(2, 1));
        shares.begin(&mut gone).unwrap();
        shares.end(&mut gone, 1, true);
        for _ in 0..2 {
            shares.begin(&mut busy).unwrap();
            shares.end(&mut busy, SHARE_NS, true);
        }
        assert_eq!(shares.begin(&mut busy), None, "the other port is behind");
        for _ in 0..10 {
            assert!(shares.begin(&mut busy).is_some(), "no port was served meanwhile");
            shares.end(&mut busy, SHARE_NS, true);
        }
        shares.leave(&mut gone);
        assert!(shares.begin(&mut busy).is_some());
    }
}
