//! The ordered memory accesses of a ring, for both formats and both sides.
//!
//! Each side *publishes* entries and then reads whether the other side wants a signal; each side
//! *arms*, that is requests a signal, and then polls for entries once more. Both have a full fence
//! between their two steps, so that at least the later side sees the first step of the earlier
//! side, and no wake-up is lost (virtio 1.3, 2.7.7.2, 2.7.10, 2.7.13.3, 2.8.21.3). All other
//! accesses to a ring may be reordered, except one: pops of a packed ring load an entry with the
//! half that contains the flags first, with acquire ordering like [`load_flags`]
//! (`View::load_entry`).
//!
//! [`crate::split`], [`crate::packed`] and the in-flight record call the functions in the
//! dispatcher's thread, [`crate::driver`] in the process on the other side. The module sends no
//! signal, checks no index against the size of a queue, and reads no descriptor but its flags; the
//! callers do. A signal may be superfluous, but a needed signal is never left out, provided that
//! the other side follows the same order.
//!
//! The functions are generic over [`RingWords`], so that the same code runs on granted memory and,
//! in `tests/rings/loom_handshake.rs`, under a model checker that explores every interleaving and
//! every value that a weakly ordered machine can load.

use std::sync::atomic::{Ordering, fence};

use causeway_memory::{OutOfGrant, View};

use crate::format::{INDEX, NO_INTERRUPT, packed};
use crate::position::Position;

/// Shared memory of 16-bit words that the other side reads and writes concurrently.
pub trait RingWords {
    /// The error of an access outside the memory.
    type Error;

    /// Loads the word at byte offset `at`, which must be even.
    ///
    /// # Errors
    /// The word is outside the memory.
    fn load(&self, at: usize, order: Ordering) -> Result<u16, Self::Error>;

    /// Stores the word at byte offset `at`, which must be even.
    ///
    /// # Errors
    /// The word is outside the memory.
    fn store(&self, at: usize, value: u16, order: Ordering) -> Result<(), Self::Error>;

    /// Orders all earlier accesses before all later accesses, sequentially consistent.
    fn full_fence();
}

impl RingWords for View {
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

/// Split ring: publishes index `new` in `mine`, where `old` was published. Returns whether the
/// other side wants a signal. `event_at` is the offset of its event index in `theirs`, or `None` if
/// that was not negotiated and its flags apply.
///
/// # Errors
/// A word is outside the memory.
#[inline]
pub fn publish_index<W: RingWords>(
    mine: &W,
    theirs: &W,
    (old, new): (u16, u16),
    event_at: Option<usize>,
) -> Result<bool, W::Error> {
    // Release: entries and data are visible before the index.
    mine.store(INDEX, new, Ordering::Release)?;
    W::full_fence();
    let Some(at) = event_at else {
        // The suppression flag has the same value and offset in both rings.
        return Ok(theirs.load(0, Ordering::Relaxed)? & NO_INTERRUPT == 0);
    };
    let event = theirs.load(at, Ordering::Relaxed)?;
    // Counted from the index published last, not from the index signalled last: a polling peer may
    // be a whole index wrap behind the latter, so that the difference would be meaningless.
    Ok(new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old))
}

/// Split ring: requests a signal in `mine` for when the other side's index passes `at`, and returns
/// that index. `event_at` is the offset of the own event index in `mine`.
///
/// # Errors
/// A word is outside the memory.
#[inline]
pub fn arm_index<W: RingWords>(
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
    load_index(theirs)
}

/// Split ring: returns the other side's index. The entries before it are visible afterwards.
///
/// # Errors
/// A word is outside the memory.
#[inline]
pub fn load_index<W: RingWords>(theirs: &W) -> Result<u16, W::Error> {
    theirs.load(INDEX, Ordering::Acquire)
}

/// Packed ring: publishes all descriptors from `old` to `new` by the flags of the first. The others
/// have their flags already; the other side reads in order and stops before the first. Returns
/// whether the other side, whose event suppression structure is `theirs`, wants a signal.
///
/// # Errors
/// A word is outside the memory.
#[inline]
pub fn publish_slots<W: RingWords>(
    ring: &W,
    theirs: &W,
    flags: u16,
    (old, new): (Position, Position),
    size: u16,
) -> Result<bool, W::Error> {
    // Release: the other descriptors and the data are visible before these flags.
    ring.store(old.flags_at(), flags, Ordering::Release)?;
    W::full_fence();
    // Acquire: pairs with the release in `arm_slots`.
    match theirs.load(packed::EVENT_FLAGS, Ordering::Acquire)? {
        packed::EVENT_DISABLE => Ok(false),
        packed::EVENT_DESC => {
            let bits = theirs.load(packed::EVENT_POSITION, Ordering::Relaxed)?;
            // An invalid position counts as a request: a superfluous signal is harmless.
            let event = Position::from_bits(bits, size);
            Ok(event.is_none_or(|event| event.after(old, size) < new.after(old, size)))
        }
        _ => Ok(true),
    }
}

/// Packed ring: requests a signal in the event suppression structure `mine`, for the position `at`
/// or else for every descriptor. Returns the flags of the descriptor at `next`.
///
/// # Errors
/// A word is outside the memory.
#[inline]
pub fn arm_slots<W: RingWords>(
    mine: &W,
    ring: &W,
    at: Option<Position>,
    next: Position,
) -> Result<u16, W::Error> {
    match at {
        Some(at) => {
            mine.store(packed::EVENT_POSITION, at.bits(), Ordering::Relaxed)?;
            // Release: the flags are not visible without their position. The reader in this module
            // has a fence before its load and would not need it; other implementations may.
            mine.store(packed::EVENT_FLAGS, packed::EVENT_DESC, Ordering::Release)?;
        }
        None => mine.store(packed::EVENT_FLAGS, packed::EVENT_ENABLE, Ordering::Relaxed)?,
    }
    W::full_fence();
    load_flags(ring, next)
}

/// Packed ring: returns the flags of the descriptor at `at`. Writes before these flags are visible
/// afterwards.
///
/// # Errors
/// A word is outside the memory.
#[inline]
pub fn load_flags<W: RingWords>(ring: &W, at: Position) -> Result<u16, W::Error> {
    ring.load(at.flags_at(), Ordering::Acquire)
}
