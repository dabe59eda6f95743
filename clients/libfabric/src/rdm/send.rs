//! Sends.

use std::ptr::NonNull;

use causeway_message::library::{Completion, Partner, RequestId};
use causeway_message::status::Status;

use super::done::{Done, Report};
use super::operation::{Operations, Task};
use super::parcel::{HEAD_BYTES, Parcel, Place};
use super::span::Span;
use super::tally::count;
use super::{BODY, Env, Errno, NAME_MASK, PLAIN, Rdm, TAG_MASK, TAGGED};
use crate::abi::{FI_EAGAIN, FI_EHOSTUNREACH, FI_EMSGSIZE, FI_INJECT, FI_TAGGED};
use crate::errno::of_status;
use crate::limits::{MESSAGE_MAX, ORDERED_MAX, SENDS_MAX};

/// A head's second word: the bytes come as a message of its own.
pub const NOTICE: u64 = 1 << 63;
/// The same: there is immediate data.
pub const DATA: u64 = 1 << 62;

/// The same: the bytes come when they are asked for.
pub const HELD: u64 = 1 << 61;

/// In place of an operation.
pub(super) const UNNAMED: u64 = u64::MAX;

/// The second word of a head before bytes.
#[inline]
fn first_word(data: Option<u64>) -> u64 {
    if data.is_some() { DATA } else { 0 }
}

/// A message to be sent.
#[derive(Debug)]
pub struct Message {
    /// To whom, by the number in the book.
    pub to: u64,
    /// What is told when it is gone; `FI_TAGGED` in its flags says that it has a tag.
    pub report: Report,
    /// Its bytes.
    pub place: Place,
    /// Immediate data.
    pub data: Option<u64>,
    /// The memory is the application's again at once.
    pub inject: bool,
    /// It is over when it was received, not when it is gone.
    pub delivered: bool,
}

/// What is handed to the engine.
#[derive(Debug)]
pub(super) struct Waiting {
    operation: u32,
    info: u64,
    parcel: Parcel,
    delivered: bool,
}

impl Waiting {
    /// Something of ours.
    pub(super) fn of(operation: u32, info: u64, parcel: Parcel) -> Self {
        Self { operation, info, parcel, delivered: false }
    }

    /// Whose it is.
    pub(super) fn operation(&self) -> u32 {
        self.operation
    }

    /// Whether the application was told that it is sent.
    pub(super) fn is_own(&self) -> bool {
        self.parcel.is_own()
    }

    /// The application may use the memory again.
    pub(super) fn own(&mut self) {
        self.parcel.own();
    }
}

impl Rdm {
    /// Sends a message.
    ///
    /// # Errors
    /// Nobody has the number; the message is too long; too much is on its way.
    #[inline]
    pub fn send(&mut self, env: Env<'_>, message: Message) -> Result<(), Errno> {
        let Message { to, report, place, data, inject, delivered } = message;
        let len = place.len();
        if len > MESSAGE_MAX {
            return Err(Errno(FI_EMSGSIZE));
        }
        let tagged = report.flags & FI_TAGGED != 0;
        let info = if tagged { TAGGED | report.tag & TAG_MASK } else { PLAIN };
        if self.sending >= SENDS_MAX || !self.operations.has_room() {
            return Err(Errno(FI_EAGAIN));
        }
        let partner = self.reach(env.book, to)?;
        let long = delivered || len > self.whole_max(partner);
        if let Some(partner) = partner.filter(|_| !long) {
            return self.send_short(partner, info, &report, (place, data, inject));
        }
        let operation = self.begin(Task::Send(report))?;
        self.sending = self.sending.saturating_add(1);
        let held = long && self.holds(partner, operation, len);
        let (info, parcel) = if long {
            if let Err(errno) = self.notice(to, partner, info, (data, len, operation), held) {
                self.drop_operation(operation);
                return Err(errno);
            }
            (BODY | u64::from(self.operations.name(operation)), Parcel::bare(place))
        } else {
            self.operations.set_words(operation, data.unwrap_or(0), first_word(data));
            let head = self.operations.head(operation).ok_or(Errno(FI_EAGAIN))?;
            // SAFETY: heads are there as long as the engine, and the operation's own is the request's.
            (info, unsafe { Parcel::headed(head, place) })
        };
        let message = Waiting { operation, info, parcel, delivered };
        match partner {
            _ if held => self.hold(env, to, message, inject),
            Some(partner) => self.hand_over(env, partner, message, inject).inspect_err(|_| {
                self.drop_operation(operation);
            }),
            None => self.queue(to, message, inject),
        }
    }

    /// Sends so many bytes of one piece, if they go with their head and are gone at once; nobody is
    /// told. False: nothing was done, and [`Self::send`] is to be called.
    #[inline(always)]
    pub fn send_quietly(
        &mut self,
        env: Env<'_>,
        to: u64,
        (tag, data): (Option<u64>, Option<u64>),
        piece: &Span,
    ) -> bool {
        let len = piece.len();
        let Some(partner) = self.known(env.book, to) else { return false };
        if len > self.whole_max(Some(partner)) {
            return false;
        }
        let info = tag.map_or(PLAIN, |tag| TAGGED | tag & TAG_MASK);
        let mut head = Operations::head_of(data.unwrap_or(0), first_word(data));
        // SAFETY: the parcel is dropped when this returns, before the head, and before the caller's
        // piece is used.
        let parcel = unsafe { Parcel::headed(NonNull::from(&mut head), Place::One(piece.alias())) };
        let endpoint = &mut self.endpoint;
        let gone = endpoint.library.send_at_once(&mut endpoint.way, partner, info, &parcel);
        if gone {
            self.tally.sent_quietly(len);
        }
        gone
    }

    /// Sends a message whose bytes go with their head: mostly it is gone at once, and there was
    /// never an operation.
    #[inline]
    fn send_short(
        &mut self,
        partner: Partner,
        info: u64,
        report: &Report,
        (place, data, inject): (Place, Option<u64>, bool),
    ) -> Result<(), Errno> {
        let bytes = Operations::head_of(data.unwrap_or(0), first_word(data));
        let mut head = bytes;
        // SAFETY: the parcel is dropped or given another head before this returns.
        let parcel = unsafe { Parcel::headed(NonNull::from(&mut head), place) };
        let endpoint = &mut self.endpoint;
        let (library, way) = (&mut endpoint.library, &mut endpoint.way);
        if library.send_at_once(way, partner, info, &parcel) {
            if report.quiet {
                self.tally.sent_quietly(report.len);
            } else {
                self.done.push(Done::well(*report));
            }
            return Ok(());
        }
        self.send_later(partner, info, report, (parcel, bytes, inject))
    }

    /// Sends a short message that could not leave at once: the engine has it while it is an
    /// operation, in whose head its own lies.
    fn send_later(
        &mut self,
        partner: Partner,
        info: u64,
        report: &Report,
        (mut parcel, bytes, inject): (Parcel, [u8; HEAD_BYTES], bool),
    ) -> Result<(), Errno> {
        let operation = self.begin(Task::Send(*report))?;
        self.operations.set_head(operation, bytes);
        let Some(head) = self.operations.head(operation) else {
            self.operations.end(operation);
            return Err(Errno(FI_EAGAIN));
        };
        // SAFETY: heads are there as long as the engine, and the operation's own is the request's.
        unsafe { parcel.set_head(head) };
        let Ok(request) = self.isend(partner, info, u64::from(operation), parcel) else {
            self.operations.end(operation);
            return Err(Errno(FI_EAGAIN));
        };
        let ended = self.endpoint.library.test(request);
        self.sending = self.sending.saturating_add(1);
        match ended {
            Ok(Some(ended)) => {
                self.operations.end(operation);
                self.sent(*report, &ended);
            }
            _ => {
                self.operations.set_request(operation, request);
                if inject {
                    self.endpoint.library.with_buffer(request, Parcel::own);
                }
            }
        }
        Ok(())
    }

    /// The longest message to somebody whose bytes go with their head.
    #[inline]
    fn whole_max(&self, partner: Option<Partner>) -> usize {
        use causeway_message::limits::CHANNEL_EAGER_BYTES_MAX;
        let known = partner.filter(|partner| *partner != Partner::SELF);
        let eager = known.map_or(CHANNEL_EAGER_BYTES_MAX, |partner| self.eager_max(partner));
        eager.saturating_sub(HEAD_BYTES)
    }

    /// The longest message that goes whole to somebody else.
    #[inline]
    pub(super) fn eager_max(&self, partner: Partner) -> usize {
        use causeway_message::library::Transport;
        let way: &dyn Transport<Parcel> = &self.endpoint.way;
        way.eager_max(partner.peer)
    }

    /// Tells of a long message.
    fn notice(
        &mut self,
        to: u64,
        partner: Option<Partner>,
        info: u64,
        (data, len, of): (Option<u64>, usize, u32),
        held: bool,
    ) -> Result<(), Errno> {
        let operation = self.begin(Task::Quiet)?;
        let name = u64::from(self.operations.name(of) & NAME_MASK);
        let len = u64::try_from(len).unwrap_or(u64::MAX) & 0xffff_ffff;
        let word = NOTICE | first_word(data) | if held { HELD } else { 0 };
        self.operations.set_words(operation, data.unwrap_or(0), word | name << 32 | len);
        let head = self.operations.head(operation).ok_or(Errno(FI_EAGAIN))?;
        // SAFETY: heads are there as long as the engine, and the operation's own is the request's.
        let parcel = unsafe { Parcel::headed(head, Place::NOWHERE) };
        let message = Waiting { operation, info, parcel, delivered: false };
        count(&mut self.tally.long_sent);
        match partner {
            Some(partner) => self.post_ours(partner, message),
            None => self.queue(to, message, false),
        }
    }

    /// A new operation.
    #[inline]
    pub(super) fn begin(&mut self, task: Task) -> Result<u32, Errno> {
        self.operations.add(task).ok_or(Errno(FI_EAGAIN))
    }

    /// Gives a message to the engine; takes note at once if it is gone at once.
    #[inline]
    pub(super) fn hand_over(
        &mut self,
        env: Env<'_>,
        partner: Partner,
        mut message: Waiting,
        inject: bool,
    ) -> Result<(), Errno> {
        if inject && message.delivered {
            // What is offered stays where it is.
            message.own();
        }
        let partner = self.current(partner);
        let Some(message) = self.postpone(partner, message, inject) else {
            return Ok(());
        };
        let request = self.post(partner, message)?;
        let library = &mut self.endpoint.library;
        match library.test(request) {
            Ok(Some(ended)) => self.ended(env, &ended),
            _ if inject => library.with_buffer(request, Parcel::own),
            _ => {}
        }
        Ok(())
    }

    /// Hands over a message whose call has returned: an error ends its operation.
    pub(super) fn hand_over_late(&mut self, env: Env<'_>, partner: Partner, message: Waiting) {
        let operation = message.operation();
        if self.hand_over(env, partner, message, false).is_err() {
            self.fail(operation, FI_EHOSTUNREACH, Status::NoResources);
        }
    }

    #[inline]
    fn post(&mut self, partner: Partner, message: Waiting) -> Result<RequestId, Errno> {
        let Waiting { operation, info, parcel, delivered } = message;
        let context = u64::from(operation);
        let made = if delivered {
            let endpoint = &mut self.endpoint;
            endpoint.library.issend(&mut endpoint.way, partner, info, context, parcel)
        } else {
            self.isend(partner, info, context, parcel)
        };
        match made {
            Ok(request) => {
                self.operations.set_request(operation, request);
                Ok(request)
            }
            Err(_) => Err(Errno(FI_EAGAIN)),
        }
    }

    /// The same with something of ours: if it cannot be done, there was no operation.
    fn post_ours(&mut self, partner: Partner, message: Waiting) -> Result<(), Errno> {
        let partner = self.current(partner);
        let Some(message) = self.postpone(partner, message, false) else { return Ok(()) };
        let operation = message.operation;
        self.post(partner, message).map(drop).inspect_err(|_| {
            self.operations.end(operation);
        })
    }

    /// An operation that was not begun.
    pub(super) fn drop_operation(&mut self, at: u32) {
        self.later.ended(at);
        if let Some(Task::Send(_)) = self.operations.end(at) {
            self.sending = self.sending.saturating_sub(1);
        }
    }

    /// Sends something of ours: a question or a reply.
    pub(super) fn send_to(
        &mut self,
        to: u64,
        partner: Option<Partner>,
        info: u64,
        task: Task,
        parcel: Parcel,
    ) -> Result<u32, Errno> {
        let operation = self.begin(task)?;
        let message = Waiting { operation, info, parcel, delivered: false };
        match partner {
            Some(partner) => self.post_ours(partner, message)?,
            None => self.queue(to, message, false)?,
        }
        Ok(operation)
    }

    /// As [`Self::send_to`], to who is connected.
    pub(super) fn send_near(
        &mut self,
        partner: Partner,
        info: u64,
        task: Task,
        parcel: Parcel,
    ) -> Result<(), Errno> {
        let operation = self.begin(task)?;
        self.post_ours(partner, Waiting { operation, info, parcel, delivered: false })
    }

    /// As [`Self::send_to`], with the operation's own head before the bytes.
    pub(super) fn send_headed(
        &mut self,
        partner: Partner,
        info: u64,
        (first, second): (u64, u64),
        task: Task,
        place: Place,
    ) -> Result<(), Errno> {
        let operation = self.begin(task)?;
        self.operations.set_words(operation, first, second);
        let head = self.operations.head(operation).ok_or(Errno(FI_EAGAIN))?;
        let ordered = place.len() <= ORDERED_MAX;
        // SAFETY: heads are there as long as the engine, and the operation's own is the request's.
        let parcel = unsafe { Parcel::headed(head, place) };
        self.post_ours(partner, Waiting { operation, info, parcel, delivered: false })?;
        // What is written after this was read is not to be read by it.
        if ordered && let Some(request) = self.operations.request(operation) {
            self.endpoint.library.with_buffer(request, Parcel::own);
        }
        Ok(())
    }

    /// An operation failed before the engine had it.
    pub(super) fn fail(&mut self, operation: u32, err: i32, status: Status) {
        self.later.ended(operation);
        match self.operations.end(operation) {
            Some(Task::Send(report)) => {
                self.sending = self.sending.saturating_sub(1);
                self.done.push(Done::failed(report, err, status));
            }
            Some(Task::Ask(call)) => self.fail_call(call, err, status),
            _ => {}
        }
    }

    /// A receive that the engine does not have any more gets nothing.
    pub(super) fn fail_receive(&mut self, operation: u32, err: i32, status: Status) {
        match self.operations.task(operation) {
            Some(Task::Multi(multi)) => {
                multi.posted = false;
                multi.end(err, status);
                self.end_multi(operation);
            }
            Some(&mut Task::Receive(report, ..)) => {
                self.operations.end(operation);
                self.done.push(Done::failed(report, err, status));
            }
            _ => {}
        }
    }

    /// A send is over.
    #[inline]
    pub(super) fn sent(&mut self, report: Report, ended: &Completion) {
        self.sending = self.sending.saturating_sub(1);
        // What found no room is the receiver's affair.
        if matches!(ended.status, Status::Success | Status::Truncated) || self.is_kept(ended) {
            self.done.push(Done::well(report));
        } else {
            self.not_sent(report, ended);
        }
    }

    #[cold]
    fn not_sent(&mut self, report: Report, ended: &Completion) {
        self.done.push(Done::failed(report, of_status(ended.status), ended.status));
        let source = ended.partner.and_then(|partner| self.endpoint.library.source_of(partner));
        if report.flags & FI_INJECT != 0
            && let Some(source) = source
        {
            self.break_with(source);
        }
    }
}
