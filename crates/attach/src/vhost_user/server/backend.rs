//! The protocol: one message in, a reply and events out.

use std::os::fd::OwnedFd;

use causeway_memory::Map;
use causeway_ring::{Doorbell, DoorbellError, Notifier};
use vhost::vhost_user::message::FrontendReq;

use super::super::fault::Reason;
use super::super::message::{ConfigSpace, InflightSpec, Message, RingEvent, RingValue};
use super::super::{VhostUserProtocolFeatures as Protocol, message::RegionSpec};
use super::Event;
use super::device::Device;
use super::inflight::InflightBuffer;
use super::memory::Table;
use super::model::Model;
use super::queue::VirtQueue;
use crate::limits::{MEMORY_SLOTS_MAX, QUEUES_MAX};

/// What goes back to the frontend.
#[derive(Debug)]
pub struct Reply {
    /// The payload.
    pub payload: Vec<u8>,
    /// The descriptor beside it.
    pub fd: Option<OwnedFd>,
}

impl Reply {
    /// A 64-bit number.
    pub(super) fn number(value: u64) -> Self {
        Self::bytes(value.to_ne_bytes().to_vec())
    }

    fn bytes(payload: Vec<u8>) -> Self {
        Self { payload, fd: None }
    }
}

/// How a message ended well.
#[derive(Debug)]
pub enum Outcome {
    /// Done; acknowledged if the frontend asked for it.
    Done,
    /// Done, and this is what the frontend wants to know.
    Reply(Reply),
    /// Not done, but no reason to part; said so if the frontend asked for it.
    Refused,
}

impl Outcome {
    fn number(value: u64) -> Self {
        Self::Reply(Reply::number(value))
    }
}

type Answer = Result<Outcome, Reason>;

/// The backend's state in one conversation.
#[derive(Debug)]
pub struct Backend {
    model: Model,
    device: Device,
    table: Table,
    protocol: Protocol,
    inflight: Option<InflightBuffer>,
    features_set: bool,
}

impl Backend {
    /// At the beginning of a conversation about `model`.
    pub fn new(mut model: Model) -> Self {
        model.queues = model.queues.min(QUEUES_MAX);
        Self {
            device: Device::new(&model),
            model,
            table: Table::default(),
            protocol: Protocol::empty(),
            inflight: None,
            features_set: false,
        }
    }

    /// The device as granted so far.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The device as granted so far.
    pub fn device_mut(&mut self) -> &mut Device {
        &mut self.device
    }

    /// Whether requests that ask for it are acknowledged.
    pub fn acknowledges(&self) -> bool {
        self.protocol.contains(Protocol::REPLY_ACK)
    }

    /// Handles one message. What changed is added to `events`, also when it ends in an error.
    ///
    /// # Errors
    /// The frontend broke a rule; the conversation is over.
    pub fn handle(&mut self, message: Message, events: &mut Vec<Event>) -> Answer {
        use Message as M;
        match message {
            M::GetFeatures => return Ok(Outcome::number(self.model.offered())),
            M::SetFeatures(features) => self.set_features(features, events)?,
            M::GetProtocolFeatures => {
                return Ok(Outcome::number(self.model.protocol_offered().bits()));
            }
            M::SetProtocolFeatures(features) => self.set_protocol_features(features)?,
            M::SetOwner => {}
            M::ResetOwner => self.stop_all(events),
            M::ResetDevice => self.reset_device(events)?,
            M::SetMemTable(table) => {
                let map = self.table.replace(table)?;
                self.change_map(map, true, events)?;
            }
            M::AddMemReg(spec, file) => self.add_region(&spec, file, events)?,
            M::RemMemReg(spec) => self.remove_region(&spec, events)?,
            M::GetMaxMemSlots => {
                self.negotiated(FrontendReq::GET_MAX_MEM_SLOTS, SLOTS)?;
                return Ok(Outcome::number(MEMORY_SLOTS_MAX as u64));
            }
            M::GetQueueNum => {
                self.negotiated(FrontendReq::GET_QUEUE_NUM, MQ)?;
                return Ok(Outcome::number(self.model.queue_units));
            }
            M::GetConfig(space) => return self.get_config(space),
            M::SetConfig(_) => return self.set_config(),
            M::SetStatus(status) => self.set_status(status, events)?,
            M::GetStatus => {
                self.negotiated(FrontendReq::GET_STATUS, STATUS)?;
                return Ok(Outcome::number(u64::from(self.device.status())));
            }
            M::GetInflightFd(spec) => return self.get_inflight(&spec),
            M::SetInflightFd(spec, file) => self.set_inflight(&spec, &file)?,
            M::GetVringBase(which) => return self.get_base(which, events),
            ring => self.configure_ring(ring, events)?,
        }
        Ok(Outcome::Done)
    }

    /// The messages that configure one queue.
    fn configure_ring(&mut self, message: Message, events: &mut Vec<Event>) -> Result<(), Reason> {
        use FrontendReq as R;
        use Message as M;
        match message {
            M::SetVringNum(RingValue { index, value }) => {
                let max = self.model.ring_size_max;
                self.queue(R::SET_VRING_NUM, index)?.1.set_size(value, max)
            }
            M::SetVringAddr(addresses) => {
                self.queue(R::SET_VRING_ADDR, addresses.index)?.1.set_addresses(addresses)
            }
            M::SetVringBase(RingValue { index, value }) => {
                self.queue(R::SET_VRING_BASE, index)?.1.set_base(value)
            }
            M::SetVringKick(event) => self.start(event, events),
            M::SetVringCall(event) => {
                let (queue, ring) = self.queue(R::SET_VRING_CALL, event.index)?;
                ring.set_notifier(notifier(R::SET_VRING_CALL, queue, event)?);
                if ring.runs() {
                    // What was used while nobody could be told must not stay unnoticed.
                    ring.notify();
                }
                Ok(())
            }
            M::SetVringErr(event) => {
                let (queue, ring) = self.queue(R::SET_VRING_ERR, event.index)?;
                ring.set_error(notifier(R::SET_VRING_ERR, queue, event)?);
                Ok(())
            }
            M::SetVringEnable(RingValue { index, value }) => {
                let (queue, ring) = self.queue(R::SET_VRING_ENABLE, index)?;
                if value > 1 {
                    return Err(Reason::RingEnable { queue, value });
                }
                ring.set_enabled(value == 1);
                self.settle(queue, events)
            }
            _ => Ok(()),
        }
    }

    fn negotiated(
        &self,
        request: FrontendReq,
        (bit, feature): (Protocol, &'static str),
    ) -> Result<(), Reason> {
        if self.protocol.contains(bit) {
            Ok(())
        } else {
            Err(Reason::NotNegotiated { request, feature })
        }
    }

    /// The queue that a message names.
    fn queue(
        &mut self,
        request: FrontendReq,
        index: u32,
    ) -> Result<(usize, &mut VirtQueue), Reason> {
        let queues = self.device.queues.len();
        let at = index as usize;
        match self.device.queues.get_mut(at) {
            Some(queue) => Ok((at, queue)),
            None => Err(Reason::QueueIndex { request, index, queues }),
        }
    }

    fn set_features(&mut self, features: u64, events: &mut Vec<Event>) -> Result<(), Reason> {
        let extra = features & !self.model.offered();
        if extra != 0 {
            return Err(Reason::Features { request: FrontendReq::SET_FEATURES, extra });
        }
        // QEMU sends it once for every queue pair, when earlier pairs run already.
        if self.features_set && features == self.device.acked() {
            return Ok(());
        }
        if let Some(queue) = self.device.queues.iter().position(VirtQueue::runs) {
            return Err(Reason::FeaturesRunning { queue });
        }
        self.device.set_acked(features);
        self.features_set = true;
        self.settle_all(events)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<(), Reason> {
        let offered = self.model.protocol_offered();
        let extra = features & !offered.bits();
        if extra != 0 {
            return Err(Reason::Features { request: FrontendReq::SET_PROTOCOL_FEATURES, extra });
        }
        self.protocol = Protocol::from_bits_truncate(features);
        Ok(())
    }

    fn add_region(
        &mut self,
        spec: &RegionSpec,
        file: OwnedFd,
        events: &mut Vec<Event>,
    ) -> Result<(), Reason> {
        self.negotiated(FrontendReq::ADD_MEM_REG, SLOTS)?;
        let map = self.table.add(spec, file)?;
        self.change_map(map, false, events)
    }

    fn remove_region(&mut self, spec: &RegionSpec, events: &mut Vec<Event>) -> Result<(), Reason> {
        self.negotiated(FrontendReq::REM_MEM_REG, SLOTS)?;
        let map = self.table.remove(spec)?;
        self.change_map(map, false, events)
    }

    /// Puts `map` in place, and every running queue on it. A table that is `whole` must have
    /// the rings; between single steps a ring may be away for a while, and its queue rests.
    fn change_map(&mut self, map: Map, whole: bool, events: &mut Vec<Event>) -> Result<(), Reason> {
        for (index, queue) in self.device.queues.iter_mut().enumerate() {
            if !queue.runs() {
                continue;
            }
            match queue.follow(&map) {
                Ok(()) => {}
                Err(reason) if whole => return Err(reason),
                Err(_) => {
                    queue.halt();
                    events.push(Event::QueueStopped(index));
                }
            }
        }
        self.device.replace_map(map);
        events.push(Event::MemoryChanged);
        if whole { self.settle_all(events) } else { self.wake(events) }
    }

    /// Lets queues run whose memory is there again; the others go on resting.
    fn wake(&mut self, events: &mut Vec<Event>) -> Result<(), Reason> {
        for index in 0..self.device.queues.len() {
            match self.settle(index, events) {
                Ok(()) | Err(Reason::RingAddress { .. } | Reason::Ring { .. }) => {}
                Err(reason) => return Err(reason),
            }
        }
        Ok(())
    }

    fn start(&mut self, event: RingEvent, events: &mut Vec<Event>) -> Result<(), Reason> {
        let request = FrontendReq::SET_VRING_KICK;
        let features_set = self.features_set;
        let (queue, ring) = self.queue(request, event.index)?;
        if !features_set {
            return Err(Reason::Early { request, queue, missing: "SET_FEATURES" });
        }
        let doorbell = match event.fd {
            Some(fd) => Some(Doorbell::new(fd).map_err(|e| not_eventfd(request, queue, e))?),
            None => None,
        };
        // A new doorbell for a running queue: whoever watches the old one must let go of it.
        if ring.halt() {
            events.push(Event::QueueStopped(queue));
        }
        ring.start(doorbell)?;
        self.settle(queue, events)
    }

    fn get_base(&mut self, which: RingValue, events: &mut Vec<Event>) -> Answer {
        let (queue, ring) = self.queue(FrontendReq::GET_VRING_BASE, which.index)?;
        if ring.halt() {
            events.push(Event::QueueStopped(queue));
        }
        ring.stop();
        let value = u32::from(ring.base());
        Ok(Outcome::Reply(Reply::bytes(RingValue { index: which.index, value }.emit())))
    }

    /// Makes queue `index` run or rest, as its state demands.
    fn settle(&mut self, index: usize, events: &mut Vec<Event>) -> Result<(), Reason> {
        let acked = self.device.acked();
        let Some((map, queue)) = self.device.queue_mut(index) else { return Ok(()) };
        match (queue.wanted(acked), queue.runs()) {
            (true, false) => {
                let anew = queue.begins_anew();
                queue.run(map, acked, self.inflight.as_ref())?;
                if anew {
                    self.device.forget_positions();
                    events.push(Event::Reset);
                }
                events.push(Event::QueueStarted(index));
            }
            (false, true) => {
                queue.halt();
                events.push(Event::QueueStopped(index));
            }
            _ => {}
        }
        Ok(())
    }

    fn settle_all(&mut self, events: &mut Vec<Event>) -> Result<(), Reason> {
        (0..self.device.queues.len()).try_for_each(|index| self.settle(index, events))
    }

    fn stop_all(&mut self, events: &mut Vec<Event>) {
        for (index, queue) in self.device.queues.iter_mut().enumerate() {
            if queue.halt() {
                events.push(Event::QueueStopped(index));
            }
            queue.stop();
        }
    }

    /// All rings stopped and disabled, features forgotten. Memory stays: QEMU sends only what
    /// changes of it.
    fn reset_device(&mut self, events: &mut Vec<Event>) -> Result<(), Reason> {
        self.negotiated(FrontendReq::RESET_DEVICE, RESET)?;
        self.stop_all(events);
        self.device.queues.iter_mut().for_each(VirtQueue::reset_enabled);
        self.device.forget_positions();
        self.device.set_acked(0);
        self.device.set_status(0);
        self.features_set = false;
        events.push(Event::Reset);
        Ok(())
    }

    /// Zero resets the device, but not what its driver agreed on with others: QEMU also sends
    /// it when the VM is paused.
    fn set_status(&mut self, status: u64, events: &mut Vec<Event>) -> Result<(), Reason> {
        self.negotiated(FrontendReq::SET_STATUS, STATUS)?;
        self.device.set_status(u8::try_from(status & 0xff).unwrap_or(0));
        if status == 0 {
            self.stop_all(events);
        }
        Ok(())
    }

    /// Bytes past the end of the model's space are zero.
    fn get_config(&self, mut space: ConfigSpace) -> Answer {
        self.negotiated(FrontendReq::GET_CONFIG, CONFIG)?;
        let from = self.model.config.get(space.offset as usize..).unwrap_or_default();
        space.bytes.fill(0);
        space.bytes.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        Ok(Outcome::Reply(Reply::bytes(space.emit())))
    }

    /// No field of our devices is the guest's to change; it is told so if it asks.
    fn set_config(&self) -> Answer {
        self.negotiated(FrontendReq::SET_CONFIG, CONFIG)?;
        Ok(Outcome::Refused)
    }

    fn get_inflight(&self, spec: &InflightSpec) -> Answer {
        self.negotiated(FrontendReq::GET_INFLIGHT_FD, INFLIGHT)?;
        let (spec, file) = InflightBuffer::create(spec, &self.model)?;
        Ok(Outcome::Reply(Reply { payload: spec.emit(), fd: Some(file) }))
    }

    fn set_inflight(&mut self, spec: &InflightSpec, file: &OwnedFd) -> Result<(), Reason> {
        let request = FrontendReq::SET_INFLIGHT_FD;
        self.negotiated(request, INFLIGHT)?;
        if let Some(queue) = self.device.queues.iter().position(VirtQueue::runs) {
            return Err(Reason::QueueRunning { request, queue });
        }
        self.inflight = Some(InflightBuffer::adopt(spec, file, &self.model)?);
        Ok(())
    }

    /// Whether a granted file shrank.
    pub fn memory_lost(&self) -> bool {
        self.device.map.poisoned() || self.inflight.as_ref().is_some_and(InflightBuffer::poisoned)
    }

    /// Stops every queue and lets go of everything granted.
    pub(super) fn release(&mut self, events: &mut Vec<Event>) {
        self.stop_all(events);
        self.device.release();
        self.table.clear();
        self.inflight = None;
        self.features_set = false;
        self.protocol = Protocol::empty();
    }
}

const MQ: (Protocol, &str) = (Protocol::MQ, "MQ");
const SLOTS: (Protocol, &str) = (Protocol::CONFIGURE_MEM_SLOTS, "CONFIGURE_MEM_SLOTS");
const CONFIG: (Protocol, &str) = (Protocol::CONFIG, "CONFIG");
const STATUS: (Protocol, &str) = (Protocol::STATUS, "STATUS");
const RESET: (Protocol, &str) = (Protocol::RESET_DEVICE, "RESET_DEVICE");
const INFLIGHT: (Protocol, &str) = (Protocol::INFLIGHT_SHMFD, "INFLIGHT_SHMFD");

fn notifier(
    request: FrontendReq,
    queue: usize,
    event: RingEvent,
) -> Result<Option<Notifier>, Reason> {
    let Some(fd) = event.fd else { return Ok(None) };
    Notifier::new(fd).map(Some).map_err(|error| not_eventfd(request, queue, error))
}

fn not_eventfd(request: FrontendReq, queue: usize, source: DoorbellError) -> Reason {
    Reason::NotEventfd { request, queue, source }
}
