//! Requests of guests' processes with memory: rings of an endpoint, and regions.
//!
//! Rings that lie in adjacent memory of the guest are used there. Others are mirrored: their pages
//! are mapped once more, as one row of bytes ([`causeway_memory::Map::mirror`]). Either is zeroed
//! and formatted before the answer. Regions stay lists of ranges, from which payload is read and to
//! which it is written in place. All other requests are those of host processes (`mx::requests`).
//!
//! A request beyond a limit, or with memory that is revoked or lies in too many places, is answered
//! with `MX_NO_RESOURCES` and noted for the operator; an offer that breaks a rule disconnects the
//! process. Called by `mx::requests`, in a turn of the service's gate on the dispatcher's thread.

use std::sync::Arc;

use causeway_attach::local::LocalError;
use causeway_channel::mx_rings;
use causeway_fabric::guest_session::{GuestMemory, OfferError};
use causeway_fabric::{Context, PortId};
use causeway_memory::limits::{MIRROR_RUNS_MAX, PAGE_BYTES};
use causeway_memory::{GuestSpans, MirrorError, View, first_bytes, mirrored_runs};
use causeway_mxoe::driver::RegionRefusal;
use causeway_wire::local::DaemonMessage;
use causeway_wire::mx::RegionId;

use crate::limits::{
    ENDPOINTS_PER_USER_MAX, MIRROR_RUN_NS, RANGE_NS, REGIONS_PER_CLIENT_MAX, REGIONS_PER_NIC_MAX,
    RUNS_PER_PORT_MAX,
};
use crate::nic::EndpointEntry;
use crate::requests::{BUSY, NO_RESOURCES};
use crate::service::{MxService, SourceOwner};
use crate::sessions::GrantUse;

/// Length of a page in bytes.
const PAGE: u64 = PAGE_BYTES as u64;

/// Why endpoints and regions are refused with `MX_NO_RESOURCES`.
const SHORTAGE: &str = "was refused: its memory lies in too many places or was deregistered, or the \
                        NIC has as many as a guest may have; the process may use huge pages";

/// Why a request with memory fails.
enum Refusal {
    /// The request is answered with this `mx_return_t`.
    Code(u32),
    /// The process broke a rule, and is disconnected.
    Rule(String),
}

impl From<OfferError> for Refusal {
    fn from(error: OfferError) -> Self {
        match error {
            OfferError::Scattered => Self::Code(NO_RESOURCES),
            OfferError::Rule(_) => Self::Rule(error.to_string()),
        }
    }
}

impl MxService {
    /// Opens an endpoint of a guest's process in the offered rings, and answers. `wanted`: the
    /// requested number; `vacant`: the number to open, or `None` if it is in use.
    ///
    /// # Errors
    /// The offer broke a rule.
    pub(crate) fn open_in_guest(
        &mut self,
        cx: &mut Context<'_>,
        (value, port): (u32, PortId),
        tag: u32,
        (wanted, vacant): (u8, Option<u8>),
        secrets: (u32, u32),
        memory: Result<GuestMemory, OfferError>,
    ) -> Result<(), LocalError> {
        let opened = vacant.ok_or(Refusal::Code(BUSY)).and_then(|endpoint| {
            let memory = memory.map_err(Refusal::from)?;
            self.open_offered(cx, (value, port), endpoint, secrets, memory).map(|()| endpoint)
        });
        let local_nic = self.nics.get_mut(&port).ok_or(LocalError::Closed)?;
        let answer = match opened {
            Ok(endpoint) => {
                local_nic.opened_total = local_nic.opened_total.saturating_add(1);
                let (key, session) = secrets;
                let (has_channels, is_direct) = (false, false);
                let entry = EndpointEntry { client: value, session, key, has_channels, is_direct };
                local_nic.endpoints.insert(endpoint, entry);
                DaemonMessage::Opened { tag, code: 0, session, endpoint, bypass: 0 }
            }
            Err(Refusal::Code(code)) => {
                local_nic.refused_total = local_nic.refused_total.saturating_add(1);
                if code == NO_RESOURCES {
                    cx.remark(
                        port,
                        format_args!("an endpoint of a process of the guest {SHORTAGE}"),
                    );
                }
                DaemonMessage::Opened { tag, code, session: 0, endpoint: wanted, bypass: 0 }
            }
            Err(Refusal::Rule(reason)) => return Err(LocalError::Rule(reason)),
        };
        self.notify(value, &answer, vec![]);
        Ok(())
    }

    /// Mirrors offered rings, and serves them as those of an endpoint from now on.
    fn open_offered(
        &mut self,
        cx: &mut Context<'_>,
        (value, port): (u32, PortId),
        endpoint: u8,
        secrets: (u32, u32),
        memory: GuestMemory,
    ) -> Result<(), Refusal> {
        let its = self.of_same_user(value);
        let endpoints = self.nics.get(&port).map(|local_nic| local_nic.endpoints.values());
        let count = endpoints.map_or(0, |all| all.filter(|entry| its(entry.client)).count());
        // Revoked memory is refused without a look at it: the guest uses it otherwise.
        if count >= ENDPOINTS_PER_USER_MAX || memory.is_revoked() {
            return Err(Refusal::Code(NO_RESOURCES));
        }
        let network = self.nics.get(&port).and_then(|local_nic| local_nic.network.as_ref());
        if network.is_some_and(|network| network.is_reserved(endpoint)) {
            return Err(Refusal::Code(BUSY));
        }
        let (view, runs) = self.row(cx, port, &memory)?;
        let source = self.free_number();
        let network = self.nics.get_mut(&port).and_then(|local_nic| local_nic.network.as_mut());
        let (Some(network), Some(client)) = (network, self.clients.get_mut(&value)) else {
            return Err(Refusal::Code(NO_RESOURCES));
        };
        if !client.quota.charge_endpoint() {
            return Err(Refusal::Code(NO_RESOURCES));
        }
        if network.open_in_guest(endpoint, (value, source), secrets, view).is_err() {
            client.quota.release_endpoint();
            return Err(Refusal::Code(NO_RESOURCES));
        }
        self.sources.insert(source, SourceOwner::Endpoint(port, endpoint));
        // The endpoint is not armed yet: the first pass arms its doorbell.
        cx.wake_source(source);
        let grant = GrantUse { port, endpoint, region: None, runs, memory };
        self.sessions.grants.insert(grant.memory_number(), grant);
        Ok(())
    }

    /// Returns the offered rings as one row of bytes, and the number of pages that were mirrored
    /// for it, in runs.
    fn row(
        &self,
        cx: &mut Context<'_>,
        port: PortId,
        memory: &GuestMemory,
    ) -> Result<(View, usize), Refusal> {
        let rule = |error: &dyn std::fmt::Display| Refusal::Rule(format!("its rings: {error}"));
        let bytes = mx_rings::layout().bytes();
        let spans = first_bytes(&memory.spans, (bytes as u64).next_multiple_of(PAGE));
        let Some(spans) = spans else {
            let wrong =
                format_args!("{} bytes, of which {bytes} are needed", memory.len).to_string();
            return Err(rule(&wrong));
        };
        if let [(guest, _)] = spans[..] {
            // One row already, as memory in huge pages is.
            let view = memory.map.view(guest, bytes).map_err(|error| rule(&error))?;
            return Ok((view, 0));
        }
        let left = runs_left(self.sessions.runs_of(port), mirrored_runs());
        cx.charge(MIRROR_RUN_NS.saturating_mul(spans.len() as u64));
        let (mirror, runs) = memory.map.mirror(&spans, left).map_err(|error| {
            if !matches!(error, MirrorError::Scattered(_)) && !error.is_shortage() {
                return rule(&error);
            }
            cx.note(port, format_args!("an endpoint of a process was refused: its rings: {error}"));
            Refusal::Code(NO_RESOURCES)
        })?;
        let view = View::new(Arc::clone(&mirror), 0, bytes).map_err(|error| rule(&error))?;
        Ok((view, runs))
    }

    /// Registers offered memory for large messages of an endpoint, and answers.
    ///
    /// # Errors
    /// The offer broke a rule.
    pub(crate) fn region_in_guest(
        &mut self,
        cx: &mut Context<'_>,
        value: u32,
        port: PortId,
        (tag, endpoint, len): (u32, u8, u64),
        memory: Result<GuestMemory, OfferError>,
    ) -> Result<(), LocalError> {
        let ranges = memory.as_ref().map_or(0, |memory| memory.spans.len() as u64);
        cx.charge(RANGE_NS.saturating_mul(ranges));
        let added = memory
            .map_err(Refusal::from)
            .and_then(|memory| self.add_offered((value, port), endpoint, len, memory));
        let (code, region) = match added {
            Ok(region) => (0, region.0),
            Err(Refusal::Code(code)) => {
                cx.remark(port, format_args!("a region of a process of the guest {SHORTAGE}"));
                (code, 0)
            }
            Err(Refusal::Rule(reason)) => return Err(LocalError::Rule(reason)),
        };
        self.notify(value, &DaemonMessage::Region { tag, code, endpoint, region }, vec![]);
        Ok(())
    }

    /// Registers offered memory.
    fn add_offered(
        &mut self,
        (value, port): (u32, PortId),
        endpoint: u8,
        len: u64,
        mut memory: GuestMemory,
    ) -> Result<RegionId, Refusal> {
        let rule = |text: &str| Refusal::Rule(format!("its region: {text}"));
        if memory.len != len {
            return Err(rule("it has another length than the offered memory"));
        }
        if memory.is_revoked() {
            return Err(Refusal::Code(NO_RESOURCES));
        }
        let local_nic =
            self.nics.get_mut(&port).filter(|local_nic| local_nic.is_of(endpoint, value));
        let network = local_nic.and_then(|local_nic| local_nic.network.as_mut());
        // The guest may have taken the rings away: until its close the endpoint has none.
        let network = network.filter(|network| network.endpoint_source(endpoint).is_some());
        let (Some(network), Some(client)) = (network, self.clients.get_mut(&value)) else {
            return Err(Refusal::Code(NO_RESOURCES));
        };
        if network.regions_of(|client| client == value).0 >= REGIONS_PER_CLIENT_MAX
            || network.regions_of(|_| true).0 >= REGIONS_PER_NIC_MAX
            || !client.quota.charge_region(len)
        {
            return Err(Refusal::Code(NO_RESOURCES));
        }
        let spans = GuestSpans::new(Arc::clone(&memory.map), std::mem::take(&mut memory.spans));
        let added = spans.ok_or(RegionRefusal::Rule);
        let added = added.and_then(|spans| network.add_guest_region(endpoint, spans));
        client.quota.set_regions(network.regions_of(|client| client == value));
        let region = added.map_err(|refusal| match refusal {
            RegionRefusal::Limit => Refusal::Code(NO_RESOURCES),
            RegionRefusal::Rule => rule("its length is 0 or exceeds 4 GiB"),
        })?;
        let grant = GrantUse { port, endpoint, region: Some(region), runs: 0, memory };
        self.sessions.grants.insert(grant.memory_number(), grant);
        Ok(region)
    }
}

/// Returns how many more runs of pages the rings of a port may have: the port has `own`, and all
/// ports have `all`. A port may have half of those that others leave, so that each further port
/// finds some; but enough for one endpoint while there are as many.
fn runs_left(own: usize, all: usize) -> usize {
    let free = MIRROR_RUNS_MAX.saturating_sub(all);
    let of_others = all.saturating_sub(own);
    let half = MIRROR_RUNS_MAX.saturating_sub(of_others).wrapping_shr(1);
    let pages = mx_rings::layout().bytes().div_ceil(PAGE as usize);
    half.min(RUNS_PER_PORT_MAX).max(pages).saturating_sub(own).min(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_leave_runs_of_pages_for_those_that_come_later() {
        let pages = mx_rings::layout().bytes().div_ceil(PAGE as usize);
        let mut all = 0;
        let mut endpoints = Vec::new();
        for _ in 0..9 {
            let (mut own, mut count) = (0, 0);
            while runs_left(own, all) >= pages {
                (own, all, count) = (own + pages, all + pages, count + 1);
            }
            endpoints.push(count);
        }
        assert_eq!(endpoints, [7, 7, 7, 4, 2, 1, 1, 0, 0]);
        assert!(all <= MIRROR_RUNS_MAX);
        assert_eq!(runs_left(0, 0), RUNS_PER_PORT_MAX);
        assert_eq!(runs_left(RUNS_PER_PORT_MAX, RUNS_PER_PORT_MAX), 0);
    }
}
