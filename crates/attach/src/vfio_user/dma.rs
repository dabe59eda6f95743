//! The DMA mappings of a frontend, as a table of grants.
//!
//! The server changes the table for DMA_MAP and DMA_UNMAP, and the control thread publishes an
//! epoch of it after each batch. A file is mapped as a whole, once unless it grew, and a mapping is
//! an interval that points into it ([`causeway_memory::Grants`]): at most 262,144 mappings in 64
//! files. The address space of all mapped files together is limited ([`causeway_memory::fits`]).
//! Addresses and lengths of maps are multiples of [`DMA_ALIGN`]; an unmap that wraps ends with the
//! address space. Mappings that overlap are refused; an unmap covers whole mappings only, any
//! number of them, and also a range without mappings.
//!
//! A refused command gets an errno and changes nothing: EEXIST for an overlap, ENOSPC beyond the
//! number of mappings or files, ENOMEM beyond the address space, EINVAL for empty ranges, for a map
//! with an unaligned or wrapping range, without access rights, with unknown flags, or with a file
//! that is too short or no memory file, for an unmap that covers a mapping in part, and for
//! UNMAP_ALL with an address, a length or another flag; EOPNOTSUPP for other flags of an unmap; and
//! the errno of the kernel if it refuses the mapping.
//!
//! A mapping without a descriptor is accepted and grants nothing: QEMU maps the BARs of other
//! devices in this way. Guest addresses are those of the guest's IOMMU, if the guest has one. The
//! table belongs to the control thread, does not read the memory, and does not know whether the
//! dispatcher still uses an older epoch: an unmapped file stays mapped until the last epoch with it
//! is dropped.

use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use causeway_host::ReceivedFd;
use causeway_host::fd::received_fd::FdKind;
use causeway_memory::{Grant, GrantError, Grants, Map, Mapping, MappingError, Rights};
use rustix::io::Errno;

use super::message::{DMA_READABLE, DMA_WRITABLE, DmaMap, DmaUnmap, UNMAP_ALL};
use crate::limits::DMA_ALIGN;

/// The table of DMA mappings.
#[derive(Debug, Default)]
pub struct DmaTable {
    grants: Grants,
    /// Mapped files that a grant or an epoch may still use.
    files: Vec<MappedFile>,
    /// Files that were mapped so far.
    files_mapped: u64,
    /// Mappings without a descriptor so far.
    unbacked: u64,
}

/// A file that is mapped as a whole.
#[derive(Debug)]
struct MappedFile {
    /// Device and inode.
    identity: (u64, u64),
    /// Dead once no grant and no epoch uses the file.
    mapping: Weak<Mapping>,
}

/// Returns the errno for a grant that is refused.
fn errno_of(error: &GrantError) -> Errno {
    match error {
        GrantError::Many | GrantError::Files => Errno::NOSPC,
        GrantError::Overlap { .. } => Errno::EXIST,
        GrantError::Mapping(MappingError::Kernel(errno)) => *errno,
        GrantError::Mapping(
            MappingError::Many | MappingError::Share { .. } | MappingError::Scarce { .. },
        ) => Errno::NOMEM,
        _ => Errno::INVAL,
    }
}

/// Returns the rights of a mapping's flags, unless a flag is unknown.
fn rights_of(flags: u32) -> Result<Rights, Errno> {
    if flags & !(DMA_READABLE | DMA_WRITABLE) != 0 {
        return Err(Errno::INVAL);
    }
    let right = |flag, right| if flags & flag != 0 { right } else { Rights::empty() };
    Ok(right(DMA_READABLE, Rights::READ).union(right(DMA_WRITABLE, Rights::WRITE)))
}

/// Returns whether a number of bytes or an address is a multiple of the alignment.
fn is_aligned(value: u64) -> bool {
    value.checked_rem(DMA_ALIGN) == Some(0)
}

impl DmaTable {
    /// Returns the number of mappings that grant memory.
    pub fn len(&self) -> usize {
        self.grants.len()
    }

    /// Returns whether nothing is granted.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// Returns the number of mappings without a descriptor so far.
    pub fn unbacked(&self) -> u64 {
        self.unbacked
    }

    /// Returns the number of files that were mapped so far.
    pub fn files_mapped(&self) -> u64 {
        self.files_mapped
    }

    /// Returns the present state. Later changes do not affect the epoch.
    pub fn epoch(&self) -> Arc<Map> {
        Arc::new(self.grants.epoch())
    }

    /// Adds a mapping. Returns whether the table changed: not without a descriptor.
    ///
    /// # Errors
    /// Returns the errno for the frontend; the table did not change.
    pub fn map(&mut self, map: &DmaMap, file: Option<ReceivedFd>) -> Result<bool, Errno> {
        let rights = rights_of(map.flags)?;
        let DmaMap { address, size, offset, .. } = *map;
        if size == 0 || !is_aligned(address) || !is_aligned(size) {
            return Err(Errno::INVAL);
        }
        if address.checked_add(size.saturating_sub(1)).is_none() {
            return Err(Errno::INVAL);
        }
        let Some(file) = file else {
            self.unbacked = self.unbacked.saturating_add(1);
            return Ok(false);
        };
        if file.kind() != FdKind::Memory {
            return Err(Errno::INVAL);
        }
        let grant = Grant { guest: address, len: size, offset, rights };
        let needed = offset.checked_add(size).ok_or(Errno::INVAL)?;
        let mapping = self.mapping(file, needed).map_err(|error| errno_of(&error.into()))?;
        self.grants.grant_in(grant, &mapping).map_err(|error| errno_of(&error))?;
        Ok(true)
    }

    /// Returns a mapping of all of `file` that has at least `needed` bytes. The file is mapped
    /// unless a mapping is in use already.
    fn mapping(&mut self, file: ReceivedFd, needed: u64) -> Result<Arc<Mapping>, MappingError> {
        let stat = rustix::fs::fstat(file.as_fd())?;
        let identity = (stat.st_dev, stat.st_ino);
        let mut held: u64 = 0;
        let mut known = None;
        self.files.retain(|file| {
            let Some(mapping) = file.mapping.upgrade() else { return false };
            let len = mapping.len() as u64;
            held = held.saturating_add(len);
            if file.identity == identity && len >= needed {
                known = Some(mapping);
            }
            true
        });
        if let Some(mapping) = known {
            return Ok(mapping);
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size < needed {
            return Err(MappingError::Short { size, needed });
        }
        causeway_memory::fits(held, size)?;
        self.files_mapped = self.files_mapped.saturating_add(1);
        let mapping = Arc::new(Mapping::of(file, 0, size)?);
        self.files.push(MappedFile { identity, mapping: Arc::downgrade(&mapping) });
        Ok(mapping)
    }

    /// Removes all mappings in a range. A range that wraps ends with the address space, because
    /// QEMU unmaps up to 2^64. Returns whether the table changed.
    ///
    /// # Errors
    /// Returns the errno for the frontend; the table did not change.
    pub fn unmap(&mut self, unmap: &DmaUnmap) -> Result<bool, Errno> {
        let DmaUnmap { flags, address, size } = *unmap;
        if flags & UNMAP_ALL != 0 {
            if flags != UNMAP_ALL || address != 0 || size != 0 {
                return Err(Errno::INVAL);
            }
            let had_grants = !self.is_empty();
            self.grants.clear();
            return Ok(had_grants);
        }
        if flags != 0 {
            // Dirty bitmaps are not offered.
            return Err(Errno::OPNOTSUPP);
        }
        if size == 0 {
            return Err(Errno::INVAL);
        }
        let len = address.saturating_add(size).saturating_sub(address);
        match self.grants.revoke(address, len) {
            Ok(_) => Ok(true),
            Err(GrantError::Missing { .. }) => Ok(false),
            Err(_) => Err(Errno::INVAL),
        }
    }

    /// Takes the memory of all files away from the users of every epoch: after the return no thread
    /// of this process reads or writes it. Returns false if the host refuses for a file; the memory
    /// of that file and of those after it then stays.
    pub fn withdraw(&self) -> bool {
        let mut mappings = self.files.iter().filter_map(|file| file.mapping.upgrade());
        mappings.all(|mapping| mapping.withdraw())
    }

    /// Removes all mappings.
    pub fn clear(&mut self) {
        self.grants.clear();
    }
}
