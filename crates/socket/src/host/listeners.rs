//! The listeners of a port's host socket: accepts processes and reads their `CONNECT` lines.
//!
//! The service opens the listeners when a port with `host_socket` is added, and closes them with
//! the port; [`Socket::host_ready`] calls this module for their events, and the service's deadlines
//! for expiry, in the thread of the shard. After a proper line, [`super`] opens the connection.
//!
//! The streams of processes whose user the port's list lacks are closed, logged and counted.
//!
//! A port accepts [`HOST_CONNECTS_PER_SECOND`] (512) processes a second, then both listeners pause
//! for [`HOST_LISTENER_PAUSE_NS`] (100 ms) and connections wait in the backlog. At most
//! [`HANDSHAKES_MAX`] (64) processes are in their handshake; the streams of further processes are
//! closed, and so are those for which the host has no descriptor. A handshake ends with the first
//! line; if that is not `CONNECT <port>` (`CONNECT <CID>:<port>` at a port for processes), or does not
//! end within [`HANDSHAKE_BYTES_MAX`] (32)
//! bytes, the process reads `ERR <reason>\n` and the stream closes; after [`HANDSHAKE_NS_MAX`]
//! (5 s) without a line the stream closes without an answer. Bytes of a stream after
//! the line are data for the guest and are left in the socket; the rest of a message is dropped.
//! Every process refused here is counted. Listeners need no running guest: the connection is then
//! refused after the line.

use std::path::Path;

use causeway_fabric::host::{HostListener, HostStream};
use causeway_fabric::rate::Bucket;
use causeway_fabric::{Context, PortId};
use causeway_model::CommandError;
use causeway_model::message_socket;
use causeway_wire::vsock::Type;

use super::tokens::{Handshake, HostToken};
use super::{HostListeners, WatchedListener, refuse};
use crate::connect_line::parse_connect;
use crate::counters::bump;
use crate::limits::{
    HANDSHAKE_BYTES_MAX, HANDSHAKE_NS_MAX, HANDSHAKES_MAX, HANDSHAKES_PER_TURN,
    HOST_CONNECTS_PER_SECOND, HOST_LISTENER_PAUSE_NS, HOST_PORT_FIRST,
};
use crate::service::Socket;

impl Socket {
    /// Opens the listeners for processes that connect to a port's guest.
    ///
    /// # Errors
    /// A socket cannot be bound or watched.
    pub(crate) fn open_listeners(
        &mut self,
        cx: &mut Context<'_>,
        port: PortId,
        path: &Path,
    ) -> Result<HostListeners, CommandError> {
        let users = cx.ports.get(port).and_then(|port| port.spec.access.host_socket_users());
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
        Ok(HostListeners {
            path,
            users,
            streams,
            messages,
            connects,
            handshakes: 0,
            next_port: HOST_PORT_FIRST,
        })
    }

    /// Opens the listener for sockets of type `kind` at `path`.
    fn open_listener(
        &mut self,
        cx: &mut Context<'_>,
        port: PortId,
        path: &Path,
        kind: Type,
    ) -> Result<WatchedListener, CommandError> {
        let listener = match kind {
            Type::Stream => HostListener::bind(path)?,
            Type::Seqpacket => HostListener::bind_messages(path)?,
        };
        let token = self.tokens.reserve();
        let watch = cx.watch_listener(std::os::fd::AsFd::as_fd(&listener), token);
        let watch = watch.map_err(|e| {
            self.tokens.release(token);
            CommandError::Host(format!("{}: {e}", path.display()))
        })?;
        self.tokens.set(token, HostToken::Listener(port, kind));
        Ok(WatchedListener { listener, watch: Some(watch), token })
    }

    /// Closes the listeners, and drops the handshakes in progress.
    pub(crate) fn close_listeners(&mut self, host_listeners: HostListeners) {
        self.tokens.remove(host_listeners.messages.token);
        let Some(HostToken::Listener(port, _)) = self.tokens.remove(host_listeners.streams.token)
        else {
            return;
        };
        self.tokens.drop_port(port);
    }

    /// Accepts waiting processes, at most [`HANDSHAKES_PER_TURN`] (4); the level-triggered watch
    /// reports further processes again.
    pub(super) fn accept_processes(&mut self, cx: &mut Context<'_>, port: PortId, kind: Type) {
        for _ in 0..HANDSHAKES_PER_TURN {
            let Some(host_listeners) =
                self.socket_ports.get_mut(port).and_then(|s| s.host_listeners.as_mut())
            else {
                return;
            };
            let room = host_listeners.handshakes < HANDSHAKES_MAX;
            let listening = match kind {
                Type::Stream => &mut host_listeners.streams,
                Type::Seqpacket => &mut host_listeners.messages,
            };
            let accepted = match listening.listener.accept() {
                Ok(None) => return,
                other => other,
            };
            let wait_ns = host_listeners.connects.charge(cx.now_ns, HOST_CONNECTS_PER_SECOND, 1);
            let refused_user = match &accepted {
                Ok(Some(stream)) => stream.refused_user(host_listeners.users.as_deref()),
                _ => None,
            };
            let is_accepted = match accepted {
                Ok(Some(stream)) if refused_user.is_none() => {
                    room && self.begin_handshake(cx, port, stream, kind).is_ok()
                }
                _ => false,
            };
            if let Some(user) = refused_user {
                self.refuse_user(cx, port, user);
            } else if !is_accepted {
                self.count_refused_handshake(port);
            }
            if wait_ns > 0 {
                return self.pause_listeners(cx, port);
            }
        }
    }

    /// Pauses the listeners of a port, to which more than 512 processes connect in a second, for
    /// 100 ms.
    fn pause_listeners(&mut self, cx: &mut Context<'_>, port: PortId) {
        let Some(socket_port) = self.socket_ports.get_mut(port) else { return };
        let Some(host_listeners) = socket_port.host_listeners.as_mut() else { return };
        (host_listeners.streams.watch, host_listeners.messages.watch) = (None, None);
        bump(&mut socket_port.counters.host_pauses);
        self.tokens.pause(cx.now_ns.saturating_add(HOST_LISTENER_PAUSE_NS), port);
    }

    /// Resumes the listeners after their pauses.
    pub(crate) fn resume_listeners(&mut self, cx: &mut Context<'_>) {
        while let Some(port) = self.tokens.take_ended_pause(cx.now_ns) {
            let Some(host_listeners) =
                self.socket_ports.get_mut(port).and_then(|s| s.host_listeners.as_mut())
            else {
                continue;
            };
            let mut watched = true;
            for listening in [&mut host_listeners.streams, &mut host_listeners.messages] {
                let listener = std::os::fd::AsFd::as_fd(&listening.listener);
                listening.watch = cx.watch_listener(listener, listening.token).ok();
                watched &= listening.watch.is_some();
            }
            if !watched {
                // No descriptor is free now: retry later.
                let at = cx.now_ns.saturating_add(HOST_LISTENER_PAUSE_NS);
                self.tokens.pause(at, port);
            }
        }
    }

    /// Returns the end of the first pause.
    pub(crate) fn next_resume_ns(&self) -> Option<u64> {
        self.tokens.first_pause_end_ns()
    }

    /// Begins the handshake of an accepted process, and reads its line if it is there already.
    ///
    /// # Errors
    /// The host has no descriptor; the stream closes.
    fn begin_handshake(
        &mut self,
        cx: &mut Context<'_>,
        port: PortId,
        stream: HostStream,
        kind: Type,
    ) -> std::io::Result<()> {
        let token = self.tokens.reserve();
        let watch = cx.watch(std::os::fd::AsFd::as_fd(&stream), token);
        let watch = watch.inspect_err(|_| self.tokens.release(token))?;
        if let Some(host_listeners) =
            self.socket_ports.get_mut(port).and_then(|s| s.host_listeners.as_mut())
        {
            host_listeners.handshakes = host_listeners.handshakes.saturating_add(1);
        }
        let deadline_ns = cx.now_ns.saturating_add(HANDSHAKE_NS_MAX);
        let handshake = Handshake { port, kind, stream, _watch: watch, deadline_ns };
        self.tokens.begin_handshake(token, handshake);
        self.read_handshake(cx, token);
        Ok(())
    }

    /// Reads the `CONNECT` line and opens the connection; any other content ends the handshake. An
    /// incomplete line stays in the socket.
    pub(super) fn read_handshake(&mut self, cx: &mut Context<'_>, token: u32) {
        let Some(HostToken::Handshake(handshake)) = self.tokens.get(token) else { return };
        let mut bytes = [0_u8; HANDSHAKE_BYTES_MAX];
        let seen = match handshake.stream.peek_bytes(&mut bytes) {
            Ok(None) => return,
            Ok(Some(seen)) => bytes.get(..seen).unwrap_or(&[]),
            Err(_) => &[],
        };
        let end = seen.iter().position(|&b| b == b'\n');
        // A message is complete even without a newline.
        let end = match handshake.kind {
            Type::Stream => end,
            Type::Seqpacket => Some(end.unwrap_or(seen.len())),
        };
        if end.is_none() && !seen.is_empty() && seen.len() < HANDSHAKE_BYTES_MAX {
            return;
        }
        let line = end.and_then(|end| seen.get(..end));
        let wanted = line.and_then(parse_connect);
        let taken = line.map_or(0, |l| l.len().saturating_add(1));
        let Some(mut handshake) = self.end_handshake(token) else { return };
        let mut scrap = [0_u8; HANDSHAKE_BYTES_MAX];
        let whole = scrap.get_mut(..taken).map(|room| handshake.stream.receive_bytes(room));
        let (port, kind) = (handshake.port, handshake.kind);
        let is_for_processes = self.socket_ports.get(port).is_some_and(|s| s.is_for_processes);
        let wanted = wanted.filter(|_| matches!(whole, Some(Ok(Some(_)))));
        match wanted.map(|wanted| (wanted.cid, wanted.port)) {
            Some((None, number)) if !is_for_processes => {
                self.connect_from_host(cx, port, handshake.stream, number, kind);
            }
            Some((Some(cid), number)) if is_for_processes => {
                self.connect_as_port(cx, port, handshake.stream, (cid, number), kind);
            }
            _ => {
                let expected = match is_for_processes {
                    true => "expected a line CONNECT <CID>:<port>",
                    false => "expected a line CONNECT <port>",
                };
                cx.remark(port, format_args!("a host process was refused: {expected}"));
                refuse(&mut handshake.stream, expected);
                self.count_refused_handshake(port);
            }
        }
    }

    /// Ends the handshake with this token, and returns it.
    pub(super) fn end_handshake(&mut self, token: u32) -> Option<Handshake> {
        let handshake = self.tokens.end_handshake(token)?;
        if let Some(host_listeners) =
            self.socket_ports.get_mut(handshake.port).and_then(|s| s.host_listeners.as_mut())
        {
            host_listeners.handshakes = host_listeners.handshakes.saturating_sub(1);
        }
        Some(handshake)
    }

    /// Logs and counts a process whose user is not in the list of the host socket.
    fn refuse_user(&mut self, cx: &mut Context<'_>, port: PortId, user: u32) {
        cx.remark(
            port,
            format_args!(
                "a host process of user {user} was refused: host_allowed_users or allowed_users \
                 lacks it"
            ),
        );
        if let Some(socket_port) = self.socket_ports.get_mut(port) {
            bump(&mut socket_port.counters.refused_user);
        }
    }

    /// Counts a refused handshake.
    pub(super) fn count_refused_handshake(&mut self, port: PortId) {
        if let Some(socket_port) = self.socket_ports.get_mut(port) {
            bump(&mut socket_port.counters.refused_handshake);
        }
    }
}
