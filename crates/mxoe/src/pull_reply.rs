//! Answers to pulls: the sender's side of a large message.
//!
//! A pull requests a block (up to eight frames) of an open window. The engine reads the block from
//! the region and sends its frames at once, without acknowledgement, timer or congestion window:
//! the receiver requests lost frames again and limits its requests ([`pull`](crate::pull)). The
//! window stays open until the receiver's notification; then the send ends with the number of
//! pulled bytes. A notification that names no open window of its sender is ignored.
//!
//! The engine keeps no state of a pull except its byte quota
//! ([`send_windows`](crate::send_windows)). The quota is twice the length and 256 KiB; beyond it a
//! block is sent once per [`PULLED_AGAIN_NS`](crate::limits::PULLED_AGAIN_NS) (4 ms), and other
//! pulls are not answered. A pull with another session, of an endpoint that is not a peer, or of a
//! message longer than the window or not offered to its sender is refused with a nack; a block
//! beyond the end of the message is dropped and counted. If the region was unmapped, the send ends
//! with `BadRdmaWindow`, and the pull is refused. A receiver that fails or cancels notifies 0
//! bytes: the send then succeeds with 0 pulled bytes.
//!
//! Called for frames by [`Nic::receive`](crate::Nic::receive). The number `host` names the sending
//! or receiving NIC in the [`NicTable`](crate::nic_table::NicTable).

use causeway_wire::mx::{PeerId, Status};
use causeway_wire::mxoe::{Pull, PullReply, nack};

use crate::context::{EngineContext, add, count};
use crate::drop_reason::DropReason;
use crate::endpoint::NicEndpoint;
use crate::offers::FrameLayout;
use crate::send_windows::SendWindow;

impl NicEndpoint {
    /// Processes a pull request of a peer.
    ///
    /// # Errors
    /// [`DropReason`]: the peer, session or window is wrong, and the pull is refused; or the block
    /// is out of range or beyond the quota, and the pull is not answered.
    pub(crate) fn on_pull(
        &mut self,
        ctx: &mut EngineContext<'_>,
        host: u16,
        pull: &Pull,
    ) -> Result<(), DropReason> {
        let named = (pull.handle, pull.magic);
        if pull.session != self.session {
            count(&mut self.counters.wrong_session);
            self.refuse_pull(ctx, host, named, nack::BAD_SESSION);
            return Err(DropReason::Session);
        }
        let Some(peer) = self.peers.at((host, pull.ends.source)) else {
            count(&mut self.counters.strangers);
            self.refuse_pull(ctx, host, named, nack::BAD_SESSION);
            return Err(DropReason::UnknownPeer);
        };
        let Some(remote) = self.peers.get_mut(peer) else { return Err(DropReason::UnknownPeer) };
        remote.heard_at = ctx.now;
        let open = self.windows.get(pull.window, pull.window_sequence, peer);
        // Offers start at the start of their window.
        let open = open.filter(|open| pull.offset == 0 && pull.total_len <= open.from.len);
        let Some(open) = open else {
            count(&mut remote.counters.wrong_pulls);
            self.refuse_pull(ctx, host, named, nack::BAD_WINDOW);
            return Err(DropReason::Window);
        };
        self.reply(ctx, peer, host, pull, open)
    }

    /// Sends the frames of a block.
    fn reply(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        host: u16,
        pull: &Pull,
        open: SendWindow,
    ) -> Result<(), DropReason> {
        let Some(remote) = self.peers.get_mut(peer) else { return Err(DropReason::UnknownPeer) };
        let layout = FrameLayout::new(pull.offset, pull.total_len);
        let (start, _) = layout.range(pull.frame_index);
        let from = u64::from(start).saturating_add(pull.first_frame_offset.into());
        let to = from.saturating_add(pull.block_len.into());
        if pull.frame_index >= layout.frames() || to > u64::from(pull.total_len) {
            count(&mut remote.counters.wrong_pulls);
            return Err(DropReason::Window);
        }
        if !self.windows.charge(ctx.now, pull.window, pull.block_len.into()) {
            count(&mut remote.counters.pulled_too_often);
            return Err(DropReason::Window);
        }
        let (mut at, mut frame) = (from, pull.frame_index);
        while at < to {
            let more = frame.saturating_add(u32::from(ctx.wide && pull.wide));
            let end = u64::from(layout.range(more).1).min(to);
            let len = usize::try_from(end.saturating_sub(at)).unwrap_or(0);
            if len == 0 {
                break;
            }
            let [frame_sequence, ..] = frame.to_le_bytes();
            let offset = u32::try_from(at).unwrap_or(u32::MAX);
            let (handle, magic) = (pull.handle, pull.magic);
            let reply = PullReply { frame_sequence, offset, handle, magic, data: &[] };
            let from = (open.from.offset.saturating_add(at), len);
            if ctx.send_region(host, reply, (self.id, open.from.region), from).is_err() {
                count(&mut self.counters.region_faults);
                self.withdraw(ctx, pull.window, open, Status::BadRdmaWindow);
                let named = (pull.handle, pull.magic);
                self.refuse_pull(ctx, host, named, nack::BAD_WINDOW);
                return Err(DropReason::Window);
            }
            count(&mut remote.counters.replies_sent);
            (at, frame) = (end, more.saturating_add(1));
        }
        Ok(())
    }

    /// Ends an offered message and closes its window.
    pub(crate) fn withdraw(
        &mut self,
        ctx: &mut EngineContext<'_>,
        window: u8,
        open: SendWindow,
        status: Status,
    ) {
        self.end_offer(ctx, open.token, status, 0);
        self.close_window(ctx, window);
    }

    /// Processes a notification: the peer has the bytes of a message that it wants.
    pub(crate) fn on_notify(
        &mut self,
        ctx: &mut EngineContext<'_>,
        peer: PeerId,
        total_len: u32,
        window: u8,
        sequence: u8,
    ) {
        if let Some(open) = self.windows.get(window, sequence, peer) {
            let taken = total_len.min(open.from.len);
            if let Some(remote) = self.peers.get_mut(peer) {
                add(&mut remote.counters.bytes_taken, taken as usize);
            }
            self.end_offer(ctx, open.token, Status::Success, taken);
            self.close_window(ctx, window);
        }
    }
}
