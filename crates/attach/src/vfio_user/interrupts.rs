//! Interrupt vectors: the eventfds that a frontend assigned by SET_IRQS.
//!
//! The control thread assigns eventfds; the dispatcher raises vectors and is the only thread that
//! writes to eventfds, because its watchdog interrupts a write that a hostile frontend blocks (see
//! [`Notifier`]). An interrupt of a vector without an eventfd stays pending, as in the pending bits
//! of MSI-X, and is raised when the vector gets one: QEMU takes all eventfds away and assigns them
//! anew whenever the guest enables another vector. MSI-X and MSI share the pending bits: a guest
//! that changes from one to the other receives the pending interrupt by the eventfd of the new
//! type.
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

/// One vector, of all interrupt types.
#[derive(Debug, Default)]
struct VectorSlot {
    /// The eventfds of the frontend, by interrupt type; [`Vectors::types`] has their order.
    notifiers: Vec<Option<Arc<Notifier>>>,
    /// Whether an interrupt waits for an eventfd of MSI-X or MSI.
    is_pending: bool,
}

/// The vectors of one interrupt type.
#[derive(Debug)]
struct VectorType {
    /// Index of the interrupt type.
    index: u32,
    /// Number of vectors.
    count: usize,
}

/// The interrupt vectors of a device, shared by the control thread and the dispatcher.
#[derive(Debug)]
pub struct Vectors {
    types: Vec<VectorType>,
    /// As many as the interrupt type with the most vectors has.
    slots: Vec<Mutex<VectorSlot>>,
    /// Interrupts that were written to an eventfd.
    raised: AtomicU64,
}

/// Locks a slot.
fn lock(slot: &Mutex<VectorSlot>) -> MutexGuard<'_, VectorSlot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Vectors {
    /// Returns the vectors of a device, without eventfds.
    pub fn new(description: &DeviceDescription) -> Self {
        let of = |&(index, count): &(u32, u32)| {
            let count = usize::try_from(count).unwrap_or(VECTORS_MAX).min(VECTORS_MAX);
            VectorType { index, count }
        };
        let types: Vec<VectorType> = description.interrupts.iter().map(of).collect();
        let most = types.iter().map(|one| one.count).max().unwrap_or(0);
        let slot = |_| {
            let notifiers = types.iter().map(|_| None).collect();
            Mutex::new(VectorSlot { notifiers, is_pending: false })
        };
        Self { slots: (0..most).map(slot).collect(), types, raised: AtomicU64::new(0) }
    }

    /// Returns the place of an interrupt type among the eventfds of a slot, if the type has the
    /// vector.
    fn place(&self, index: u32, vector: usize) -> Option<usize> {
        self.types.iter().position(|one| one.index == index && vector < one.count)
    }

    /// Returns the number of vectors of an interrupt type.
    pub fn count(&self, index: u32) -> usize {
        self.types.iter().find(|one| one.index == index).map_or(0, |one| one.count)
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
        let slot = self.place(index, vector).zip(self.slots.get(vector));
        let replaced = slot.and_then(|(place, slot)| {
            let mut slot = lock(slot);
            let old = slot.notifiers.get_mut(place)?;
            std::mem::replace(old, notifier)
        });
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
        for slot in &self.slots {
            let mut slot = lock(slot);
            slot.is_pending = false;
            let taken: Vec<_> = slot.notifiers.iter_mut().filter_map(Option::take).collect();
            // The eventfds are closed after the lock is released.
            drop(slot);
            drop(taken);
        }
    }

    /// Forgets pending interrupts; the eventfds stay. The control thread calls it for a
    /// DEVICE_RESET.
    pub fn forget_pending(&self) {
        for slot in &self.slots {
            lock(slot).is_pending = false;
        }
    }

    /// Returns the eventfd that raises a vector: of MSI-X if it has one, else of MSI.
    fn notifier(&self, vector: usize, slot: &VectorSlot) -> Option<Arc<Notifier>> {
        [INTERRUPT_MSIX, INTERRUPT_MSI].into_iter().find_map(|index| {
            let place = self.place(index, vector)?;
            slot.notifiers.get(place)?.clone()
        })
    }

    /// Raises a vector: of MSI-X if it has an eventfd, else of MSI. Without an eventfd, the
    /// interrupt becomes pending. A vector that neither type has is ignored.
    ///
    /// # Errors
    /// Returns an error if the frontend blocked the write to its eventfd.
    pub fn raise(&self, vector: usize) -> Result<(), DoorbellError> {
        let exists = vector < self.count(INTERRUPT_MSIX).max(self.count(INTERRUPT_MSI));
        let Some(slot) = self.slots.get(vector).filter(|_| exists) else { return Ok(()) };
        let mut slot = lock(slot);
        let Some(notifier) = self.notifier(vector, &slot) else {
            slot.is_pending = true;
            return Ok(());
        };
        drop(slot);
        self.write(&notifier)
    }

    /// Returns whether a vector has both a pending interrupt and an eventfd: the dispatcher must
    /// call [`Self::raise_pending`]. The control thread calls it after each SET_IRQS, and informs
    /// the dispatcher.
    pub fn has_pending(&self) -> bool {
        self.slots.iter().enumerate().any(|(vector, slot)| {
            let slot = lock(slot);
            slot.is_pending && self.notifier(vector, &slot).is_some()
        })
    }

    /// Raises the pending interrupts of all vectors that have an eventfd.
    ///
    /// # Errors
    /// Returns an error if the frontend blocked a write to its eventfd.
    pub fn raise_pending(&self) -> Result<(), DoorbellError> {
        for (vector, slot) in self.slots.iter().enumerate() {
            let mut slot = lock(slot);
            if !slot.is_pending {
                continue;
            }
            let Some(notifier) = self.notifier(vector, &slot) else { continue };
            slot.is_pending = false;
            drop(slot);
            self.write(&notifier)?;
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
