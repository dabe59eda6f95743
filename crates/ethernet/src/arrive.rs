//! Link receive path: frames from links to ports, and to other links where transit is allowed.
//!
//! The dispatcher calls [`Ethernet::serve_links`] for the mailbox that links write to. Frames of
//! links are checked like frames of guests: headers are copied, offload requests are validated
//! against the frame. Consecutive frames to one receive queue are delivered together. A frame whose
//! receiver has no buffer waits as a copy, within the bounds for guest frames. The module neither
//! decrypts nor decapsulates: the link service has done so.

use causeway_fabric::carrier::{Arrival, Arrivals, LinkId, Message};
use causeway_fabric::{Context, Progress, Served, cost};
use causeway_model::Mac;
use causeway_wire::ethernet::{self, is_group};
use causeway_wire::hello::is_hello;
use causeway_wire::pcapng::Direction;

use crate::counters::DropReason;
use crate::depart::depart;
use crate::echo::Known;
use crate::flood::Seen;
use crate::forward::{Origin, Route, attempt};
use crate::job::Taken;
use crate::limits::{ARRIVALS_AT_ONCE, ARRIVALS_PER_TURN_MAX};
use crate::port::{Directory, NetPort};
use crate::resume::Rest;
use crate::route::Place;
use crate::run::{Offer, Run, Way};
use crate::segment::Turns;
use crate::service::Ethernet;
use crate::source::Source;
use crate::table::Learnt;
use crate::uplink::is_link;

/// Source value of the mailbox that links write to.
pub(crate) const INBOX: u32 = 0;

impl Directory {
    /// Learns a source address behind a link. Returns whether the link may bring frames from it.
    fn learn_from_link(&mut self, place: Place, source: u64, now_ns: u64) -> bool {
        let address = ethernet::address(source);
        if is_group(address) || address == [0; 6] {
            return false;
        }
        match self.table.learn_far(address, place, now_ns) {
            Learnt::Forged => self.moved(place, source),
            Learnt::Known | Learnt::New | Learnt::Full => true,
        }
    }

    /// Handles the configured address of a local port behind a link. The move is accepted while the
    /// port's guest does not run.
    fn moved(&mut self, place: Place, source: u64) -> bool {
        if self.running(source).is_some() {
            return false;
        }
        if let Some(&(at, told)) = self.away.get(&source)
            && (at == place || (told && self.uplinks.is_up(at)))
        {
            return true;
        }
        self.away.insert(source, (place, false));
        self.table.touch();
        true
    }

    /// Resolves the egress of a frame from a link.
    fn find_from_link(
        &mut self,
        place: Place,
        taken: &Taken,
        now_ns: u64,
    ) -> Result<Way, DropReason> {
        if !self.learn_from_link(place, taken.job.source, now_ns) {
            return Err(DropReason::SpoofedSource);
        }
        let route = match self.by_routes(place, taken) {
            Some(route) => route?,
            None => self.route(place, ethernet::address(taken.job.destination), now_ns),
        };
        Ok(match route {
            Route::Set(set) => Way::Set(set),
            Route::All => Way::All,
            Route::Learners => Way::Learners,
            Route::To(to) if is_link(to) => Way::Link(to),
            Route::To(to) => match self.receive_queue(to, &taken.job) {
                Some(queue) => Way::To(to, queue),
                None => {
                    self.dropped(to, DropReason::ReceiverDown);
                    Way::Done
                }
            },
            Route::Drop(why) => return Err(why),
        })
    }
}

/// Estimated time of a frame of `len` bytes, in nanoseconds.
fn time_of(len: usize) -> u64 {
    cost::CHAIN_NS.saturating_add(cost::bytes(len))
}

/// Returns the leading frames that fit in the time left, at least one.
fn fitting(frames: &[Arrival], left_ns: u64) -> &[Arrival] {
    let mut sum_ns = 0_u64;
    let fits = |frame: &&Arrival| {
        let fits = sum_ns == 0 || sum_ns < left_ns;
        sum_ns = sum_ns.saturating_add(time_of(frame.at.len()));
        fits
    };
    let count = frames.iter().take_while(fits).count();
    frames.get(..count).unwrap_or(frames)
}

/// Counts and logs a peer's claim to the address of a running local guest.
fn contest(directory: &mut Directory, cx: &mut Context<'_>, place: Place, mac: Mac) {
    let Some(at) = directory.running(ethernet::number(mac.0)) else { return };
    directory.uplinks.contested(place);
    let warning = directory.get(at).and_then(|port| directory.contest(port));
    let Some(port) = directory.get_mut(at) else { return };
    port.counters.contested = port.counters.contested.wrapping_add(1);
    if let Some(warning) = warning {
        cx.warn(port.id, warning);
    }
}

impl Directory {
    /// Returns the warning for the operator if a peer claims the address of a running guest.
    pub(crate) fn contest(&self, port: &NetPort) -> Option<String> {
        let at = self.contested(port)?;
        let (mac, link) = (port.spec.mac, self.name(at));
        let peer = self.uplinks.peer(at).unwrap_or("-");
        Some(format!(
            "peer {peer} of link {link} claims address {mac} of the guest that runs here: frames to \
             it stay on this host, and hosts beyond may send them to the peer; give one of the two \
             guests another address, or stop it"
        ))
    }
}

impl Ethernet {
    /// Serves the mailbox of the links.
    pub(crate) fn take_in(&mut self, cx: &mut Context<'_>) -> Served {
        self.now_ns = cx.now_ns;
        let (mut count, mut any) = (0_usize, false);
        self.spent = 0;
        if !self.resume_late(cx) {
            return Served { progress: Progress::Worked, count: 0 };
        }
        if let Some((arrivals, at)) = self.unfinished.take() {
            any = true;
            self.arrive(cx, arrivals, at);
        }
        while self.spent < ARRIVALS_PER_TURN_MAX
            && self.unfinished.is_none()
            && self.late.is_empty()
            && !(any && cx.is_over())
        {
            let message = self.inbox.as_ref().and_then(|inbox| inbox.mailbox.next());
            let Some(message) = message else { break };
            any = true;
            self.spent = self.spent.saturating_add(1);
            match message {
                Message::Arrivals(arrivals) => {
                    count = count.saturating_add(arrivals.frames.len());
                    self.arrive(cx, arrivals, 0);
                }
                Message::Standing(id, standing) => {
                    let changed = self.directory.uplinks.stands(id, standing);
                    self.turned_over(changed);
                    self.elect(cx.now_ns);
                }
                Message::Carrier(id, carrier) => self.replace(id, carrier),
                Message::Here(id, macs) => self.told(cx, id, &macs, true),
                Message::Gone(id, macs) => self.told(cx, id, &macs, false),
            }
        }
        self.directory.traffic.enter(cx.now_ns);
        let armed = || self.inbox.as_ref().is_some_and(|inbox| inbox.mailbox.arm());
        let progress = match any {
            true => Progress::Worked,
            false if cx.polls_source(INBOX) => Progress::Idle,
            false if armed() => Progress::Parked,
            false => Progress::Worked,
        };
        Served { progress, count: u32::try_from(count).unwrap_or(u32::MAX) }
    }

    /// Handles a change of the links at a switch index between up and down.
    fn turned_over(&mut self, changed: Option<Place>) {
        let directory = &mut self.directory;
        let Some(place) = changed else { return };
        if !directory.uplinks.is_up(place) {
            directory.table.doubt(place);
        }
        directory.table.touch();
    }

    /// Elects the forwarding links of all network segments after links came, went or changed.
    pub(crate) fn elect(&mut self, now_ns: u64) {
        let Directory { segments, uplinks, .. } = &mut self.directory;
        let turns = segments.changed(uplinks, now_ns);
        self.stand_by(turns, now_ns);
        self.say_hello(now_ns);
    }

    /// Sends hellos if they are due.
    pub(crate) fn say_hello(&mut self, now_ns: u64) {
        let Directory { segments, uplinks, .. } = &mut self.directory;
        let turns = segments.tick(uplinks, now_ns);
        self.stand_by(turns, now_ns);
    }

    fn stand_by(&mut self, turns: Turns, now_ns: u64) {
        for (id, standby) in turns {
            let changed = self.directory.uplinks.stand_by(id, standby);
            self.turned_over(changed);
            let Directory { segments, uplinks, .. } = &mut self.directory;
            let member = uplinks.members().find(|(_, known)| known.id == id);
            if let Some((_, known)) = member
                && let Some(more) = segments.log.admit(now_ns)
            {
                let link = known.name.as_str();
                log::info!(link, standby, suppressed = more; "a link to a segment stands by where it would close a loop");
            }
        }
    }

    /// Applies a peer's advertisement (`here`) or withdrawal of addresses.
    fn told(&mut self, cx: &mut Context<'_>, id: LinkId, macs: &[Mac], here: bool) {
        let directory = &mut self.directory;
        let Some(place) = directory.uplinks.place_of(id) else { return };
        for mac in macs {
            let number = ethernet::number(mac.0);
            match (here, directory.owner(*mac).is_some()) {
                // The advertisement is newer than learnt state. It takes effect when the local
                // guest stops.
                (true, true) => {
                    directory.away.insert(number, (place, true));
                    contest(directory, cx, place, *mac);
                }
                (true, false) => {
                    directory.table.tell(mac.0, place, cx.now_ns);
                }
                (false, _) => {
                    if directory.away.get(&number).is_some_and(|(at, _)| *at == place) {
                        directory.away.remove(&number);
                    }
                    directory.table.unlearn_at(mac.0, place);
                }
            }
        }
        directory.table.touch();
    }

    /// Processes frames of a link from frame `at` on, in slices, because a few flooded frames are
    /// as much work as many unicast frames. Frames beyond the turn's bounds are left for the next
    /// turn.
    fn arrive(&mut self, cx: &mut Context<'_>, arrivals: Arrivals, mut at: usize) {
        let Some(place) = self.directory.uplinks.place_of(arrivals.link) else { return };
        if self.directory.uplinks.is_standby(arrivals.link) {
            return self.listen(cx.now_ns, place, &arrivals);
        }
        while let Some(some) = arrivals.frames.get(at..).filter(|frames| !frames.is_empty()) {
            let over = !self.late.is_empty() || (self.spent > 1 && cx.is_over());
            if over || self.spent >= ARRIVALS_PER_TURN_MAX {
                self.unfinished = Some((arrivals, at));
                return;
            }
            let some = some.get(..ARRIVALS_AT_ONCE).unwrap_or(some);
            let some = fitting(some, cx.left_ns());
            self.arrive_at_once(cx, place, &arrivals, some);
            at = at.saturating_add(some.len());
        }
    }

    /// Processes the frames of a standby link: hellos are received, all others are dropped.
    fn listen(&mut self, now_ns: u64, place: Place, arrivals: &Arrivals) {
        for arrival in &arrivals.frames {
            self.spent = self.spent.saturating_add(1);
            let frame = arrivals.bytes.get(arrival.at.clone()).unwrap_or(&[]);
            let to_all = ethernet::numbers(frame);
            if to_all.is_some_and(|(destination, ..)| is_hello(destination)) {
                let Directory { segments, uplinks, .. } = &mut self.directory;
                let turns = segments.heard(uplinks, arrivals.link, frame, now_ns);
                self.stand_by(turns, now_ns);
            } else {
                self.directory.dropped(place, DropReason::Standby);
            }
        }
    }

    fn arrive_at_once(
        &mut self,
        cx: &mut Context<'_>,
        place: Place,
        arrivals: &Arrivals,
        frames: &[Arrival],
    ) {
        self.directory.routes.tidy();
        let mut landed = std::mem::take(&mut self.landed);
        if landed.len() < frames.len() {
            landed.resize_with(frames.len(), Taken::default);
        }
        let mut runs = std::mem::take(&mut self.runs);
        runs.0.clear();
        for (taken, arrival) in landed.iter_mut().zip(frames) {
            let way = self.land(cx, (place, arrivals.link), taken, arrival, &arrivals.bytes);
            let way = way.unwrap_or_else(|why| {
                self.directory.dropped(place, why);
                Way::Done
            });
            runs.push(Run { way, count: 1, longest: usize::MAX });
        }
        let mut rest = landed.get_mut(..frames.len()).unwrap_or(&mut []);
        cx.charge(rest.iter().map(|taken| time_of(taken.job.len)).fold(0, u64::saturating_add));
        if !self.directory.taps.is_empty() {
            let source = Source::Link(&arrivals.bytes);
            self.directory.taps.show(place, Direction::In, source, rest, cx.now_ns);
        }
        for Run { way, count, .. } in runs.0.drain(..) {
            let Some((run, later)) = rest.split_at_mut_checked(count) else { break };
            rest = later;
            self.bring(cx, (place, &arrivals.bytes), run, way);
        }
        (self.landed, self.runs) = (landed, runs);
    }

    /// Copies and checks the first bytes of a frame, filters copies, and resolves the egress.
    fn land(
        &mut self,
        cx: &mut Context<'_>,
        (place, link): (Place, LinkId),
        taken: &mut Taken,
        arrival: &Arrival,
        bytes: &[u8],
    ) -> Result<Way, DropReason> {
        let frame = bytes.get(arrival.at.clone()).ok_or(DropReason::Runt)?;
        taken.at = arrival.at.start;
        (taken.hops, taken.flood) = (arrival.hops, arrival.flood);
        taken.job.arrive(frame, &arrival.offload)?;
        if is_hello(taken.job.destination) {
            let Directory { segments, uplinks, .. } = &mut self.directory;
            let turns = segments.heard(uplinks, link, frame, cx.now_ns);
            self.stand_by(turns, cx.now_ns);
            return Ok(Way::Done);
        }
        let transit = self.directory.uplinks.is_transit(place);
        let mut print = None;
        if let Some(number) = arrival.flood {
            let offload = taken.job.offload.to_header(0).emit();
            // Before the source is learnt: the first copy came by the shorter path, so a copy must
            // not move the address.
            let (known_by, seen) = self.directory.floods.look(number, &offload, frame, transit);
            match seen {
                Seen::Never => print = Some(known_by),
                Seen::Nearby(first) => {
                    self.directory.floods.widen(known_by);
                    self.widen(cx, (place, bytes), taken, first);
                    return Ok(Way::Done);
                }
                Seen::Everywhere => return Err(DropReason::Duplicate),
            }
        }
        let (source, destination) = (taken.job.source, taken.job.destination);
        let mut echo = None;
        if self.directory.uplinks.any_transit()
            && self.directory.goes_to_many(place, (source, destination), cx.now_ns)
        {
            let known_by = self.directory.echoes.look(frame, place, cx.now_ns);
            echo = Some(known_by.map_err(|known| match known {
                Known::Copy => DropReason::Duplicate,
                Known::Storm => DropReason::Storm,
            })?);
        }
        let way = self.directory.find_from_link(place, taken, cx.now_ns)?;
        self.directory.count_traffic(place, &taken.job, cx.now_ns);
        // Recorded only now: a refused frame must not suppress a later copy.
        if let Some(print) = print {
            self.directory.floods.note(print, place, transit);
        }
        if let Some(print) = echo {
            self.directory.echoes.note(print, place, cx.now_ns);
        }
        Ok(way)
    }

    /// Floods a copy to the links that the first copy could not reach, because neither its ingress
    /// nor they were for transit.
    fn widen(
        &mut self,
        cx: &mut Context<'_>,
        from: (Place, &[u8]),
        taken: &mut Taken,
        first: Place,
    ) {
        let (directory, now_ns) = (&mut self.directory, cx.now_ns);
        let route = match directory.by_routes(from.0, taken) {
            Some(Ok(route)) => route,
            Some(Err(_)) => return,
            None => directory.route(from.0, ethernet::address(taken.job.destination), now_ns),
        };
        let mut targets = std::mem::take(&mut self.targets);
        targets.clear();
        match route {
            Route::Set(set) => directory.list_targets(from.0, Way::Set(set), &mut targets),
            Route::All | Route::Learners => {
                directory.list_targets(from.0, Way::Learners, &mut targets);
            }
            Route::To(to) => targets.push(to),
            Route::Drop(_) => {}
        }
        let uplinks = &self.directory.uplinks;
        targets.retain(|to| is_link(*to) && *to != first && !uplinks.is_transit(*to));
        self.spent = self.spent.saturating_add(targets.len());
        for to in &targets {
            self.pass_on(cx, from, std::slice::from_mut(taken), *to, 0);
        }
        self.targets = targets;
    }

    /// Delivers a batch to its receivers.
    fn bring(&mut self, cx: &mut Context<'_>, from: (Place, &[u8]), run: &mut [Taken], way: Way) {
        self.spent = self.spent.saturating_add(run.len());
        match way {
            Way::Done => {}
            Way::To(to, queue) => self.bring_to(cx, from, run, (to, queue), 0),
            Way::Link(to) => self.pass_on(cx, from, run, to, 0),
            Way::All | Way::Learners | Way::Set(_) => {
                let mut targets = std::mem::take(&mut self.targets);
                self.directory.list_targets(from.0, way, &mut targets);
                for taken in run {
                    self.spent = self.spent.saturating_add(targets.len());
                    self.directory.number(taken, way, &targets);
                    let taken = std::slice::from_mut(taken);
                    self.bring_to_each(cx, from, taken, &targets, 0);
                }
                self.targets = targets;
            }
        }
    }

    /// Delivers a frame to each of `targets`, to the first from segment `done` on.
    pub(crate) fn bring_to_each(
        &mut self,
        cx: &mut Context<'_>,
        from: (Place, &[u8]),
        taken: &mut [Taken],
        targets: &[Place],
        mut done: usize,
    ) {
        // A single receiver has back-pressure: the frame may wait for its buffers.
        if let [only] = targets
            && !is_link(*only)
            && let Some(Taken { job, .. }) = taken.first()
            && self.directory.get(*only).is_some_and(|port| port.mac != job.source)
            && let Some(queue) = self.directory.receive_queue(*only, job)
        {
            return self.bring_to(cx, from, taken, (*only, queue), done);
        }
        let mut left = targets;
        while let Some((&to, others)) = left.split_first() {
            let late = !self.late.is_empty() || (left.len() < targets.len() && cx.is_over());
            if late || !self.bring_copy(cx, from, taken, to, &mut done) {
                return self.keep_late(from, taken, done, &Rest::Many(left.to_vec()));
            }
            done = 0;
            left = others;
        }
    }

    /// Delivers a frame to one of several receivers. Returns `false` if the turn ended before its
    /// last segment.
    fn bring_copy(
        &mut self,
        cx: &mut Context<'_>,
        from: (Place, &[u8]),
        taken: &mut [Taken],
        to: Place,
        done: &mut usize,
    ) -> bool {
        if is_link(to) {
            return self.depart_from_link(cx, from, taken, to, done) > 0;
        }
        let Some(taken) = taken.first_mut() else { return true };
        // A frame that a guest sent before it moved to this host may still arrive; it is not
        // returned to the guest.
        if self.directory.get(to).is_some_and(|port| port.mac == taken.job.source) {
            return true;
        }
        self.copy_to_port(cx, Origin::Link(from.1), taken, to, done)
    }

    /// Delivers frames to a receive queue, the first from segment `done` on. Frames without buffers
    /// become pending.
    pub(crate) fn bring_to(
        &mut self,
        cx: &mut Context<'_>,
        (place, bytes): (Place, &[u8]),
        run: &mut [Taken],
        to: (u32, usize),
        mut done: usize,
    ) {
        if !self.late.is_empty() {
            return self.keep_late((place, bytes), run, done, &Rest::One(to));
        }
        let (mut settled, mut short) = (0, None);
        if !self.directory.waits(to.0, to.1) {
            let Self { directory, scratch, .. } = self;
            let origin = Origin::Link(bytes);
            let mut offer = Offer { frames: &mut *run, longest: usize::MAX, done };
            let attempt = attempt(directory, scratch, cx, origin, to, &mut offer);
            done = offer.done;
            (settled, short) = (attempt.settled, attempt.short);
            if attempt.yielded {
                let rest = run.get(settled..).unwrap_or(&[]);
                return self.keep_late((place, bytes), rest, done, &Rest::One(to));
            }
        }
        for taken in run.get(settled..).unwrap_or(&[]) {
            let done = std::mem::take(&mut done);
            if self.hold_copy(cx, (place, bytes), taken, done, to, short) {
                short = None;
            }
        }
    }

    /// Sends frames of one link to another, the first from segment `done` on.
    pub(crate) fn pass_on(
        &mut self,
        cx: &mut Context<'_>,
        from: (Place, &[u8]),
        run: &mut [Taken],
        to: Place,
        mut done: usize,
    ) {
        let settled = match self.late.is_empty() {
            true => self.depart_from_link(cx, from, run, to, &mut done),
            false => 0,
        };
        self.keep_late(from, run.get(settled..).unwrap_or(&[]), done, &Rest::Link(to));
    }

    /// Returns how many frames were sent, or dropped and counted.
    fn depart_from_link(
        &mut self,
        cx: &mut Context<'_>,
        (from, bytes): (Place, &[u8]),
        run: &mut [Taken],
        to: Place,
        done: &mut usize,
    ) -> usize {
        let directory = &mut self.directory;
        if directory.uplinks.may_pass(from, to) {
            let time = (cx.now_ns, &mut *cx.slice);
            return depart(directory, Source::Link(bytes), (from, to), run, done, time);
        }
        for _ in &*run {
            directory.dropped(from, DropReason::NoTransit);
        }
        run.len()
    }
}
