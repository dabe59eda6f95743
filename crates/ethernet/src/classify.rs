//! Classification: popped frames are read, checked and cut into batches by egress.
//!
//! `send_batch` in `crate::forward` calls [`Ethernet::classify`] between the pop and the delivery
//! of a batch. The function copies the first bytes of each frame (`crate::headers`), has
//! [`Switch::resolve_egress`] resolve the egress of each frame that does not continue a flow,
//! counts the frames, and copies them into captures (`crate::mirror`).
//!
//! The module delivers nothing. It classifies at least one frame, and stops when the estimated time
//! of the turn or the budget of flooded copies is used up; the caller must put the frames behind
//! the returned number back into the ring. A refused frame has [`Egress::Done`] and is counted as
//! dropped. Frames of links are classified in `crate::link_rx`. `place` is the switch index of the
//! sending port (`crate::port`). The budget of copies is the number of frames that the queue may
//! still send in this call: each receiver of a flooded frame counts as one here. The frames of a
//! port that is gone are classified without a batch: they are neither delivered nor counted. All of
//! it runs in the dispatcher's thread of the group.
//!
//! # Budget
//! Frames that continue a flow of plain frames cost one read and two comparisons each; the egress,
//! the traffic matrix and the counters are touched once for all of them.

use causeway_fabric::{Context, Port, cost};
use causeway_memory::Map;
use causeway_wire::ethernet;
use causeway_wire::pcapng::Direction;
use causeway_wire::virtio_net::Offload;

use crate::batch::{Egress, EgressBatch};
use crate::counters::DropReason;
use crate::frame_store::FrameStore;
use crate::headers::{FrameHeaders, RxFrame};
use crate::port::Switch;
use crate::service::Ethernet;

/// Totals of consecutive frames of one flow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FlowTotals {
    /// Number of frames.
    pub frames: usize,
    /// Bytes of all frames.
    pub bytes: usize,
    /// As [`crate::batch::Delivery::longest`].
    pub longest: usize,
}

/// The properties that most frames of a port share: plain, sent from the port's own address to the
/// destination of the previous frame, and within the MTU.
#[derive(Debug, Clone, Copy)]
struct PlainFlow {
    /// Features that the sender's driver negotiated.
    features: u64,
    /// The port's own address, as a number.
    source: u64,
    /// Destination of the previous frame, as a number.
    destination: u64,
    /// Longest frame within the MTU, in bytes with the Ethernet header.
    most: usize,
}

impl FlowTotals {
    /// Adds one frame; `longest` as [`crate::batch::Delivery::longest`].
    #[inline]
    fn add(&mut self, len: usize, longest: usize) {
        self.frames = self.frames.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(len);
        self.longest = self.longest.max(longest);
    }
}

impl PlainFlow {
    /// Reads and sums frames while they match the flow and their total is below `room` bytes.
    ///
    /// Returns the first frame that does not match, and whether it is plain.
    #[inline(never)]
    fn coalesce<'a>(
        &self,
        map: &Map,
        frames: &mut std::slice::IterMut<'a, RxFrame>,
        totals: &mut FlowTotals,
        room: u64,
    ) -> Option<(&'a mut RxFrame, bool)> {
        let mut sum = *totals;
        let other = frames.find_map(|rx| {
            let plain = rx.headers.read_plain(map, &rx.chain, self.features);
            let RxFrame { headers, is_pending, .. } = &mut *rx;
            let pair = headers.source == self.source && headers.destination == self.destination;
            if !(plain && pair && headers.len <= self.most && (sum.bytes as u64) < room) {
                return Some((rx, plain));
            }
            *is_pending = false;
            sum.add(headers.len, headers.len);
            None
        });
        *totals = sum;
        other
    }
}

/// The classified frames and their estimated cost.
#[derive(Debug)]
struct Work {
    /// Number of classified frames.
    frames: usize,
    /// Bytes of the classified frames.
    bytes: usize,
    /// Time left in the turn.
    limit_ns: u64,
    /// Estimated time of the frames with their descriptors, segments and copies.
    all_ns: u64,
    /// Estimated time of the descriptors alone.
    chains_ns: u64,
    /// Copies that flooded frames may still cause.
    left: usize,
}

impl Work {
    /// Returns the state before the first frame, with `limit_ns` nanoseconds left in the turn and
    /// `left` copies of flooded frames.
    const fn new(limit_ns: u64, left: usize) -> Self {
        Self { frames: 0, bytes: 0, limit_ns, all_ns: 0, chains_ns: 0, left }
    }

    /// Returns the bytes of plain frames that still fit in the turn.
    #[inline(always)]
    const fn room(&self) -> u64 {
        self.limit_ns.saturating_sub(self.all_ns).saturating_mul(8)
    }

    /// Returns whether the turn's time is used up. The first frame is always classified.
    #[inline(always)]
    const fn is_over(&self, frames: usize, totals_ns: u64) -> bool {
        let any = self.frames.wrapping_add(frames) > 0;
        any && self.all_ns.saturating_add(totals_ns) >= self.limit_ns
    }

    /// Reads the headers of a frame that is not plain, and adds its descriptors.
    #[inline(always)]
    fn read(&mut self, map: &Map, rx: &mut RxFrame, features: u64) -> Result<(), DropReason> {
        let spans_ns = (rx.chain.readable().len() as u64).saturating_mul(cost::SPAN_NS);
        self.chains_ns = self.chains_ns.saturating_add(spans_ns);
        self.all_ns = self.all_ns.saturating_add(spans_ns);
        rx.headers.read_checked(map, &rx.chain, features)
    }

    /// Adds a frame, and the coalesced frames before it.
    #[inline(always)]
    const fn add_frame(&mut self, len: usize, totals: &FlowTotals, totals_ns: u64) {
        self.frames = self.frames.wrapping_add(totals.frames).wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(totals.bytes).wrapping_add(len);
        self.all_ns = self.all_ns.saturating_add(totals_ns);
    }

    /// Adds the segments and copies of a frame. Returns `false` if no copies are left.
    #[inline(always)]
    fn add_egress(&mut self, switch: &Switch, egress: Egress, headers: &FrameHeaders) -> bool {
        let mut frame_ns = cost::bytes(headers.len);
        if headers.offload != Offload::None {
            let segments = switch.segment_count(egress, headers) as u64;
            frame_ns = frame_ns.saturating_add(segments.saturating_mul(cost::PIECE_NS));
        }
        let receivers = match egress {
            Egress::All => switch.members.len(),
            Egress::Learners => switch.learners.len(),
            Egress::Set(set) => switch.routes.places(set).len(),
            Egress::Done | Egress::To(..) | Egress::Link(_) => {
                self.all_ns = self.all_ns.saturating_add(frame_ns);
                return true;
            }
        };
        let receivers = receivers.saturating_add(switch.uplinks.up().len());
        let copies_ns = frame_ns.saturating_add(cost::CHAIN_NS);
        self.all_ns = self.all_ns.saturating_add(copies_ns.saturating_mul(receivers as u64));
        self.left = self.left.saturating_sub(receivers);
        self.left > 0
    }

    /// Adds the coalesced frames behind the last frame.
    #[inline(always)]
    const fn add_totals(&mut self, totals: &FlowTotals) {
        self.frames = self.frames.wrapping_add(totals.frames);
        self.bytes = self.bytes.wrapping_add(totals.bytes);
    }

    /// Returns the time to charge for classification and delivery of the frames.
    const fn charge_ns(&self) -> u64 {
        let frames_ns = (self.frames as u64).saturating_mul(cost::CHAIN_NS);
        frames_ns.saturating_add(cost::bytes(self.bytes)).saturating_add(self.chains_ns)
    }
}

impl Ethernet {
    /// Reads and checks the first bytes of each frame, and cuts the frames into batches by egress.
    ///
    /// Returns the number of classified frames. Frames behind flooded frames whose copies exceed
    /// `left`, and frames beyond the estimated time of the turn, are not classified.
    #[inline(never)]
    pub(crate) fn classify(
        &mut self,
        cx: &mut Context<'_>,
        place: u32,
        popped: &mut [RxFrame],
        left: usize,
    ) -> usize {
        let me = self.switch.get(place);
        let found = me.and_then(|me| Some((me, cx.ports.get(me.id).and_then(Port::map)?)));
        self.batches.0.clear();
        let Some((me, map)) = found else { return popped.len() };
        let (features, mac, mtu, exchange) = (me.features, me.mac, me.spec.mtu, me.exchange);
        self.switch.routes.tidy();
        let most = usize::from(mtu).saturating_add(ethernet::HEADER_LEN);
        let mut work = Work::new(cx.left_ns(), left);
        // The flow that the next frames are compared with; the frames that matched it; the batch of
        // both.
        let mut flow: Option<PlainFlow> = None;
        let (mut totals, mut batch) = (FlowTotals::default(), EgressBatch::default());
        let mut frames = popped.iter_mut();
        loop {
            let next = match &flow {
                Some(flow) => flow.coalesce(map, &mut frames, &mut totals, work.room()),
                None => frames.next().map(|rx| {
                    let plain = rx.headers.read_plain(map, &rx.chain, features);
                    (rx, plain)
                }),
            };
            let Some((rx, plain)) = next else { break };
            let totals_ns = cost::bytes(totals.bytes);
            if work.is_over(totals.frames, totals_ns) {
                break;
            }
            let read = match plain {
                true => Ok(()),
                false => work.read(map, rx, features),
            };
            rx.is_pending = false;
            if let (Some(exchange), true) = (&exchange, read.is_ok()) {
                rx.exchange(exchange, FrameStore::Guest(map));
            }
            let len = rx.headers.len;
            let fits = if plain { len <= most } else { rx.headers.fits_mtu(mtu) };
            let own = read.is_ok() && rx.headers.source == mac && fits;
            let longest = if plain { len } else { usize::MAX };
            let destination = rx.headers.destination;
            if own && flow.is_some_and(|flow| flow.destination == destination) {
                totals.add(len, longest);
                continue;
            }
            work.add_frame(len, &totals, totals_ns);
            self.count_flow(place, flow, (&mut totals, &mut batch), cx.now_ns);
            let (egress, all) = self.admit(place, map, rx, read, cx.now_ns);
            // Each frame of a clone needs its addresses exchanged.
            let continues = all && own && exchange.is_none();
            flow = continues.then_some(PlainFlow { features, source: mac, destination, most });
            let new = EgressBatch { egress, count: 1, longest };
            self.batches.push(std::mem::replace(&mut batch, new));
            if !work.add_egress(&self.switch, egress, &rx.headers) {
                break;
            }
        }
        work.add_totals(&totals);
        self.count_flow(place, flow, (&mut totals, &mut batch), cx.now_ns);
        self.batches.push(batch);
        let sent = popped.get(..work.frames).unwrap_or(&[]);
        self.switch.count_sent(place, map, sent, work.bytes, cx.now_ns);
        cx.charge(work.charge_ns());
        work.frames
    }

    /// Resolves the egress of a frame that was read, and counts the frame as accepted or dropped.
    /// The flag is that of [`Switch::resolve_egress`].
    #[inline(always)]
    fn admit(
        &mut self,
        place: u32,
        map: &Map,
        rx: &mut RxFrame,
        read: Result<(), DropReason>,
        now_ns: u64,
    ) -> (Egress, bool) {
        let sent = read.and_then(|()| self.switch.resolve_egress(place, map, rx, now_ns));
        // Refused frames would fill the traffic matrix with forged addresses.
        if sent.is_ok() {
            self.switch.count_traffic(place, &rx.headers, now_ns);
        }
        let source = rx.headers.source;
        sent.unwrap_or_else(|why| {
            self.switch.count_drop(place, why);
            if why == DropReason::SpoofedSource
                && let Some(me) = self.switch.get_mut(place)
                && me.refused_source.is_none_or(|(last, _)| last != source)
            {
                me.refused_source = Some((source, false));
            }
            self.turn.count_violation(why.is_senders_fault());
            (Egress::Done, false)
        })
    }

    /// Adds the frames that matched a flow to its batch, and counts them in the traffic matrix.
    fn count_flow(
        &mut self,
        place: u32,
        flow: Option<PlainFlow>,
        (totals, batch): (&mut FlowTotals, &mut EgressBatch),
        now_ns: u64,
    ) {
        let totals = std::mem::take(totals);
        if let Some(PlainFlow { source, destination, .. }) = flow {
            batch.count = batch.count.wrapping_add(totals.frames);
            batch.longest = batch.longest.max(totals.longest);
            self.switch.count_pair(place, (source, destination), totals, now_ns);
        }
    }
}

impl Switch {
    /// Counts the frames that a port sent, and copies them into its captures.
    #[inline(always)]
    fn count_sent(&mut self, place: u32, map: &Map, sent: &[RxFrame], bytes: usize, now_ns: u64) {
        if let Some(me) = self.get_mut(place) {
            me.counters.count_transmitted(sent.len(), bytes);
        }
        if !self.mirrors.is_empty() {
            let source = FrameStore::Guest(map);
            self.mirrors.copy_frames(place, Direction::In, source, sent, now_ns);
        }
    }
}
