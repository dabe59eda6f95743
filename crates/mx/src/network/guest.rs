//! Endpoints of guests' processes: rings and regions in memory that their guest can take away.
//!
//! `mx::session_requests` opens endpoints and adds regions; `mx::sessions` detaches and closes them
//! when the guest took the memory away, the session ended, or the NIC is removed. An endpoint or
//! region that its process closes by a request is closed as that of a host process. The callers run
//! in a turn of the service's gate, on the dispatcher's thread. A *detached* endpoint or region is
//! dropped without a look at its memory; the messages of a region fail when the caller ends it, and
//! those of an endpoint are discarded at its close. The callers check quotas (`mx::quotas`):
//! refused here are memory that is too short or not aligned, an endpoint that is open, and a region
//! that the engine refuses. Unlike those of host processes, these endpoints do not survive a
//! daemon.

use std::io;

use causeway_memory::{GuestSpans, View};
use causeway_mxoe::driver::{EndpointIo, LentRegion, RegionRefusal};
use causeway_wire::mx::RegionId;

use super::{EndpointOwner, NicNetwork};

impl NicNetwork {
    /// Opens an endpoint with its key and session in rings of its process, which are zeroed and
    /// formatted. The endpoint is not waited for after a daemon restart.
    ///
    /// # Errors
    /// The memory is too short or does not start on a cache line, or the endpoint is open.
    pub fn open_in_guest(
        &mut self,
        endpoint: u8,
        (client, source): (u32, u32),
        secrets: (u32, u32),
        view: View,
    ) -> io::Result<()> {
        let owner = EndpointOwner { client, source, watch: None };
        let endpoint_io = EndpointIo::in_memory(owner, view)?;
        self.engine.open(endpoint, secrets, endpoint_io)?;
        self.served.forget(endpoint);
        self.await_served();
        Ok(())
    }

    /// Returns whether a host process holds the lock file of an endpoint number: it may resume the
    /// endpoint, or its packet socket is open although this daemon does not serve the number.
    pub fn is_reserved(&self, endpoint: u8) -> bool {
        self.is_survivor(endpoint) || self.is_awaited(endpoint)
    }

    /// Registers memory of a guest's process for large messages of an endpoint.
    ///
    /// # Errors
    /// [`RegionRefusal`].
    pub fn add_guest_region(
        &mut self,
        endpoint: u8,
        memory: GuestSpans,
    ) -> Result<RegionId, RegionRefusal> {
        self.engine.add_spans(endpoint, memory)
    }

    /// Returns the number by which the rings of an endpoint are served.
    pub fn endpoint_source(&self, endpoint: u8) -> Option<u32> {
        Some(self.engine.tx_path.endpoints.get(&endpoint)?.owner.source)
    }

    /// Drops the rings and regions of an endpoint, without a look at them. Returns the number by
    /// which the endpoint was served. The caller closes it by [`Self::close_detached`].
    pub fn detach_rings(&mut self, endpoint: u8) -> Option<u32> {
        Some(self.engine.tx_path.endpoints.remove(&endpoint)?.owner.source)
    }

    /// Closes an endpoint without rings.
    pub fn close_detached(&mut self, now: u64, endpoint: u8) {
        let (counted, of_partners) = self.counted(endpoint);
        self.past.0.add(&counted);
        self.past.1.add(&of_partners);
        self.engine.close(now, endpoint);
        self.commit(now);
    }

    /// Takes a region away without a look at it. The caller calls [`Self::end_region`].
    pub fn detach_region(&mut self, endpoint: u8, region: RegionId) -> Option<LentRegion> {
        self.engine.detach_region(endpoint, region)
    }

    /// Ends the messages that use a dropped region: they fail.
    pub fn end_region(&mut self, now: u64, endpoint: u8, region: RegionId) {
        self.remove_region(now, endpoint, region);
    }
}
