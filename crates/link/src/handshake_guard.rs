//! The handshake guard: bounds the processor time that initiations of unknown senders cost.
//!
//! An initiation passes if every budget that applies has room. Budgets are per second; a burst has
//! at most as many:
//!
//! | initiations | budget | beyond |
//! |---|---|---|
//! | no valid cookie, one address | [`INITIATIONS_SOURCE`] (5) | answered with a cookie |
//! | no valid cookie, all addresses | [`INITIATIONS_ALL`] (50) | answered with a cookie |
//! | valid cookie, one address and port | [`INITIATIONS_SOURCE`] (5) | dropped |
//! | valid cookie, all addresses of known peers | [`INITIATIONS_KNOWN`] (2,000) | dropped |
//! | valid cookie, one other address | [`INITIATIONS_ADDRESS`] (50) | dropped |
//! | valid cookie, all other addresses | [`INITIATIONS_PROVEN`] (200) | dropped |
//!
//! An initiation that is answered with a cookie is not decrypted; these answers have no limit, and
//! are shorter than the initiation. A dropped initiation is counted ([`Refusal::Rate`]). A cookie
//! proves that the sender receives at its source address. It is a keyed hash of address and port,
//! so the guard keeps no state for senders that were asked; it stays valid for [`COOKIE_NS`] (2
//! min) to twice that time, and longer while no initiation arrives, because secrets are replaced on
//! arrival. A sender that forges an address can exhaust the budget of that address without a
//! cookie, but not the budget with a cookie.
//!
//! Budgets of sources are kept in [`SOURCES`] (1,024) entries by hash: sources that share an entry
//! share its budget. IPv6 sources count by their first 64 bits. [`crate::tunnel_set::TunnelSet`],
//! in the daemon in the shard of links, asks the guard before it decrypts an initiation. The guard
//! does not check keys, and limits no other datagrams.

use std::net::{IpAddr, SocketAddr};

use causeway_fabric::rate::Bucket;
use zeroize::Zeroizing;

use crate::clock::Clock;
use crate::handshake::{COOKIE_LEN, mac};
use crate::limits::{
    COOKIE_NS, INITIATIONS_ADDRESS, INITIATIONS_ALL, INITIATIONS_KNOWN, INITIATIONS_PROVEN,
    INITIATIONS_SOURCE, SOURCES,
};
use crate::refusal::Refusal;

/// Decision about an initiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Decrypt the initiation.
    Pass,
    /// Reply with this cookie and drop the initiation.
    Ask([u8; COOKIE_LEN]),
    /// Drop the initiation.
    Refuse(Refusal),
}

/// The handshake guard of one underlay socket.
#[derive(Debug)]
pub struct HandshakeGuard {
    /// The current secret and its predecessor.
    secrets: [Zeroizing<[u8; 32]>; 2],
    /// When the current secret was created.
    rotated: u64,
    /// Budget of all initiations without a cookie.
    all: Bucket,
    /// Budget of all initiations with a cookie from other addresses.
    proven: Bucket,
    /// Budget of addresses where a peer is known to be.
    known: Bucket,
    /// Budgets by source address: without and with a cookie.
    sources: Box<[(Bucket, Bucket)]>,
    /// Budgets by source address and port, with a cookie: peers behind one NAT have a port each.
    ports: Box<[Bucket]>,
}

impl HandshakeGuard {
    /// Returns a guard with fresh secrets.
    pub fn new(clock: &mut Clock<'_>) -> Self {
        Self {
            secrets: [Zeroizing::new(clock.random()), Zeroizing::new(clock.random())],
            rotated: clock.now,
            all: Bucket::default(),
            proven: Bucket::default(),
            known: Bucket::default(),
            ports: vec![Bucket::default(); SOURCES].into(),
            sources: vec![(Bucket::default(), Bucket::default()); SOURCES].into(),
        }
    }

    /// Decides about an initiation from `from` with this cookie; all zeroes for none. `known`
    /// returns whether a peer is known to be at the address; it is called for proven addresses
    /// only.
    pub fn admit(
        &mut self,
        clock: &mut Clock<'_>,
        from: SocketAddr,
        cookie: &[u8; COOKIE_LEN],
        known: impl FnOnce() -> bool,
    ) -> Admission {
        let now = clock.now;
        self.rotate(clock);
        let proven = *cookie != [0; COOKIE_LEN]
            && self.secrets.iter().any(|secret| same(&cookie_of(secret, from), cookie));
        let [secret, _] = &self.secrets;
        let place = place_of(secret, from);
        let Some((without, with)) = self.sources.get_mut(place) else {
            return Admission::Refuse(Refusal::Rate);
        };
        if proven {
            let port = self.ports.get_mut(port_place_of(secret, from));
            let pass = port.is_some_and(|port| port.take(now, INITIATIONS_SOURCE))
                && if known() {
                    self.known.take(now, INITIATIONS_KNOWN)
                } else {
                    with.take(now, INITIATIONS_ADDRESS) && self.proven.take(now, INITIATIONS_PROVEN)
                };
            return if pass { Admission::Pass } else { Admission::Refuse(Refusal::Rate) };
        }
        if without.take(now, INITIATIONS_SOURCE) && self.all.take(now, INITIATIONS_ALL) {
            return Admission::Pass;
        }
        Admission::Ask(cookie_of(secret, from))
    }

    /// Replaces the older secret if the current secret is older than [`COOKIE_NS`] (2 min): one
    /// secret per call, however long ago the last call was.
    fn rotate(&mut self, clock: &mut Clock<'_>) {
        if clock.now.saturating_sub(self.rotated) >= COOKIE_NS {
            self.rotated = clock.now;
            self.secrets.swap(0, 1);
            let [secret, _] = &mut self.secrets;
            *secret = Zeroizing::new(clock.random());
        }
    }
}

/// Compares in constant time.
fn same(a: &[u8; COOKIE_LEN], b: &[u8; COOKIE_LEN]) -> bool {
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Returns the cookie of an address and port.
fn cookie_of(secret: &[u8; 32], from: SocketAddr) -> [u8; COOKIE_LEN] {
    let mut data = [0_u8; 19];
    let ip = from.ip().to_canonical();
    let bytes = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let all = bytes.into_iter().chain(from.port().to_be_bytes()).chain([b'c']);
    data.iter_mut().zip(all).for_each(|(to, from)| *to = from);
    let sum = mac(secret, &data);
    let mut cookie = [0; COOKIE_LEN];
    cookie.iter_mut().zip(sum).for_each(|(to, from)| *to = from);
    cookie
}

/// Returns the budget index of an address and port.
fn port_place_of(secret: &[u8; 32], from: SocketAddr) -> usize {
    let [a, b, ..] = cookie_of(secret, from);
    usize::from(u16::from_be_bytes([a, b])) % SOURCES
}

/// Returns the budget index of an IPv4 address, or of the first half of an IPv6 address.
fn place_of(secret: &[u8; 32], from: SocketAddr) -> usize {
    let sum = match from.ip().to_canonical() {
        IpAddr::V4(ip) => mac(secret, &ip.octets()),
        IpAddr::V6(ip) => mac(secret, ip.octets().first_chunk::<8>().unwrap_or(&[0; 8])),
    };
    let [a, b, ..] = sum;
    usize::from(u16::from_be_bytes([a, b])) % SOURCES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(now: u64, with: impl FnOnce(&mut Clock<'_>)) {
        let mut at = 0_u8;
        let mut entropy = |bytes: &mut [u8]| {
            at += 1;
            bytes.fill(at);
        };
        with(&mut Clock { now, wall: 0, random: &mut entropy });
    }

    #[test]
    fn hostile_initiation_floods_cost_bounded_decryptions() {
        clock(0, |m| {
            let mut guard = HandshakeGuard::new(m);
            let mut passed = 0;
            for i in 0..100_000_u32 {
                m.now += 10_000;
                let from = SocketAddr::from((i.to_be_bytes(), 9));
                passed += u64::from(guard.admit(m, from, &[0; 16], || false) == Admission::Pass);
            }
            // One second, and the first burst.
            assert!(passed <= 2 * INITIATIONS_ALL + 1, "{passed}");
        });
    }

    #[test]
    fn handshake_guard_admits_a_valid_cookie_during_a_flood() {
        clock(0, |m| {
            let mut guard = HandshakeGuard::new(m);
            let from = SocketAddr::from(([192, 0, 2, 1], 9));
            let cookie = loop {
                if let Admission::Ask(cookie) = guard.admit(m, from, &[0; 16], || false) {
                    break cookie;
                }
            };
            assert_eq!(guard.admit(m, from, &cookie, || false), Admission::Pass);
            let other = SocketAddr::from(([192, 0, 2, 1], 10));
            assert!(matches!(guard.admit(m, other, &cookie, || false), Admission::Ask(_)));
            let mut wrong = cookie;
            wrong[15] ^= 1;
            assert!(matches!(guard.admit(m, from, &wrong, || false), Admission::Ask(_)));
            let passed = (0..100)
                .filter(|_| guard.admit(m, from, &cookie, || false) == Admission::Pass)
                .count();
            assert_eq!(passed as u64, INITIATIONS_SOURCE - 1);
            assert_eq!(guard.admit(m, from, &cookie, || false), Admission::Refuse(Refusal::Rate));
        });
    }

    #[test]
    fn peers_behind_one_address_are_admitted_within_two_seconds() {
        clock(0, |m| {
            let mut guard = HandshakeGuard::new(m);
            let peers = (0..60).map(|n| SocketAddr::from(([192, 0, 2, 1], 1_000 + n)));
            let mut waiting: Vec<_> = peers.map(|from| (from, [0; 16])).collect();
            for _ in 0..20 {
                waiting.retain_mut(|(from, cookie)| {
                    match guard.admit(m, *from, cookie, || false) {
                        Admission::Pass => false,
                        Admission::Ask(new) => {
                            *cookie = new;
                            true
                        }
                        Admission::Refuse(_) => true,
                    }
                });
                m.now += 100_000_000;
            }
            assert_eq!(waiting.len(), 0);
        });
    }

    #[test]
    fn known_peers_pass_while_unknown_senders_exhaust_their_budget() {
        clock(0, |m| {
            let mut guard = HandshakeGuard::new(m);
            let prove = |guard: &mut HandshakeGuard, m: &mut Clock<'_>, from| loop {
                if let Admission::Ask(cookie) = guard.admit(m, from, &[0; 16], || false) {
                    break cookie;
                }
            };
            let peer = SocketAddr::from(([192, 0, 2, 1], 9));
            let cookie = prove(&mut guard, m, peer);
            for n in 0..2_000_u32 {
                let from = SocketAddr::from((n.to_be_bytes(), 9));
                let cookie = cookie_of(&guard.secrets[0], from);
                guard.admit(m, from, &cookie, || false);
            }
            assert_eq!(guard.admit(m, peer, &cookie, || true), Admission::Pass);
        });
    }

    #[test]
    fn handshake_guard_cookies_expire() {
        clock(0, |m| {
            let mut guard = HandshakeGuard::new(m);
            let from = SocketAddr::from(([192, 0, 2, 1], 9));
            let cookie = cookie_of(&guard.secrets[0], from);
            for (passed, expected) in [(1, true), (COOKIE_NS, true), (COOKIE_NS, false)] {
                m.now += passed;
                // The budget without a cookie is empty, so that only the cookie decides.
                guard.all = Bucket::emptied(m.now);
                assert_eq!(guard.admit(m, from, &cookie, || false) == Admission::Pass, expected);
            }
        });
    }
}
