//! Opens channels and rings from the descriptors that the daemon sends, and validates them first.
//!
//! A file must be sealed against shrinking (`F_SEAL_SHRINK`) and have at most [`CHANNEL_BYTES_MAX`]
//! (64 MiB); otherwise, and without address space, the result is `None` or an error, and nothing
//! stays mapped: `Paths::new` then fails, a connect ends with `NoResources`, and after unusable
//! next rings the endpoint has no path to other hosts until a daemon gives it others. The layout in
//! the file is checked by [`causeway_channel::open`]. The module does not speak to the daemon and
//! keeps no state.
//!
//! `Paths::new` calls it for the rings of a new endpoint, `control` for each new channel, and
//! `resume` for rings that the daemon gives later, and for those of the next daemon.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use causeway_channel::mx_rings::Holds;
use causeway_channel::{Receiver, Sender, Side, open};
use causeway_memory::{Mapping, View};
use causeway_message::library::Rings;
use causeway_message::split::NicId;
use rustix::fs::SealFlags;

use super::NicDoorbell;
use crate::adapter::AdapterRings;
use crate::bypass::Bypass;
use crate::connection::Attached;
use crate::limits::CHANNEL_BYTES_MAX;
use crate::staging::StagingSlabs;

/// Maps a channel. The file must be sealed against shrinking. `side` is the own end: 0 for the
/// first, any other value for the second.
pub(super) fn map(file: &OwnedFd, side: u8) -> Option<(Sender, Receiver, View)> {
    let sealed = rustix::fs::fcntl_get_seals(file).ok()?;
    if !sealed.contains(SealFlags::SHRINK) {
        return None;
    }
    let len = u64::try_from(rustix::fs::fstat(file).ok()?.st_size).ok()?;
    if len > CHANNEL_BYTES_MAX {
        return None;
    }
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len).ok()?);
    let view = View::new(mapping, 0, usize::try_from(len).ok()?).ok()?;
    let side = if side == 0 { Side::First } else { Side::Second };
    let (sender, receiver) = open(&view, side).ok()?;
    Some((sender, receiver, view))
}

/// Memory of the rings of an endpoint, and the way to wake the NIC side.
#[derive(Debug)]
pub(super) enum RingMemory {
    /// A file; the doorbell is `None` if the NIC side is in this process.
    File(OwnedFd, Option<OwnedFd>),
    /// Registered memory of this process.
    Adapter(AdapterRings),
}

impl RingMemory {
    /// Returns the memory that the daemon's answer has: rings and doorbell, or registered memory.
    pub fn of(attached: Attached) -> Option<(Self, Option<OwnedFd>)> {
        match attached {
            Attached::Rings(rings) => Some((Self::Adapter(rings), None)),
            Attached::Files(files) => {
                let mut files = files.into_iter();
                let (file, doorbell) = (files.next()?, files.next());
                Some((Self::File(file, doorbell), files.next()))
            }
        }
    }
}

/// Returns the matching engine's end of the rings of the endpoint `own`.
pub(super) fn rings(own: u8, memory: RingMemory) -> Option<Rings<NicDoorbell, StagingSlabs>> {
    let (sender, receiver, view, doorbell, staging) = match memory {
        RingMemory::File(file, doorbell) => {
            let (sender, receiver, view) = map(&file, 0)?;
            let doorbell = doorbell.map_or(NicDoorbell::None, NicDoorbell::Eventfd);
            (sender, receiver, view, doorbell, StagingSlabs::new(own))
        }
        RingMemory::Adapter(AdapterRings { memory, link }) => {
            let view = memory.memory()?.clone();
            let (sender, receiver) = open(&view, Side::First).ok()?;
            let staging = StagingSlabs::registered(own, link.domain.clone());
            (sender, receiver, view, NicDoorbell::Adapter(link, own), staging)
        }
    };
    Some(Rings::new(sender, receiver, Holds::new(view), doorbell, staging))
}

/// Rings to other hosts, and the NIC side in this process in direct mode.
pub(super) type Far = (Option<Rings<NicDoorbell, StagingSlabs>>, Option<Box<Bypass>>);

/// Opens the path to other hosts: none without memory; the rings to the daemon; or, in direct mode
/// with key and session, a packet socket and a lock in their place.
pub(super) fn remote_paths(
    of: (NicId, u8),
    direct_secrets: Option<(u32, u32)>,
    memory: Option<RingMemory>,
) -> std::io::Result<Far> {
    let Some(memory) = memory else { return Ok((None, None)) };
    let (mut bypass, memory) = match (direct_secrets, memory) {
        (Some(secrets), RingMemory::File(socket, Some(lock))) => {
            let (bypass, file) = Bypass::new(of, secrets, (socket, lock))?;
            (Some(Box::new(bypass)), RingMemory::File(file, None))
        }
        (_, memory) => (None, memory),
    };
    let mut rings = rings(of.1, memory).ok_or(std::io::ErrorKind::OutOfMemory)?;
    if let Some(own) = bypass.as_mut().and_then(|bypass| bypass.add_own_memory()) {
        rings.staging.set_own(own);
    }
    Ok((Some(rings), bypass))
}

#[cfg(test)]
mod tests {
    use causeway_channel::{Layout, format};
    use rustix::fs::MemfdFlags;

    use super::*;

    #[test]
    fn open_refuses_memory_that_can_shrink() {
        let layout = Layout::new(16, 16_384).unwrap();
        let file = rustix::fs::memfd_create("t", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, layout.bytes() as u64).unwrap();
        let mapping = Mapping::new(file.as_fd(), 0, layout.bytes() as u64).unwrap();
        format(&View::new(Arc::new(mapping), 0, layout.bytes()).unwrap(), layout).unwrap();
        assert!(map(&file, 0).is_none());
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(map(&file, 0).is_some());
    }
}
