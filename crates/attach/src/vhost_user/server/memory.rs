//! The memory table: regions as the frontend adds and removes them.

use std::sync::Arc;

use causeway_memory::limits::REGION_BYTES_MAX;
use causeway_memory::{Handed, Map, Mapping, Region};

use super::super::fault::Reason;
use super::super::message::RegionSpec;
use crate::limits::MEMORY_SLOTS_MAX;

/// All regions granted at present.
#[derive(Debug, Default)]
pub(super) struct Table {
    regions: Vec<Region>,
}

/// The length of a region, unless that is refused with a word of its own.
fn plausible(spec: &RegionSpec) -> u64 {
    Some(spec.len).filter(|len| *len <= REGION_BYTES_MAX).unwrap_or(0)
}

fn map_region(spec: &RegionSpec, file: Handed) -> Result<Region, Reason> {
    let mapping = Mapping::of(file, spec.offset, spec.len)
        .map_err(|source| Reason::Mapping { guest: spec.guest, source })?;
    Ok(Region { guest: spec.guest, user: spec.user, mapping: Arc::new(mapping) })
}

impl Table {
    /// Length of all regions, in bytes.
    fn bytes(&self) -> u64 {
        self.regions.iter().fold(0, |sum, region| sum.saturating_add(region.len()))
    }

    /// Replaces the whole table, or nothing of it.
    pub(super) fn replace(&mut self, table: Vec<(RegionSpec, Handed)>) -> Result<Map, Reason> {
        let bytes = table.iter().fold(0, |sum: u64, (spec, _)| sum.saturating_add(plausible(spec)));
        // The old ones go once the new ones are there.
        let old = self.bytes();
        if bytes > old {
            causeway_memory::fits(old, bytes.saturating_sub(old)).map_err(Reason::Share)?;
        }
        let regions = table.into_iter().map(|(spec, file)| map_region(&spec, file));
        self.adopt(regions.collect::<Result<_, _>>()?)
    }

    /// Adds one region.
    pub(super) fn add(&mut self, spec: &RegionSpec, file: Handed) -> Result<Map, Reason> {
        if self.regions.len() >= MEMORY_SLOTS_MAX {
            return Err(Reason::Slots);
        }
        causeway_memory::fits(self.bytes(), plausible(spec)).map_err(Reason::Share)?;
        let mut regions = self.regions.clone();
        regions.push(map_region(spec, file)?);
        self.adopt(regions)
    }

    /// Removes one region, named by its addresses and length (its offset does not count).
    pub(super) fn remove(&mut self, spec: &RegionSpec) -> Result<Map, Reason> {
        let RegionSpec { guest, len, user, .. } = *spec;
        let named = |r: &Region| r.guest == guest && r.user == user && r.len() == len;
        let at = self.regions.iter().position(named).ok_or(Reason::NoRegion { guest, len })?;
        let mut regions = self.regions.clone();
        regions.remove(at);
        self.adopt(regions)
    }

    pub(super) fn clear(&mut self) {
        self.regions.clear();
    }

    fn adopt(&mut self, regions: Vec<Region>) -> Result<Map, Reason> {
        let map = Map::new(regions.clone())?;
        self.regions = regions;
        Ok(map)
    }
}
