//! Link receive path: frames from links to ports, and to other links where transit is allowed.
//!
//! The link service decapsulates and decrypts frames and writes them to the mailbox of the group.
//! The dispatcher calls [`Ethernet::serve_links`] for this mailbox ([`INBOX`]), which also carries
//! link states, new carriers and advertised addresses. Frames of links are checked like frames of
//! guests: headers are copied, offload requests are validated against the frame, copies of flooded
//! frames are filtered (`crate::flood_sequence`, `crate::duplicates`). Consecutive frames to one
//! receive queue are delivered together.
//!
//! A turn makes about `ARRIVALS_PER_TURN_MAX` (256) deliveries, in batches of
//! [`ARRIVALS_AT_ONCE`] (64) frames; the remaining frames wait for the next turn
//! (`crate::resume_link`), in order. A frame for a single receiver without buffers waits as a copy,
//! within the bounds for guest frames; one of several receivers without buffers misses the frame. A
//! frame to several receivers is not delivered, nor counted, at the port whose own address is its
//! source. Frames of a standby link are dropped, except hellos. Every message of a link that was
//! removed meanwhile is discarded uncounted. Frames that the full mailbox refuses are counted by
//! the link. `place` is the switch index of the bundle of the ingress (`crate::port`).

use causeway_fabric::carrier::{LinkId, Message, ReceivedFrame, ReceivedFrames};
use causeway_fabric::{Context, Progress, SourceProgress, cost};
use causeway_model::Mac;
use causeway_wire::ethernet::{self, is_group};
use causeway_wire::hello::is_hello;
use causeway_wire::pcapng::Direction;

use crate::batch::{Delivery, Egress, EgressBatch};
use crate::counters::DropReason;
use crate::duplicates::DuplicateKind;
use crate::flood_sequence::CopyState;
use crate::forward::{Ingress, NextHop, deliver_to_queue};
use crate::frame_store::FrameStore;
use crate::headers::RxFrame;
use crate::limits::ARRIVALS_AT_ONCE;
use crate::link_inbox::{Arrivals, INBOX};
use crate::link_tx::send_to_link;
use crate::port::{NetPortState, Switch};
use crate::resume::Remainder;
use crate::route::SwitchIndex;
use crate::service::Ethernet;
use crate::standby::StandbyChanges;
use crate::table::Learnt;
use crate::uplink::is_link;

impl Switch {
    /// Learns a source address behind a link. Returns whether the link may bring frames from it; a
    /// station that does not learn may bring frames from its own address only.
    fn learn_from_link(&mut self, place: SwitchIndex, source: u64, now_ns: u64) -> bool {
        if self.uplinks.is_station(place) {
            return self.admit_from_station(place, source, now_ns);
        }
        let address = ethernet::address(source);
        if is_group(address) || address == [0; 6] {
            return false;
        }
        match self.table.learn_far(address, place, now_ns) {
            Learnt::Forged => self.accept_move(place, source),
            Learnt::Known | Learnt::New | Learnt::Full => true,
        }
    }

    /// Handles the configured address of a local port behind a link. The move is accepted while the
    /// port's guest does not run.
    fn accept_move(&mut self, place: SwitchIndex, source: u64) -> bool {
        if self.running(source).is_some() || self.station_of(source).is_some() {
            return false;
        }
        if let Some(&(at, advertised)) = self.away.get(&source)
            && (at == place || (advertised && self.uplinks.is_up(at)))
        {
            return true;
        }
        self.away.insert(source, (place, false));
        self.table.invalidate();
        true
    }

    /// Resolves the egress of a frame from a link.
    fn resolve_link_egress(
        &mut self,
        place: SwitchIndex,
        rx: &RxFrame,
        now_ns: u64,
    ) -> Result<Egress, DropReason> {
        if !self.learn_from_link(place, rx.headers.source, now_ns) {
            return Err(DropReason::SpoofedSource);
        }
        let hop = match self.next_hop_by_routes(place, rx) {
            Some(hop) => hop?,
            None => self.next_hop(place, ethernet::address(rx.headers.destination), now_ns),
        };
        Ok(match hop {
            NextHop::Set(set) => Egress::Set(set),
            NextHop::All => Egress::All,
            NextHop::Learners => Egress::Learners,
            NextHop::To(to) if is_link(to) => Egress::Link(to),
            NextHop::To(to) => match self.receive_queue(to, &rx.headers) {
                Some(queue) => Egress::To(to, queue),
                None => {
                    self.count_drop(to, DropReason::ReceiverDown);
                    Egress::Done
                }
            },
            NextHop::Drop(why) => return Err(why),
        })
    }
}

/// Estimated time of a frame of `len` bytes, in nanoseconds.
fn estimated_ns(len: usize) -> u64 {
    cost::CHAIN_NS.saturating_add(cost::bytes(len))
}

/// Returns the leading frames that fit in the time left, at least one.
fn frames_within(frames: &[ReceivedFrame], left_ns: u64) -> &[ReceivedFrame] {
    let mut sum_ns = 0_u64;
    let fits = |frame: &&ReceivedFrame| {
        let fits = sum_ns == 0 || sum_ns < left_ns;
        sum_ns = sum_ns.saturating_add(estimated_ns(frame.at.len()));
        fits
    };
    let count = frames.iter().take_while(fits).count();
    frames.get(..count).unwrap_or(frames)
}

/// Counts and logs a peer's claim to the address of a running local guest.
fn report_contest(switch: &mut Switch, cx: &mut Context<'_>, place: SwitchIndex, mac: Mac) {
    let Some(at) = switch.running(ethernet::number(mac.0)) else { return };
    switch.uplinks.count_contested(place);
    let warning = switch.get(at).and_then(|port| switch.contest_warning(port));
    let Some(port) = switch.get_mut(at) else { return };
    port.counters.contested = port.counters.contested.wrapping_add(1);
    if let Some(warning) = warning {
        cx.warn(port.id, warning);
    }
}

impl Switch {
    /// Returns the warning for the operator if a peer claims the address of a running guest.
    pub(crate) fn contest_warning(&self, port: &NetPortState) -> Option<String> {
        let at = self.contesting_peer(port)?;
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
    pub(crate) fn serve_links(&mut self, cx: &mut Context<'_>) -> SourceProgress {
        self.now_ns = cx.now_ns;
        let (mut count, mut any) = (0_usize, false);
        self.links.begin_turn();
        if !self.resume_link_frames(cx) {
            return SourceProgress { progress: Progress::Worked, count: 0 };
        }
        if let Some(arrivals) = self.links.take_unfinished() {
            any = true;
            self.process_arrivals(cx, arrivals);
        }
        while !(self.links.is_turn_full() || self.links.has_left_frames() || (any && cx.is_over()))
        {
            let Some(message) = self.links.next_message() else { break };
            any = true;
            self.links.count_deliveries(1);
            match message {
                Message::ReceivedFrames(received) => {
                    count = count.saturating_add(received.frames.len());
                    self.process_arrivals(cx, Arrivals::new(received, false));
                }
                Message::StationFrames(received) => {
                    count = count.saturating_add(received.frames.len());
                    self.process_arrivals(cx, Arrivals::new(received, true));
                }
                Message::LinkStatus(id, standing) => {
                    let changed = self.switch.uplinks.set_standing(id, standing);
                    self.path_changed(changed);
                    self.elect_forwarders(cx.now_ns);
                }
                Message::Carrier(id, carrier) => self.replace(id, carrier),
                Message::AddressAdded(id, macs) => self.apply_advertisement(cx, id, &macs, true),
                Message::AddressRemoved(id, macs) => self.apply_advertisement(cx, id, &macs, false),
            }
        }
        self.switch.traffic.commit_run(cx.now_ns);
        let progress = match any {
            true => Progress::Worked,
            false if cx.polls_source(INBOX) => Progress::Idle,
            false if self.links.arm() => Progress::Parked,
            false => Progress::Worked,
        };
        SourceProgress { progress, count: u32::try_from(count).unwrap_or(u32::MAX) }
    }

    /// Handles a change of the links at a switch index between up and down.
    fn path_changed(&mut self, changed: Option<SwitchIndex>) {
        let switch = &mut self.switch;
        let Some(place) = changed else { return };
        if !switch.uplinks.is_up(place) {
            switch.table.demote(place);
        }
        switch.table.invalidate();
    }

    /// Elects the forwarding links of all network segments after links came, went or changed.
    pub(crate) fn elect_forwarders(&mut self, now_ns: u64) {
        let Switch { election, uplinks, .. } = &mut self.switch;
        let changes = election.links_changed(uplinks, now_ns);
        self.apply_standby(changes, now_ns);
        self.send_due_hellos(now_ns);
    }

    /// Sends hellos if they are due.
    pub(crate) fn send_due_hellos(&mut self, now_ns: u64) {
        let Switch { election, uplinks, .. } = &mut self.switch;
        let changes = election.tick(uplinks, now_ns);
        self.apply_standby(changes, now_ns);
    }

    /// Applies and logs changes of the election to the links.
    fn apply_standby(&mut self, changes: StandbyChanges, now_ns: u64) {
        for (id, standby) in changes {
            let changed = self.switch.uplinks.set_standby(id, standby);
            self.path_changed(changed);
            let Switch { election, uplinks, .. } = &mut self.switch;
            let member = uplinks.members().find(|(_, known)| known.id == id);
            if let Some((_, known)) = member
                && let Some(more) = election.log.admit(now_ns)
            {
                let link = known.name.as_str();
                log::info!(link, standby, suppressed = more; "the standby state of a link to a network segment changed: a standby link drops all frames except hellos, because it would close a loop");
            }
        }
    }

    /// Applies a peer's advertisement (`here` is set) or withdrawal of addresses by link `id`.
    fn apply_advertisement(&mut self, cx: &mut Context<'_>, id: LinkId, macs: &[Mac], here: bool) {
        let switch = &mut self.switch;
        let Some(place) = switch.uplinks.place_of(id) else { return };
        for mac in macs {
            let number = ethernet::number(mac.0);
            if here && switch.station_of(number).is_some() {
                switch.uplinks.count_contested(place);
                continue;
            }
            match (here, switch.owner(*mac).is_some()) {
                // The advertisement is newer than learnt state. It takes effect when the local
                // guest stops.
                (true, true) => {
                    switch.away.insert(number, (place, true));
                    report_contest(switch, cx, place, *mac);
                }
                (true, false) => {
                    switch.table.advertise(mac.0, place, cx.now_ns);
                }
                (false, _) => {
                    if switch.away.get(&number).is_some_and(|(at, _)| *at == place) {
                        switch.away.remove(&number);
                    }
                    switch.table.unlearn_at(mac.0, place);
                }
            }
        }
        switch.table.invalidate();
    }

    /// Processes frames of a link from frame `at` on, in slices, because a few flooded frames are
    /// as much work as many unicast frames. Frames beyond the turn's bounds are left for the next
    /// turn.
    fn process_arrivals(&mut self, cx: &mut Context<'_>, mut arrivals: Arrivals) {
        let link = arrivals.received.link;
        let Some(place) = self.switch.uplinks.place_of(link) else { return };
        if self.switch.uplinks.is_standby(link) {
            return self.receive_on_standby(cx.now_ns, place, &arrivals.received);
        }
        while let Some(some) =
            arrivals.received.frames.get(arrivals.at..).filter(|frames| !frames.is_empty())
        {
            if self.links.ends_turn(|| cx.is_over()) {
                self.links.leave_unfinished(arrivals);
                return;
            }
            let some = some.get(..ARRIVALS_AT_ONCE).unwrap_or(some);
            let some = frames_within(some, cx.left_ns());
            self.process_arrival_batch(cx, place, &arrivals, some);
            arrivals.at = arrivals.at.saturating_add(some.len());
        }
    }

    /// Processes the frames of a standby link: hellos are received, all others are dropped.
    fn receive_on_standby(&mut self, now_ns: u64, place: SwitchIndex, arrivals: &ReceivedFrames) {
        for arrival in &arrivals.frames {
            self.links.count_deliveries(1);
            let frame = arrivals.bytes.get(arrival.at.clone()).unwrap_or(&[]);
            let to_all = ethernet::numbers(frame);
            if to_all.is_some_and(|(destination, ..)| is_hello(destination)) {
                let Switch { election, uplinks, .. } = &mut self.switch;
                let changes = election.receive_hello(uplinks, arrivals.link, frame, now_ns);
                self.apply_standby(changes, now_ns);
            } else {
                self.switch.count_drop(place, DropReason::Standby);
            }
        }
    }

    /// Classifies frames of a link, and delivers them by egress.
    fn process_arrival_batch(
        &mut self,
        cx: &mut Context<'_>,
        place: SwitchIndex,
        arrivals: &Arrivals,
        frames: &[ReceivedFrame],
    ) {
        let Arrivals { received, has_reached_stations, .. } = arrivals;
        self.switch.routes.tidy();
        let mut arrived = self.links.take_frames(frames.len());
        let mut batches = std::mem::take(&mut self.batches);
        batches.0.clear();
        for (rx, arrival) in arrived.iter_mut().zip(frames) {
            let egress =
                self.classify_arrival(cx, (place, received.link), rx, arrival, &received.bytes);
            let egress = egress.unwrap_or_else(|why| {
                self.switch.count_drop(place, why);
                Egress::Done
            });
            batches.push(EgressBatch { egress, count: 1, longest: usize::MAX });
        }
        let mut rest = arrived.get_mut(..frames.len()).unwrap_or(&mut []);
        cx.charge(rest.iter().map(|rx| estimated_ns(rx.headers.len)).fold(0, u64::saturating_add));
        if !self.switch.mirrors.is_empty() {
            let source = FrameStore::Link(&received.bytes);
            self.switch.mirrors.copy_frames(place, Direction::In, source, rest, cx.now_ns);
        }
        for EgressBatch { egress, count, .. } in batches.0.drain(..) {
            let Some((batch, later)) = rest.split_at_mut_checked(count) else { break };
            rest = later;
            self.deliver_batch(
                cx,
                (place, &received.bytes),
                batch,
                (egress, *has_reached_stations),
            );
        }
        self.links.put_frames(arrived);
        self.batches = batches;
    }

    /// Copies and checks the first bytes of a frame, filters copies, and resolves the egress.
    fn classify_arrival(
        &mut self,
        cx: &mut Context<'_>,
        (place, link): (SwitchIndex, LinkId),
        rx: &mut RxFrame,
        arrival: &ReceivedFrame,
        bytes: &[u8],
    ) -> Result<Egress, DropReason> {
        let frame = bytes.get(arrival.at.clone()).ok_or(DropReason::Runt)?;
        rx.at = arrival.at.start;
        (rx.hops, rx.flood) = (arrival.hops, arrival.flood);
        rx.headers.read_from_link(frame, &arrival.offload)?;
        if is_hello(rx.headers.destination) {
            let Switch { election, uplinks, .. } = &mut self.switch;
            if uplinks.is_station(place) {
                // Guests may not send the hellos of daemons.
                return Err(DropReason::UnknownDestination);
            }
            let changes = election.receive_hello(uplinks, link, frame, cx.now_ns);
            self.apply_standby(changes, cx.now_ns);
            return Ok(Egress::Done);
        }
        let transit = self.switch.uplinks.is_transit(place);
        let mut flood_print = None;
        if let Some(number) = arrival.flood {
            let offload = rx.headers.offload.to_header(0).emit();
            // Before the source is learnt: the first copy came by the shorter path, so a copy must
            // not move the address.
            let (known_by, seen) =
                self.switch.flood_sequences.check(number, &offload, frame, transit);
            match seen {
                CopyState::New => flood_print = Some(known_by),
                CopyState::Partial(first) => {
                    self.switch.flood_sequences.mark_everywhere(known_by);
                    self.flood_remaining_links(cx, (place, bytes), rx, first);
                    return Ok(Egress::Done);
                }
                CopyState::Everywhere => return Err(DropReason::Duplicate),
            }
        }
        let (source, destination) = (rx.headers.source, rx.headers.destination);
        let mut content_print = None;
        if self.switch.uplinks.any_transit()
            && self.switch.is_flooded(place, (source, destination), cx.now_ns)
        {
            let Switch { duplicates, uplinks, .. } = &mut self.switch;
            // A station repeats frames because its guest does, as a port.
            let known_by = match uplinks.is_station(place) {
                true => Ok(duplicates.fingerprint(frame.len(), frame)),
                false => duplicates.check(frame, place, cx.now_ns),
            };
            content_print = Some(known_by.map_err(|known| match known {
                DuplicateKind::Copy => DropReason::Duplicate,
                DuplicateKind::Storm => DropReason::Storm,
            })?);
        }
        let egress = self.switch.resolve_link_egress(place, rx, cx.now_ns)?;
        self.switch.count_traffic(place, &rx.headers, cx.now_ns);
        // Recorded only now: a refused frame must not suppress a later copy.
        if let Some(print) = flood_print {
            self.switch.flood_sequences.record(print, place, transit);
        }
        if let Some(print) = content_print {
            self.switch.duplicates.record(print, place, cx.now_ns);
        }
        Ok(egress)
    }

    /// Floods a copy to the links that the first copy could not reach, because neither its ingress
    /// nor they were for transit.
    fn flood_remaining_links(
        &mut self,
        cx: &mut Context<'_>,
        from: (SwitchIndex, &[u8]),
        rx: &mut RxFrame,
        first: SwitchIndex,
    ) {
        let (switch, now_ns) = (&mut self.switch, cx.now_ns);
        let hop = match switch.next_hop_by_routes(from.0, rx) {
            Some(Ok(hop)) => hop,
            Some(Err(_)) => return,
            None => switch.next_hop(from.0, ethernet::address(rx.headers.destination), now_ns),
        };
        let mut targets = std::mem::take(&mut self.targets);
        targets.clear();
        match hop {
            NextHop::Set(set) => switch.list_targets(from.0, Egress::Set(set), &mut targets),
            NextHop::All | NextHop::Learners => {
                switch.list_targets(from.0, Egress::Learners, &mut targets);
            }
            NextHop::To(to) => targets.push(to),
            NextHop::Drop(_) => {}
        }
        let uplinks = &self.switch.uplinks;
        // The first copy reached the stations, as it reached the ports.
        let is_left = |to: SwitchIndex| !uplinks.is_transit(to) && !uplinks.is_station(to);
        targets.retain(|to| is_link(*to) && *to != first && is_left(*to));
        self.links.count_deliveries(targets.len());
        for to in &targets {
            self.forward_to_link(cx, from, std::slice::from_mut(rx), *to, 0);
        }
        self.targets = targets;
    }

    /// Delivers a batch to its receivers; flooded frames not to the stations of the sender's service
    /// if these have received them.
    fn deliver_batch(
        &mut self,
        cx: &mut Context<'_>,
        from: (SwitchIndex, &[u8]),
        batch: &mut [RxFrame],
        (egress, has_reached_stations): (Egress, bool),
    ) {
        self.links.count_deliveries(batch.len());
        match egress {
            Egress::Done => {}
            Egress::To(to, queue) => self.deliver_link_frames(cx, from, batch, (to, queue), 0),
            Egress::Link(to)
                if has_reached_stations
                    && self.switch.uplinks.are_stations_of_one_service(from.0, to) => {}
            Egress::Link(to) => self.forward_to_link(cx, from, batch, to, 0),
            Egress::All | Egress::Learners | Egress::Set(_) => {
                let mut targets = std::mem::take(&mut self.targets);
                self.switch.list_targets(from.0, egress, &mut targets);
                let leads_nowhere = targets.is_empty() && matches!(egress, Egress::Set(_));
                if has_reached_stations {
                    let uplinks = &self.switch.uplinks;
                    targets.retain(|to| !uplinks.are_stations_of_one_service(from.0, *to));
                }
                for rx in batch {
                    if leads_nowhere {
                        self.switch.count_drop(from.0, DropReason::NoRoute);
                    }
                    self.links.count_deliveries(targets.len());
                    self.switch.assign_flood_number(rx, egress, &targets);
                    let rx = std::slice::from_mut(rx);
                    self.deliver_link_frame_to_each(cx, from, rx, &targets, 0);
                }
                self.targets = targets;
            }
        }
    }

    /// Delivers a frame to each of `targets`, to the first from segment `done` on.
    pub(crate) fn deliver_link_frame_to_each(
        &mut self,
        cx: &mut Context<'_>,
        from: (SwitchIndex, &[u8]),
        rx: &mut [RxFrame],
        targets: &[SwitchIndex],
        mut done: usize,
    ) {
        // A single receiver has back-pressure: the frame may wait for its buffers.
        if let [only] = targets
            && !is_link(*only)
            && let Some(RxFrame { headers, .. }) = rx.first()
            && self.switch.get(*only).is_some_and(|port| port.mac != headers.source)
            && let Some(queue) = self.switch.receive_queue(*only, headers)
        {
            return self.deliver_link_frames(cx, from, rx, (*only, queue), done);
        }
        let mut left = targets;
        while let Some((&to, others)) = left.split_first() {
            let late = self.links.has_late() || (left.len() < targets.len() && cx.is_over());
            if late || !self.copy_link_frame(cx, from, rx, to, &mut done) {
                return self.postpone_link_frames(from, rx, done, &Remainder::Many(left.to_vec()));
            }
            done = 0;
            left = others;
        }
    }

    /// Delivers a frame to one of several receivers. Returns `false` if the turn ended before its
    /// last segment.
    fn copy_link_frame(
        &mut self,
        cx: &mut Context<'_>,
        from: (SwitchIndex, &[u8]),
        rx: &mut [RxFrame],
        to: SwitchIndex,
        done: &mut usize,
    ) -> bool {
        if is_link(to) {
            return self.send_from_link(cx, from, rx, to, done) > 0;
        }
        let Some(rx) = rx.first_mut() else { return true };
        // A frame that a guest sent before it moved to this host may still arrive; it is not
        // returned to the guest.
        if self.switch.get(to).is_some_and(|port| port.mac == rx.headers.source) {
            return true;
        }
        self.copy_to_port(cx, Ingress::Link(from.1), rx, to, done)
    }

    /// Delivers frames to a receive queue, the first from segment `done` on. Frames without buffers
    /// become pending.
    pub(crate) fn deliver_link_frames(
        &mut self,
        cx: &mut Context<'_>,
        (place, bytes): (SwitchIndex, &[u8]),
        batch: &mut [RxFrame],
        to: (u32, usize),
        mut done: usize,
    ) {
        if self.links.has_late() {
            return self.postpone_link_frames((place, bytes), batch, done, &Remainder::One(to));
        }
        let (mut committed, mut shortage) = (0, None);
        if !self.switch.has_pending(to.0, to.1) {
            let Self { switch, scratch, .. } = self;
            let ingress = Ingress::Link(bytes);
            let mut delivery = Delivery { frames: &mut *batch, longest: usize::MAX, done };
            let outcome = deliver_to_queue(switch, scratch, cx, ingress, to, &mut delivery);
            done = delivery.done;
            (committed, shortage) = (outcome.committed, outcome.shortage);
            if outcome.out_of_time {
                let rest = batch.get(committed..).unwrap_or(&[]);
                return self.postpone_link_frames((place, bytes), rest, done, &Remainder::One(to));
            }
        }
        for rx in batch.get(committed..).unwrap_or(&[]) {
            let done = std::mem::take(&mut done);
            if self.enqueue_pending_copy(cx, (place, bytes), rx, done, to, shortage) {
                shortage = None;
            }
        }
    }

    /// Sends frames of one link to another, the first from segment `done` on.
    pub(crate) fn forward_to_link(
        &mut self,
        cx: &mut Context<'_>,
        from: (SwitchIndex, &[u8]),
        batch: &mut [RxFrame],
        to: SwitchIndex,
        mut done: usize,
    ) {
        let committed = match self.links.has_late() {
            false => self.send_from_link(cx, from, batch, to, &mut done),
            true => 0,
        };
        self.postpone_link_frames(
            from,
            batch.get(committed..).unwrap_or(&[]),
            done,
            &Remainder::Link(to),
        );
    }

    /// Sends frames of one link to another, or drops them if neither link is for transit. Returns
    /// how many frames were sent, or dropped and counted.
    fn send_from_link(
        &mut self,
        cx: &mut Context<'_>,
        (from, bytes): (SwitchIndex, &[u8]),
        batch: &mut [RxFrame],
        to: SwitchIndex,
        done: &mut usize,
    ) -> usize {
        let switch = &mut self.switch;
        if switch.uplinks.may_pass(from, to) {
            let time = (cx.now_ns, &mut *cx.slice);
            return send_to_link(switch, FrameStore::Link(bytes), (from, to), batch, done, time);
        }
        for _ in &*batch {
            switch.count_drop(from, DropReason::NoTransit);
        }
        batch.len()
    }
}
