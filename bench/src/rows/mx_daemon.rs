//! Messages between two endpoints of one host through the daemon: the path of processes without
//! channels, such as those of guests.
//!
//! The host sides of both endpoints are rings in the benchmark's thread, on one core; the rig's
//! dispatcher, which polls, is on the other core. Each half round trip is therefore: a request that
//! crosses to the dispatcher, the copy into the ring of the receiver, and an event that crosses
//! back. A large message is offered, pulled by the other endpoint, and copied by the dispatcher
//! from region to region. An answer, an event or room for a request may take 10 s; then the row is
//! left out with the reason. So is a refused connect or a failed send, and a stream that has not
//! ended after 60 s. The endpoints belong to two NICs of the rig; the content is not checked.
//! Nothing of the matching engine takes part: the rows measure the NIC side, and not what an
//! application sees.

use std::hint::spin_loop;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_attach::local::LocalAttachment;
use causeway_channel::mx_rings::{layout, read_event, write_request};
use causeway_channel::{Receiver, Sender, Side, open};
use causeway_memory::{Mapping, View, create};
use causeway_wire::local::{ClientMessage, DaemonMessage, HELLO_NO_CHANNELS, VERSION};
use causeway_wire::mx::{Address, Event, NicId, PeerId, RegionId, Request, Status, Token, Window};

use crate::effort::Effort;
use crate::floor::{bare_ring_us, memcpy_gbps};
use crate::pin::{CLIENT, pin};
use crate::rig::{Rig, mac};
use crate::row::{Against, Guest, Plan};
use crate::rows::messages::{By, add_nic};

/// Time for any answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Key of the endpoints.
const KEY: u32 = 7;
/// Large messages that are offered at the same time.
const OFFERED: usize = 4;

/// The host side of an endpoint.
struct End {
    local: LocalAttachment,
    requests: Sender,
    events: Receiver,
    bell: OwnedFd,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl End {
    /// Opens endpoint 0 of a NIC.
    fn open(socket: &Path) -> Result<Self, String> {
        let stream = UnixStream::connect(socket).map_err(text)?;
        let mut local = LocalAttachment::new(stream.into());
        let hello = ClientMessage::Hello { version: VERSION, direct: HELLO_NO_CHANNELS };
        local.send(hello.emit(), Vec::new()).map_err(text)?;
        answer(&mut local)?;
        let open_endpoint = ClientMessage::Open { tag: 0, endpoint: 0, key: KEY };
        local.send(open_endpoint.emit(), Vec::new()).map_err(text)?;
        let (_, fds) = answer(&mut local)?;
        let mut fds = fds.into_iter();
        let (file, bell) = (fds.next().ok_or("no rings")?, fds.next().ok_or("no doorbell")?);
        let len = layout().bytes();
        let mapping = Mapping::new(file.as_fd(), 0, len as u64).map_err(text)?;
        let view = View::new(Arc::new(mapping), 0, len).map_err(text)?;
        let (requests, events) = open(&view, Side::First).map_err(text)?;
        Ok(Self { local, requests, events, bell })
    }

    fn request(&mut self, request: &Request<'_>) -> Result<(), String> {
        let since = Instant::now();
        while !write_request(&mut self.requests, request).map_err(text)? {
            spin_loop();
            if since.elapsed() > PATIENCE {
                return Err("the daemon takes no requests".into());
            }
        }
        if self.requests.must_wake() {
            rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).map_err(text)?;
        }
        Ok(())
    }

    /// Returns the next event, if there is one, and copies its bytes.
    #[inline]
    fn poll(&mut self, into: &mut [u8]) -> Result<Option<Event<'static>>, String> {
        let Some(event) = self.events.poll().map_err(text)? else { return Ok(None) };
        self.events.copy(&event, 0, into);
        let read = read_event(&event.head, event.len).map_err(text)?;
        self.events.advance(&event);
        Ok(Some(read))
    }

    /// Waits for the next event.
    #[inline]
    fn wait(&mut self, into: &mut [u8]) -> Result<Event<'static>, String> {
        let since = Instant::now();
        loop {
            for _ in 0..100_000 {
                if let Some(event) = self.poll(into)? {
                    return Ok(event);
                }
                spin_loop();
            }
            if since.elapsed() > PATIENCE {
                return Err("no event arrives".into());
            }
        }
    }

    /// Registers memory of `len` bytes.
    fn region(&mut self, len: usize) -> Result<RegionId, String> {
        let file = create("bench", len as u64).map_err(text)?;
        let mapping = Mapping::new(file.as_fd(), 0, len as u64).map_err(text)?;
        let view = View::new(Arc::new(mapping), 0, len).map_err(text)?;
        view.write(0, &vec![1; len]).map_err(text)?;
        let request = ClientMessage::Region { tag: 0, endpoint: 0, len: len as u64 };
        self.local.send(request.emit(), vec![file]).map_err(text)?;
        match answer(&mut self.local)?.0 {
            DaemonMessage::Region { code: 0, region, .. } => Ok(RegionId(region)),
            other => Err(format!("no region: {other:?}")),
        }
    }
}

/// Waits for a message of the daemon.
fn answer(local: &mut LocalAttachment) -> Result<(DaemonMessage, Vec<OwnedFd>), String> {
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        if let Some(message) = local.receive().map_err(text)? {
            let fds = message.fds.into_iter().map(causeway_host::ReceivedFd::into_fd).collect();
            return Ok((DaemonMessage::parse(&message.bytes).map_err(text)?, fds));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err("the daemon does not answer".into())
}

/// Two connected endpoints of two NICs, each with its number for the other.
fn pair() -> Result<(Rig, [End; 2], [PeerId; 2]), String> {
    let rig = Rig::new(Duration::from_millis(100));
    let sockets = [1, 2].map(|number| add_nic(&rig, number, By::Nothing));
    pin(CLIENT);
    let [mut one, mut two] = [End::open(&sockets[0])?, End::open(&sockets[1])?];
    let to = Address { nic: NicId::of(mac(2)), endpoint: 0 };
    one.request(&Request::Connect { token: Token(1), to, key: KEY, timeout_ns: None })?;
    let peer = loop {
        match one.wait(&mut [])? {
            Event::Connected { status: Status::Success, peer, .. } => break peer,
            Event::Connected { status, .. } => return Err(format!("no connection: {status:?}")),
            _ => {}
        }
    };
    let token = Token::UNREPORTED;
    one.request(&Request::Eager { peer, token, match_info: 0, data: b"" })?;
    loop {
        if let Event::Message { peer: back, .. } = two.wait(&mut [])? {
            return Ok((rig, [one, two], [peer, back]));
        }
    }
}

/// Returns half round trips of messages of `len` bytes, in microseconds.
fn half_round_us(effort: &Effort, len: usize) -> Result<Vec<f64>, String> {
    let (_rig, mut ends, peers) = pair()?;
    let (data, mut into) = (vec![1; len], vec![0; len]);
    let rounds = effort.rounds(200_000);
    effort.each(|| {
        let since = Instant::now();
        for _ in 0..rounds {
            for from in [0, 1] {
                let (peer, token) = (peers[from], Token::UNREPORTED);
                ends[from].request(&Request::Eager { peer, token, match_info: 1, data: &data })?;
                while !matches!(ends[1 - from].wait(&mut into)?, Event::Message { .. }) {}
            }
        }
        Ok(since.elapsed().as_secs_f64() * 1e6 / rounds as f64 / 2.0)
    })
}

/// Returns the rate of messages of `len` bytes that are pulled, in GB/s.
fn stream_gb_s(effort: &Effort, len: usize) -> Result<Vec<f64>, String> {
    let (_rig, [mut one, mut two], [peer, _]) = pair()?;
    let (from, into) = (one.region(len)?, two.region(len)?);
    let window = |region| Window { region, offset: 0, len: len as u32 };
    let rounds = effort.rounds(4_000);
    let offer = Request::Offer { peer, token: Token(2), match_info: 2, from: window(from) };
    effort.each(|| {
        let (since, mut sent) = (Instant::now(), 0);
        for _ in 0..OFFERED {
            one.request(&offer)?;
        }
        while sent < rounds {
            if let Some(Event::Offered { handle, .. }) = two.poll(&mut [])? {
                two.request(&Request::Pull { handle, token: Token(3), into: window(into) })?;
            }
            match one.poll(&mut [])? {
                Some(Event::Sent { status: Status::Success, .. }) => {
                    sent += 1;
                    if sent + OFFERED as u64 <= rounds {
                        one.request(&offer)?;
                    }
                }
                Some(Event::Sent { status, .. }) => return Err(format!("a send: {status:?}")),
                _ if since.elapsed() > 6 * PATIENCE => return Err("the stream stands still".into()),
                _ => spin_loop(),
            }
        }
        Ok(rounds as f64 * len as f64 / since.elapsed().as_secs_f64() / 1e9)
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for (name, len, aim) in [("8 B", 8, Some(0.6)), ("4 KiB", 4096, None), ("32 KiB", 32_768, None)]
    {
        let title = format!("MX half round trip through the daemon, {name}");
        let plan = Plan::new(title, "us", Guest::Native, move |e| half_round_us(e, len))
            .beside("bare ring", move |e| e.each(|| bare_ring_us(len)))
            .note("Both host sides in one thread, the dispatcher on the other core. A bare ring crosses once and has no third party.");
        plans.push(aim.into_iter().fold(plan, |plan, aim| plan.aim(Against::Figure, aim)));
    }
    plans.push(
        Plan::new("MX stream through the daemon, 1 MiB", "GB/s", Guest::Native, |e| {
            stream_gb_s(e, 1 << 20)
        })
        .beside("memcpy", |e| e.each(|| Ok(memcpy_gbps(1 << 20))))
        .aim(Against::Peer("memcpy"), 0.85)
        .note("Four messages offered at a time, from region to region by the dispatcher."),
    );
    plans
}
