//! A port of kind `hca`: its adapter, its registers, its poll schedule and its counters.
//!
//! [`crate::service`] makes an [`AdapterPort`] when the operator adds a port, and drops it when the
//! port is deleted; a guest that leaves and comes back finds the same adapter, reset, with new
//! registers. A reset of the device clears the same registers. The shard's dispatcher owns the
//! values and makes all calls; the control thread of the attachment shares [`Registers`] only. The
//! objects of the guest, with their limits, are in the subnet's adapter and its function, not here.
//! No function fails; counters wrap.

use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_fabric::PortId;
use causeway_mlx5::Registers;
use causeway_model::Name;
use causeway_model::port::{HcaDoorbell, HcaSpec};
use causeway_verbs::AdapterId;

use crate::idle::IdleSchedule;
use crate::rate_limit::RateLimit;
use crate::recent::RecentSums;
use crate::record_file::RecordFile;
use crate::sessions::PortSessions;
use crate::share::Share;
use crate::uplink::Station;

/// Counters of a port beside those of its function.
#[derive(Debug, Default)]
pub(crate) struct PortCounters {
    /// Frames dropped because their source was not the adapter's address.
    pub spoofed: u64,
    /// Frames that went to the forwarding service.
    pub uplink: u64,
    /// Calls that brought the port to a limit of its rate.
    pub rate_pauses: u64,
}

/// A port of the service: an adapter of one guest.
#[derive(Debug)]
pub(crate) struct AdapterPort {
    /// Name that the operator gave.
    pub name: Name,
    /// The port's adapter in the group's subnet.
    pub adapter: AdapterId,
    /// Registers that the thread of the attachment serves.
    pub registers: Arc<Registers>,
    /// Address that the operator assigned.
    pub mac: [u8; 6],
    /// The ends of the uplink, once the port has joined the forwarding service.
    pub station: Option<Station>,
    /// Sessions of the guest's processes, once a service has opened them.
    pub sessions: Option<PortSessions>,
    /// Time of the next poll while the guest posts nothing.
    pub schedule: IdleSchedule,
    /// The port is watched instead of polled.
    pub is_watched: bool,
    /// Time of the last call with work, in nanoseconds of the fabric's clock.
    pub worked_ns: u64,
    pub counters: PortCounters,
    /// File from which the next causewayd continues the function; `None` for a port without a
    /// record.
    pub record: Option<RecordFile>,
    pub options: PortOptions,
    /// Limits of the rate.
    pub limit: RateLimit,
    /// Share of the group's time.
    pub share: Share,
    /// Samples of the counters.
    pub recent: RecentSums,
    /// Time at which the traffic of the adapter was collected last, in nanoseconds.
    pub collected_ns: u64,
}

/// Options of a port that its calls and views use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortOptions {
    /// Whether doorbell records are polled or writes to doorbell pages trapped.
    pub doorbell: HcaDoorbell,
    /// Weight of the port's share ([`crate::share`]).
    pub weight: u32,
    /// Limit of the bytes that the guest sends a second; `None` for none.
    pub byte_rate_max: Option<u64>,
    /// Limit of the messages and frames that the guest sends a second; `None` for none.
    pub message_rate_max: Option<u64>,
}

impl PortOptions {
    /// Returns the options of a specification.
    pub(crate) fn of(spec: &HcaSpec) -> Self {
        Self {
            doorbell: spec.doorbell,
            weight: spec.weight,
            byte_rate_max: spec.byte_rate_max,
            message_rate_max: spec.message_rate_max,
        }
    }
}

/// The ports of a shard.
pub(crate) type AdapterPorts = BTreeMap<PortId, AdapterPort>;

impl AdapterPort {
    /// Notes that the traffic of the adapter is collected now. Returns the period of the traffic.
    pub(crate) fn collected(&mut self, now_ns: u64) -> (u64, u64) {
        (std::mem::replace(&mut self.collected_ns, now_ns), now_ns)
    }

    /// Takes the traffic of a call from the limits of the rate.
    pub(crate) fn charge_rate(&mut self, now_ns: u64, bytes: u64, messages: u64) {
        let was_paused = self.limit.resumes_ns(now_ns).is_some();
        self.limit.charge(now_ns, bytes, messages);
        if !was_paused && self.limit.resumes_ns(now_ns).is_some() {
            self.counters.rate_pauses = self.counters.rate_pauses.wrapping_add(1);
        }
    }

    /// Appends the counters of the port to those of its function.
    pub(crate) fn extend_counters(&self, counters: &mut BTreeMap<String, u64>) {
        counters.insert("drop_spoofed_frames_total".into(), self.counters.spoofed);
        counters.insert("rate_pauses_total".into(), self.counters.rate_pauses);
        counters.insert("uplink_frames_total".into(), self.counters.uplink);
        let waits = self.station.as_ref().map_or(0, |station| station.sender.waits);
        counters.insert("uplink_waits_total".into(), waits);
        if let Some(sessions) = &self.sessions {
            sessions.extend_counters(counters);
        }
        if let Some(file) = &self.record {
            let losses = counters.entry("record_losses_total".into()).or_default();
            *losses = losses.saturating_add(file.refusals());
            counters.insert("record_quarantines_total".into(), file.quarantines());
        }
    }
}
