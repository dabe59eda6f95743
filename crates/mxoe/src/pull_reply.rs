//! The side of a large message that has it: pulls are answered from the window, until the receiver
//! says that it has what it wants.

use causeway_wire::mx::{PeerId, Status};
use causeway_wire::mxoe::{Pull, PullReply, nack};

use crate::context::{Env, count};
use crate::endpoint::Endpoint;
use crate::nic::Dropped;
use crate::offers::Layout;
use crate::send_windows::Open;

impl Endpoint {
    /// A peer pulls.
    pub(crate) fn pulled(
        &mut self,
        env: &mut Env<'_>,
        host: u16,
        pull: &Pull,
    ) -> Result<(), Dropped> {
        let named = (pull.handle, pull.magic);
        if pull.session != self.session {
            count(&mut self.counters.wrong_session);
            self.refuse_pull(env, host, named, nack::BAD_SESSION);
            return Err(Dropped::Session);
        }
        let Some(peer) = self.peers.at((host, pull.ends.source)) else {
            count(&mut self.counters.strangers);
            self.refuse_pull(env, host, named, nack::BAD_SESSION);
            return Err(Dropped::UnknownPeer);
        };
        let Some(partner) = self.peers.get_mut(peer) else { return Err(Dropped::UnknownPeer) };
        partner.heard_at = env.now;
        let open = self.windows.get(pull.window, pull.window_sequence, peer);
        // What is offered begins where its window does.
        let open = open.filter(|open| pull.offset == 0 && pull.total_len <= open.from.len);
        let Some(open) = open else {
            count(&mut partner.counters.wrong_pulls);
            self.refuse_pull(env, host, named, nack::BAD_WINDOW);
            return Err(Dropped::Window);
        };
        self.reply(env, peer, host, pull, open)
    }

    /// Sends a block, a frame after the other.
    fn reply(
        &mut self,
        env: &mut Env<'_>,
        peer: PeerId,
        host: u16,
        pull: &Pull,
        open: Open,
    ) -> Result<(), Dropped> {
        let Some(partner) = self.peers.get_mut(peer) else { return Err(Dropped::UnknownPeer) };
        let layout = Layout::new(pull.offset, pull.total_len);
        let (start, _) = layout.range(pull.frame_index);
        let from = u64::from(start).saturating_add(pull.first_frame_offset.into());
        let to = from.saturating_add(pull.block_len.into());
        if pull.frame_index >= layout.frames() || to > u64::from(pull.total_len) {
            count(&mut partner.counters.wrong_pulls);
            return Err(Dropped::Window);
        }
        if !self.windows.may_have(env.now, pull.window, pull.block_len.into()) {
            count(&mut partner.counters.pulled_too_often);
            return Err(Dropped::Window);
        }
        let (mut at, mut frame) = (from, pull.frame_index);
        while at < to {
            let more = frame.saturating_add(u32::from(env.wide && pull.wide));
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
            if env.send_region(host, reply, (self.id, open.from.region), from).is_err() {
                count(&mut self.counters.region_faults);
                self.withdraw(env, pull.window, open, Status::BadRdmaWindow);
                let named = (pull.handle, pull.magic);
                self.refuse_pull(env, host, named, nack::BAD_WINDOW);
                return Err(Dropped::Window);
            }
            count(&mut partner.counters.replies_sent);
            (at, frame) = (end, more.saturating_add(1));
        }
        Ok(())
    }

    /// A message is not offered any more.
    pub(crate) fn withdraw(&mut self, env: &mut Env<'_>, window: u8, open: Open, status: Status) {
        self.end_offer(env, open.token, status, 0);
        self.close_window(env, window);
    }

    /// A peer has what it wants of a message.
    pub(crate) fn notified(
        &mut self,
        env: &mut Env<'_>,
        peer: PeerId,
        total_len: u32,
        window: u8,
        sequence: u8,
    ) {
        if let Some(open) = self.windows.get(window, sequence, peer) {
            let taken = total_len.min(open.from.len);
            self.end_offer(env, open.token, Status::Success, taken);
            self.close_window(env, window);
        }
    }
}
