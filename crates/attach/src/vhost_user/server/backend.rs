//! The vhost-user protocol of the backend: one message in, a reply and events out.
//!
//! [`super::Server`] calls [`Backend::handle`] for each decoded message, in the thread of the
//! dispatcher that owns the port's shard. The state machine checks the message against the
//! negotiated features and the model, and changes the [`Device`]; the child module `rings` handles
//! the messages of queues. The memory table has at most [`MEMORY_SLOTS_MAX`] (64) regions; a
//! further one ends the conversation. The events go to the caller of [`super::Server::receive`], in
//! causewayd the shard of `fabric` ([`crate::Attachment::poll`]).
//!
//! It reads and writes no socket, and checks no message format (`vhost_user::message` does). A
//! message that breaks a rule ends the conversation ([`Reason`]); effects of earlier messages, and
//! events of this one, are reported all the same. Only SET_CONFIG is declined without that
//! ([`Outcome::Refused`]): the state stays unchanged. A call waits for the mapping of files, and
//! for a notification that a hostile frontend blocks: the dispatcher's watchdog interrupts that
//! write after 10 to 110 ms, and the conversation ends. The backend channel is accepted, but no
//! request is sent on it.

mod rings;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use causeway_host::ReceivedFd;
use causeway_memory::DirtyLog;
use causeway_ring::DoorbellError;

use super::super::fault::Reason;
use super::super::message::{ConfigSpace, InflightSpec, Message};
use super::super::{VhostUserProtocolFeatures as Protocol, message::RegionSpec};
use super::Event;
use super::device::Device;
use super::inflight::InflightBuffer;
use super::memory::RegionTable;
use super::model::features::LOG_ALL;
use super::model::{FrontendOrder, Model};
use super::queue::{VirtQueue, is_packed};
use crate::limits::{LOG_SPREAD, MEMORY_SLOTS_MAX, QUEUES_MAX};
use crate::vhost_user::codes::FrontendReq;

/// A reply to the frontend.
#[derive(Debug)]
pub struct Reply {
    /// The payload.
    pub payload: Vec<u8>,
    /// The descriptor that is sent with it.
    pub fd: Option<OwnedFd>,
}

impl Reply {
    /// Returns a reply with a 64-bit number.
    pub(super) fn number(value: u64) -> Self {
        Self::bytes(value.to_ne_bytes().to_vec())
    }

    /// Returns a reply without a file descriptor.
    fn bytes(payload: Vec<u8>) -> Self {
        Self { payload, fd: None }
    }
}

/// The result of a message that broke no rule.
#[derive(Debug)]
pub enum Outcome {
    /// The message is done; it is acknowledged if the frontend asked for that.
    Done,
    /// The message is done, and has a reply of its own.
    Reply(Reply),
    /// The message was refused, but the conversation goes on. The frontend gets a negative
    /// acknowledgement if it asked for an acknowledgement.
    Refused,
}

impl Outcome {
    /// Returns a reply with a 64-bit number.
    fn number(value: u64) -> Self {
        Self::Reply(Reply::number(value))
    }
}

type HandleResult = Result<Outcome, Reason>;

/// The backend's state in one conversation.
#[derive(Debug)]
pub struct Backend {
    /// The offered features, queues and configuration space.
    model: Model,
    /// The state that the frontend granted.
    device: Device,
    /// The granted regions.
    table: RegionTable,
    /// Negotiated protocol features.
    protocol: Protocol,
    /// The in-flight buffer that the frontend set.
    inflight: Option<InflightBuffer>,
    /// The dirty log that the frontend set.
    log: Option<Arc<DirtyLog>>,
    /// The backend channel (SET_BACKEND_REQ_FD). It is kept open, but this backend sends no
    /// requests.
    requests: Option<ReceivedFd>,
    /// Whether SET_FEATURES has arrived.
    features_set: bool,
    /// The order of the first messages, once it is known.
    order: Option<FrontendOrder>,
}

impl Backend {
    /// Returns a backend for `model`, before the first message.
    pub fn new(mut model: Model) -> Self {
        model.queues = model.queues.min(QUEUES_MAX);
        Self {
            device: Device::new(&model),
            model,
            table: RegionTable::default(),
            protocol: Protocol::empty(),
            inflight: None,
            log: None,
            requests: None,
            features_set: false,
            order: None,
        }
    }

    /// Returns the device as granted so far.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the device as granted so far.
    pub fn device_mut(&mut self) -> &mut Device {
        &mut self.device
    }

    /// Returns whether requests with `need_reply` are acknowledged.
    pub fn acknowledges(&self) -> bool {
        self.protocol.contains(Protocol::REPLY_ACK)
    }

    /// Handles one message. Consequences are appended to `events`, also before an error.
    ///
    /// # Errors
    /// Returns the rule that the frontend broke; the conversation is over.
    pub fn handle(&mut self, message: Message, events: &mut Vec<Event>) -> HandleResult {
        use Message as M;
        match message {
            M::GetFeatures => return Ok(Outcome::number(self.model.offered())),
            M::SetFeatures(features) => {
                self.order.get_or_insert(FrontendOrder::StateFirst);
                self.set_features(features, events)?
            }
            M::GetProtocolFeatures => {
                let order = *self.order.get_or_insert(FrontendOrder::OfferFirst);
                return Ok(Outcome::number(self.model.protocol_shown(order).bits()));
            }
            M::SetProtocolFeatures(features) => self.set_protocol_features(features)?,
            M::SetOwner => {
                self.order.get_or_insert(FrontendOrder::StateFirst);
            }
            M::ResetOwner => self.stop_all(events),
            M::ResetDevice => self.reset_device(events)?,
            M::SetMemTable(table) => {
                let map = self.table.replace(table)?;
                self.change_map(map, true, events)?;
            }
            M::AddMemReg(spec, file) => self.add_region(&spec, file, events)?,
            M::RemMemReg(spec) => self.remove_region(&spec, events)?,
            M::GetMaxMemSlots => {
                self.check_negotiated(
                    FrontendReq::GET_MAX_MEM_SLOTS,
                    Protocol::CONFIGURE_MEM_SLOTS,
                )?;
                return Ok(Outcome::number(MEMORY_SLOTS_MAX as u64));
            }
            M::GetQueueNum => {
                self.check_negotiated(FrontendReq::GET_QUEUE_NUM, Protocol::MQ)?;
                let order = self.order.unwrap_or_default();
                return Ok(Outcome::number(self.model.queue_number(order, self.protocol) as u64));
            }
            M::GetConfig(space) => return self.get_config(space),
            M::SetConfig(_) => return self.set_config(),
            M::SetStatus(status) => self.set_status(status, events)?,
            M::GetStatus => {
                self.check_negotiated(FrontendReq::GET_STATUS, Protocol::STATUS)?;
                return Ok(Outcome::number(u64::from(self.device.status())));
            }
            M::GetInflightFd(spec) => return self.get_inflight(&spec),
            M::SetInflightFd(spec, file) => self.set_inflight(&spec, &file)?,
            M::SetBackendReqFd(channel) => {
                self.check_negotiated(FrontendReq::SET_BACKEND_REQ_FD, Protocol::BACKEND_REQ)?;
                self.requests = Some(channel);
            }
            M::SetLogBase(spec, file) => {
                self.check_negotiated(FrontendReq::SET_LOG_BASE, Protocol::LOG_SHMFD)?;
                causeway_memory::fits(0, spec.len.saturating_mul(LOG_SPREAD))
                    .map_err(Reason::LogMapping)?;
                let log = DirtyLog::new(file.as_fd(), spec.offset, spec.len);
                self.log = Some(Arc::new(log.map_err(Reason::LogMapping)?));
                self.follow_log(events)?;
                return Ok(Outcome::number(0));
            }
            // The reader of the log polls it, so the descriptor is not used.
            M::SetLogFd(_) => {
                self.check_negotiated(FrontendReq::SET_LOG_FD, Protocol::LOG_SHMFD)?
            }
            M::GetVringBase(which) => return self.get_base(which, events),
            ring => self.configure_ring(ring, events)?,
        }
        Ok(Outcome::Done)
    }

    /// Returns an error unless the protocol feature that `request` needs was negotiated.
    fn check_negotiated(&self, request: FrontendReq, feature: Protocol) -> Result<(), Reason> {
        if self.protocol.contains(feature) {
            return Ok(());
        }
        let feature = feature.iter_names().next().map_or("", |(name, _)| name);
        Err(Reason::NotNegotiated { request, feature })
    }

    /// Stores acknowledged features. They may not change while a queue runs, except for logging.
    fn set_features(&mut self, features: u64, events: &mut Vec<Event>) -> Result<(), Reason> {
        let extra = features & !self.model.offered();
        if extra != 0 {
            return Err(Reason::Features { request: FrontendReq::SET_FEATURES, extra });
        }
        // QEMU sends it once for every queue pair, when earlier pairs run already.
        if self.features_set && features == self.device.acked() {
            return Ok(());
        }
        if self.features_set && features ^ self.device.acked() == LOG_ALL {
            self.device.set_acked(features);
            return self.follow_log(events);
        }
        if let Some(queue) = self.device.queues.iter().position(VirtQueue::is_running) {
            return Err(Reason::FeaturesRunning { queue });
        }
        self.device.set_acked(features);
        self.features_set = true;
        if self.log.is_some() {
            self.follow_log(events)?;
        }
        self.update_all_queues(events)
    }

    /// Returns the dirty log, if logging is acknowledged.
    fn wanted_log(&self) -> Option<Arc<DirtyLog>> {
        self.log.clone().filter(|_| self.device.acked() & LOG_ALL != 0)
    }

    /// Starts or stops logging of writes, by a new epoch of the memory map.
    fn follow_log(&mut self, events: &mut Vec<Event>) -> Result<(), Reason> {
        if self.wanted_log().is_none() && !self.device.map.is_logged() {
            // Neither the map nor a queue logs, and none is to log.
            return Ok(());
        }
        let map = self.device.map.logged(None);
        self.change_map(map, false, events)
    }

    /// Stores acknowledged protocol features.
    fn set_protocol_features(&mut self, features: u64) -> Result<(), Reason> {
        let offered = self.model.protocol_offered();
        let extra = features & !offered.bits();
        if extra != 0 {
            return Err(Reason::Features { request: FrontendReq::SET_PROTOCOL_FEATURES, extra });
        }
        self.protocol = Protocol::from_bits_truncate(features);
        Ok(())
    }

    /// Adds a region; no effect if the table contains it already.
    fn add_region(
        &mut self,
        spec: &RegionSpec,
        file: ReceivedFd,
        events: &mut Vec<Event>,
    ) -> Result<(), Reason> {
        self.check_negotiated(FrontendReq::ADD_MEM_REG, Protocol::CONFIGURE_MEM_SLOTS)?;
        match self.table.add(spec, file)? {
            Some(map) => self.change_map(map, false, events),
            None => Ok(()),
        }
    }

    /// Removes a region; no effect if it is one of the last 64 removed regions.
    fn remove_region(&mut self, spec: &RegionSpec, events: &mut Vec<Event>) -> Result<(), Reason> {
        self.check_negotiated(FrontendReq::REM_MEM_REG, Protocol::CONFIGURE_MEM_SLOTS)?;
        match self.table.remove(spec)? {
            Some(map) => self.change_map(map, false, events),
            None => Ok(()),
        }
    }

    /// Stops and disables all queues and clears the features. The memory table stays, because QEMU
    /// sends only its changes.
    fn reset_device(&mut self, events: &mut Vec<Event>) -> Result<(), Reason> {
        self.check_negotiated(FrontendReq::RESET_DEVICE, Protocol::RESET_DEVICE)?;
        self.stop_all(events);
        self.device.queues.iter_mut().for_each(VirtQueue::reset_enabled);
        self.device.forget_positions();
        self.device.set_acked(0);
        self.device.set_status(0);
        self.features_set = false;
        events.push(Event::Reset);
        Ok(())
    }

    /// A status of 0 stops the queues, but keeps negotiated state and connections: QEMU also sends
    /// it when the VM is paused.
    fn set_status(&mut self, status: u64, events: &mut Vec<Event>) -> Result<(), Reason> {
        self.check_negotiated(FrontendReq::SET_STATUS, Protocol::STATUS)?;
        self.device.set_status(u8::try_from(status & 0xff).unwrap_or(0));
        if status == 0 {
            self.stop_all(events);
        }
        Ok(())
    }

    /// Bytes beyond the end of the model's space are zero.
    fn get_config(&self, mut space: ConfigSpace) -> HandleResult {
        self.check_negotiated(FrontendReq::GET_CONFIG, Protocol::CONFIG)?;
        let from = self.model.config.get(space.offset as usize..).unwrap_or_default();
        space.bytes.fill(0);
        space.bytes.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        Ok(Outcome::Reply(Reply::bytes(space.emit())))
    }

    /// Refuses every write: no field of the devices is writable.
    fn set_config(&self) -> HandleResult {
        self.check_negotiated(FrontendReq::SET_CONFIG, Protocol::CONFIG)?;
        Ok(Outcome::Refused)
    }

    /// Creates an in-flight buffer, and replies with its file.
    fn get_inflight(&self, spec: &InflightSpec) -> HandleResult {
        self.check_negotiated(FrontendReq::GET_INFLIGHT_FD, Protocol::INFLIGHT_SHMFD)?;
        let (spec, file) =
            InflightBuffer::create(spec, &self.model, is_packed(self.device.acked()))?;
        Ok(Outcome::Reply(Reply { payload: spec.emit(), fd: Some(file) }))
    }

    /// Maps an in-flight buffer; queues that start later use it.
    fn set_inflight(&mut self, spec: &InflightSpec, file: &ReceivedFd) -> Result<(), Reason> {
        let request = FrontendReq::SET_INFLIGHT_FD;
        self.check_negotiated(request, Protocol::INFLIGHT_SHMFD)?;
        if let Some(queue) = self.device.queues.iter().position(VirtQueue::is_running) {
            return Err(Reason::QueueRunning { request, queue });
        }
        let packed = is_packed(self.device.acked());
        self.inflight = Some(InflightBuffer::adopt(spec, file, &self.model, packed)?);
        Ok(())
    }

    /// Returns whether a granted file shrank.
    pub fn memory_lost(&self) -> bool {
        self.device.map.is_poisoned()
            || self.inflight.as_ref().is_some_and(InflightBuffer::is_poisoned)
    }

    /// Returns an error if a notification was blocked.
    pub(super) fn check_notifications(&self) -> Result<(), Reason> {
        match self.device.queues.iter().position(VirtQueue::held_up) {
            Some(queue) => Err(Reason::Notification { queue, source: DoorbellError::Blocked }),
            None => Ok(()),
        }
    }

    /// Stops every queue and releases all grants, also if it returns an error because a
    /// notification was blocked.
    pub(super) fn release(&mut self, events: &mut Vec<Event>) -> Result<(), Reason> {
        self.stop_all(events);
        let notified = self.check_notifications();
        self.device.release();
        self.table.clear();
        self.inflight = None;
        self.log = None;
        self.requests = None;
        self.features_set = false;
        self.protocol = Protocol::empty();
        notified
    }
}
