//! Guest memory: regions or grants by guest address, translated and checked.
//!
//! A [`Map`] is the memory of one port in one epoch: up to [`REGIONS_MAX`] (64) regions with a
//! mapping each, or the grants of a table ([`crate::Grants`]). It is immutable and shared by `Arc`:
//! a changed memory table makes a new map, and users of the old map may finish with it. So a map
//! does not follow the guest: deferred work looks its addresses up again in the newest map.
//!
//! `attach` builds the maps of ports; `ring`, the services and `host` translate by [`Map::pointer`]
//! and copy by `crate::access` and `crate::copy`. A look-up takes no lock and no system call. A
//! pointer covers one region or grant; longer ranges may continue in the next. Addresses that are
//! not granted, or not for the access, are an error; a lost page is not: callers check
//! [`Map::is_poisoned`] once per batch, and `fabric` before it serves a queue, and end the
//! attachment of the port as a fault. During a live migration vhost-user replaces the map by one
//! with a log ([`Map::logged`]); the copies of this crate and of `host` call [`Map::wrote`]. The
//! map limits nothing but its regions: budgets are in `crate::addresses`. Any thread may use a map:
//! in causewayd a dispatcher, or the control thread of a frontend.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::dirty::DirtyLog;
use crate::kernel;
use crate::limits::{
    CACHE_LINE_BYTES, GRANTS_PER_CHUNK, REGION_BYTES_MAX, REGIONS_MAX, WINDOWS_MAX,
};
use crate::mapping::Mapping;
use crate::rights::Rights;
use crate::table::{GrantEntry, GrantTable, GrantWindow};
use crate::view::View;

/// A guest address range that is not granted, or not for this access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {addr:#x} lie outside the granted memory")]
pub struct OutOfGrant {
    /// Guest address of the first byte.
    pub addr: u64,
    /// Length, in bytes.
    pub len: u64,
}

/// Why a list of regions is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The list has more than 64 regions.
    #[error("{0} memory regions, at most {REGIONS_MAX} are allowed")]
    Many(usize),
    /// A region's guest or frontend addresses wrap, or it has more than 16 TiB.
    #[error("the memory region at guest address {0:#x} wraps or exceeds 16 TiB")]
    Range(u64),
    /// Two regions share guest or frontend addresses.
    #[error("the memory regions at guest addresses {0:#x} and {1:#x} overlap")]
    Overlap(u64, u64),
}

/// A granted region with a mapping of its own, which the device may read and write.
#[derive(Debug, Clone)]
pub struct Region {
    /// Guest-physical address of the first byte.
    pub guest: u64,
    /// The frontend's own address of the first byte; vhost-user names rings by these.
    pub user: u64,
    /// The mapped bytes; their number is the region's length.
    pub mapping: Arc<Mapping>,
}

impl Region {
    /// Returns the length, in bytes.
    pub fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Returns `false`: a region has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.mapping.is_empty()
    }

    /// Returns where the region lies. A mapping has at least one byte.
    fn window(&self) -> Option<GrantWindow> {
        let (start, _) = self.mapping.at(0)?;
        NonNull::new(start).map(|start| GrantWindow { guest: self.guest, len: self.len(), start })
    }
}

/// The memory of one guest in one epoch. Immutable; replaced as a whole.
///
/// A look-up compares the address with the largest window, then with up to seven others, then
/// searches a sorted table. Maps of few regions have no table, and those of more than 256 grants no
/// windows.
#[derive(Debug, Default)]
pub struct Map {
    /// The largest window, where most accesses lie. A map without windows has an empty one.
    first: GrantWindow,
    /// The next largest windows: [`WINDOWS_MAX`] (8) with the first. All of them permit reading and
    /// writing, so that an access that lies there needs no check of rights.
    others: Vec<GrantWindow>,
    /// All grants, or all regions unless the windows are all of them.
    table: GrantTable,
    /// Regions in the order of their lengths, largest first. A map of grants has none.
    regions: Vec<Region>,
    /// Files of the grants, by the index in the table's entries.
    files: Vec<Option<Arc<Mapping>>>,
    /// Granted bytes.
    bytes: u64,
    /// Records the pages that this process writes to.
    log: Option<Arc<DirtyLog>>,
}

// SAFETY: the windows point into the mappings of the regions and files, which may be used from any
// thread and live as long as the map; no reference to the bytes is ever made.
unsafe impl Send for Map {}
// SAFETY: as for Send.
unsafe impl Sync for Map {}

impl Map {
    /// Checks the regions against each other and returns the map of them.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn new(mut regions: Vec<Region>) -> Result<Self, MapError> {
        if regions.len() > REGIONS_MAX {
            return Err(MapError::Many(regions.len()));
        }
        for region in &regions {
            let len = region.len();
            let ends = region.guest.checked_add(len).and(region.user.checked_add(len));
            if ends.is_none() || len > REGION_BYTES_MAX {
                return Err(MapError::Range(region.guest));
            }
        }
        for key in [(|r| r.guest) as fn(&Region) -> u64, |r| r.user] {
            regions.sort_by_key(key);
            for pair in regions.windows(2) {
                if let [a, b] = pair
                    && key(a).saturating_add(a.len()) > key(b)
                {
                    return Err(MapError::Overlap(a.guest, b.guest));
                }
            }
        }
        regions.sort_by_key(|r| std::cmp::Reverse(r.len()));
        let mut table = GrantTable::default();
        if regions.len() > WINDOWS_MAX {
            for (file, region) in (0..).zip(&regions) {
                let Some(window) = region.window() else { continue };
                let entry = GrantEntry { window, file, rights: Rights::READ_WRITE };
                table.insert(entry).map_err(|other| MapError::Overlap(other, region.guest))?;
            }
        }
        let mut windows = regions.iter().filter_map(Region::window).take(WINDOWS_MAX);
        let first = windows.next().unwrap_or_default();
        let others = windows.collect();
        let bytes = regions.iter().fold(0, |sum: u64, r| sum.saturating_add(r.len()));
        Ok(Self { first, others, table, regions, files: Vec::new(), bytes, log: None })
    }

    /// Returns the map of a table of grants, whose entries lie in `files`.
    pub(crate) fn of_grants(
        table: GrantTable,
        files: Vec<Option<Arc<Mapping>>>,
        bytes: u64,
    ) -> Self {
        let mut windows = Vec::new();
        if table.len() <= GRANTS_PER_CHUNK {
            let full = table.iter().filter(|entry| entry.rights == Rights::READ_WRITE);
            windows.extend(full.map(|entry| entry.window));
            windows.sort_by_key(|window| std::cmp::Reverse(window.len));
            windows.truncate(WINDOWS_MAX);
        }
        let mut windows = windows.into_iter();
        let first = windows.next().unwrap_or_default();
        let (others, regions) = (windows.collect(), Vec::new());
        Self { first, others, table, regions, files, bytes, log: None }
    }

    /// Returns the same map with another log of writes, or without.
    #[must_use]
    pub fn logged(&self, log: Option<Arc<DirtyLog>>) -> Self {
        let (others, table) = (self.others.clone(), self.table.clone());
        let (regions, files) = (self.regions.clone(), self.files.clone());
        Self { first: self.first, others, table, regions, files, bytes: self.bytes, log }
    }

    /// Returns whether writes are recorded in a log.
    #[inline]
    pub fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// Records in the log, if there is one, that `len` bytes at `addr` were written.
    #[inline]
    pub fn wrote(&self, addr: u64, len: usize) {
        if let Some(log) = &self.log {
            log.mark(addr, len as u64);
        }
    }

    /// Returns the regions, largest first. A map of grants has none.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Returns whether nothing is granted.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the number of granted bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the mapping of each region or file.
    fn mappings(&self) -> impl Iterator<Item = &Arc<Mapping>> {
        self.regions.iter().map(|region| &region.mapping).chain(self.files.iter().flatten())
    }

    /// Returns the bytes that each memory file has allocated, by its inode, of the files that their
    /// mappings keep ([`Mapping::of`]).
    pub fn allocated(&self) -> BTreeMap<u64, u64> {
        self.mappings().filter_map(|mapping| mapping.allocated()).collect()
    }

    /// Returns whether a page of any mapping was lost because its file shrank. Callers check this
    /// once a batch.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.regions.iter().any(|r| r.mapping.is_poisoned())
            || self.files.iter().flatten().any(|mapping| mapping.is_poisoned())
            || self.log.as_ref().is_some_and(|log| log.is_poisoned())
    }

    /// Returns the guest address of the frontend's address `user`. Grants have no such address.
    pub fn user_to_guest(&self, user: u64) -> Option<u64> {
        self.regions.iter().find_map(|r| {
            let at = user.checked_sub(r.user).filter(|&at| at < r.len())?;
            r.guest.checked_add(at)
        })
    }

    /// Returns the mapping that holds guest address `addr`.
    pub(crate) fn mapping(&self, addr: u64) -> Option<&Arc<Mapping>> {
        let holds = |r: &&Region| addr.checked_sub(r.guest).is_some_and(|at| at < r.len());
        let region = self.regions.iter().find(holds).map(|region| &region.mapping);
        region.or_else(|| self.files.get(usize::from(self.table.find(addr)?.file))?.as_ref())
    }

    /// Returns the host pointer at `addr` and the number of contiguous bytes there, for an access
    /// that needs the rights `needed`. The bytes are mapped while the map lives; the guest may
    /// write to them at any time.
    #[inline]
    pub fn pointer(&self, addr: u64, needed: Rights) -> Option<(NonNull<u8>, usize)> {
        match self.first.pointer(addr) {
            None => self.search(addr, needed),
            found => found,
        }
    }

    /// Returns the pointer at an address outside the first window.
    #[inline(never)]
    fn search(&self, addr: u64, needed: Rights) -> Option<(NonNull<u8>, usize)> {
        match self.others.iter().find_map(|window| window.pointer(addr)) {
            None => self.search_table(addr, needed),
            found => found,
        }
    }

    /// Returns the pointer at an address outside all windows. Not inlined, so that the scan of the
    /// windows saves no registers for it.
    #[inline(never)]
    fn search_table(&self, addr: u64, needed: Rights) -> Option<(NonNull<u8>, usize)> {
        let entry = self.table.find(addr).filter(|entry| entry.rights.contains(needed))?;
        entry.window.pointer(addr)
    }

    /// Marks the mapping that holds `addr` as lost, because the kernel found a page missing
    /// ([`Self::is_poisoned`]). No effect if the address is not granted.
    pub fn poison(&self, addr: u64) {
        if let Some(mapping) = self.mapping(addr) {
            mapping.poison();
        }
    }

    /// Returns whether all `len` bytes at `addr` are granted with the rights `needed`.
    #[inline]
    pub fn contains(&self, addr: u64, len: u64, needed: Rights) -> bool {
        match self.pointer(addr, needed) {
            Some((_, left)) => len <= left as u64 || self.continues(addr, len, needed),
            None => false,
        }
    }

    /// Returns the same as [`Self::contains`], for bytes that lie in more than one grant.
    #[inline(never)]
    fn continues(&self, addr: u64, len: u64, needed: Rights) -> bool {
        let mut addr = addr;
        let mut len = len;
        loop {
            let Some((_, left)) = self.pointer(addr, needed) else { return false };
            let left = left as u64;
            if len <= left {
                return true;
            }
            let Some(next) = addr.checked_add(left) else { return false };
            addr = next;
            len = len.saturating_sub(left);
        }
    }

    /// Returns a view of `len` bytes at `addr`, which must lie in one region or grant that permits
    /// reading and writing.
    ///
    /// # Errors
    /// [`OutOfGrant`].
    pub fn view(&self, addr: u64, len: usize) -> Result<View, OutOfGrant> {
        let wrong = OutOfGrant { addr, len: len as u64 };
        let (start, left) = self.pointer(addr, Rights::READ_WRITE).ok_or(wrong)?;
        let mapping = self.mapping(addr).filter(|_| len <= left).ok_or(wrong)?;
        let (base, _) = mapping.at(0).ok_or(wrong)?;
        let at = start.as_ptr().addr().checked_sub(base.addr()).ok_or(wrong)?;
        View::new(Arc::clone(mapping), at, len).map_err(|_| wrong)
    }

    /// Returns whether all `len` bytes at `addr` are granted, for writing if `write` is set and
    /// else for reading, and prefetches their first two cache lines, the second for the access that
    /// `write` names. The first line of a receive buffer often holds the header only, which seldom
    /// changes, so that its line may stay in the guest's cache.
    #[inline(always)]
    pub fn fetch(&self, addr: u64, len: u64, write: bool) -> bool {
        let needed = if write { Rights::WRITE } else { Rights::READ };
        let Some((first, left)) = self.pointer(addr, needed) else { return false };
        let first = first.as_ptr();
        let second = first.wrapping_add(CACHE_LINE_BYTES);
        kernel::prefetch(first);
        if write {
            kernel::prefetch_write(second);
        } else {
            kernel::prefetch(second);
        }
        len <= left as u64 || self.continues(addr, len, needed)
    }
}
