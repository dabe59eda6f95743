//! The host side of an endpoint: its rings, and the connection to the dispatcher behind them.
//!
//! `super` and `many` open an [`End`] for each endpoint 0 of a NIC and drive it in the benchmark's
//! thread. A wait for an answer, an event or room ends with an error after [`PATIENCE`] (10 s); a
//! refusal is an error with the answer.

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
use causeway_wire::mx::{Address, Event, PeerId, RegionId, Request, Status, Token};

use super::guest::GuestProcess;
use super::{PATIENCE, text};

/// Key of the endpoints.
pub const KEY: u32 = 7;

/// The process of an endpoint.
pub enum Process {
    /// A host process, with its socket and the doorbell of its endpoint.
    Host(Box<LocalAttachment>, OwnedFd),
    /// A process in a guest with a native driver.
    Guest(Box<GuestProcess>),
}

/// The host side of endpoint 0 of a NIC.
pub struct End {
    process: Process,
    requests: Sender,
    events: Receiver,
}

impl End {
    /// Opens the endpoint as a host process without channels.
    pub fn of_host(socket: &Path) -> Result<Self, String> {
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
        Self::over(Process::Host(Box::new(local), bell), &view)
    }

    /// Opens the endpoint as a process in the guest of an adapter.
    pub fn of_guest(socket: &Path, mac: [u8; 6]) -> Result<Self, String> {
        let mut guest = GuestProcess::start(socket, mac)?;
        let view = guest.open(KEY)?;
        Self::over(Process::Guest(Box::new(guest)), &view)
    }

    fn over(process: Process, rings: &View) -> Result<Self, String> {
        let (requests, events) = open(rings, Side::First).map_err(text)?;
        Ok(Self { process, requests, events })
    }

    fn ring(&mut self) -> Result<(), String> {
        match &mut self.process {
            Process::Host(_, bell) => {
                rustix::io::write(bell, &1_u64.to_ne_bytes()).map(drop).map_err(text)
            }
            Process::Guest(guest) => guest.ring(),
        }
    }

    /// Writes a request, and rings if the dispatcher sleeps. Returns false if the ring has no room.
    #[inline]
    pub fn try_request(&mut self, request: &Request<'_>) -> Result<bool, String> {
        if !write_request(&mut self.requests, request).map_err(text)? {
            return Ok(false);
        }
        if self.requests.take_wake_request() {
            self.ring()?;
        }
        Ok(true)
    }

    /// Writes a request, and waits for room.
    pub fn request(&mut self, request: &Request<'_>) -> Result<(), String> {
        let since = Instant::now();
        while !self.try_request(request)? {
            spin_loop();
            if since.elapsed() > PATIENCE {
                return Err("the daemon takes no requests".into());
            }
        }
        Ok(())
    }

    /// Returns the next event, if there is one, and copies its bytes as far as they fit.
    #[inline]
    pub fn poll(&mut self, into: &mut [u8]) -> Result<Option<Event<'static>>, String> {
        let Some(event) = self.events.poll().map_err(text)? else { return Ok(None) };
        self.events.copy(&event, 0, into);
        let read = read_event(&event.head, event.len).map_err(text)?;
        if self.events.advance(&event) {
            self.ring()?;
        }
        Ok(Some(read))
    }

    /// Waits for the next event.
    #[inline]
    pub fn wait(&mut self, into: &mut [u8]) -> Result<Event<'static>, String> {
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

    /// Registers new memory of `len` bytes.
    pub fn region(&mut self, len: usize) -> Result<RegionId, String> {
        match &mut self.process {
            Process::Host(local, _) => {
                let file = create("bench", len as u64).map_err(text)?;
                let mapping = Mapping::new(file.as_fd(), 0, len as u64).map_err(text)?;
                let view = View::new(Arc::new(mapping), 0, len).map_err(text)?;
                view.write(0, &vec![1; len]).map_err(text)?;
                let request = ClientMessage::Region { tag: 0, endpoint: 0, len: len as u64 };
                local.send(request.emit(), vec![file]).map_err(text)?;
                region_of(answer(local)?.0)
            }
            Process::Guest(guest) => region_of(guest.region(len as u64)?),
        }
    }

    /// Connects to endpoint 0 of the NIC of `other`, and sends it an empty message. Returns the
    /// numbers that the two have for each other.
    pub fn connect(&mut self, other: &mut Self, to: Address) -> Result<[PeerId; 2], String> {
        self.request(&Request::Connect { token: Token(1), to, key: KEY, timeout_ns: None })?;
        let peer = loop {
            match self.wait(&mut [])? {
                Event::Connected { status: Status::Success, peer, .. } => break peer,
                Event::Connected { status, .. } => {
                    return Err(format!("no connection: {status:?}"));
                }
                _ => {}
            }
        };
        let token = Token::UNREPORTED;
        self.request(&Request::Eager { peer, token, match_info: 0, data: b"" })?;
        loop {
            if let Event::Message { peer: back, .. } = other.wait(&mut [])? {
                return Ok([peer, back]);
            }
        }
    }
}

fn region_of(answer: DaemonMessage) -> Result<RegionId, String> {
    match answer {
        DaemonMessage::Region { code: 0, region, .. } => Ok(RegionId(region)),
        other => Err(format!("no region: {other:?}")),
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
