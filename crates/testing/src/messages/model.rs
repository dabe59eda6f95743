//! A model of the operations of two endpoints: a message to the other endpoint arrives when both
//! make progress, a message to the sender itself at once.
//!
//! The model has no timing, no limits of queues and no lost peers: it predicts which messages match
//! and which bytes arrive, not when. A test runs the same operations on the model and on a real
//! pair of endpoints ([`EndpointPair`]) and compares the results. A difference panics. `Cancel` and
//! `Forget` of an index that does not exist have no effect; an endpoint other than 0 and 1 panics.
//! Users: random tests of `message` and a fuzz target, in one thread.

use causeway_channel::Layout;
use causeway_message::library::{LibraryOptions, Partner, RequestId};
use causeway_message::limits::CHANNEL_EAGER_BYTES_MAX;
use causeway_wire::mx::Status;

use super::{A, B, Back, End, EndpointPair, content, cut, cut_room, given, options};

/// An operation of an application, at endpoint 0 or 1 (`from`, `at`).
///
/// `own`: the message goes to the sender itself; `info` and `mask`: match information; `len`: bytes
/// of the message; `sync`: a synchronous send; `room`: bytes of the receive; `which`: index of the
/// receive of the endpoint, in order of posting, and for `Forget` also of the send, in order of all
/// sends; an index beyond the list has no effect. `Run` makes progress at both endpoints.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the variants are the calls of the library with their arguments")]
pub enum Op {
    Send { from: usize, own: bool, info: u64, len: usize, sync: bool },
    Receive { at: usize, info: u64, mask: u64, room: usize },
    Cancel { at: usize, which: usize },
    Forget { at: usize, which: usize },
    Probe { at: usize, info: u64, mask: u64 },
    Run,
}

#[derive(Debug, Clone)]
struct SentMessage {
    number: u64,
    from: usize,
    own: bool,
    info: u64,
    len: usize,
    sync: bool,
    /// Length of the receive that took it.
    taken: Option<usize>,
    arrived: bool,
    id: RequestId,
    forgotten: bool,
}

#[derive(Debug)]
struct PostedReceive {
    info: u64,
    mask: u64,
    room: usize,
    back: Back,
    id: RequestId,
    taken: Option<usize>,
    gone: bool,
    forgotten: bool,
}

#[derive(Default)]
struct MessageModel {
    sends: Vec<SentMessage>,
    receives: [Vec<PostedReceive>; 2],
    /// Numbers of the messages that arrived and were not matched.
    unexpected: [Vec<usize>; 2],
}

impl MessageModel {
    fn arrive(&mut self, send: usize) {
        let sent = &mut self.sends[send];
        sent.arrived = true;
        let at = if sent.own { sent.from } else { 1 - sent.from };
        let open = self.receives[at]
            .iter_mut()
            .find(|r| !r.gone && r.taken.is_none() && sent.info & r.mask == r.info);
        match open {
            Some(receive) => {
                receive.taken = Some(send);
                sent.taken = Some(receive.room);
            }
            None => self.unexpected[at].push(send),
        }
    }

    fn post(&mut self, at: usize, mut posted: PostedReceive) {
        let sends = &mut self.sends;
        let found = self.unexpected[at]
            .iter()
            .position(|&send| sends[send].info & posted.mask == posted.info);
        if let Some(found) = found {
            let send = self.unexpected[at].remove(found);
            sends[send].taken = Some(posted.room);
            posted.taken = Some(send);
        }
        self.receives[at].push(posted);
    }

    fn run(&mut self) {
        for send in 0..self.sends.len() {
            if !self.sends[send].arrived {
                self.arrive(send);
            }
        }
    }

    fn check_sends(&self, pair: &mut EndpointPair) {
        for sent in self.sends.iter().filter(|sent| !sent.forgotten) {
            let end = if sent.from == 0 { &mut pair.a } else { &mut pair.b };
            let eager = !sent.own && !sent.sync && sent.len <= CHANNEL_EAGER_BYTES_MAX;
            let done = end.library.test(sent.id).unwrap();
            if !eager && sent.taken.is_none() {
                assert!(done.is_none(), "ended unmatched: {sent:?}");
                continue;
            }
            let done = done.unwrap_or_else(|| panic!("not ended: {sent:?}"));
            let taken = if eager { sent.len } else { sent.len.min(sent.taken.unwrap()) };
            let cut = taken < sent.len;
            assert_eq!(done.status, if cut { Status::Truncated } else { Status::Success });
            assert_eq!((done.xfer_length as usize, done.msg_length as usize), (taken, sent.len));
            assert_eq!((done.match_info, done.context), (sent.info, sent.number));
        }
    }

    fn check_receives(&self, pair: &mut EndpointPair) {
        for at in 0..2 {
            let end = if at == 0 { &mut pair.a } else { &mut pair.b };
            for posted in self.receives[at].iter().filter(|posted| !posted.gone) {
                let taken = posted.taken.map(|send| &self.sends[send]);
                if !posted.forgotten {
                    let done = end.library.test(posted.id).unwrap();
                    let Some(sent) = taken else {
                        assert!(done.is_none(), "ended unmatched: {posted:?}");
                        continue;
                    };
                    let done = done.unwrap_or_else(|| panic!("not ended: {posted:?}"));
                    let from = if sent.own { Partner::SELF } else { [A, B][sent.from] };
                    assert_eq!(done.partner, Some(from));
                    assert_eq!(done.match_info, sent.info);
                    assert_eq!(done.msg_length as usize, sent.len);
                    assert_eq!(done.xfer_length as usize, sent.len.min(posted.room));
                    let cut = posted.room < sent.len;
                    assert_eq!(done.status, if cut { Status::Truncated } else { Status::Success });
                }
                if let Some(sent) = taken {
                    let len = sent.len.min(posted.room);
                    let got = given(&posted.back);
                    assert!(got[..len] == content(sent.number, sent.len)[..len], "{sent:?}");
                    assert!(got[len..].iter().all(|&byte| byte == 0xaa), "more than was sent");
                }
            }
        }
    }
}

/// Plays operations and compares the results with the model. The lowest `contexts` bits of the
/// match information are the context id; receives must cover them.
///
/// # Panics
/// A result differs.
pub fn play(ops: Vec<Op>, layout: Layout, contexts: u8) {
    let own = |endpoint| LibraryOptions { context_bits: contexts, ..options(endpoint) };
    let pair = EndpointPair::with(layout, own(1), own(2));
    let mut run = ModelRun { pair, model: MessageModel::default() };
    for op in ops {
        run.apply(op);
    }
    run.finish();
}

/// The endpoints and their model.
struct ModelRun {
    pair: EndpointPair,
    model: MessageModel,
}

impl ModelRun {
    fn end(&mut self, at: usize) -> &mut End {
        if at == 0 { &mut self.pair.a } else { &mut self.pair.b }
    }

    /// Applies an operation to an endpoint and to the model.
    fn apply(&mut self, op: Op) {
        match op {
            Op::Send { from, own, info, len, sync } => self.send(from, own, info, len, sync),
            Op::Receive { at, info, mask, room } => self.receive(at, info, mask, room),
            Op::Cancel { at, which } => self.cancel(at, which),
            Op::Forget { at, which } => self.forget(at, which),
            Op::Probe { at, info, mask } => self.probe(at, info, mask),
            Op::Run => self.run(),
        }
    }

    fn send(&mut self, from: usize, own: bool, info: u64, len: usize, sync: bool) {
        let number = self.model.sends.len() as u64;
        let to = if own { Partner::SELF } else { [B, A][from] };
        let data = cut(&content(number, len), 1 + len / 2);
        let End { library, ways } = self.end(from);
        let id = if sync {
            library.issend(ways, to, info, number, data).unwrap()
        } else {
            library.isend(ways, to, info, number, data).unwrap()
        };
        let (taken, arrived, forgotten) = (None, false, false);
        let sent =
            SentMessage { number, from, own, info, len, sync, taken, arrived, id, forgotten };
        self.model.sends.push(sent);
        if own {
            self.model.arrive(number as usize);
        }
    }

    fn receive(&mut self, at: usize, info: u64, mask: u64, room: usize) {
        let (pad, back) = cut_room(room, 1 + room / 3);
        let End { library, ways } = self.end(at);
        let id = library.irecv(ways, info, mask, 0, pad).unwrap();
        let (taken, gone, forgotten) = (None, false, false);
        self.model.post(at, PostedReceive { info, mask, room, back, id, taken, gone, forgotten });
    }

    fn cancel(&mut self, at: usize, which: usize) {
        let Some(posted) = self.model.receives[at].get_mut(which) else { return };
        if !posted.gone && !posted.forgotten {
            let End { library, ways } = if at == 0 { &mut self.pair.a } else { &mut self.pair.b };
            let expected = posted.taken.is_none();
            assert_eq!(library.cancel(ways, posted.id), Ok(expected));
            posted.gone = expected;
        }
    }

    fn forget(&mut self, at: usize, which: usize) {
        let EndpointPair { a, b, .. } = &mut self.pair;
        let ends = [a, b];
        if let Some(posted) = self.model.receives[at].get_mut(which)
            && !posted.gone
            && !posted.forgotten
        {
            ends[at].library.forget(posted.id).unwrap();
            posted.forgotten = true;
        }
        if let Some(sent) = self.model.sends.get_mut(which)
            && !sent.forgotten
        {
            ends[sent.from].library.forget(sent.id).unwrap();
            sent.forgotten = true;
        }
    }

    fn probe(&mut self, at: usize, info: u64, mask: u64) {
        let found = self.end(at).library.iprobe(info, mask).unwrap();
        let expected = self.model.unexpected[at]
            .iter()
            .map(|&send| &self.model.sends[send])
            .find(|sent| sent.info & mask == info);
        assert_eq!(
            found.map(|found| (found.match_info, found.len as usize)),
            expected.map(|sent| (sent.info, sent.len))
        );
    }

    fn run(&mut self) {
        self.pair.run();
        self.model.run();
    }

    /// Makes progress to the end and compares all requests and messages.
    fn finish(mut self) {
        self.run();
        let Self { mut pair, model } = self;
        model.check_sends(&mut pair);
        model.check_receives(&mut pair);
        // The library has no more messages and requests than the model.
        for (at, end) in [&mut pair.a, &mut pair.b].into_iter().enumerate() {
            assert_eq!(end.library.unexpected(), model.unexpected[at].len());
            let posted = model.receives[at].iter().filter(|r| !r.gone && r.taken.is_none()).count();
            let open = |sent: &&SentMessage| {
                let eager = !sent.own && !sent.sync && sent.len <= CHANNEL_EAGER_BYTES_MAX;
                sent.from == at && !eager && sent.taken.is_none()
            };
            let waiting = model.sends.iter().filter(open).count();
            assert_eq!(end.library.requests(), posted + waiting, "endpoint {at}");
            assert_eq!(end.library.ipeek(), None);
        }
    }
}
