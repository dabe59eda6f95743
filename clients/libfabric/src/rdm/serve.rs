//! Questions of others about our memory, and what is answered.
//!
//! Whoever asks may be hostile: keys, addresses and lengths are checked against what the
//! application registered, and a wrong one is answered with an error.

use causeway_message::library::{Completion, Partner, Taken};
use causeway_message::limits::PEER_NUMBERS_MAX;
use causeway_message::status::Status;

use super::atomic::{self, Operands};
use super::book::NOBODY;
use super::control::{Kind, Question};
use super::done::{Done, Report};
use super::operation::{Served, Task};
use super::parcel::{Parcel, Place};
use super::receive::Told;
use super::tally::count;
use super::{CONTROL, Env, Errno, NAME_MASK, REPLY, Rdm, SPACES};
use crate::abi::{
    FI_ATOMIC_READ, FI_EINVAL, FI_EIO, FI_REMOTE_CQ_DATA, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA,
};
use crate::limits::{INLINE_BYTES_MAX, SERVED_ALL_MAX, SERVED_MAX, SERVED_OF_ONE_MIN};

impl Rdm {
    /// Answers what is asked. True: there was something.
    pub(super) fn answer(&mut self, env: Env<'_>) -> bool {
        let mut answered = false;
        // What is not taken here stays with who asks, when its part of what is kept is full: also
        // where what it asks for could not be sent now.
        while !self.held && self.endpoint.library.takes_more() {
            let endpoint = &mut self.endpoint;
            let taken = endpoint.library.take_kept(&mut endpoint.way, None, (CONTROL, SPACES));
            let Ok(Some(Taken { probed, bytes })) = taken else { return answered };
            answered = true;
            match Question::parse(&bytes) {
                Some((Question { kind: Kind::Want, name, .. }, _)) => {
                    self.asked(env, probed.partner, name);
                }
                Some((Question { kind: Kind::Lost, .. }, _)) => {
                    if let Some(source) = self.endpoint.library.source_of(probed.partner) {
                        self.break_with(source);
                    }
                }
                Some((Question { kind: Kind::Resume, len, .. }, _)) => {
                    self.resumed(env, probed.partner, len);
                }
                Some((Question { kind: Kind::NoBody, name, .. }, _)) => {
                    self.no_body(probed.partner, name);
                }
                Some((question, more)) if self.serves(probed.partner) => {
                    self.serve(env, probed.partner, question, more);
                }
                _ => {}
            }
            self.give_back(bytes);
        }
        answered
    }

    /// Whether a partner may ask for more: nobody of ours asks for so much at a time. None has
    /// more going on than what is left for others, and each has a little whatever the others have.
    fn serves(&self, partner: Partner) -> bool {
        let going_on = self.served.get(partner.peer.0 as usize).copied().unwrap_or(0);
        let left = SERVED_ALL_MAX.saturating_sub(self.served_all);
        going_on < SERVED_OF_ONE_MIN || going_on < SERVED_MAX && (going_on as usize) < left
    }

    /// One more is being done for a partner.
    fn serve_one(&mut self, peer: u32) {
        let at = peer as usize;
        if at < PEER_NUMBERS_MAX && self.served.len() <= at {
            self.served.resize(at.saturating_add(1), 0);
        }
        if let Some(going_on) = self.served.get_mut(at) {
            *going_on = going_on.saturating_add(1);
            self.served_all = self.served_all.saturating_add(1);
        }
    }

    /// One is done.
    pub(super) fn served_one(&mut self, peer: u32) {
        if let Some(going_on) = self.served.get_mut(peer as usize) {
            *going_on = going_on.saturating_sub(1);
            self.served_all = self.served_all.saturating_sub(1);
        }
    }

    fn serve(&mut self, env: Env<'_>, partner: Partner, question: Question, more: &[u8]) {
        let Question { kind, name, key, len, data, operation, .. } = question;
        let done = match kind {
            Kind::Write => self.write_here(env, &question, more).map(|()| Place::NOWHERE),
            Kind::WriteLong => {
                self.receive_here(env, partner, &question);
                return;
            }
            Kind::Want | Kind::Lost | Kind::Resume | Kind::NoBody => return,
            // SAFETY: the engine has the place until the reply is gone, and reaches one at a time.
            Kind::Read => unsafe { reached(env, &question, FI_REMOTE_READ) },
            Kind::Atomic | Kind::Fetch | Kind::Compare => apply(env, &question, more),
        };
        if done.is_ok() {
            // As `fi_cntr(3)` says, what fetches is a read.
            let fetches = matches!(kind, Kind::Read | Kind::Fetch | Kind::Compare);
            let reads = fetches || u32::from(operation) == FI_ATOMIC_READ;
            let data = data.filter(|_| kind == Kind::Write);
            if matches!(kind, Kind::Atomic | Kind::Fetch | Kind::Compare) {
                count(&mut self.tally.remote_atomics);
            }
            self.tell(
                env,
                partner,
                if reads { FI_REMOTE_READ } else { FI_REMOTE_WRITE },
                len,
                data,
            );
        }
        self.reply(partner, (name, key), done);
    }

    /// Who asked is told how it went, with bytes where it wants some.
    fn reply(&mut self, partner: Partner, (name, key): (u32, u64), done: Result<Place, Errno>) {
        let (err, place) = match done {
            Ok(place) => (0, place),
            Err(Errno(err)) => (u64::try_from(err).unwrap_or(1), Place::NOWHERE),
        };
        let info = REPLY | u64::from(name & NAME_MASK);
        let peer = partner.peer.0;
        self.serve_one(peer);
        let task = Task::Reply(peer, key);
        // Who has no room for it here asked too much at a time, and notices when we are gone.
        if self.send_headed(partner, info, (err, 0), task, place).is_err() {
            self.served_one(peer);
        }
    }

    /// Memory is registered no more: what goes on with it does so without it.
    pub fn release(&mut self, key: u64) {
        let with = self.operations.all(|task| match task {
            Task::Reply(_, of) => *of == key,
            Task::Served(served) => served.key == key,
            _ => false,
        });
        if !with.is_empty() {
            // Before the application has the memory again.
            self.endpoint.way.withdraw();
        }
        for operation in with {
            if let Some(request) = self.operations.request(operation) {
                let endpoint = &mut self.endpoint;
                endpoint.library.lose_buffer(&mut endpoint.way, request, Parcel::lose);
            }
            if let Some(Task::Served(served)) = self.operations.task(operation) {
                served.lost = true;
            }
        }
    }

    fn write_here(&self, env: Env<'_>, question: &Question, more: &[u8]) -> Result<(), Errno> {
        // SAFETY: it is dropped here, and no reference to the memory is made.
        let mut place = unsafe { reached(env, question, FI_REMOTE_WRITE) }?;
        if place.len() != more.len() {
            return Err(Errno(FI_EINVAL));
        }
        place.publish(more);
        Ok(())
    }

    /// Bytes come that are longer than a question: into the memory, or nowhere.
    fn receive_here(&mut self, env: Env<'_>, partner: Partner, question: &Question) {
        let &Question { name, key, data, .. } = question;
        let name = name & NAME_MASK;
        let Some(source) = self.endpoint.library.source_of(partner) else { return };
        let told = Told { report: Report::default(), from: NOBODY, data: 0, room: 0 };
        // SAFETY: the engine has the place until the bytes are there, and reaches one at a time.
        match unsafe { reached(env, question, FI_REMOTE_WRITE) } {
            Ok(place) => {
                let peer = partner.peer.0;
                let served = Served { source, peer, name, data, key, lost: false };
                self.serve_one(peer);
                let task = Task::Served(served);
                if self.fetch(partner, u64::from(name), task, place, &told).is_err() {
                    self.served_one(peer);
                    self.reply(partner, (name, key), Err(Errno(FI_EIO)));
                }
            }
            Err(errno) => {
                // Its sender has the memory until somebody says that it is not wanted.
                let (task, nowhere) = (Task::Reply(partner.peer.0, key), Place::NOWHERE);
                self.serve_one(partner.peer.0);
                if self.fetch(partner, u64::from(name), task, nowhere, &told).is_err() {
                    self.served_one(partner.peer.0);
                }
                self.reply(partner, (name, key), Err(errno));
            }
        }
    }

    /// A long write is over.
    pub(super) fn served(&mut self, env: Env<'_>, served: &Served, ended: &Completion) {
        let &Served { source, peer, name, data, key, lost } = served;
        self.served_one(peer);
        let Some(partner) = ended.partner else { return };
        if self.endpoint.library.source_of(partner) != Some(source) {
            return;
        }
        let whole = ended.status == Status::Success && !lost;
        if whole {
            self.tell(env, partner, FI_REMOTE_WRITE, u64::from(ended.msg_length), data);
        }
        let done = if whole { Ok(Place::NOWHERE) } else { Err(Errno(FI_EIO)) };
        self.reply(partner, (name, key), done);
    }

    /// What was done with memory is told to whose it is: counters, and who wants immediate data.
    fn tell(&mut self, env: Env<'_>, partner: Partner, what: u64, len: u64, data: Option<u64>) {
        let from = self.from(env.book, partner);
        let immediate = if data.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
        let report = Report {
            flags: FI_RMA | what | immediate,
            quiet: data.is_none(),
            len: usize::try_from(len).unwrap_or(usize::MAX),
            ..Report::default()
        };
        self.done.push(Done { from, data: data.unwrap_or(0), ..Done::well(report) });
    }
}

/// Returns the memory that a question is about.
///
/// # Safety
/// As of [`Regions::find`](super::Regions::find). The engine reaches two places at once only for a
/// message of an endpoint to itself, whose application keeps both apart.
unsafe fn reached(env: Env<'_>, question: &Question, access: u64) -> Result<Place, Errno> {
    // SAFETY: as the caller says.
    unsafe { env.regions.find(question.key, question.address, question.len, access) }
}

/// Does an atomic operation on our memory; returns what was there before, where that is wanted. The
/// application may poll the memory: it sees each value as it was before or as it is after.
fn apply(env: Env<'_>, question: &Question, more: &[u8]) -> Result<Place, Errno> {
    let Question { kind, datatype, operation, len, .. } = *question;
    let len = usize::try_from(len).map_err(|_| Errno(FI_EINVAL))?;
    if len > INLINE_BYTES_MAX {
        return Err(Errno(FI_EINVAL));
    }
    let size = atomic::size(u32::from(datatype)).ok_or(Errno(FI_EINVAL))?;
    let reads = u32::from(operation) == FI_ATOMIC_READ;
    let access = match kind {
        _ if reads => FI_REMOTE_READ,
        // A question that is answered with what was there reads it.
        Kind::Fetch | Kind::Compare => FI_REMOTE_READ | FI_REMOTE_WRITE,
        _ => FI_REMOTE_WRITE,
    };
    // SAFETY: it is dropped here, and no reference to the memory is made.
    let mut place = unsafe { reached(env, question, access) }?;
    let mut before = vec![0; len];
    for (value, at) in before.chunks_mut(size).zip((0..).step_by(size)) {
        place.load(at, value);
    }
    let (operand, compare) = match kind {
        Kind::Compare => more.split_at_checked(more.len() / 2).ok_or(Errno(FI_EINVAL))?,
        _ => (more, &[][..]),
    };
    let mut after = before.clone();
    let operands = Operands { datatype, operation, operand, compare };
    if !atomic::apply(&operands, &mut after) {
        return Err(Errno(FI_EINVAL));
    }
    if !reads {
        for (value, at) in after.chunks(size).zip((0..).step_by(size)) {
            place.store(at, value);
        }
    }
    let wanted = kind != Kind::Atomic;
    Ok(if wanted { Place::Owned(before.into()) } else { Place::NOWHERE })
}
