//! Connection slots of one listener, shared fairly among clients.
//!
//! A connection *waits* while its client has not sent a complete request or has not read the reply
//! (at the VNET server: has not sent a valid HELLO). No time limit applies to waiting here. When
//! slots run out, a new connection therefore evicts a waiting connection: the oldest of the client
//! with the most waiting connections. A client at its own limit of waiting connections evicts its
//! own oldest. A connection is evicted only after a grace time ([`SlotLimits::grace`]: 250 ms at
//! the control socket, 1 s at the VNET server); its socket is shut down without a reply. The
//! evicted connection keeps its thread until the shutdown ends it; its later reports have no
//! effect.
//!
//! [`ConnectionSlots::take`] never blocks: without a free or evictable slot the caller must refuse
//! the connection. A connection that does not wait, so that its request is being executed, is never
//! evicted and has no time limit here. The module owns no socket and no clock: callers give a
//! function that disconnects, and the time. All methods may be called from any thread; a mutex
//! serialises them.
//!
//! The acceptors of [`crate::tcp`] (client: an IP address) and, in causewayd, of the control socket
//! (a user id) and of the VNET language (an address and a user) take a slot after `accept`; the
//! connection's thread reports when it waits and drops the slot at its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Limits of the slots of one listener.
#[derive(Debug, Clone, Copy)]
pub struct SlotLimits {
    /// Most connections of all clients.
    pub all: usize,
    /// Most waiting connections of one client, checked when another is accepted.
    pub waiting_each: usize,
    /// Time that a connection may wait before it can be evicted.
    pub grace: Duration,
}

/// The slots of one listener; `K` identifies a client.
pub struct ConnectionSlots<K> {
    bounds: SlotLimits,
    state: Mutex<SlotTable<K>>,
}

/// The occupied slots.
struct SlotTable<K> {
    /// Number of the next slot; numbers are not reused.
    next: u64,
    /// Occupied slots by number, the oldest first.
    occupied: BTreeMap<u64, OccupiedSlot<K>>,
}

/// A slot and its connection.
struct OccupiedSlot<K> {
    /// Client of the connection.
    client: K,
    /// Since when the connection waits; `None` while its request is executed.
    waits_since: Option<Instant>,
    /// Shuts the connection down, so that its thread ends.
    disconnect: Box<dyn Fn() + Send>,
}

impl<K> std::fmt::Debug for ConnectionSlots<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionSlots").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

/// The slot of one connection, released on drop.
#[derive(Debug)]
pub struct ConnectionSlot<K: Ord + Copy> {
    slots: Arc<ConnectionSlots<K>>,
    /// Key of the slot in [`SlotTable::occupied`].
    number: u64,
}

impl<K: Ord + Copy> ConnectionSlots<K> {
    /// Returns a listener's slots, all free.
    pub fn new(bounds: SlotLimits) -> Arc<Self> {
        let state = SlotTable { next: 0, occupied: BTreeMap::new() };
        Arc::new(Self { bounds, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, SlotTable<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot for a connection of `client`, which waits from `now` on.
    ///
    /// A client with `waiting_each` waiting connections loses its own oldest. Otherwise, with all
    /// slots occupied, the client with the most waiting connections loses its oldest: `disconnect`
    /// of that connection is called under the lock and must not block. Returns `None` if the
    /// connection to evict has waited for less than the grace time, or if none waits.
    pub fn take(
        self: &Arc<Self>,
        now: Instant,
        client: K,
        disconnect: impl Fn() + Send + 'static,
    ) -> Option<ConnectionSlot<K>> {
        let mut state = self.lock();
        let own = state.waiting().get(&client).copied().unwrap_or(0);
        if own >= self.bounds.waiting_each {
            state.evict(now, client, self.bounds.grace)?;
        } else if state.occupied.len() >= self.bounds.all {
            let (_, most) = state.waiting().into_iter().map(|(client, n)| (n, client)).max()?;
            state.evict(now, most, self.bounds.grace)?;
        }
        let number = state.next;
        state.next = number.wrapping_add(1);
        let taken =
            OccupiedSlot { client, waits_since: Some(now), disconnect: Box::new(disconnect) };
        state.occupied.insert(number, taken);
        Some(ConnectionSlot { slots: self.clone(), number })
    }
}

impl<K: Ord + Copy> SlotTable<K> {
    /// Returns the number of waiting connections of each client.
    fn waiting(&self) -> BTreeMap<K, usize> {
        let mut count = BTreeMap::new();
        for taken in self.occupied.values().filter(|taken| taken.waits_since.is_some()) {
            *count.entry(taken.client).or_insert(0_usize) += 1;
        }
        count
    }

    /// Evicts the connection of `client` that has waited longest; `None` if it has waited for less
    /// than `grace`.
    fn evict(&mut self, now: Instant, client: K, grace: Duration) -> Option<()> {
        let waits = |(number, taken): (&u64, &OccupiedSlot<K>)| {
            let since = taken.waits_since.filter(|_| taken.client == client)?;
            Some((since, *number))
        };
        let (since, number) = self.occupied.iter().filter_map(waits).min()?;
        if now.saturating_duration_since(since) < grace {
            return None;
        }
        let taken = self.occupied.remove(&number)?;
        (taken.disconnect)();
        Some(())
    }
}

impl<K: Ord + Copy> ConnectionSlot<K> {
    /// Records since when the connection waits; `None` if it does not wait. Has no effect on an
    /// evicted connection.
    pub fn waits(&self, since: Option<Instant>) {
        if let Some(taken) = self.slots.lock().occupied.get_mut(&self.number) {
            taken.waits_since = since;
        }
    }
}

impl<K: Ord + Copy> Drop for ConnectionSlot<K> {
    fn drop(&mut self) {
        self.slots.lock().occupied.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const GRACE: Duration = Duration::from_millis(100);

    /// Returns slots and a counter of evictions.
    fn slots() -> (Arc<ConnectionSlots<u32>>, Arc<AtomicUsize>) {
        (ConnectionSlots::new(SlotLimits { all: 4, waiting_each: 3, grace: GRACE }), Arc::default())
    }

    #[test]
    fn slots_of_silent_clients_go_to_new_clients() {
        let (slots, ended) = slots();
        let start = Instant::now();
        let take = |now, client| {
            let ended = ended.clone();
            slots.take(now, client, move || {
                ended.fetch_add(1, Ordering::Relaxed);
            })
        };
        let mut silent: Vec<_> = (0..3).map(|_| take(start, 1).unwrap()).collect();
        assert!(take(start, 1).is_none(), "the client has reached its limit");
        let second = take(start, 2).unwrap();
        assert!(take(start, 3).is_none(), "no connection has waited for the grace time");
        let later = start + GRACE;
        let third = take(later, 3).unwrap();
        assert_eq!(
            ended.load(Ordering::Relaxed),
            1,
            "the client with the most waiting connections loses one"
        );
        // The drop of an evicted connection releases no slot.
        silent.remove(0);
        assert!(take(start, 3).is_none());
        // Connections that are being served are not evicted.
        silent.iter().chain([&second, &third]).for_each(|slot| slot.waits(None));
        assert!(take(later + GRACE, 4).is_none());
        drop(second);
        assert!(take(later + GRACE, 4).is_some());
    }
}
