//! Interrupt vectors: the eventfds that a frontend assigned by SET_IRQS.
//!
//! The control thread assigns eventfds; the dispatcher raises vectors and is the only thread that
//! writes to eventfds, because its watchdog interrupts a write that a hostile frontend blocks (see
//! [`Notifier`]). An interrupt of a vector without an eventfd stays pending, as in the pending bits
//! of MSI-X, and is raised when the vector gets one: QEMU takes all eventfds away and assigns them
//! anew whenever the guest enables another vector. Pending is the vector of MSI-X if the device has
//! it, else that of MSI; an eventfd of the other type does not raise the interrupt.
//!
//! After each SET_IRQS the server asks [`Vectors::has_pending`], in the control thread, and that
//! thread then signals the attachment's eventfd; the next poll of the attachment, in the
//! dispatcher's thread, calls [`Vectors::raise_pending`]. The reply to SET_IRQS does not wait for
//! it.
//!
//! Each slot has a lock that no thread holds during a system call. An interrupt type has at most
//! [`VECTORS_MAX`] (64) vectors; assignments beyond the described count are refused by the server,
//! and a raise of a vector that does not exist is ignored. Raises are not queued: several raises
//! before the guest handles the vector, or while it is pending, are one interrupt. Vectors cannot
//! be masked by messages. Only vectors of MSI-X and MSI are raised; eventfds of other interrupt
//! types are kept and never written. A frontend that blocks a write loses its attachment
//! ([`super::fault::Reason::Notification`]). A device reset (DEVICE_RESET) forgets pending
//! interrupts and keeps the eventfds ([`Vectors::forget_pending`]). When the conversation ends, the
//! attachment takes all eventfds away ([`Vectors::reset`]).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_host::ReceivedFd;
use causeway_host::fd::received_fd::FdKind;
use causeway_ring::{DoorbellError, Notifier};

use super::device::{DeviceDescription, INTERRUPT_MSI, INTERRUPT_MSIX};
use crate::limits::VECTORS_MAX;

/// One vector.
#[derive(Debug, Default)]
struct VectorSlot {
    /// The eventfd of the frontend.
    notifier: Option<Arc<Notifier>>,
    /// Whether an interrupt waits for an eventfd.
    is_pending: bool,
}

/// The vectors of one interrupt type.
#[derive(Debug)]
struct VectorTable {
    /// Index of the interrupt type.
    index: u32,
    slots: Vec<Mutex<VectorSlot>>,
}

impl VectorTable {
    /// Locks a slot.
    fn slot(&self, vector: usize) -> Option<MutexGuard<'_, VectorSlot>> {
        let slot = self.slots.get(vector)?;
        Some(slot.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The interrupt vectors of a device, shared by the control thread and the dispatcher.
#[derive(Debug)]
pub struct Vectors {
    tables: Vec<VectorTable>,
    /// Interrupts that were written to an eventfd.
    raised: AtomicU64,
}

impl Vectors {
    /// Returns the vectors of a device, without eventfds.
    pub fn new(description: &DeviceDescription) -> Self {
        let table = |&(index, count): &(u32, u32)| {
            let count = usize::try_from(count).unwrap_or(VECTORS_MAX).min(VECTORS_MAX);
            VectorTable { index, slots: (0..count).map(|_| Mutex::default()).collect() }
        };
        let tables = description.interrupts.iter().map(table).collect();
        Self { tables, raised: AtomicU64::new(0) }
    }

    fn table(&self, index: u32) -> Option<&VectorTable> {
        self.tables.iter().find(|table| table.index == index)
    }

    /// Returns the number of vectors of an interrupt type.
    pub fn count(&self, index: u32) -> usize {
        self.table(index).map_or(0, |table| table.slots.len())
    }

    /// Returns the number of interrupts that were written to an eventfd.
    pub fn raised(&self) -> u64 {
        self.raised.load(Ordering::Relaxed)
    }

    /// Assigns an eventfd to a vector of an interrupt type, or takes the eventfd away.
    ///
    /// # Errors
    /// Returns an error if the descriptor is not an eventfd. A vector that does not exist is
    /// ignored.
    pub fn assign(
        &self,
        index: u32,
        vector: usize,
        fd: Option<ReceivedFd>,
    ) -> Result<(), DoorbellError> {
        let notifier = match fd {
            Some(fd) if fd.kind() != FdKind::Event => return Err(DoorbellError::NotAnEventfd),
            Some(fd) => Some(Arc::new(Notifier::new(fd)?)),
            None => None,
        };
        let replaced = self.table(index).and_then(|table| table.slot(vector));
        let replaced = replaced.map(|mut slot| std::mem::replace(&mut slot.notifier, notifier));
        // The old eventfd is closed after the lock is released.
        drop(replaced);
        Ok(())
    }

    /// Takes the eventfds of a range of vectors away.
    pub fn clear(&self, index: u32, vectors: Range<usize>) {
        let end = vectors.end.min(self.count(index));
        for vector in vectors.start..end {
            // Fails for no vector: there is no descriptor to refuse.
            let _ = self.assign(index, vector, None);
        }
    }

    /// Takes all eventfds away and forgets pending interrupts, after the end of the conversation.
    /// The dispatcher's thread calls it, from a poll of the attachment.
    pub fn reset(&self) {
        for table in &self.tables {
            for vector in 0..table.slots.len() {
                let slot = table.slot(vector).map(|mut slot| std::mem::take(&mut *slot));
                drop(slot);
            }
        }
    }

    /// Forgets pending interrupts; the eventfds stay. The control thread calls it for a
    /// DEVICE_RESET.
    pub fn forget_pending(&self) {
        for table in &self.tables {
            for vector in 0..table.slots.len() {
                if let Some(mut slot) = table.slot(vector) {
                    slot.is_pending = false;
                }
            }
        }
    }

    /// Raises a vector: of MSI-X if it has an eventfd, else of MSI. Without an eventfd, the
    /// interrupt becomes pending: in the table of MSI-X if this has the vector, else in that of
    /// MSI. A vector that does not exist is ignored.
    ///
    /// # Errors
    /// Returns an error if the frontend blocked the write to its eventfd.
    pub fn raise(&self, vector: usize) -> Result<(), DoorbellError> {
        let tables = [INTERRUPT_MSIX, INTERRUPT_MSI].map(|index| self.table(index));
        let assigned = tables.iter().flatten().find_map(|table| {
            let slot = table.slot(vector)?;
            slot.notifier.clone()
        });
        if let Some(notifier) = assigned {
            return self.write(&notifier);
        }
        let mut slots = tables.iter().flatten().filter_map(|table| table.slot(vector));
        let Some(mut slot) = slots.next() else { return Ok(()) };
        let raced = match &slot.notifier {
            // The frontend assigned an eventfd meanwhile.
            Some(notifier) => Arc::clone(notifier),
            None => {
                slot.is_pending = true;
                return Ok(());
            }
        };
        drop(slot);
        drop(slots);
        self.write(&raced)
    }

    /// Returns whether a vector has both a pending interrupt and an eventfd: the dispatcher must
    /// call [`Self::raise_pending`]. The control thread calls it after each SET_IRQS, and informs
    /// the dispatcher.
    pub fn has_pending(&self) -> bool {
        self.tables.iter().any(|table| {
            let mut slots = (0..table.slots.len()).filter_map(|vector| table.slot(vector));
            slots.any(|slot| slot.is_pending && slot.notifier.is_some())
        })
    }

    /// Raises the pending interrupts of all vectors that have an eventfd.
    ///
    /// # Errors
    /// Returns an error if the frontend blocked a write to its eventfd.
    pub fn raise_pending(&self) -> Result<(), DoorbellError> {
        for table in &self.tables {
            for vector in 0..table.slots.len() {
                let Some(mut slot) = table.slot(vector).filter(|slot| slot.is_pending) else {
                    continue;
                };
                let Some(notifier) = slot.notifier.clone() else { continue };
                slot.is_pending = false;
                drop(slot);
                self.write(&notifier)?;
            }
        }
        Ok(())
    }

    /// Writes to an eventfd.
    fn write(&self, notifier: &Notifier) -> Result<(), DoorbellError> {
        notifier.notify()?;
        self.raised.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
