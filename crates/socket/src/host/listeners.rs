//! The listeners of a port's host socket: accepts processes and reads their `CONNECT` lines.

use std::path::Path;

use causeway_fabric::host::{HostListener, HostStream};
use causeway_fabric::rate::Bucket;
use causeway_fabric::{Context, PortId};
use causeway_model::CommandError;
use causeway_model::message_socket;
use causeway_wire::vsock::Type;

use super::{HostDoor, HostToken, Knock, Listening};
use crate::connect_line::parse_connect;
use crate::counters::bump;
use crate::limits::{
    DOOR_SHUT_NS, HANDSHAKE_BYTES_MAX, HANDSHAKE_NS_MAX, HANDSHAKES_MAX, HANDSHAKES_PER_TURN,
    HOST_CONNECTS_PER_SECOND, HOST_PORT_FIRST,
};
use crate::service::Socket;

impl Socket {
    /// Opens the listeners for processes that connect to a port's guest.
    ///
    /// # Errors
    /// A socket cannot be bound or watched.
    pub(crate) fn open_door(
        &mut self,
        cx: &mut Context<'_>,
        port: PortId,
        path: &Path,
    ) -> Result<HostDoor, CommandError> {
        let streams = self.open_listener(cx, port, path, Type::Stream)?;
        let messages = match self.open_listener(cx, port, &message_socket(path), Type::Seqpacket) {
            Ok(messages) => messages,
            Err(error) => {
                self.tokens.remove(streams.token);
                return Err(error);
            }
        };
        let path = path.to_owned();
        let connects = Bucket::default();
        Ok(HostDoor { path, streams, messages, connects, knocks: 0, next_port: HOST_PORT_FIRST })
    }

    fn open_listener(
        &mut self,
        cx: &mut Context<'_>,
        port: PortId,
        path: &Path,
        kind: Type,
    ) -> Result<Listening, CommandError> {
        let listener = match kind {
            Type::Stream => HostListener::bind(path)?,
            Type::Seqpacket => HostListener::bind_messages(path)?,
        };
        let token = self.tokens.reserve();
        let watch = cx.watch_listener(std::os::fd::AsFd::as_fd(&listener), token);
        let watch = watch.map_err(|e| {
            self.tokens.free.push(token);
            CommandError::Host(format!("{}: {e}", path.display()))
        })?;
        self.tokens.set(token, HostToken::Door(port, kind));
        Ok(Listening { listener, watch: Some(watch), token })
    }

    /// Closes the listeners, and drops the handshakes in progress.
    pub(crate) fn close_door(&mut self, door: HostDoor) {
        self.tokens.remove(door.messages.token);
        let Some(HostToken::Door(port, _)) = self.tokens.remove(door.streams.token) else { return };
        for (deadline_ns, token) in std::mem::take(&mut self.tokens.knocking) {
            match self.tokens.get(token) {
                Some(HostToken::Knock(knock)) if knock.deadline_ns != deadline_ns => {}
                Some(HostToken::Knock(knock)) if knock.port == port => {
                    self.tokens.remove(token);
                }
                Some(HostToken::Knock(_)) => self.tokens.knocking.push_back((deadline_ns, token)),
                _ => {}
            }
        }
        self.tokens.shut.retain(|(_, shut)| *shut != port);
    }

    /// Accepts waiting processes, at most [`HANDSHAKES_PER_TURN`]; the level-triggered watch
    /// reports the rest again.
    pub(super) fn answer_door(&mut self, cx: &mut Context<'_>, port: PortId, kind: Type) {
        for _ in 0..HANDSHAKES_PER_TURN {
            let Some(door) = self.seats.get_mut(port).and_then(|s| s.door.as_mut()) else { return };
            let room = door.knocks < HANDSHAKES_MAX;
            let listening = match kind {
                Type::Stream => &mut door.streams,
                Type::Seqpacket => &mut door.messages,
            };
            let accepted = match listening.listener.accept() {
                Ok(None) => return,
                other => other,
            };
            let wait_ns = door.connects.charge(cx.now_ns, HOST_CONNECTS_PER_SECOND, 1);
            let let_in = match accepted {
                Ok(Some(stream)) => room && self.let_in(cx, port, stream, kind).is_ok(),
                _ => false,
            };
            if !let_in {
                self.turned_away(port);
            }
            if wait_ns > 0 {
                return self.shut_door(cx, port);
            }
        }
    }

    /// Pauses the listeners of a port, to which processes connect too fast.
    fn shut_door(&mut self, cx: &mut Context<'_>, port: PortId) {
        let Some(seat) = self.seats.get_mut(port) else { return };
        let Some(door) = seat.door.as_mut() else { return };
        (door.streams.watch, door.messages.watch) = (None, None);
        bump(&mut seat.counters.host_pauses);
        self.tokens.shut.push_back((cx.now_ns.saturating_add(DOOR_SHUT_NS), port));
    }

    /// Resumes the listeners whose pause has ended.
    pub(crate) fn open_doors(&mut self, cx: &mut Context<'_>) {
        while let Some(&(_, port)) = self.tokens.shut.front().filter(|(at, _)| *at <= cx.now_ns) {
            self.tokens.shut.pop_front();
            let Some(door) = self.seats.get_mut(port).and_then(|s| s.door.as_mut()) else {
                continue;
            };
            let mut watched = true;
            for listening in [&mut door.streams, &mut door.messages] {
                let listener = std::os::fd::AsFd::as_fd(&listening.listener);
                listening.watch = cx.watch_listener(listener, listening.token).ok();
                watched &= listening.watch.is_some();
            }
            if !watched {
                // No descriptor is free now: retry later.
                let at = cx.now_ns.saturating_add(DOOR_SHUT_NS);
                self.tokens.shut.push_back((at, port));
            }
        }
    }

    /// Returns the end of the first pause.
    pub(crate) fn doors_ns(&self) -> Option<u64> {
        self.tokens.shut.front().map(|(at, _)| *at)
    }

    /// Begins the handshake of a process.
    fn let_in(
        &mut self,
        cx: &mut Context<'_>,
        port: PortId,
        stream: HostStream,
        kind: Type,
    ) -> std::io::Result<()> {
        let token = self.tokens.reserve();
        let watch = cx.watch(std::os::fd::AsFd::as_fd(&stream), token);
        let watch = watch.inspect_err(|_| self.tokens.free.push(token))?;
        if let Some(door) = self.seats.get_mut(port).and_then(|s| s.door.as_mut()) {
            door.knocks = door.knocks.saturating_add(1);
        }
        let deadline_ns = cx.now_ns.saturating_add(HANDSHAKE_NS_MAX);
        let knock = Knock { port, kind, stream, _watch: watch, deadline_ns };
        self.tokens.set(token, HostToken::Knock(knock));
        self.tokens.knocking.push_back((deadline_ns, token));
        self.knock(cx, token);
        Ok(())
    }

    /// Reads the `CONNECT` line; any other content ends the handshake.
    pub(super) fn knock(&mut self, cx: &mut Context<'_>, token: u32) {
        let Some(HostToken::Knock(knock)) = self.tokens.get(token) else { return };
        let mut bytes = [0_u8; HANDSHAKE_BYTES_MAX];
        let seen = match knock.stream.peek_bytes(&mut bytes) {
            Ok(None) => return,
            Ok(Some(seen)) => bytes.get(..seen).unwrap_or(&[]),
            Err(_) => &[],
        };
        let end = seen.iter().position(|&b| b == b'\n');
        // A message is complete even without a newline.
        let end = match knock.kind {
            Type::Stream => end,
            Type::Seqpacket => Some(end.unwrap_or(seen.len())),
        };
        if end.is_none() && !seen.is_empty() && seen.len() < HANDSHAKE_BYTES_MAX {
            return;
        }
        let line = end.and_then(|end| seen.get(..end));
        let wanted = line.and_then(parse_connect);
        let taken = line.map_or(0, |l| l.len().saturating_add(1));
        let Some(knock) = self.end_knock(token) else { return };
        let mut scrap = [0_u8; HANDSHAKE_BYTES_MAX];
        let whole = scrap.get_mut(..taken).map(|room| knock.stream.receive_bytes(room));
        if let (Some(wanted), Some(Ok(Some(_)))) = (wanted, whole) {
            self.connect_from_host(cx, knock.port, knock.stream, wanted, knock.kind);
        } else {
            cx.remark(knock.port, "a host process was refused: expected a line CONNECT <port>");
            self.turned_away(knock.port);
        }
    }

    /// Ends a handshake, and returns it.
    pub(super) fn end_knock(&mut self, token: u32) -> Option<Knock> {
        let Some(HostToken::Knock(knock)) = self.tokens.remove(token) else { return None };
        self.tokens.forget_ended();
        if let Some(door) = self.seats.get_mut(knock.port).and_then(|s| s.door.as_mut()) {
            door.knocks = door.knocks.saturating_sub(1);
        }
        Some(knock)
    }

    /// Counts a refused handshake.
    pub(super) fn turned_away(&mut self, port: PortId) {
        if let Some(seat) = self.seats.get_mut(port) {
            bump(&mut seat.counters.refused_handshake);
        }
    }
}
