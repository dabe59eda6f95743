//! Waiting times of requests without an answer or without a receive work request.
//!
//! A waiting request is tried again at each call of [`Subnet::progress`], so that it continues as
//! soon as the responder is ready, earlier than a retransmission would. Retries are therefore not
//! counted; the request fails after the time that all permitted retries would take. For an
//! unanswered request this time is at most [`RETRY_NS_MAX`] (120 s), and without end if the queue
//! pair's timeout is 0. For a responder without a receive work request it is up to 6 times 655 ms,
//! and without end if the retries are 7. A wait for room in a session (`session.rs`) has no end. A
//! wait for another reason starts the time again. A request that would wait beyond the adapter's
//! limit fails at once, with the status of exhausted retries.
//!
//! After a restart of the daemon, adapters are restored one after another. A request of a restored
//! queue pair to an adapter that is not restored yet, or that the rules do not permit yet, waits
//! beside these times, until [`Adapter::await_peers`](crate::Adapter::await_peers) ends: its guest
//! did not end the connection. Such requests do not count to the adapter's limit; each restored
//! queue pair has one at most.
//!
//! A waiting request blocks the later requests of its queue pair, and no other queue pair. A reset
//! or destruction of the queue pair ends the wait without a completion. The dispatcher polls it in
//! its turns, and at the latest when [`Subnet::deadline`] is over. Datagrams and unreliable
//! connections never wait.

use crate::engine::state::{Requester, Wait, WaitReason};
use crate::engine::step::{Origin, Step};
use crate::limits::{RETRY_NS_MAX, RNR_RETRY_ENDLESS};
use crate::queues::Queues;
use crate::subnet::Subnet;
use crate::transport::Refusal;
use crate::work::Status;

/// Waiting times of the 5-bit code of the receiver-not-ready timer, in units of 10 us (InfiniBand
/// specification, table 45).
const RNR_TIMES: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Unit of the local acknowledgement timeout, in nanoseconds.
const TIMEOUT_UNIT_NS: u64 = 4096;

/// Returns the time over all retries of an unanswered request, or `None` if it is endless.
pub(super) fn retry_time(timeout: u8, retries: u8) -> Option<u64> {
    if timeout == 0 {
        return None;
    }
    let single = TIMEOUT_UNIT_NS.checked_shl(u32::from(timeout)).unwrap_or(RETRY_NS_MAX);
    Some(single.saturating_mul(u64::from(retries).saturating_add(1)).min(RETRY_NS_MAX))
}

/// Returns the time over all retries of a request without a receive work request, or `None` if it
/// is endless.
pub(super) fn rnr_time(code: u8, retries: u8) -> Option<u64> {
    if retries >= RNR_RETRY_ENDLESS {
        return None;
    }
    let units = RNR_TIMES.get(usize::from(code & 31)).copied().unwrap_or(1);
    Some(u64::from(units).saturating_mul(10_000).saturating_mul(u64::from(retries)))
}

impl<Q: Queues> Subnet<Q> {
    /// Makes a request wait, or fails it if it has waited for `total_ns`, or if as many requests
    /// wait as the adapter permits.
    pub(super) fn wait(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        (reason, total_ns): (WaitReason, Option<u64>),
        now_ns: u64,
    ) -> Step {
        let status = match reason {
            WaitReason::Unanswered | WaitReason::Restart => Status::RetryExceeded,
            WaitReason::NotReady => Status::ReceiverNotReadyExceeded,
        };
        let fail_ns = match requester.wait {
            Some(wait) if wait.reason == reason => wait.fail_ns,
            _ => {
                self.stop_waiting(origin, requester);
                let Some(adapter) = self.adapter_mut(origin.id) else {
                    return Step::Failed(status);
                };
                if reason.is_limited() && !adapter.begin_wait() {
                    return Step::Failed(status);
                }
                let counter = match reason {
                    WaitReason::Unanswered | WaitReason::Restart => {
                        &mut adapter.counters.unanswered
                    }
                    WaitReason::NotReady => &mut adapter.counters.not_ready,
                };
                *counter = counter.wrapping_add(1);
                let fail_ns = total_ns.map(|total| now_ns.saturating_add(total));
                requester.wait = Some(Wait { reason, fail_ns });
                adapter.deadlines.extend(fail_ns.map(|at| (at, origin.number)));
                fail_ns
            }
        };
        match fail_ns {
            Some(at) if at <= now_ns => Step::Failed(status),
            until => Step::Blocked(until),
        }
    }

    /// Ends the wait of a request.
    #[inline]
    pub(super) fn stop_waiting(&mut self, origin: &Origin, requester: &mut Requester) {
        if let Some(wait) = requester.wait.take()
            && let Some(adapter) = self.adapter_mut(origin.id)
        {
            if wait.reason.is_limited() {
                adapter.end_wait();
            }
            if let Some(fail_ns) = wait.fail_ns {
                adapter.deadlines.remove(&(fail_ns, origin.number));
            }
        }
    }

    /// Ends a wait for an answer: the responder answers.
    #[inline]
    pub(super) fn end_unanswered(&mut self, origin: &Origin, requester: &mut Requester) {
        if requester.wait.is_some_and(|wait| wait.reason != WaitReason::NotReady) {
            self.stop_waiting(origin, requester);
        }
    }

    /// Ends a wait for a receive work request.
    #[inline]
    pub(super) fn end_not_ready(&mut self, origin: &Origin, requester: &mut Requester) {
        if requester.wait.is_some_and(|wait| wait.reason == WaitReason::NotReady) {
            self.stop_waiting(origin, requester);
        }
    }

    /// Returns the time until which a request that found no responder waits for the restoration of
    /// the peer's adapter, in nanoseconds; `None` if the refusal has another cause.
    pub(super) fn restart_wait_ns(
        &self,
        origin: &Origin,
        requester: &Requester,
        refusal: Refusal,
        now_ns: u64,
    ) -> Option<u64> {
        let until_ns = self.adapter(origin.id)?.peers_until_ns;
        if !requester.is_restored || now_ns >= until_ns {
            return None;
        }
        let is_absent = match refusal {
            Refusal::NoPeer => false,
            // A restored adapter has queue pairs.
            Refusal::NotConnected => {
                let there = requester.route.and_then(|route| self.adapter(route.adapter));
                there.is_none_or(|adapter| adapter.queue_pairs.is_empty())
            }
            // The daemon adds the ports and routes of its configuration one after another.
            Refusal::NotOnThisHost | Refusal::Denied(_) | Refusal::ResponseDenied(_) => true,
        };
        is_absent.then_some(until_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_times_follow_the_specification() {
        assert_eq!(rnr_time(0, 1), Some(655_360_000));
        assert_eq!(rnr_time(1, 6), Some(60_000));
        assert_eq!(rnr_time(31, 1), Some(491_520_000));
        assert_eq!(rnr_time(12, 7), None);
        assert_eq!(rnr_time(12, 0), Some(0));
        assert_eq!(retry_time(0, 7), None);
        assert_eq!(retry_time(14, 0), Some(4096 << 14));
        assert_eq!(retry_time(14, 7), Some((4096 << 14) * 8));
        assert_eq!(retry_time(31, 7), Some(RETRY_NS_MAX));
    }
}
