//! Connects to NICs that discovery has not found yet.
//!
//! A daemon that has just started knows only configured NICs until the first announcements arrive,
//! while processes that resume their endpoints connect at once. Until `discovery_ends_ns` of the
//! NIC's configuration, such connects wait here; later, a connect to an unknown NIC fails at once.
//! A cancel ends a connect with `Cancelled`, and the close of the endpoint drops all without an
//! event. This module keeps and schedules them, and sends nothing: [`connect`](crate::connect)
//! starts them, by the connect timer of the endpoint.
//!
//! An endpoint's waiting connects count against [`CONNECTS_MAX`](crate::limits::CONNECTS_MAX)
//! (256). The table of known NICs is polled every [`DISCOVERY_POLL_NS`] (2 ms); a connect to a NIC
//! that stays unknown fails with `EndpointUnreachable` at the end of discovery or at its own
//! timeout, whichever is first. Names are not resolved here.

use causeway_wire::mx::{Address, Token};

use crate::limits::DISCOVERY_POLL_NS;

/// A connect to an unknown NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UndiscoveredConnect {
    /// Token of the event at the end.
    pub token: Token,
    /// The target.
    pub to: Address,
    /// Key of the target.
    pub key: u32,
    /// Time in ns at which the connect fails, if its NIC is still unknown.
    pub fails_at: u64,
    /// Time in ns at which the connect times out.
    pub ends_at: u64,
}

/// All such connects of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct UndiscoveredConnects {
    list: Vec<UndiscoveredConnect>,
    /// Time in ns of the next poll of the NIC table.
    poll_at: u64,
}

impl UndiscoveredConnects {
    /// Adds a connect.
    pub fn push(&mut self, now: u64, connect: UndiscoveredConnect) {
        self.list.push(connect);
        self.poll_at = now.saturating_add(DISCOVERY_POLL_NS);
    }

    /// Returns the number of connects.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Removes a connect; returns whether there was one.
    pub fn cancel(&mut self, token: Token) -> bool {
        let before = self.list.len();
        self.list.retain(|connect| connect.token != token);
        self.list.len() < before
    }

    /// Returns the time in ns of the next poll, or `None` without connects.
    pub fn due(&self) -> Option<u64> {
        (!self.list.is_empty()).then_some(self.poll_at)
    }

    /// Removes the connects with a NIC that is known by now or a time that is over. Empty before
    /// [`Self::due`].
    pub fn take_ready(
        &mut self,
        now: u64,
        is_known: impl Fn(Address) -> bool,
    ) -> Vec<UndiscoveredConnect> {
        if self.poll_at > now || self.list.is_empty() {
            return Vec::new();
        }
        self.poll_at = now.saturating_add(DISCOVERY_POLL_NS);
        let ready =
            |connect: &mut UndiscoveredConnect| connect.fails_at <= now || is_known(connect.to);
        self.list.extract_if(.., ready).collect()
    }
}

#[cfg(test)]
mod tests {
    use causeway_wire::mx::NicId;

    use super::*;

    #[test]
    fn undiscovered_connects_wait_for_their_nic_or_their_end() {
        let connect = |token, nic, fails_at| UndiscoveredConnect {
            token: Token(token),
            to: Address { nic: NicId(nic), endpoint: 1 },
            key: 0,
            fails_at,
            ends_at: u64::MAX,
        };
        let mut connects = UndiscoveredConnects::default();
        assert_eq!(connects.due(), None);
        for at in 0..3 {
            connects.push(0, connect(at, at, DISCOVERY_POLL_NS * (2 + at)));
        }
        assert_eq!(connects.due(), Some(DISCOVERY_POLL_NS));
        assert_eq!(connects.take_ready(1, |_| true), [], "before the poll");
        let known = |address: Address| address.nic == NicId(2);
        assert_eq!(connects.take_ready(DISCOVERY_POLL_NS, known)[0].token, Token(2));
        assert_eq!(connects.due(), Some(2 * DISCOVERY_POLL_NS));
        assert_eq!(connects.take_ready(2 * DISCOVERY_POLL_NS, |_| false)[0].token, Token(0));
        assert!(connects.cancel(Token(1)) && !connects.cancel(Token(1)));
        assert_eq!((connects.len(), connects.due()), (0, None));
    }
}
