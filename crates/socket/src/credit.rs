//! Credit: how many bytes a sender may have on the way (virtio 1.3, 5.10.6.3).
//!
//! Counters are modulo 2^32. Each receiver advertises `buf_alloc` and `fwd_cnt`
//! in every packet it sends; we watch the conversation and hold both sides to it.

/// What one receiver has advertised, and what was sent towards it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credit {
    buf_alloc: u32,
    fwd_cnt: u32,
    /// The largest `fwd_cnt + buf_alloc` ever advertised: a sender may not know of a smaller one.
    edge: u32,
    advertised: bool,
    /// Bytes taken from the sender for this receiver.
    accepted: u32,
    /// Of these, bytes put in the receiver's buffers.
    delivered: u32,
}

/// The side that broke the credit rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CreditError {
    /// `fwd_cnt` counts bytes that were never delivered.
    #[error("fwd_cnt {fwd_cnt} claims more than the {delivered} bytes delivered")]
    Consumed {
        /// What the receiver claims.
        fwd_cnt: u32,
        /// What it got.
        delivered: u32,
    },
    /// `fwd_cnt` went back.
    #[error("fwd_cnt went back from {from} to {to}")]
    Backwards {
        /// Before.
        from: u32,
        /// After.
        to: u32,
    },
    /// More was sent than the receiver has room for.
    #[error("{len} bytes sent with credit for {free}")]
    Overrun {
        /// Bytes in the packet.
        len: u32,
        /// Bytes that were allowed.
        free: u32,
    },
}

impl Credit {
    /// What the receiver advertised last.
    pub fn advertised(&self) -> (u32, u32) {
        (self.buf_alloc, self.fwd_cnt)
    }

    /// Whether the receiver can have consumed as much as `fwd_cnt` claims.
    pub fn is_possible(&self, fwd_cnt: u32) -> bool {
        fwd_cnt.wrapping_sub(self.fwd_cnt) <= self.delivered.wrapping_sub(self.fwd_cnt)
    }

    /// The receiver says how much room it has and what it has consumed.
    pub fn advertise(&mut self, buf_alloc: u32, fwd_cnt: u32) -> Result<(), CreditError> {
        if !self.is_possible(fwd_cnt) {
            let forward = fwd_cnt.wrapping_sub(self.fwd_cnt);
            // A step of more than half the circle is one back.
            return Err(if forward > u32::MAX / 2 {
                CreditError::Backwards { from: self.fwd_cnt, to: fwd_cnt }
            } else {
                CreditError::Consumed { fwd_cnt, delivered: self.delivered }
            });
        }
        self.fwd_cnt = fwd_cnt;
        self.buf_alloc = buf_alloc;
        let edge = fwd_cnt.wrapping_add(buf_alloc);
        let outstanding = self.accepted.wrapping_sub(fwd_cnt);
        let before = self.edge.wrapping_sub(self.accepted);
        // Room for more than before, counted from what was accepted; a smaller room leaves the edge.
        let now = buf_alloc.saturating_sub(outstanding);
        if !self.advertised || now > before {
            self.edge = if now == 0 { self.accepted } else { edge };
        }
        self.advertised = true;
        Ok(())
    }

    /// Bytes that the sender may still send.
    pub fn free(&self) -> u32 {
        self.edge.wrapping_sub(self.accepted)
    }

    /// The sender sends `len` bytes.
    pub fn accept(&mut self, len: u32) -> Result<(), CreditError> {
        let free = self.free();
        if len > free {
            return Err(CreditError::Overrun { len, free });
        }
        self.accepted = self.accepted.wrapping_add(len);
        Ok(())
    }

    /// `len` accepted bytes reached the receiver's buffers.
    pub fn deliver(&mut self, len: u32) {
        self.delivered = self.delivered.wrapping_add(len);
    }

    /// Delivered bytes that the receiver has not consumed, as far as it said.
    pub fn unread(&self) -> u32 {
        self.delivered.wrapping_sub(self.fwd_cnt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Send(u32),
        Deliver(u32),
        Consume(u32),
        Resize(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0_u32..5000).prop_map(Step::Send),
            (0_u32..5000).prop_map(Step::Deliver),
            (0_u32..5000).prop_map(Step::Consume),
            (0_u32..20_000).prop_map(Step::Resize),
        ]
    }

    proptest! {
        /// Against a model with unbounded counters, from any starting point of the circle.
        #[test]
        fn agrees_with_unbounded_counters(steps in prop::collection::vec(step(), 1..200), start: u32) {
            let mut credit = Credit { fwd_cnt: start, accepted: start, delivered: start, edge: start, ..Credit::default() };
            let (mut sent, mut delivered, mut consumed, mut room, mut edge) = (0_u64, 0_u64, 0_u64, 10_000_u32, 10_000_u64);
            let wrap = |n: u64| start.wrapping_add(n as u32);
            credit.advertise(room, start).unwrap();
            for step in steps {
                match step {
                    Step::Send(len) => {
                        let fits = sent + u64::from(len) <= edge;
                        prop_assert_eq!(credit.accept(len).is_ok(), fits);
                        if fits { sent += u64::from(len); }
                    }
                    Step::Deliver(len) => {
                        let len = u64::from(len).min(sent - delivered);
                        delivered += len;
                        credit.deliver(len as u32);
                    }
                    Step::Consume(len) => {
                        let claim = consumed + u64::from(len);
                        let honest = claim <= delivered;
                        prop_assert_eq!(credit.advertise(room, wrap(claim)).is_ok(), honest);
                        if honest { consumed = claim; edge = edge.max(consumed + u64::from(room)).max(sent); }
                    }
                    Step::Resize(to) => {
                        room = to;
                        credit.advertise(room, wrap(consumed)).unwrap();
                        edge = edge.max(consumed + u64::from(room)).max(sent);
                    }
                }
                prop_assert_eq!(u64::from(credit.free()), edge - sent);
                prop_assert_eq!(u64::from(credit.unread()), delivered - consumed);
            }
        }
    }

    #[test]
    fn hostile_credit_lies_are_named() {
        let mut credit = Credit::default();
        credit.advertise(100, 0).unwrap();
        assert!(matches!(credit.accept(101), Err(CreditError::Overrun { len: 101, free: 100 })));
        credit.accept(100).unwrap();
        credit.deliver(60);
        assert!(matches!(credit.advertise(100, 61), Err(CreditError::Consumed { .. })));
        credit.advertise(100, 50).unwrap();
        assert!(matches!(credit.advertise(100, 49), Err(CreditError::Backwards { .. })));
        credit.advertise(0, 50).unwrap();
        assert_eq!(credit.free(), 50, "what was granted stays granted");
    }
}
