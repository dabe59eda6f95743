//! The claims of this host: which records of its own it writes.
//!
//! [`Claimer::observe`] takes the addresses of guests that run here, and the names of NICs, which
//! count as guests that run while their ports exist; [`Claimer::writes`] returns the writes that are
//! due. Each is a transaction: it has its effect only if the key still has the
//! expected revision. The caller (the main thread of `causeway-directory`) executes them, passes
//! the outcome to the replica, and asks again.
//!
//! An address of a shared group is claimed when its guest appears, with an epoch newer than any
//! known claim of another host on it; a live claim of this host is continued. The exception is a
//! guest that was here before the process started, while another host has a newer claim: its
//! address counts as lost. If another host claims an address later with a newer epoch, it is lost
//! as well. This host does not claim a lost address again until the other claim is withdrawn or
//! dropped, or the guest appears anew: two hosts do not contend. If etcd loses a claim, or has a
//! record there that was refused, the claim is written again as it was. An address that is away for
//! [`ABSENT_KEPT_NS`] (2 s) is withdrawn by a signed record, which is deleted after
//! [`WITHDRAWAL_KEPT_NS`] (10 s). A write without a lasting effect is repeated at once and then
//! after 1 to 60 s. An evicted host writes nothing. No clock and no I/O; runs in the caller's
//! thread.

use std::collections::{BTreeMap, BTreeSet};

use causeway_model::{ClusterAddress, LocalAddress, Name};

use crate::key::RecordKey;
use crate::limits::{ABSENT_KEPT_NS, RETRY_MAX_NS, RETRY_MIN_NS, WITHDRAWAL_KEPT_NS, WRITES_MAX};
use crate::record::ClaimRecord;
use crate::replica::Replica;
use crate::sign::SigningKey;

/// A write to etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: RecordKey,
    /// The value; `None` deletes the key.
    pub value: Option<Vec<u8>>,
    /// The revision that the key must have; 0 if it must not exist.
    pub expected: u64,
}

/// The effect of a write on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Claim,
    Withdrawal,
    Deletion,
}

/// The last write on an address.
#[derive(Debug, Clone, Copy)]
struct LastWrite {
    effect: Effect,
    epoch: u64,
    at: u64,
    /// Time before which the same write is not repeated, from `at` on.
    pause: u64,
}

/// An address that is here, or was here and is not yet withdrawn.
#[derive(Debug, Clone)]
struct Attachment {
    epoch: u64,
    /// Another host has a newer claim.
    is_lost: bool,
    absent_since: Option<u64>,
    /// When the withdrawal was found accepted.
    withdrawn_since: Option<u64>,
    written: Option<LastWrite>,
}

impl Attachment {
    fn new(epoch: u64, is_lost: bool, absent_since: Option<u64>) -> Self {
        Self { epoch, is_lost, absent_since, withdrawn_since: None, written: None }
    }

    /// Notes a write. Returns false if the same write was made before, and must wait.
    fn begin_write(&mut self, effect: Effect, epoch: u64, wall: u64) -> bool {
        let last = self.written.filter(|last| (last.effect, last.epoch) == (effect, epoch));
        let pause = match last {
            None => 0,
            // The clock was set back.
            Some(last) if wall < last.at => RETRY_MIN_NS,
            Some(last) => {
                let elapsed = wall.saturating_sub(last.at);
                if elapsed < last.pause {
                    return false;
                }
                let has_lasted = elapsed >= RETRY_MAX_NS.saturating_mul(2);
                let next = last.pause.saturating_mul(2).clamp(RETRY_MIN_NS, RETRY_MAX_NS);
                if has_lasted { 0 } else { next }
            }
        };
        self.written = Some(LastWrite { effect, epoch, at: wall, pause });
        true
    }

    /// Returns when the last write may be repeated.
    fn retry_at(&self) -> u64 {
        self.written.map_or(0, |last| last.at.saturating_add(last.pause))
    }
}

/// The claims that this host makes.
#[derive(Debug, Default)]
pub struct Claimer {
    attached: BTreeMap<ClusterAddress, Attachment>,
    has_observed: bool,
}

impl Claimer {
    /// Takes all addresses of guests and NICs that are here; an address that is not among them is away.
    /// Accepted claims of this host for other addresses count as away too.
    pub fn observe(&mut self, local: &[LocalAddress], replica: &Replica, wall: u64) {
        let here: BTreeSet<&ClusterAddress> = local.iter().map(|local| &local.at).collect();
        for (at, attachment) in &mut self.attached {
            if !here.contains(at) {
                attachment.absent_since.get_or_insert(wall);
            }
        }
        for LocalAddress { at, since } in local {
            // A guest that moved to another host and back appears anew.
            let is_taken = |known: &Attachment| {
                let claim = replica.claim(at).filter(|claim| !claim.gone);
                claim.is_some_and(|claim| (claim.epoch, &claim.host) > (known.epoch, replica.own()))
            };
            let is_new = self.attached.get(at).is_none_or(|known| {
                let is_over = known.is_lost || known.withdrawn_since.is_some() || is_taken(known);
                known.absent_since.is_some() && is_over
            });
            if is_new {
                // The clock may have been ahead when the guest appeared.
                let since = (*since).min(wall);
                let attachment = self.attach(replica.claim(at), replica.own(), since);
                self.attached.insert(at.clone(), attachment);
            } else if let Some(known) = self.attached.get_mut(at) {
                known.absent_since = None;
            }
        }
        // Claims of an earlier process for guests that have left since.
        for at in replica.own_claims() {
            if !self.attached.contains_key(at) {
                let epoch = replica.claim(at).map_or(0, |claim| claim.epoch);
                self.attached.insert(at.clone(), Attachment::new(epoch, false, Some(wall)));
            }
        }
        self.has_observed = true;
    }

    /// Returns the attachment of an address that appeared at the time of day `since`.
    fn attach(&self, known: Option<&ClaimRecord>, own: &Name, since: u64) -> Attachment {
        let (epoch, is_lost) = match known {
            None => (since, false),
            Some(claim) if claim.host == *own && !claim.gone => (claim.epoch, false),
            // The guest was here before this process: its claim may have been taken over since.
            Some(claim) if claim.host != *own && !self.has_observed && since <= claim.epoch => {
                (claim.epoch, !claim.gone)
            }
            Some(claim) => (since.max(claim.epoch.saturating_add(1)), false),
        };
        Attachment::new(epoch, is_lost, None)
    }

    /// Returns the addresses that another host took over while their guests run here.
    pub fn lost(&self) -> impl Iterator<Item = &ClusterAddress> {
        let lost = |known: &Attachment| known.is_lost && known.absent_since.is_none();
        self.attached.iter().filter(move |(_, known)| lost(known)).map(|(at, _)| at)
    }

    /// Returns the writes that are due, at most [`WRITES_MAX`] (128); none while this host is
    /// evicted. A returned write counts as made: the caller executes it.
    pub fn writes(&mut self, replica: &mut Replica, key: &SigningKey, wall: u64) -> Vec<Write> {
        let mut writes = Vec::new();
        if replica.is_evicted() {
            return writes;
        }
        let mut ended = Vec::new();
        let mut lost: u64 = 0;
        for (at, attachment) in &mut self.attached {
            if writes.len() >= WRITES_MAX {
                break;
            }
            let is_away = |since: u64| wall.saturating_sub(since) >= ABSENT_KEPT_NS;
            if attachment.absent_since.is_some_and(is_away) {
                match withdraw(at, attachment, replica, key, wall) {
                    Step::Write(write) => writes.push(write),
                    Step::Wait => {}
                    Step::End => ended.push(at.clone()),
                }
            } else if attachment.absent_since.is_none() && replica.has_group(&at.group) {
                let was_lost = attachment.is_lost;
                if let Some(write) = claim(at, attachment, replica, key, wall) {
                    writes.push(write);
                }
                lost = lost.saturating_add(u64::from(attachment.is_lost && !was_lost));
            }
        }
        for _ in 0..lost {
            replica.count("claims_lost_total");
        }
        for at in ended {
            self.attached.remove(&at);
        }
        writes
    }

    /// Returns when the next withdrawal, or deletion of one, is due; the time may have passed.
    /// `None` without one: repeated claims have no deadline.
    pub fn deadline(&self) -> Option<u64> {
        let all = self.attached.values();
        let due = all.filter_map(|known| {
            let withdrawn = known.withdrawn_since.map(|at| at.saturating_add(WITHDRAWAL_KEPT_NS));
            let due = withdrawn.or(known.absent_since.map(|at| at.saturating_add(ABSENT_KEPT_NS)));
            due.map(|due| due.max(known.retry_at()))
        });
        due.min()
    }
}

/// The next step of a withdrawal.
enum Step {
    Write(Write),
    Wait,
    End,
}

/// Returns the next step for an address that left.
fn withdraw(
    at: &ClusterAddress,
    attachment: &mut Attachment,
    replica: &Replica,
    key: &SigningKey,
    wall: u64,
) -> Step {
    let own = replica.own();
    let Some(known) = replica.claim(at).filter(|claim| claim.host == *own) else {
        return Step::End;
    };
    let (expected, is_accepted) = replica.stored(at);
    let record = RecordKey::Claim(at.clone());
    // A refused record may stand in the place of the withdrawal.
    if !known.gone || expected != 0 && !is_accepted {
        if !attachment.begin_write(Effect::Withdrawal, known.epoch, wall) {
            return Step::Wait;
        }
        let gone = ClaimRecord::new((replica.site(), at), (own, key), known.epoch, true);
        return Step::Write(Write { key: record, value: Some(gone.write()), expected });
    }
    let since = *attachment.withdrawn_since.get_or_insert(wall);
    if wall.saturating_sub(since) < WITHDRAWAL_KEPT_NS {
        return Step::Wait;
    }
    if expected != 0 {
        if !attachment.begin_write(Effect::Deletion, known.epoch, wall) {
            return Step::Wait;
        }
        return Step::Write(Write { key: record, value: None, expected });
    }
    Step::End
}

/// Returns the write that claims an address, or `None` if the claim stands, is lost or must wait.
fn claim(
    at: &ClusterAddress,
    attachment: &mut Attachment,
    replica: &Replica,
    key: &SigningKey,
    wall: u64,
) -> Option<Write> {
    let own = replica.own();
    let (expected, is_accepted) = replica.stored(at);
    // The other host withdrew: the guest that still runs here has the address.
    let is_taken = |known: &&ClaimRecord| !known.gone && known.host != *own;
    if attachment.is_lost && replica.claim(at).filter(is_taken).is_none() {
        // Hosts that missed the withdrawal follow a newer claim only.
        attachment.epoch = attachment.epoch.saturating_add(1);
        attachment.is_lost = false;
    }
    match replica.claim(at) {
        _ if attachment.is_lost => return None,
        Some(known) if known.host == *own => {
            if known.gone {
                attachment.epoch = attachment.epoch.max(known.epoch.saturating_add(1));
            } else {
                attachment.epoch = attachment.epoch.max(known.epoch);
                if known.epoch == attachment.epoch && is_accepted {
                    return None;
                }
            }
        }
        Some(known) if (known.epoch, &known.host) > (attachment.epoch, own) => {
            if !known.gone {
                (attachment.is_lost, attachment.epoch) = (true, known.epoch);
                return None;
            }
            attachment.epoch = known.epoch.saturating_add(1);
        }
        _ => {}
    }
    if !attachment.begin_write(Effect::Claim, attachment.epoch, wall) {
        return None;
    }
    let record = ClaimRecord::new((replica.site(), at), (own, key), attachment.epoch, false);
    Some(Write { key: RecordKey::Claim(at.clone()), value: Some(record.write()), expected })
}
