//! Peeks at unexpected messages, claims and discards them (`FI_PEEK`, `FI_CLAIM`, `FI_DISCARD`).
//!
//! An unexpected message is always complete, or the notice of a long message ([`wire`](super::wire)), so
//! the reported length is final.
//!
//! # Limits
//! A peek does not wait for a message: without a match it completes with `FI_ENOMSG`. A peek at
//! messages of one sender connects first, and waits for that as every operation does
//! ([`connect`](super::connect)); it fails with `FI_EINVAL` or `FI_ECONNRESET` as a receive does.
//! It reports the oldest match. A claimed message is invisible to other receives and occupies
//! unexpected memory until its context receives or discards it; there is no time limit, and only
//! the limit of unexpected messages bounds the claims. A context without a claimed message gives
//! `FI_EINVAL`. If two claims have the same context, the older is taken.
//!
//! # Place
//! `shell::tagged` calls these functions, by the flags of a receive, in the application's thread
//! and under the lock of the domain. Bytes of long messages are received by [`Rdm::fetch`].

use causeway_message::library::ProbedMessage;
use causeway_message::status::Status;

use super::buffer::{HEAD_BYTES, Payload};
use super::completion::{OpCompletion, ReportTemplate};
use super::message_meta::MessageMeta;
use super::operation::Task;
use super::receive::ReceiveSpec;
use super::stats::count;
use super::wire::{NOTICE, parse_notice};
use super::{DomainEnv, Rdm};
use crate::abi::{FI_EINVAL, FI_ENOMSG};
use crate::errno::Errno;

/// A message that belongs to a context until the context receives or discards it.
#[derive(Debug)]
pub struct ClaimedMessage {
    /// The application's context, by which the message is found again.
    context: usize,
    /// Its sender, match bits and length.
    probed: ProbedMessage,
    /// The head and the bytes after it.
    bytes: Vec<u8>,
}

/// Returns the two words of a head: immediate data, and the word with the notice bit.
fn words(bytes: &[u8]) -> Option<(u64, u64)> {
    let (data, rest) = bytes.split_first_chunk::<8>()?;
    let word = rest.first_chunk::<8>()?;
    Some((u64::from_le_bytes(*data), u64::from_le_bytes(*word)))
}

impl Rdm {
    /// Looks for a message. The completion describes the message, or reports that there is none.
    /// `claim` reserves the message for a receive with the same context; `discard` drops the
    /// message.
    ///
    /// # Errors
    /// The address is not in the vector; the only sender is broken.
    pub fn peek(
        &mut self,
        env: DomainEnv<'_>,
        wanted: ReceiveSpec,
        (claim, discard): (bool, bool),
    ) -> Result<(), Errno> {
        let from = self.source(env, wanted.from)?;
        let report = wanted.report;
        let matching = wanted.matching();
        // An application that only peeks must see messages that arrived meanwhile.
        self.progress(env);
        if !claim && !discard {
            let mut head = [0; HEAD_BYTES];
            let found = self.endpoint.library.probe(from, matching, &mut head);
            let meta = match found {
                Ok(Some((probed, _))) => {
                    self.describe(env, report, &probed, words(&head).unwrap_or((0, 0)))
                }
                _ => OpCompletion::failed(report, FI_ENOMSG, Status::Pending),
            };
            self.completions.push(meta);
            return Ok(());
        }
        let endpoint = &mut self.endpoint;
        let taken = endpoint.library.take_kept(&mut endpoint.paths, from, matching);
        let Ok(Some(taken)) = taken else {
            self.completions.push(OpCompletion::failed(report, FI_ENOMSG, Status::Pending));
            return Ok(());
        };
        let (context, probed, bytes) = (report.context, taken.probed, taken.bytes);
        let meta = self.describe(env, report, &probed, words(&bytes).unwrap_or((0, 0)));
        self.completions.push(meta);
        let claimed = ClaimedMessage { context, probed, bytes };
        if discard {
            self.drop_claimed(env, claimed);
        } else {
            self.claimed.push(claimed);
        }
        Ok(())
    }

    /// Returns the completion that describes an unexpected message.
    fn describe(
        &mut self,
        env: DomainEnv<'_>,
        report: ReportTemplate,
        probed: &ProbedMessage,
        (data, word): (u64, u64),
    ) -> OpCompletion {
        let from = self.from(env.vector, probed.partner);
        let len = match word & NOTICE {
            0 => (probed.len as usize).saturating_sub(HEAD_BYTES),
            _ => parse_notice(word).1,
        };
        let meta = MessageMeta::new(report, probed.match_info, (from, data, word), len);
        OpCompletion { from, data, len, ..OpCompletion::success(meta.report) }
    }

    /// Removes the oldest message that a context claimed.
    fn claimed_by(&mut self, context: usize) -> Result<ClaimedMessage, Errno> {
        let at = self.claimed.iter().position(|claimed| claimed.context == context);
        Ok(self.claimed.remove(at.ok_or(Errno(FI_EINVAL))?))
    }

    /// Receives the message that the context claimed.
    ///
    /// # Errors
    /// The context claimed none.
    pub fn receive_claimed(
        &mut self,
        env: DomainEnv<'_>,
        report: ReportTemplate,
        payload: Payload,
    ) -> Result<(), Errno> {
        let ClaimedMessage { probed, bytes, .. } = self.claimed_by(report.context)?;
        count(&mut self.stats.early);
        let (data, word) = words(&bytes).unwrap_or((0, 0));
        let from = self.from(env.vector, probed.partner);
        let meta = MessageMeta::new(report, probed.match_info, (from, data, word), payload.len());
        if word & NOTICE == 0 {
            let mut payload = payload;
            let rest = bytes.get(HEAD_BYTES..).unwrap_or_default();
            let fits = rest.get(..payload.len()).unwrap_or(rest);
            payload.fill(fits);
            self.completions.push(meta.of_len(rest.len()));
            self.give_back(bytes);
        } else {
            self.give_back(bytes);
            self.long(probed.partner, meta, word, payload);
        }
        Ok(())
    }

    /// Drops the message that the context claimed.
    ///
    /// # Errors
    /// The context claimed none.
    pub fn discard_claimed(
        &mut self,
        env: DomainEnv<'_>,
        report: ReportTemplate,
    ) -> Result<(), Errno> {
        let claimed = self.claimed_by(report.context)?;
        self.drop_claimed(env, claimed);
        self.completions.push(OpCompletion::success(ReportTemplate { len: 0, ..report }));
        Ok(())
    }

    /// Drops a message. The bytes of a long message are received to nowhere, so that its sender
    /// gets its buffer back.
    fn drop_claimed(&mut self, env: DomainEnv<'_>, claimed: ClaimedMessage) {
        let (_, word) = words(&claimed.bytes).unwrap_or((0, 0));
        let partner = claimed.probed.partner;
        self.give_back(claimed.bytes);
        if word & NOTICE != 0 {
            // The sender keeps the buffer until the bytes are received or refused.
            let from = self.from(env.vector, partner);
            let meta = MessageMeta { report: ReportTemplate::default(), from, data: 0, room: 0 };
            let _ =
                self.fetch(partner, parse_notice(word).0, Task::Internal, Payload::EMPTY, &meta);
        }
    }

    /// Returns the memory of an unexpected message to the engine, which can then accept others.
    pub(super) fn give_back(&mut self, bytes: Vec<u8>) {
        self.endpoint.library.give_back(bytes);
        self.has_new_room |= self.endpoint.paths.nudge();
    }
}
