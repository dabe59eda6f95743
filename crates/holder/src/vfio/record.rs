//! The vfio-user set-up of a frontend, for replay to the next causewayd.
//!
//! The relay's thread owns one record per frontend. A command is recorded once causewayd has
//! accepted it ([`Record::note`], called by [`super::relay`]), or, while no causewayd runs, once
//! the holder has ([`Record::accept`], called by [`super::away`]); [`super::replay`] reads the
//! record. A reset of the device forgets the register writes; mappings and eventfds stay.
//!
//! Bounds are those of causewayd's tables: mappings and files ([`super::dma`]), one eventfd for
//! each of [`VECTORS_MAX`] (64) vectors of the [`INTERRUPT_TYPES`] (5) types, and register writes
//! ([`super::registers`]). Beyond them [`Record::accept`] refuses the command (ENOSPC for a
//! mapping, EINVAL for a vector or type that does not exist), and [`Record::note`] records less
//! than causewayd accepted. The record is lost with the frontend's connection.

use std::collections::BTreeMap;

use causeway_attach::limits::VECTORS_MAX;
use causeway_attach::vfio_user::device::INTERRUPT_TYPES;
use causeway_attach::vfio_user::message::{
    DmaMap, DmaUnmap, RegionAccess, SET_ACTION_TRIGGER, SET_DATA_EVENTFD, SET_DATA_NONE, SetIrqs,
    command,
};
use causeway_attach::vfio_user::stream::RawMessage;
use causeway_host::ReceivedFd;
use causeway_host::fd::received_fd::FdKind;
use rustix::io::Errno;

use super::dma::DmaRecord;
use super::registers::Registers;

/// The set-up of one frontend.
#[derive(Debug, Default)]
pub struct Record {
    /// Payload of the VERSION command that causewayd accepted.
    pub version: Option<Vec<u8>>,
    /// DMA mappings.
    pub dma: DmaRecord,
    /// Eventfds, by interrupt type and vector.
    pub vectors: BTreeMap<(u32, u32), ReceivedFd>,
    /// The driver's writes to registers.
    pub registers: Registers,
    /// A causewayd has used memory of the frontend: the device may have state.
    pub is_served: bool,
}

impl Record {
    /// Records a command that causewayd has accepted.
    pub fn note(&mut self, message: RawMessage) {
        let RawMessage { header, payload, fds, .. } = message;
        match header.command {
            command::VERSION => self.version = Some(payload),
            command::DMA_MAP => {
                self.is_served = true;
                if let Some(map) = DmaMap::parse(&payload) {
                    self.dma.note(map, fds.into_iter().next());
                }
            }
            command::DMA_UNMAP => {
                if let Some(unmap) = DmaUnmap::parse(&payload) {
                    self.dma.note_unmap(&unmap);
                }
            }
            command::DEVICE_SET_IRQS => {
                if let Some(set) = SetIrqs::parse(&payload) {
                    self.set_vectors(&set, fds);
                }
            }
            command::REGION_WRITE => {
                if let Some((access, data)) = RegionAccess::parse(&payload) {
                    self.registers.note(&access, data);
                }
            }
            command::DEVICE_RESET => self.registers.clear(),
            _ => {}
        }
    }

    /// Records a DMA or interrupt command while no causewayd runs. Returns the reply's payload.
    ///
    /// # Errors
    /// Returns the errno for the frontend, as causewayd would: EINVAL, EEXIST or ENOSPC.
    pub fn accept(
        &mut self,
        code: u16,
        payload: &[u8],
        mut fds: Vec<ReceivedFd>,
    ) -> Result<Vec<u8>, Errno> {
        match code {
            command::DMA_MAP if payload.len() == 32 && fds.len() <= 1 => {
                let map = DmaMap::parse(payload).ok_or(Errno::INVAL)?;
                self.dma.map(map, fds.pop()).map(|()| Vec::new())
            }
            command::DMA_UNMAP => {
                let unmap = DmaUnmap::parse(payload).ok_or(Errno::INVAL)?;
                self.dma.unmap(&unmap).map(|()| unmap.emit())
            }
            command::DEVICE_SET_IRQS => {
                let set = SetIrqs::parse(payload).ok_or(Errno::INVAL)?;
                let end = set.start.checked_add(set.count).ok_or(Errno::INVAL)?;
                let is_in_range = usize::try_from(end).is_ok_and(|end| end <= VECTORS_MAX);
                let matches = fds.is_empty() || u32::try_from(fds.len()) == Ok(set.count);
                let are_events = fds.iter().all(|fd| fd.kind() == FdKind::Event);
                if set.index >= INTERRUPT_TYPES || !is_in_range || !matches || !are_events {
                    return Err(Errno::INVAL);
                }
                self.set_vectors(&set, fds);
                Ok(Vec::new())
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// Assigns eventfds to vectors, or takes them away.
    fn set_vectors(&mut self, set: &SetIrqs, fds: Vec<ReceivedFd>) {
        let vectors_max = u32::try_from(VECTORS_MAX).unwrap_or(u32::MAX);
        let end = set.start.saturating_add(set.count);
        match set.flags {
            flags if flags == SET_DATA_NONE | SET_ACTION_TRIGGER => {
                self.vectors.retain(|(index, _), _| *index != set.index);
            }
            flags if flags == SET_DATA_EVENTFD | SET_ACTION_TRIGGER => {
                let is_named =
                    |index, vector| index == set.index && (set.start..end).contains(&vector);
                self.vectors.retain(|(index, vector), _| !is_named(*index, *vector));
                for (vector, fd) in (set.start..end.min(vectors_max)).zip(fds) {
                    self.vectors.insert((set.index, vector), fd);
                }
            }
            _ => {}
        }
    }
}
