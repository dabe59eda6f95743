//! The memory table: regions as the frontend adds and removes them.
//!
//! `backend` calls it for SET_MEM_TABLE, ADD_MEM_REG and REM_MEM_REG. Files of new regions are
//! mapped, and each change returns a complete new [`Map`]; a failed change leaves the table as it
//! was, and ends the attachment. The addition of a region that the table has, and the removal of
//! one of the last 64 removed regions, have no effect. The table has at most [`MEMORY_SLOTS_MAX`]
//! (64) regions of at most [`REGION_BYTES_MAX`] (16 TiB). Their sum must be at most 1/16 of the
//! address space that other peers leave (7 TiB in an idle daemon; [`causeway_memory::fits`]).
//!
//! Running rings are moved by the backend, not here. A removed region stays mapped while a map of
//! an earlier epoch is in use. The content of the memory is not read. It runs in the dispatcher's
//! thread that serves the port; the files are mapped there.

use std::collections::VecDeque;
use std::sync::Arc;

use causeway_host::ReceivedFd;
use causeway_memory::limits::REGION_BYTES_MAX;
use causeway_memory::{Map, Mapping, Region};

use super::super::fault::Reason;
use super::super::message::RegionSpec;
use crate::limits::MEMORY_SLOTS_MAX;

/// The granted regions.
#[derive(Debug, Default)]
pub(super) struct RegionTable {
    /// The present regions.
    regions: Vec<Region>,
    /// Regions that were removed last. QEMU before 8.1 adds and removes each region once for every
    /// queue pair of a network device.
    removed: VecDeque<RegionKey>,
}

/// Identifies a region: guest address, frontend address, length.
type RegionKey = (u64, u64, u64);

/// Returns the key of a region.
fn key(region: &Region) -> RegionKey {
    (region.guest, region.user, region.len())
}

/// Returns the length of a region, or 0 if the mapping will be refused with its own error.
fn checked_len(spec: &RegionSpec) -> u64 {
    Some(spec.len).filter(|len| *len <= REGION_BYTES_MAX).unwrap_or(0)
}

/// Maps the file of a region.
fn map_region(spec: &RegionSpec, file: ReceivedFd) -> Result<Region, Reason> {
    let mapping = Mapping::of(file, spec.offset, spec.len)
        .map_err(|source| Reason::Mapping { guest: spec.guest, source })?;
    Ok(Region { guest: spec.guest, user: spec.user, mapping: Arc::new(mapping) })
}

impl RegionTable {
    /// Returns the length of all regions, in bytes.
    fn bytes(&self) -> u64 {
        self.regions.iter().fold(0, |sum, region| sum.saturating_add(region.len()))
    }

    /// Replaces the whole table.
    pub(super) fn replace(&mut self, table: Vec<(RegionSpec, ReceivedFd)>) -> Result<Map, Reason> {
        let bytes =
            table.iter().fold(0, |sum: u64, (spec, _)| sum.saturating_add(checked_len(spec)));
        // The old regions are unmapped only after the new regions are mapped.
        let old = self.bytes();
        if bytes > old {
            causeway_memory::fits(old, bytes.saturating_sub(old)).map_err(Reason::Share)?;
        }
        let regions = table.into_iter().map(|(spec, file)| map_region(&spec, file));
        self.adopt(regions.collect::<Result<_, _>>()?)
    }

    /// Adds one region; returns `None` if the table contains it already.
    pub(super) fn add(
        &mut self,
        spec: &RegionSpec,
        file: ReceivedFd,
    ) -> Result<Option<Map>, Reason> {
        let named = (spec.guest, spec.user, spec.len);
        if self.regions.iter().any(|region| key(region) == named) {
            return Ok(None);
        }
        self.removed.retain(|removed| *removed != named);
        if self.regions.len() >= MEMORY_SLOTS_MAX {
            return Err(Reason::Slots);
        }
        causeway_memory::fits(self.bytes(), checked_len(spec)).map_err(Reason::Share)?;
        let mut regions = self.regions.clone();
        regions.push(map_region(spec, file)?);
        self.adopt(regions).map(Some)
    }

    /// Removes one region, identified by its addresses and length (its offset does not count).
    /// Returns `None` if it was removed before.
    pub(super) fn remove(&mut self, spec: &RegionSpec) -> Result<Option<Map>, Reason> {
        let RegionSpec { guest, len, user, .. } = *spec;
        let named = (guest, user, len);
        let Some(at) = self.regions.iter().position(|region| key(region) == named) else {
            let again = self.removed.contains(&named);
            return if again { Ok(None) } else { Err(Reason::NoRegion { guest, len }) };
        };
        let mut regions = self.regions.clone();
        regions.remove(at);
        let map = self.adopt(regions)?;
        if self.removed.len() >= MEMORY_SLOTS_MAX {
            self.removed.pop_front();
        }
        self.removed.push_back(named);
        Ok(Some(map))
    }

    /// Removes all regions.
    pub(super) fn clear(&mut self) {
        self.regions.clear();
        self.removed.clear();
    }

    /// Builds the map of `regions`, and makes them the table.
    fn adopt(&mut self, regions: Vec<Region>) -> Result<Map, Reason> {
        let map = Map::new(regions.clone())?;
        self.regions = regions;
        Ok(map)
    }
}
