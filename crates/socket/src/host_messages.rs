//! Messages between guests and host processes: SEQPACKET on either side.
//!
//! A Unix socket sends and receives whole messages. The fragments of a guest's message are
//! therefore gathered first, within the credit advertised to the guest. A process's message is
//! staged, and delivered as the guest has buffers, within the staging quota of the guest's port
//! ([`STAGED_BYTES_MAX`] (4 MiB), shared with the data that the guest sends); beyond the quota or
//! the guest's credit, messages wait in the process's socket. A guest's messages for which the
//! process has no room wait in `HostEnd::out`, within the same credit.
//!
//! Empty messages are dropped and counted in both directions: a process reads an empty message as
//! the end of the connection, and an AF_VSOCK socket of Linux sends none.
//!
//! `crate::transmit` and `crate::host` call this module for connections of type SEQPACKET. A
//! message has at most [`HOST_MESSAGE_BYTES`] (128 KiB); a process that sends a longer message, or
//! one longer than the guest's whole buffer (`buf_alloc`), loses the connection, and the credit of
//! a guest allows no longer message. End-of-record marks (`SEQ_EOR`) are not passed on. A message
//! costs a copy more than a stream's bytes.

use causeway_fabric::{Context, PortId, cost};
use causeway_memory::Cursor;
use causeway_ring::Chain;
use causeway_wire::vsock::{HEADER_LEN, SEQ_EOM};

use crate::conn::{PendingData, Phase, Role};
use crate::counters::bump;
use crate::deliver::CopyFault;
use crate::host::{HostEnd, host_end_of};
use crate::limits::{HOST_MESSAGE_BYTES, STAGED_BYTES_MAX};
use crate::pack::{Pack, staged_cost};
use crate::service::Socket;
use crate::table::ConnId;

/// Bytes of a message's length in [`HostEnd::out`].
const LENGTH_BYTES: usize = 4;

impl HostEnd {
    /// Sends a message, or keeps it until the process has room. Returns false if the process is
    /// gone, or its socket takes no message of this size.
    fn send_message(&mut self, message: &[u8]) -> bool {
        let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
        if self.out.is_empty() {
            match self.stream.send_bytes(message) {
                Ok(Some(_)) => {
                    self.consumed = self.consumed.wrapping_add(len);
                    return true;
                }
                Ok(None) => {}
                Err(_) => return false,
            }
        }
        self.out.extend(len.to_le_bytes());
        self.out.extend(message);
        true
    }

    /// Sends messages for which the process had no room; returns false as [`Self::send_message`]
    /// does.
    pub(crate) fn flush_messages(&mut self) -> bool {
        while let Some(length) = self.out.make_contiguous().first_chunk::<LENGTH_BYTES>() {
            let len = u32::from_le_bytes(*length);
            let end = (len as usize).saturating_add(LENGTH_BYTES);
            let (bytes, _) = self.out.as_slices();
            match self.stream.send_bytes(bytes.get(LENGTH_BYTES..end).unwrap_or_default()) {
                Ok(Some(_)) => {
                    self.consumed = self.consumed.wrapping_add(len);
                    self.out.drain(..end.min(self.out.len()));
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

impl Socket {
    /// Appends a fragment of a guest's message, and sends the message if `flags` mark its end.
    #[expect(clippy::too_many_arguments, reason = "one call site, each value another kind")]
    pub(crate) fn message_to_host(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        chain: &Chain,
        len: u32,
        flags: u32,
        id: ConnId,
        role: Role,
    ) {
        let Some(map) = cx.ports.get(from).and_then(|p| p.map()) else { return };
        let Some((_, end)) = self.host_end(id) else { return };
        let before = end.partial.len();
        end.partial.resize(before.saturating_add(len as usize), 0);
        let mut cursor = Cursor::at(chain.readable(), HEADER_LEN as u64);
        let read = cursor.read(map, end.partial.get_mut(before..).unwrap_or_default());
        if read.is_ok() && flags & SEQ_EOM == 0 {
            return;
        }
        let message = std::mem::take(&mut end.partial);
        if read.is_ok() && message.is_empty() {
            // The process would read it as the end of the connection.
            if let Some(socket_port) = self.socket_ports.get_mut(from) {
                bump(&mut socket_port.counters.transmit_empty);
            }
            return;
        }
        if read.is_err() || !end.send_message(&message) {
            return self.end(cx, id, true);
        }
        self.update_guest_credit(cx, id, role);
    }

    /// Moves a process's messages into a guest's buffers; as [`Self::receive_from_host`].
    pub(crate) fn receive_messages_from_host(
        &mut self,
        cx: &mut Context<'_>,
        to: PortId,
        id: ConnId,
        role: Role,
        buffers: &mut usize,
    ) -> Result<Option<bool>, CopyFault> {
        loop {
            let Some(conn) = self.table.get(id).filter(|c| c.phase == Phase::Open) else {
                return Ok(None);
            };
            let Some((_, end)) = host_end_of(conn) else { return Ok(None) };
            if !end.readable || end.read_done {
                return Ok(Some(false));
            }
            cx.charge(cost::CALL_NS);
            if *buffers == 0 || cx.is_over() {
                return Ok(Some(true));
            }
            let len = match end.stream.message_bytes() {
                Ok(Some(len)) if len > 0 => len,
                Ok(Some(_)) if !end.stream.is_ended() => {
                    // AF_VSOCK has no empty messages.
                    let taken = end.stream.receive_bytes(&mut []);
                    if let Some(socket_port) = self.socket_ports.get_mut(to) {
                        bump(&mut socket_port.counters.receive_empty);
                    }
                    if taken.is_ok() {
                        continue;
                    }
                    return self.process_idle(cx, id, role, taken.map(|got| got.is_some()));
                }
                other => {
                    return self.process_idle(cx, id, role, other.map(|got| got.is_some()));
                }
            };
            let credit = &conn.side(role).credit;
            let (buffer, _) = credit.advertised();
            if len > buffer.min(HOST_MESSAGE_BYTES) as usize {
                let most = buffer.min(HOST_MESSAGE_BYTES);
                cx.remark(
                    to,
                    format_args!(
                        "connection reset: a host process sent a message of {len} bytes, \
                         at most {most} are accepted"
                    ),
                );
                self.end(cx, id, true);
                return Ok(Some(false));
            }
            if len > credit.free() as usize {
                return Ok(Some(false));
            }
            let staged = self.socket_ports.get(to).map_or(0, |socket_port| socket_port.staged);
            if staged.saturating_add(staged_cost(len)) > STAGED_BYTES_MAX {
                return Ok(Some(true));
            }
            let mut message = vec![0; len];
            match end.stream.receive_bytes(&mut message) {
                Ok(Some(got)) if got == len => {}
                other => {
                    return self.process_idle(cx, id, role, other.map(|got| got.is_some()));
                }
            }
            if !self.take_message(cx, to, (id, role), &message, buffers)? {
                return Ok(Some(true));
            }
        }
    }

    /// Stages a message of a process for the guest at `to`, and delivers it as far as the guest has
    /// buffers; returns false if a part of it stays queued.
    fn take_message(
        &mut self,
        cx: &mut Context<'_>,
        to: PortId,
        target: (ConnId, Role),
        message: &[u8],
        buffers: &mut usize,
    ) -> Result<bool, CopyFault> {
        let (id, role) = target;
        let mut pack = Pack::new(to);
        pack.append_bytes(message, SEQ_EOM);
        if let Some(socket_port) = self.socket_ports.get_mut(to) {
            socket_port.staged = socket_port.staged.saturating_add(pack.cost());
        }
        if let Some(conn) = self.table.get_mut(id) {
            let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
            // Never fails: the guest has room for the whole message.
            let _ = conn.side_mut(role).credit.accept(len);
        }
        self.deliver_pending(cx, to, target, PendingData::Staged(pack), buffers)
    }
}
