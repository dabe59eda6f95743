//! Credit: the number of bytes that a sender may have in flight (virtio 1.3, 5.10.6.3).
//!
//! Each receiver advertises `buf_alloc` (the size of its buffer) and `fwd_cnt` (bytes consumed) in
//! every packet that it sends. [`crate::conn`] keeps a [`Credit`] for each side: it records
//! advertisements of the side, and checks the data sent to it. `crate::deliver` counts the bytes
//! that reached a guest's buffers. For the side of a process, which sees no credit, `crate::host`
//! advertises a fixed buffer, and counts bytes as delivered and consumed once the process took
//! them. Before the first advertisement the credit is 0. Data beyond the credit is refused as a
//! whole.
//!
//! Counters are modulo 2^32. An error leaves the credit unchanged, and is a breach, for which the
//! caller resets the connection; [`crate::conn`] recognizes late packets of an earlier connection
//! before, by [`Credit::is_possible`]. A receiver may reduce `buf_alloc`; data within an earlier
//! advertisement stays allowed, because the sender may not know. Credit counts bytes and not
//! packets: [`crate::unread`] counts those. The module requests no credit and sends nothing. It
//! runs in the dispatcher's thread that owns the connection.

/// The credit that a receiver advertised, and the bytes sent to it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credit {
    /// Last advertised size of the receiver's buffer.
    buf_alloc: u32,
    /// Last advertised count of consumed bytes.
    fwd_cnt: u32,
    /// Largest `fwd_cnt + buf_alloc` ever advertised: a sender may not know of a later reduction.
    edge: u32,
    /// The receiver has advertised credit.
    advertised: bool,
    /// Bytes accepted from the sender for this receiver.
    accepted: u32,
    /// Accepted bytes that were put in the receiver's buffers.
    delivered: u32,
}

/// A violation of the credit rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CreditError {
    /// `fwd_cnt` counts bytes that were never delivered.
    #[error("fwd_cnt {fwd_cnt} claims more than the {delivered} bytes delivered")]
    Consumed {
        /// Claimed count.
        fwd_cnt: u32,
        /// Delivered bytes.
        delivered: u32,
    },
    /// `fwd_cnt` decreased.
    #[error("fwd_cnt went back from {from} to {to}")]
    Backwards {
        /// Earlier count.
        from: u32,
        /// Later count.
        to: u32,
    },
    /// A packet exceeds the receiver's room.
    #[error("{len} bytes sent with credit for {free}")]
    Overrun {
        /// Bytes in the packet.
        len: u32,
        /// Bytes that were allowed.
        free: u32,
    },
}

impl Credit {
    /// Returns the last advertised `buf_alloc` and `fwd_cnt`, in this order; zeros before the
    /// first.
    pub fn advertised(&self) -> (u32, u32) {
        (self.buf_alloc, self.fwd_cnt)
    }

    /// Returns whether the receiver can have consumed `fwd_cnt` bytes: at least as many as it
    /// declared before, and at most as many as were delivered.
    pub fn is_possible(&self, fwd_cnt: u32) -> bool {
        fwd_cnt.wrapping_sub(self.fwd_cnt) <= self.delivered.wrapping_sub(self.fwd_cnt)
    }

    /// Records an advertisement of the receiver.
    ///
    /// # Errors
    /// `fwd_cnt` decreased, or claims bytes that were never delivered.
    pub fn advertise(&mut self, buf_alloc: u32, fwd_cnt: u32) -> Result<(), CreditError> {
        if !self.is_possible(fwd_cnt) {
            let forward = fwd_cnt.wrapping_sub(self.fwd_cnt);
            // A step of more than half the counter range is a step back.
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
        // The edge moves if the room beyond the accepted bytes grew; a reduction leaves it.
        let now = buf_alloc.saturating_sub(outstanding);
        if !self.advertised || now > before {
            self.edge = if now == 0 { self.accepted } else { edge };
        }
        self.advertised = true;
        Ok(())
    }

    /// Returns the bytes that the sender may still send.
    pub fn free(&self) -> u32 {
        self.edge.wrapping_sub(self.accepted)
    }

    /// Counts `len` bytes of the sender as in flight to the receiver.
    ///
    /// # Errors
    /// The bytes exceed the receiver's room; no byte is counted.
    pub fn accept(&mut self, len: u32) -> Result<(), CreditError> {
        let free = self.free();
        if len > free {
            return Err(CreditError::Overrun { len, free });
        }
        self.accepted = self.accepted.wrapping_add(len);
        Ok(())
    }

    /// Counts `len` accepted bytes as delivered. Not checked: the caller delivers no byte that was
    /// not accepted.
    pub fn deliver(&mut self, len: u32) {
        self.delivered = self.delivered.wrapping_add(len);
    }

    /// Returns the delivered bytes that the receiver has not declared as consumed.
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
        /// Compares with unbounded counters, from any starting point.
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
        assert_eq!(credit.free(), 50, "granted credit stays granted");
    }
}
