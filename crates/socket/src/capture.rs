//! Captures of a vsock port: copies of the socket packets that its guest sends and receives.
//!
//! `crate::transmit` adds packets of the guest when their headers are checked, `crate::deliver` and
//! `crate::host` add packets when they are put into a receive buffer. A packet is shown as it is in
//! the guest's ring: data that shares a buffer is one packet, and connections with host processes
//! are shown too. The recording buffers, counts and ends as for frames
//! ([`causeway_fabric::capture`]); its link type is VSOCK. Resets that a guest has no buffer for
//! are not shown until they are delivered, and data that a guest changes meanwhile appears changed.
//!
//! The controller of captures (in `causeway-ethernet`) begins a capture by [`JoinCapture`]; it ends
//! when its recording is over or its port is deleted. A group has at most [`CAPTURES_MAX`] (16)
//! captures at vsock ports; a further capture is refused, as is a filter by properties of frames. A
//! packet without a capture costs one comparison. All is done in the thread of the shard.

use std::time::{SystemTime, UNIX_EPOCH};

use causeway_fabric::Ports;
use causeway_fabric::capture::{JoinCapture, Recording};
use causeway_memory::{Cursor, Map};
use causeway_model::{CaptureSpec, CommandError, Filter, RouteEnd};
use causeway_wire::pcapng::Direction;
use causeway_wire::vsock::{HEADER_LEN, Header};
use causeway_wire::vsock_monitor;

use crate::limits::{CAPTURES_MAX, PACKET_BYTES_MAX};
use crate::service::Socket;

/// The captures of a port.
#[derive(Debug, Default)]
pub struct PortCaptures {
    all: Vec<(CaptureSpec, Recording)>,
    /// Buffer for a packet; keeps its capacity.
    packet: Vec<u8>,
}

impl PortCaptures {
    /// Returns whether no capture runs.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds a packet with `len` bytes of data from position `data` on, in `map`.
    #[cold]
    pub(crate) fn add(
        &mut self,
        direction: Direction,
        header: &Header,
        (map, mut data): (&Map, Cursor<'_>),
        len: u32,
    ) {
        let Self { all, packet } = self;
        all.retain(|(_, recording)| !recording.is_over());
        if all.iter().all(|(spec, _)| !matches(&spec.filter, header)) {
            return;
        }
        packet.clear();
        vsock_monitor::headers(packet, header);
        let start = packet.len();
        let copied = len.min(PACKET_BYTES_MAX) as usize;
        packet.resize(start.saturating_add(copied), 0);
        // Bytes that cannot be read appear as zeroes.
        if let Some(room) = packet.get_mut(start..) {
            let _ = data.read(map, room);
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        let whole = start.saturating_add(len as usize);
        for (spec, recording) in all.iter().filter(|(spec, _)| matches(&spec.filter, header)) {
            let snap = usize::try_from(spec.snap).unwrap_or(usize::MAX);
            let keep = if snap == 0 { packet.len() } else { snap.min(packet.len()) };
            recording.add(wall_ns, direction, packet.get(..keep).unwrap_or(packet), whole);
        }
    }

    /// Adds a packet without data.
    #[cold]
    pub(crate) fn add_control(&mut self, direction: Direction, header: &Header, map: &Map) {
        self.add(direction, header, (map, Cursor::new(&[])), 0);
    }

    /// Ends the captures of a port that is deleted.
    pub(crate) fn close(&mut self) {
        self.all.drain(..).for_each(|(_, recording)| recording.close());
    }
}

/// Returns the position of the data of a packet whose header is at the start of a chain's `spans`.
pub(crate) fn data_of(spans: &[causeway_memory::Span]) -> Cursor<'_> {
    Cursor::at(spans, HEADER_LEN as u64)
}

/// Returns whether a packet passes a filter.
fn matches(filter: &Filter, header: &Header) -> bool {
    filter.port.is_none_or(|port| [header.src_port, header.dst_port].contains(&u32::from(port)))
}

impl Socket {
    /// Adds a capture to a port.
    ///
    /// # Errors
    /// The group has [`CAPTURES_MAX`] captures, or the filter names a property of frames.
    pub(crate) fn join_capture(
        &mut self,
        ports: &Ports,
        join: JoinCapture,
    ) -> Result<(), CommandError> {
        let JoinCapture { spec, recording } = join;
        if (Filter { port: None, ..spec.filter.clone() }) != Filter::default() {
            let text = "filter: socket packets have no frames: expected port alone";
            return Err(CommandError::Invalid(text.into()));
        }
        let (mut count, mut found) = (0_usize, None);
        for socket_port in self.socket_ports.iter_mut() {
            socket_port.captures.all.retain(|(_, recording)| !recording.is_over());
            count = count.saturating_add(socket_port.captures.all.len());
            let port = ports.get(socket_port.id).map(|port| &port.spec.name);
            if matches!(&spec.at, RouteEnd::Interface(name) if Some(name) == port) {
                found = Some(socket_port);
            }
        }
        if count >= CAPTURES_MAX {
            let text = format!("there are {CAPTURES_MAX} captures in this group already: end one");
            return Err(CommandError::Full(text));
        }
        let missing = || CommandError::NotFound { what: "port", name: spec.at.to_string() };
        let socket_port = found.ok_or_else(missing)?;
        socket_port.captures.all.push((spec, recording));
        Ok(())
    }
}
