//! Reads, writes and atomic operations, as who asks for them sees them: a question and its reply.

use causeway_message::library::{Completion, Partner};
use causeway_message::status::Status;

use super::control::{Kind, Question};
use super::done::{Done, Report};
use super::operation::Task;
use super::parcel::{Parcel, Place};
use super::receive::matters;
use super::tally::count;
use super::{BODY, CONTROL, Env, Errno, REPLY, Rdm};
use crate::abi::{FI_EAGAIN, FI_EINVAL, FI_EIO, FI_EMSGSIZE};
use crate::errno::of_status;
use crate::limits::{CALLS_MAX, CALLS_OF_ONE_MAX, INLINE_BYTES_MAX, MESSAGE_MAX};

/// Memory of another.
#[derive(Debug, Clone, Copy)]
pub struct Remote {
    /// Whose, by the number in the book.
    pub to: u64,
    /// Its key.
    pub key: u64,
    /// Where in it.
    pub address: u64,
}

/// An atomic operation.
#[derive(Debug)]
pub struct Atomic {
    /// libfabric's numbers.
    pub datatype: u8,
    /// See [`Self::datatype`].
    pub operation: u8,
    /// What is applied.
    pub operands: Vec<u8>,
    /// What is compared with.
    pub compare: Option<Vec<u8>>,
    /// Where what was there goes; none: nobody wants it.
    pub result: Option<Place>,
    /// Bytes of memory that it is about.
    pub len: usize,
}

impl Rdm {
    /// Writes to another's memory.
    ///
    /// # Errors
    /// Nobody has the number; too many bytes or operations.
    pub fn write(
        &mut self,
        env: Env<'_>,
        remote: Remote,
        report: Report,
        place: Place,
        data: Option<u64>,
    ) -> Result<(), Errno> {
        let len = self.length(&place)?;
        let long = place.len() > INLINE_BYTES_MAX;
        let kind = if long { Kind::WriteLong } else { Kind::Write };
        let question = Question { kind, data, len, ..blank(remote) };
        let more = if long { Place::NOWHERE } else { place.to_owned() };
        let (name, partner) =
            self.ask(env, remote, report, question, more.bytes(0), Place::NOWHERE)?;
        if long {
            // The reply tells how it went.
            let (info, parcel) = (BODY | u64::from(name), Parcel::bare(place));
            match self.send_to(remote.to, partner, info, Task::Ask(name), parcel) {
                Ok(operation) => {
                    let call = self.operations.named(name);
                    if let Some(Task::Call(_, _, body)) =
                        call.and_then(|call| self.operations.task(call))
                    {
                        *body = Some(operation);
                    }
                }
                Err(_) => self.fail_call(name, FI_EIO, Status::NoResources),
            }
        }
        Ok(())
    }

    /// Reads another's memory.
    ///
    /// # Errors
    /// As of [`Self::write`].
    pub fn read(
        &mut self,
        env: Env<'_>,
        remote: Remote,
        report: Report,
        place: Place,
    ) -> Result<(), Errno> {
        let len = self.length(&place)?;
        let question = Question { kind: Kind::Read, len, ..blank(remote) };
        self.ask(env, remote, report, question, &[], place).map(drop)
    }

    /// Changes another's memory.
    ///
    /// # Errors
    /// As of [`Self::write`].
    pub fn atomic(
        &mut self,
        env: Env<'_>,
        remote: Remote,
        report: Report,
        atomic: Atomic,
    ) -> Result<(), Errno> {
        let Atomic { datatype, operation, mut operands, compare, result, len } = atomic;
        let kind = match (&compare, &result) {
            (Some(_), _) => Kind::Compare,
            (None, Some(_)) => Kind::Fetch,
            (None, None) => Kind::Atomic,
        };
        operands.extend_from_slice(compare.as_deref().unwrap_or_default());
        if operands.len() > INLINE_BYTES_MAX || len > INLINE_BYTES_MAX {
            return Err(Errno(FI_EMSGSIZE));
        }
        let len = u64::try_from(len).map_err(|_| Errno(FI_EMSGSIZE))?;
        let question = Question { kind, datatype, operation, len, ..blank(remote) };
        let into = result.unwrap_or(Place::NOWHERE);
        self.ask(env, remote, report, question, &operands, into)?;
        count(&mut self.tally.atomics);
        Ok(())
    }

    fn length(&self, place: &Place) -> Result<u64, Errno> {
        let len = Some(place.len()).filter(|&len| len <= MESSAGE_MAX);
        len.and_then(|len| u64::try_from(len).ok()).ok_or(Errno(FI_EMSGSIZE))
    }

    /// Asks, and waits for the reply; that comes from who was asked, or fails with it. Gives the
    /// name of the call, and who was asked if that is known yet.
    fn ask(
        &mut self,
        env: Env<'_>,
        remote: Remote,
        report: Report,
        mut question: Question,
        more: &[u8],
        into: Place,
    ) -> Result<(u32, Option<Partner>), Errno> {
        let source = env.book.get(remote.to).ok_or(Errno(FI_EINVAL))?;
        let partner = self.reach(env.book, remote.to)?;
        let to = usize::try_from(env.book.first(remote.to)).map_err(|_| Errno(FI_EINVAL))?;
        if self.peers.len() <= to {
            self.peers.resize_with(to.saturating_add(1), Default::default);
        }
        let of_it = self.peers.get(to).map_or(0, |peer| peer.calls);
        let much = self.calls >= CALLS_MAX || of_it >= CALLS_OF_ONE_MAX;
        if much || !self.operations.has_room() {
            return Err(Errno(FI_EAGAIN));
        }
        let call = self.begin(Task::Call(report, to, None))?;
        let name = self.operations.name(call);
        question.name = name;
        let matching = (REPLY | u64::from(question.name), u64::MAX);
        self.post_receive(call, Some(source), matching, into)?;
        self.calls = self.calls.saturating_add(1);
        if let Some(peer) = self.peers.get_mut(to) {
            peer.calls = peer.calls.saturating_add(1);
        }
        let mut bytes = question.emit(more.len());
        bytes.extend_from_slice(more);
        let parcel = Parcel::bare(Place::Owned(bytes.into()));
        if self.send_to(remote.to, partner, CONTROL, Task::Ask(name), parcel).is_err() {
            self.drop_call(name);
            return Err(Errno(FI_EAGAIN));
        }
        Ok((name, partner))
    }

    /// Takes the receive of a reply back. None if it is too late for that.
    fn drop_call(&mut self, name: u32) -> Option<Report> {
        let call = self.operations.named(name)?;
        let Some(&mut Task::Call(report, to, body)) = self.operations.task(call) else {
            return None;
        };
        if !self.takes_back(call) {
            return None;
        }
        self.operations.end(call);
        self.call_ended(to);
        self.lose_body(name, body);
        Some(report)
    }

    /// A call is over: its bytes are the application's again, although who was asked may not have
    /// taken them, and said so all the same.
    fn lose_body(&mut self, name: u32, body: Option<u32>) {
        let Some(body) = body else { return };
        // Another has its number once it ended.
        if let Some(Task::Ask(of)) = self.operations.task(body)
            && *of == name
            && let Some(request) = self.operations.request(body)
        {
            let endpoint = &mut self.endpoint;
            endpoint.way.withdraw();
            endpoint.library.lose_buffer(&mut endpoint.way, request, Parcel::lose);
        }
    }

    fn call_ended(&mut self, to: usize) {
        self.calls = self.calls.saturating_sub(1);
        if let Some(peer) = self.peers.get_mut(to) {
            peer.calls = peer.calls.saturating_sub(1);
        }
    }

    /// The question of a call, or the bytes to it, did not arrive.
    pub(super) fn fail_call(&mut self, name: u32, err: i32, status: Status) {
        if let Some(report) = self.drop_call(name) {
            self.done.push(Done::failed(report, err, status));
        }
    }

    /// The reply to a call is there, or does not come.
    pub(super) fn replied(
        &mut self,
        name: u32,
        (report, to, body): (Report, usize, Option<u32>),
        (err, _): (u64, u64),
        ended: &Completion,
    ) {
        self.call_ended(to);
        self.lose_body(name, body);
        let failed = |err, status| Done::failed(report, err, status);
        self.done.push(match (ended.status, i32::try_from(err)) {
            (status, _) if !matters(status) => failed(of_status(status), status),
            (Status::Success, Ok(0)) => Done::well(report),
            (status, Ok(err)) if err > 0 => failed(err, status),
            (status, _) => failed(FI_EIO, status),
        });
    }
}

fn blank(remote: Remote) -> Question {
    let Remote { key, address, .. } = remote;
    Question { key, address, ..Question::blank(Kind::Read) }
}
