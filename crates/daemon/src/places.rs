//! The places for connections of one listener, shared among clients.
//!
//! A connection *waits* while its client has yet to send a request or to read a reply. Clients can
//! wait for as long as they like, so when places run out, a newcomer takes the place of a
//! connection that waits: the oldest of the client that has the most of them. A client that opens
//! many connections and leaves them silent therefore loses its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many places there are.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Connections of all clients.
    pub all: usize,
    /// Waiting connections of one client.
    pub waiting_each: usize,
    /// How long a connection may wait before a newcomer takes its place.
    pub grace: Duration,
}

/// The places; `K` tells clients apart.
pub struct Places<K> {
    bounds: Bounds,
    state: Mutex<State<K>>,
}

struct State<K> {
    next: u64,
    /// By age.
    taken: BTreeMap<u64, Taken<K>>,
}

struct Taken<K> {
    client: K,
    waits_since: Option<Instant>,
    /// Ends the connection, so that its thread ends.
    hang_up: Box<dyn Fn() + Send>,
}

impl<K> std::fmt::Debug for Places<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Places").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

/// The place of one connection, given back when dropped.
#[derive(Debug)]
pub struct Place<K: Ord + Copy> {
    places: Arc<Places<K>>,
    number: u64,
}

impl<K: Ord + Copy> Places<K> {
    /// Returns places that are all free.
    pub fn new(bounds: Bounds) -> Arc<Self> {
        let state = State { next: 0, taken: BTreeMap::new() };
        Arc::new(Self { bounds, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a connection of `client`, which waits from now on. `None` if there is
    /// none, and no connection has waited for longer than the grace time.
    pub fn take(
        self: &Arc<Self>,
        now: Instant,
        client: K,
        hang_up: impl Fn() + Send + 'static,
    ) -> Option<Place<K>> {
        let mut state = self.lock();
        let own = state.waiting().get(&client).copied().unwrap_or(0);
        if own >= self.bounds.waiting_each {
            state.evict(now, client, self.bounds.grace)?;
        } else if state.taken.len() >= self.bounds.all {
            let (_, most) = state.waiting().into_iter().map(|(client, n)| (n, client)).max()?;
            state.evict(now, most, self.bounds.grace)?;
        }
        let number = state.next;
        state.next = number.wrapping_add(1);
        let taken = Taken { client, waits_since: Some(now), hang_up: Box::new(hang_up) };
        state.taken.insert(number, taken);
        Some(Place { places: self.clone(), number })
    }
}

impl<K: Ord + Copy> State<K> {
    /// How many connections of each client wait.
    fn waiting(&self) -> BTreeMap<K, usize> {
        let mut count = BTreeMap::new();
        for taken in self.taken.values().filter(|taken| taken.waits_since.is_some()) {
            *count.entry(taken.client).or_insert(0_usize) += 1;
        }
        count
    }

    /// Ends the connection of `client` that waits longest; `None` if that is not longer than
    /// `grace`.
    fn evict(&mut self, now: Instant, client: K, grace: Duration) -> Option<()> {
        let waits = |(number, taken): (&u64, &Taken<K>)| {
            let since = taken.waits_since.filter(|_| taken.client == client)?;
            Some((since, *number))
        };
        let (since, number) = self.taken.iter().filter_map(waits).min()?;
        if now.saturating_duration_since(since) < grace {
            return None;
        }
        let taken = self.taken.remove(&number)?;
        (taken.hang_up)();
        Some(())
    }
}

impl<K: Ord + Copy> Place<K> {
    /// Notes since when the connection waits for its client; `None`: it does not.
    pub fn waits(&self, since: Option<Instant>) {
        if let Some(taken) = self.places.lock().taken.get_mut(&self.number) {
            taken.waits_since = since;
        }
    }
}

impl<K: Ord + Copy> Drop for Place<K> {
    fn drop(&mut self) {
        self.places.lock().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const GRACE: Duration = Duration::from_millis(100);

    /// Places, and a counter of evictions.
    fn places() -> (Arc<Places<u32>>, Arc<AtomicUsize>) {
        (Places::new(Bounds { all: 4, waiting_each: 3, grace: GRACE }), Arc::default())
    }

    #[test]
    fn places_of_silent_clients_go_to_newcomers() {
        let (places, ended) = places();
        let start = Instant::now();
        let take = |now, client| {
            let ended = ended.clone();
            places.take(now, client, move || {
                ended.fetch_add(1, Ordering::Relaxed);
            })
        };
        let mut silent: Vec<_> = (0..3).map(|_| take(start, 1).unwrap()).collect();
        assert!(take(start, 1).is_none(), "one client's share is taken");
        let second = take(start, 2).unwrap();
        assert!(take(start, 3).is_none(), "all have come only now");
        let later = start + GRACE;
        let third = take(later, 3).unwrap();
        assert_eq!(ended.load(Ordering::Relaxed), 1, "the client with the most loses one");
        // An evicted connection gives nothing back.
        silent.remove(0);
        assert!(take(start, 3).is_none());
        // Connections that are served are not ended.
        silent.iter().chain([&second, &third]).for_each(|place| place.waits(None));
        assert!(take(later + GRACE, 4).is_none());
        drop(second);
        assert!(take(later + GRACE, 4).is_some());
    }
}
