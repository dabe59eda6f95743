//! Processes of two guests in sessions with their NICs: hostile requests, offers, rings, doorbells and
//! deregistrations in any order, by the interface behind the adapters.
//!
//! The service must touch no page that is not lent, must answer with valid messages, and must hold
//! nothing of sessions that ended. The content of offers and messages before that interface is the
//! subject of the targets of the adapter.

mod memory;

use std::collections::VecDeque;

use causeway_channel::mx_rings::{read_event, write_request};
use causeway_channel::{Receiver, Sender, Side, open};
use causeway_fabric::PollConfig;
use causeway_fabric::guest_session::{
    ANSWER_BYTES, GuestMemory, GuestSession, OfferError, REQUEST_BYTES, ServingEnd, SessionRequest,
};
use causeway_fabric::mailbox::{Mailbox, Sender as MailboxSender, mailbox};
use causeway_memory::View;
use causeway_model::{Mac, MxSpec, Name, PollPolicy, PortKind, PortSpec};
use causeway_mx::{MxService, ServeGuest};
use causeway_sim::stage::Stage;
use causeway_wire::local::{self, ClientMessage, DaemonMessage, VERSION};
use causeway_wire::mx::{Address, Event, Handle, NicId, PeerId, RegionId, Request, Token, Window};
use causeway_wire::session::SessionMessage;

use crate::Input;
use memory::{LendingMemory, PAGE, ring_pages};

/// Steps of one scenario.
const STEPS: usize = 120;
/// Sessions of a guest.
const SESSIONS_MAX: usize = 4;
/// Key of all endpoints.
const KEY: u32 = 7;
const PACING: PollConfig =
    PollConfig { policy: PollPolicy::GuestDriven, upper: 1, lower: 1, period_ns: 1, spin_ns: 0 };

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn nic(guest: usize) -> NicId {
    NicId::of([2, 0, 0, 0, 0, guest as u8])
}

/// Rings of an endpoint, as its process uses them.
struct Rings {
    endpoint: u8,
    /// Number of the offer of their memory.
    memory: u64,
    sender: Sender,
    receiver: Receiver,
}

/// A process.
struct Process {
    session: GuestSession,
    /// Rings of opens without an answer.
    opening: VecDeque<Option<(u64, View)>>,
    rings: Vec<Rings>,
}

struct Guest {
    end: ServingEnd,
    memory: LendingMemory,
    processes: Vec<Process>,
    /// Numbers that events named.
    peers: Vec<PeerId>,
    handles: Vec<Handle>,
}

struct Play {
    stage: Stage,
    guests: [Guest; 2],
    /// Notices to the shards that carry the sessions.
    carrier: MailboxSender<u64>,
    notices: Mailbox<u64>,
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let stage = Stage::new(name("g"), Box::new(MxService::new()), PACING).expect("descriptors");
    let (carrier, notices) = mailbox(256).expect("descriptors");
    let guests = [0, 1].map(|guest| {
        let port = name(&format!("m{guest}"));
        let local = MxSpec::local(Mac([2, 0, 0, 0, 0, guest as u8]), format!("m{guest}:0"));
        let spec = MxSpec { adapter: Some(name(&format!("a{guest}"))), ..local };
        let (name, group, socket) = (port.clone(), stage.group().clone(), "/staged".into());
        let (access, memory_max, kind) = (Default::default(), None, PortKind::of(spec));
        let spec = PortSpec { name, group, socket, access, memory_max, kind };
        stage.add(spec).expect("a new port");
        let end = stage.with(|shard| shard.ask(ServeGuest(port))).expect("a NIC");
        let (memory, processes) = (LendingMemory::new(), Vec::new());
        Guest { end, memory, processes, peers: vec![PeerId(0)], handles: vec![Handle(0)] }
    });
    let mut play = Play { stage, guests, carrier, notices };
    let mut input = Input::new(data);
    input.steps(STEPS, |input| play.step(input));
    play.end();
}

impl Play {
    fn step(&mut self, input: &mut Input<'_>) {
        let choice = input.u8();
        let guest = &mut self.guests[usize::from(choice >> 7)];
        match choice & 15 {
            0 if guest.processes.len() < SESSIONS_MAX => {
                let begun = GuestSession::begin(guest.end.clone(), self.carrier.clone());
                let session = begun.expect("the service runs");
                let (opening, rings) = (VecDeque::new(), Vec::new());
                guest.processes.push(Process { session, opening, rings });
                guest.ask(
                    input,
                    usize::MAX,
                    Some(ClientMessage::Hello { version: VERSION, direct: 0 }),
                );
            }
            1 => guest.leave(input.below(16)),
            2..=4 => {
                let process = input.below(16);
                guest.ask(input, process, None);
            }
            5 => guest.memory.revoke(input.below(64)),
            6 => guest.memory.write(input.u32().into(), &input.array()),
            7 | 8 => guest.request(input),
            9 => guest.poll(),
            10 => {
                if let Some(process) = guest.processes.first() {
                    process.session.ring(input.u8());
                }
            }
            11 => self.stage.advance(u64::from(input.u16()) << 20),
            _ => self.work(),
        }
    }

    /// Lets the service work; ends the sessions that it ended, as the shards of the adapters do.
    fn work(&mut self) {
        self.stage.step(16).expect("a working host");
        while self.notices.next().is_some() {}
        for guest in &mut self.guests {
            guest.memory.check();
            guest.poll();
            while let Some(ended) =
                guest.processes.iter().position(|process| process.session.is_ended_by_service())
            {
                guest.leave(ended);
            }
        }
    }

    fn end(mut self) {
        self.work();
        for guest in &mut self.guests {
            while !guest.processes.is_empty() {
                guest.leave(0);
            }
        }
        for _ in 0..8 {
            self.stage.advance(1 << 30);
            self.work();
        }
        for (number, guest) in self.guests.iter().enumerate() {
            guest.memory.check_dropped();
            let view = self.stage.view(&name(&format!("m{number}"))).expect("a port");
            for counter in ["guest_sessions", "guest_memory_bytes", "endpoints", "processes"] {
                assert_eq!(view.counters[counter], 0, "{counter} of guest {number}");
            }
        }
    }
}

impl Guest {
    /// Ends a process.
    fn leave(&mut self, choice: usize) {
        if self.processes.is_empty() {
            return;
        }
        let process = self.processes.swap_remove(choice % self.processes.len());
        process.session.revoke();
        self.memory.session_ended(process.session.number());
    }

    /// Sends a request of a process: `message`, or one that the input chooses.
    fn ask(&mut self, input: &mut Input<'_>, choice: usize, message: Option<ClientMessage>) {
        let Some(last) = self.processes.len().checked_sub(1) else { return };
        let at = if choice == usize::MAX { last } else { choice % (last + 1) };
        if !self.processes[at].session.has_room() {
            return;
        }
        let message = message.unwrap_or_else(|| client_message(input));
        let (mut memory, mut view) = (None, None);
        let is_open = matches!(message, ClientMessage::Open { .. } | ClientMessage::Resume { .. });
        if is_open || matches!(message, ClientMessage::Region { .. }) || input.below(64) == 1 {
            (memory, view) = self.offer(input, at);
        }
        let mut bytes: [u8; REQUEST_BYTES] = message.emit();
        if input.below(32) == 1 {
            bytes[input.below(local::MESSAGE_BYTES)] = input.u8();
        }
        let process = &mut self.processes[at];
        if is_open {
            let number = memory.as_ref().and_then(|memory| memory.as_ref().ok());
            process.opening.push_back(number.map(GuestMemory::number).zip(view));
        }
        process.session.push_request(SessionRequest { bytes, memory });
    }

    /// Returns the memory of a request, and its view if it may be that of rings.
    fn offer(
        &mut self,
        input: &mut Input<'_>,
        at: usize,
    ) -> (Option<Result<GuestMemory, OfferError>>, Option<View>) {
        let (slot, mut view) = (u64::from(input.u8()), None);
        let spans = match input.below(8) {
            0 => return (None, None),
            1 => return (Some(Err(OfferError::Rule("a rule"))), None),
            2 => return (Some(Err(OfferError::Scattered)), None),
            choice @ (3 | 4) => {
                view = self.memory.view(slot, choice == 4);
                LendingMemory::slot(slot, choice == 4)
            }
            5 => {
                let spans = LendingMemory::slot(slot, true);
                spans.into_iter().take(input.below(ring_pages() as usize).max(1)).collect()
            }
            6 => vec![(input.u64(), u64::from(input.u16()).max(1))],
            _ => {
                let count = input.below(5).max(1);
                let range = |_| {
                    let (page, at) = (u64::from(input.u8()), u64::from(input.u16()) % PAGE);
                    LendingMemory::pool(page, at, u64::from(input.u16()))
                };
                (0..count).map(range).collect()
            }
        };
        let session = self.processes[at].session.number();
        let lent = self.memory.lend(&self.end, session, spans);
        if input.below(16) == 1 {
            self.memory.revoke_last();
        }
        (Some(Ok(lent)), view)
    }

    /// Writes a request into rings.
    fn request(&mut self, input: &mut Input<'_>) {
        let (process, data) = (input.below(16), vec![3; usize::from(input.u16()) % 5000]);
        let request = self.ring_request(input, &data);
        let count = self.processes.len().max(1);
        let Some(process) = self.processes.get_mut(process % count) else { return };
        // A process does not write to memory that its guest uses otherwise.
        process.rings.retain(|rings| self.memory.is_lent(rings.memory));
        let Some(rings) = process.rings.last_mut() else { return };
        let written = write_request(&mut rings.sender, &request);
        if matches!(written, Ok(true)) && rings.sender.take_wake_request() {
            process.session.ring(rings.endpoint);
        }
    }

    fn ring_request<'a>(&self, input: &mut Input<'_>, data: &'a [u8]) -> Request<'a> {
        let peer = self.peers[input.below(256) % self.peers.len()];
        let token = Token(input.u8().into());
        let region = RegionId(input.u8() & 7);
        let window = |input: &mut Input<'_>| {
            let (offset, len) = (u64::from(input.u16()), u32::from(input.u16()));
            Window { region, offset, len }
        };
        match input.below(10) {
            0 | 1 => {
                let to = Address { nic: nic(input.below(2)), endpoint: input.u8() & 3 };
                Request::Connect { token, to, key: KEY, timeout_ns: Some(1 << 30) }
            }
            2 => Request::Disconnect { peer },
            3 => Request::Forget { peer },
            4 | 5 => Request::Eager { peer, token, match_info: 1, data },
            6 => Request::Offer { peer, token, match_info: 2, from: window(input) },
            7 => {
                let handle = self.handles[input.below(256) % self.handles.len()];
                Request::Pull { handle, token, into: window(input) }
            }
            8 => Request::Watch { peer, on: input.bool() },
            _ => Request::Cancel { token },
        }
    }

    /// Takes answers and events.
    fn poll(&mut self) {
        for process in &mut self.processes {
            process.session.begin_answers();
            while let Some(bytes) = process.session.next_answer() {
                process.session.pop_answer();
                process.answered(&bytes);
            }
            process.rings.retain(|rings| self.memory.is_lent(rings.memory));
            for rings in &mut process.rings {
                while let Ok(Some(event)) = rings.receiver.poll() {
                    if let Ok(event) = read_event(&event.head, event.len) {
                        self.peers.extend(peer_of(&event));
                        self.handles.extend(match event {
                            Event::Offered { handle, .. } => Some(handle),
                            _ => None,
                        });
                    }
                    if rings.receiver.advance(&event) {
                        process.session.ring(rings.endpoint);
                    }
                }
            }
        }
        self.peers.truncate(64);
        self.handles.truncate(64);
    }
}

impl Process {
    /// Takes an answer, which must be a valid message without an offer.
    fn answered(&mut self, bytes: &[u8; ANSWER_BYTES]) {
        let message = SessionMessage::<DaemonMessage>::parse(bytes).expect("a valid message");
        assert_eq!(message.offer, None);
        let DaemonMessage::Opened { code, endpoint, .. } = message.message else { return };
        let view = self.opening.pop_front().flatten().filter(|_| code == 0);
        let ends = view.and_then(|(memory, view)| Some((memory, open(&view, Side::First).ok()?)));
        self.rings.retain(|rings| code != 0 || rings.endpoint != endpoint);
        self.rings.extend(ends.map(|(memory, (sender, receiver))| Rings {
            endpoint,
            memory,
            sender,
            receiver,
        }));
    }
}

/// Returns the peer that an event introduces.
fn peer_of(event: &Event<'_>) -> Option<PeerId> {
    match event {
        Event::Connected { peer, .. } | Event::PeerSeen { peer, .. } => Some(*peer),
        _ => None,
    }
}

/// Returns a request that the input chooses.
fn client_message(input: &mut Input<'_>) -> ClientMessage {
    let (tag, endpoint) = (input.u8().into(), input.one_of(&[0, 1, 2, 3, 255]));
    let (to, nic) = (input.u8() & 3, nic(input.below(2)).0);
    match input.below(12) {
        0 => ClientMessage::Hello { version: VERSION, direct: input.u8() },
        1..=3 => ClientMessage::Open { tag, endpoint, key: KEY },
        4 => ClientMessage::Resume { tag, endpoint, key: KEY, session: 5 },
        5 => ClientMessage::Close { endpoint },
        6 => ClientMessage::Connect { endpoint, to, key: KEY, token: 9, nic },
        7 => ClientMessage::Disconnect { endpoint, to, way: input.u8().into(), nic },
        8 => ClientMessage::Find { tag, name: local::Name::new("m1:0").expect("a short name") },
        9 => ClientMessage::Name { tag, nic },
        10 => ClientMessage::Region { tag, endpoint, len: input.u16().into() },
        _ => ClientMessage::Unregion { endpoint, region: input.u8() & 7 },
    }
}

/// Returns scenarios with endpoints, messages, long messages and deregistrations.
pub fn seeds() -> Vec<Vec<u8>> {
    const OTHER: u8 = 0x80;
    const WORK: u8 = 15;
    // Greets; the request has neither memory nor a changed byte.
    let begin = |guest: u8| vec![guest, 0, 0, WORK];
    // Opens `endpoint` of the first process in `slot`.
    let open = |guest: u8, endpoint: u8, slot: u8, kind: u8| {
        vec![guest | 2, 0, 4, endpoint, 0, 0, 1, slot, kind, 0, 0, WORK]
    };
    let request = |guest: u8, data: u16, rest: &[u8]| {
        let [low, high] = data.to_le_bytes();
        [&[guest | 7, 0, low, high], rest, &[WORK, WORK]].concat()
    };
    let connected = [
        begin(0),
        begin(OTHER),
        open(0, 1, 0, 4),
        open(OTHER, 1, 1, 3),
        request(0, 0, &[0, 9, 0, 0, 1, 1]),
    ]
    .concat();
    let sent = [connected.clone(), request(0, 100, &[1, 9, 0, 4]), vec![WORK, 5, 0, WORK]].concat();
    let many = request(0, 4000, &[1, 9, 0, 4]).repeat(6);
    // Messages to rings that were taken away.
    let eager = request(0, 100, &[1, 9, 0, 4]);
    let after = [eager.clone(), vec![OTHER | 5, 0], eager.repeat(3), vec![WORK]].concat();
    // A region of a page for the first process, and a long message from page to page.
    let region = |guest: u8, page: u8| {
        let message = [guest | 2, 0, 4, 1, 0, 0, 10, 0, 16];
        [&message[..], &[0, 7, 1, page, 0, 0, 0, 16, 0, 0, WORK]].concat()
    };
    let offered = request(0, 0, &[1, 8, 0, 6, 0, 0, 0, 16]);
    let pull = request(OTHER, 0, &[0, 7, 0, 7, 1, 0, 0, 0, 16]);
    let long = [region(0, 1), region(OTHER, 2), offered, pull].concat();
    vec![
        connected.clone(),
        sent.clone(),
        [connected.clone(), after].concat(),
        [connected.clone(), long.clone()].concat(),
        [connected.clone(), long.repeat(2), vec![5, 0, OTHER | 5, 1, WORK]].concat(),
        [connected.clone(), many, vec![OTHER | 5, 0, WORK, OTHER | 1, 0, WORK]].concat(),
        [connected, vec![6, 0, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, WORK, 1, 0, WORK]].concat(),
        [begin(0), open(0, 0, 0, 6), begin(0), open(0, 2, 1, 7), begin(0), open(0, 3, 0, 5)]
            .concat(),
    ]
}
