//! The controller, and the list of connections for the operator: `causeway connection list` and
//! `/v1/connections`.
//!
//! The controller asks the shard of each group for pieces ([`ReadConnections`]) until the page is
//! full, in the thread of the request, which blocks; the shard answers in its dispatcher's thread.
//! A page beyond its limit, an unknown group and an unknown port are errors. The next page begins
//! at the slot where this one ended: connections that begin or end meanwhile may be absent or
//! appear twice. Nothing is changed. A shard views at most [`CONNECTIONS_VIEWED_AT_ONCE`] (16)
//! connections and visits [`SLOTS_VISITED_AT_ONCE`] (1,024) slots of its table between two turns,
//! so that a list of many connections delays no traffic. Forwards are in [`crate::forwards`].

use causeway_fabric::{Control, Controller, Ports};
use causeway_model::commands::connections::{List, PagePosition};
use causeway_model::limits::CONNECTIONS_PAGE_MAX;
use causeway_model::{
    CommandError, ConnectionEnd, ConnectionPage, ConnectionState, ConnectionView, Name, NounCall,
    NounDefinition, NounError, NounResult, RequestDispatch, ServiceRequest, TypedRequest,
};
use causeway_wire::vsock::Type;

use crate::conn::{Conn, Party, Phase, Role};
use crate::forwards::{self, Forwards};
use crate::limits::{CONNECTIONS_VIEWED_AT_ONCE, SLOTS_VISITED_AT_ONCE};
use crate::remote::Peers;
use crate::service::NAME;
use crate::table::ConnTable;

/// The nouns of the service.
pub(crate) const NOUNS: &[NounDefinition] = &[
    NounDefinition::new("connections", connections),
    NounDefinition::new("forwards", forwards::forwards),
    NounDefinition::new("forwarder", forwards::forwarder).for_reports(),
];

/// Answers `/v1/connections`.
fn connections(call: &NounCall<'_>) -> NounResult {
    match (call.path, call.method) {
        ([], "GET") => call.show(List::default()),
        ([], "POST") => call.show(call.body::<List>()?),
        ([], _) => Err(NounError::Method("GET, POST")),
        _ => Err(NounError::Path),
    }
}

/// Asks a shard for connections from a slot of its table on.
#[derive(Debug)]
pub(crate) struct ReadConnections {
    /// The filter.
    filter: List,
    /// The first slot.
    slot: u32,
    /// Most connections.
    most: usize,
}

/// A piece of the list of a shard.
#[derive(Debug)]
pub(crate) struct ConnectionPiece {
    connections: Vec<ConnectionView>,
    /// First slot of the next piece; `None` at the end of the table.
    next: Option<u32>,
}

impl TypedRequest for ReadConnections {
    type Answer = ConnectionPiece;
}

/// Controller of the socket service.
#[derive(Debug, Default)]
pub(crate) struct SocketController {
    forwards: Forwards,
}

impl Controller for SocketController {
    fn ask(&mut self, control: &mut Control<'_>, request: ServiceRequest) -> RequestDispatch {
        let request = RequestDispatch::new(request).on(|list| page(control, &list));
        self.forwards.ask(control, request)
    }
}

/// Returns a page of the list.
fn page(control: &Control<'_>, list: &List) -> Result<ConnectionPage, CommandError> {
    let limit = list.limit.unwrap_or(CONNECTIONS_PAGE_MAX);
    if !(1..=CONNECTIONS_PAGE_MAX).contains(&limit) {
        let text = format!("limit {limit}: expected 1 to {CONNECTIONS_PAGE_MAX}");
        return Err(CommandError::Invalid(text));
    }
    if let Some(group) = &list.group {
        control.group(group)?;
    }
    if let Some(port) = &list.port {
        control.port(port)?;
    }
    let mut connections = Vec::new();
    for shard in control.shards(NAME) {
        let is_wanted = list.group.as_ref().is_none_or(|group| *group == shard.group);
        let is_past = list.after.as_ref().is_some_and(|after| shard.group < after.group);
        if !is_wanted || is_past {
            continue;
        }
        let start = list.after.as_ref().filter(|after| after.group == shard.group);
        let mut slot = Some(start.map_or(0, |after| after.slot));
        while let Some(first) = slot {
            let most = limit.saturating_sub(connections.len());
            if most == 0 {
                let next = PagePosition { group: shard.group.clone(), slot: first };
                return Ok(ConnectionPage { connections, next: Some(next) });
            }
            let request = ReadConnections { filter: list.clone(), slot: first, most };
            let piece = control.ask(&shard, request)?;
            connections.extend(piece.connections);
            slot = piece.next;
        }
    }
    Ok(ConnectionPage { connections, next: None })
}

/// Returns a piece of the connections in a table.
pub(crate) fn piece(
    table: &ConnTable,
    ports: &Ports,
    peers: &Peers,
    now_ns: u64,
    request: &ReadConnections,
) -> ConnectionPiece {
    let most = request.most.min(CONNECTIONS_VIEWED_AT_ONCE);
    let mut connections = Vec::new();
    let mut visited = 0;
    for (slot, conn) in table.slots_after(request.slot) {
        if connections.len() >= most || visited >= SLOTS_VISITED_AT_ONCE {
            return ConnectionPiece { connections, next: Some(slot) };
        }
        visited = visited.saturating_add(1);
        let view = conn.and_then(|conn| view(conn, ports, peers, now_ns));
        connections.extend(view.filter(|view| fits(view, &request.filter)));
    }
    ConnectionPiece { connections, next: None }
}

/// Returns whether a connection fits a filter.
fn fits(view: &ConnectionView, filter: &List) -> bool {
    let ends = [&view.caller, &view.callee];
    let has = |test: &dyn Fn(&ConnectionEnd) -> bool| ends.iter().any(|end| test(end));
    filter.state.is_none_or(|state| state == view.state)
        && filter.port.as_ref().is_none_or(|port| has(&|end| end.port.as_ref() == Some(port)))
        && filter.cid.is_none_or(|cid| has(&|end| end.cid == cid))
        && filter.number.is_none_or(|number| has(&|end| end.number == number))
}

/// Returns the view of a connection; `None` if its guests' ports are gone.
fn view(conn: &Conn, ports: &Ports, peers: &Peers, now_ns: u64) -> Option<ConnectionView> {
    let sides = [Role::Caller, Role::Callee].map(|role| conn.side(role));
    let owner = sides.iter().find_map(|side| side.owner())?;
    let state = match conn.phase {
        Phase::Requested => ConnectionState::Requested,
        Phase::Open if sides.iter().any(|side| side.shut != 0 || side.is_gone) => {
            ConnectionState::Closing
        }
        Phase::Open => ConnectionState::Open,
    };
    Some(ConnectionView {
        group: ports.get(owner)?.spec.group.clone(),
        kind: match conn.kind {
            Type::Stream => "stream",
            Type::Seqpacket => "seqpacket",
        }
        .into(),
        state,
        age_seconds: now_ns.saturating_sub(conn.opened_ns) as f64 / 1e9,
        caller: end(conn, ports, peers, Role::Caller),
        callee: end(conn, ports, peers, Role::Callee),
    })
}

/// Returns the view of a side.
fn end(conn: &Conn, ports: &Ports, peers: &Peers, role: Role) -> ConnectionEnd {
    let side = conn.side(role);
    let name = |id| ports.get(id).map(|port| port.spec.name.clone());
    let (port, link): (Option<Name>, _) = match &side.party {
        Party::Remote(end) => (None, peers.name_of(end.link).cloned()),
        Party::Guest(_) | Party::Host(_) => (side.owner().and_then(name), None),
    };
    ConnectionEnd {
        port,
        link,
        cid: side.cid,
        number: side.port,
        queued_bytes: side.pending.iter().map(|pending| pending.left() as u64).sum(),
        unread_bytes: side.credit.unread(),
        credit_bytes: side.credit.free(),
    }
}
