//! Looking at messages that came and that nothing was posted for; claiming and discarding them.
//!
//! What waits is always there as a whole, or as the notice of a long one (see [`super`]).

use causeway_message::library::{Partner, Probed};
use causeway_message::status::Status;

use super::done::{Done, Report};
use super::operation::Task;
use super::parcel::{HEAD_BYTES, Place};
use super::receive::{Told, Wanted, noticed};
use super::send::NOTICE;
use super::tally::count;
use super::{Env, Errno, Rdm};
use crate::abi::{FI_EINVAL, FI_ENOMSG};

/// A message that belongs to a context until it is received by that, or discarded.
#[derive(Debug)]
pub struct Claimed {
    context: usize,
    probed: Probed,
    /// The head, and what follows it.
    bytes: Vec<u8>,
}

/// The words of a head.
fn words(bytes: &[u8]) -> Option<(u64, u64)> {
    let (data, rest) = bytes.split_first_chunk::<8>()?;
    let word = rest.first_chunk::<8>()?;
    Some((u64::from_le_bytes(*data), u64::from_le_bytes(*word)))
}

impl Rdm {
    /// Looks for a message; the completion says what is known of it, or that there is none.
    /// `claim`: it is for who receives with the same context.
    ///
    /// # Errors
    /// Nobody has the number.
    pub fn peek(
        &mut self,
        env: Env<'_>,
        wanted: Wanted,
        (claim, discard): (bool, bool),
    ) -> Result<(), Errno> {
        let from = self.source(env, wanted.from)?;
        let report = wanted.report;
        let matching = wanted.matching();
        // Who does nothing but look sees what came meanwhile.
        self.progress(env);
        if !claim && !discard {
            let mut head = [0; HEAD_BYTES];
            let found = self.endpoint.library.probe(from, matching, &mut head);
            let told = match found {
                Ok(Some((probed, _))) => {
                    self.told(env, report, &probed, words(&head).unwrap_or((0, 0)))
                }
                _ => Done::failed(report, FI_ENOMSG, Status::Pending),
            };
            self.done.push(told);
            return Ok(());
        }
        let endpoint = &mut self.endpoint;
        let taken = endpoint.library.take_kept(&mut endpoint.way, from, matching);
        let Ok(Some(taken)) = taken else {
            self.done.push(Done::failed(report, FI_ENOMSG, Status::Pending));
            return Ok(());
        };
        let (context, probed, bytes) = (report.context, taken.probed, taken.bytes);
        let told = self.told(env, report, &probed, words(&bytes).unwrap_or((0, 0)));
        self.done.push(told);
        let claimed = Claimed { context, probed, bytes };
        if discard {
            self.drop_claimed(env, claimed);
        } else {
            self.claimed.push(claimed);
        }
        Ok(())
    }

    /// What a message is that was not received yet.
    fn told(
        &mut self,
        env: Env<'_>,
        report: Report,
        probed: &Probed,
        (data, word): (u64, u64),
    ) -> Done {
        let from = self.from(env.book, probed.partner);
        let len = match word & NOTICE {
            0 => (probed.len as usize).saturating_sub(HEAD_BYTES),
            _ => noticed(word).1,
        };
        let told = Told::new(report, probed.match_info, (from, data, word), len);
        Done { from, data, len, ..Done::well(told.report) }
    }

    fn claimed_by(&mut self, context: usize) -> Result<Claimed, Errno> {
        let at = self.claimed.iter().position(|claimed| claimed.context == context);
        Ok(self.claimed.remove(at.ok_or(Errno(FI_EINVAL))?))
    }

    /// Receives the message that the context claimed.
    ///
    /// # Errors
    /// It claimed none.
    pub fn receive_claimed(
        &mut self,
        env: Env<'_>,
        report: Report,
        place: Place,
    ) -> Result<(), Errno> {
        let Claimed { probed, bytes, .. } = self.claimed_by(report.context)?;
        count(&mut self.tally.early);
        let (data, word) = words(&bytes).unwrap_or((0, 0));
        let from = self.from(env.book, probed.partner);
        let told = Told::new(report, probed.match_info, (from, data, word), place.len());
        if word & NOTICE == 0 {
            let mut place = place;
            let rest = bytes.get(HEAD_BYTES..).unwrap_or_default();
            let fits = rest.get(..place.len()).unwrap_or(rest);
            place.fill(fits);
            self.done.push(told.of_len(rest.len()));
            self.give_back(bytes);
        } else {
            self.give_back(bytes);
            self.long(probed.partner, told, word, place);
        }
        Ok(())
    }

    /// Throws the message away that the context claimed.
    ///
    /// # Errors
    /// It claimed none.
    pub fn discard_claimed(&mut self, env: Env<'_>, report: Report) -> Result<(), Errno> {
        let claimed = self.claimed_by(report.context)?;
        self.drop_claimed(env, claimed);
        self.done.push(Done::well(Report { len: 0, ..report }));
        Ok(())
    }

    fn drop_claimed(&mut self, env: Env<'_>, claimed: Claimed) {
        let (_, word) = words(&claimed.bytes).unwrap_or((0, 0));
        let partner = claimed.probed.partner;
        self.give_back(claimed.bytes);
        if word & NOTICE != 0 {
            // Its sender has the memory until somebody says that it is not wanted.
            let from = self.from(env.book, partner);
            let told = Told { report: Report::default(), from, data: 0, room: 0 };
            let _ = self.fetch(partner, noticed(word).0, Task::Quiet, Place::NOWHERE, &told);
        }
    }

    /// There is room again for what could not be taken.
    pub(super) fn give_back(&mut self, bytes: Vec<u8>) {
        self.endpoint.library.give_back(bytes);
        self.stirred |= self.endpoint.way.stir();
    }

    pub(super) fn long(&mut self, partner: Partner, told: Told, word: u64, place: Place) {
        let (name, len) = noticed(word);
        if let Err(done) = self.fetch(partner, name, Task::Body(told, len), place, &told) {
            self.done.push(done);
        }
    }
}
