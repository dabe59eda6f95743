//! The steps whose order both sides rely on, for both ring formats and both sides of each.
//!
//! One side *shows* something and then looks whether the other sleeps; the other *asks* to be
//! woken and then looks for the last time. A full fence lies between the two steps of each, so
//! that whichever comes second sees the first (virtio 1.3, 2.7.7.2, 2.7.10, 2.7.13.3, 2.8.21.3).
//! Everything else in a ring may be reordered; these functions are all that may not be. One other
//! place looks as [`look_slot`] does: chains of a packed ring are taken by entries of which the half
//! with the flags is loaded first, at once and with the same order (`View::load_entry`).
//!
//! They are written over [`Words`], so that the same code runs on granted memory and, in
//! `tests/loom_handshake.rs`, under a checker that tries every interleaving and every value that
//! a weakly ordered machine could load.

use std::sync::atomic::{Ordering, fence};

use causeway_memory::{OutOfGrant, View};

use crate::format::{INDEX, NO_INTERRUPT, packed};
use crate::position::Position;

/// Sixteen-bit words that another side reads and writes at the same time.
pub trait Words {
    /// Why a word cannot be reached.
    type Error;

    /// Loads the word at byte `at`, which is even.
    ///
    /// # Errors
    /// It lies outside.
    fn load(&self, at: usize, order: Ordering) -> Result<u16, Self::Error>;

    /// Stores the word at byte `at`, which is even.
    ///
    /// # Errors
    /// It lies outside.
    fn store(&self, at: usize, value: u16, order: Ordering) -> Result<(), Self::Error>;

    /// Everything before is visible to whoever sees, or has a fence before, anything after.
    fn full_fence();
}

impl Words for View {
    type Error = OutOfGrant;

    #[inline]
    fn load(&self, at: usize, order: Ordering) -> Result<u16, OutOfGrant> {
        View::load(self, at, order)
    }

    #[inline]
    fn store(&self, at: usize, value: u16, order: Ordering) -> Result<(), OutOfGrant> {
        View::store(self, at, value, order)
    }

    #[inline]
    fn full_fence() {
        fence(Ordering::SeqCst);
    }
}

/// Split ring: shows `new` in `mine`, where `old` was shown; says whether the other side wants to
/// be told. `event_at` is where it keeps its event index in `theirs`; none if that was not
/// negotiated, and its flags count.
///
/// # Errors
/// A word cannot be reached.
#[inline]
pub fn show_index<W: Words>(
    mine: &W,
    theirs: &W,
    (old, new): (u16, u16),
    event_at: Option<usize>,
) -> Result<bool, W::Error> {
    // Release: the entries and the data are visible before the index.
    mine.store(INDEX, new, Ordering::Release)?;
    W::full_fence();
    let Some(at) = event_at else {
        // The flag has one value and one place on both sides.
        return Ok(theirs.load(0, Ordering::Relaxed)? & NO_INTERRUPT == 0);
    };
    let event = theirs.load(at, Ordering::Relaxed)?;
    // From what was shown last, not from what was told last: that may lie a whole turn of the
    // index back if the other side polls, and then the difference says nothing.
    Ok(new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old))
}

/// Split ring: asks in `mine` to be told when the other side passes `at`, and gives its index as
/// it is now. `event_at` is where our event index lies in `mine`.
///
/// # Errors
/// A word cannot be reached.
#[inline]
pub fn ask_index<W: Words>(
    mine: &W,
    theirs: &W,
    at: u16,
    event_at: Option<usize>,
) -> Result<u16, W::Error> {
    match event_at {
        Some(event_at) => mine.store(event_at, at, Ordering::Relaxed)?,
        None => mine.store(0, 0, Ordering::Relaxed)?,
    }
    W::full_fence();
    look_index(theirs)
}

/// Split ring: the other side's index. What it wrote before is visible afterwards.
///
/// # Errors
/// A word cannot be reached.
#[inline]
pub fn look_index<W: Words>(theirs: &W) -> Result<u16, W::Error> {
    theirs.load(INDEX, Ordering::Acquire)
}

/// Packed ring: shows all descriptors from `old` to `new` by the flags of the first; the others
/// have theirs already, and nobody looks at them before it. Says whether the other side, whose
/// event suppression structure is `theirs`, wants to be told.
///
/// # Errors
/// A word cannot be reached.
#[inline]
pub fn show_slot<W: Words>(
    ring: &W,
    theirs: &W,
    flags: u16,
    (old, new): (Position, Position),
    size: u16,
) -> Result<bool, W::Error> {
    // Release: the other descriptors and the data are visible before these flags.
    ring.store(old.flags_at(), flags, Ordering::Release)?;
    W::full_fence();
    // Acquire: goes with the release in `ask_slot`.
    match theirs.load(packed::EVENT_FLAGS, Ordering::Acquire)? {
        packed::EVENT_DISABLE => Ok(false),
        packed::EVENT_DESC => {
            let bits = theirs.load(packed::EVENT_POSITION, Ordering::Relaxed)?;
            // A position past the ring is nonsense: telling too often does no harm.
            let event = Position::from_bits(bits, size);
            Ok(event.is_none_or(|event| event.after(old, size) < new.after(old, size)))
        }
        _ => Ok(true),
    }
}

/// Packed ring: asks in the event suppression structure `mine` to be told: at `at` if there is a
/// position, else at everything. Gives the flags of the descriptor at `next` as they are now.
///
/// # Errors
/// A word cannot be reached.
#[inline]
pub fn ask_slot<W: Words>(
    mine: &W,
    ring: &W,
    at: Option<Position>,
    next: Position,
) -> Result<u16, W::Error> {
    match at {
        Some(at) => {
            mine.store(packed::EVENT_POSITION, at.bits(), Ordering::Relaxed)?;
            // Release: no flags without their position. Our own reader has a fence before it and
            // needs none of this; others' may.
            mine.store(packed::EVENT_FLAGS, packed::EVENT_DESC, Ordering::Release)?;
        }
        None => mine.store(packed::EVENT_FLAGS, packed::EVENT_ENABLE, Ordering::Relaxed)?,
    }
    W::full_fence();
    look_slot(ring, next)
}

/// Packed ring: the flags of the descriptor at `at`. What was written before them is visible
/// afterwards.
///
/// # Errors
/// A word cannot be reached.
#[inline]
pub fn look_slot<W: Words>(ring: &W, at: Position) -> Result<u16, W::Error> {
    ring.load(at.flags_at(), Ordering::Acquire)
}
