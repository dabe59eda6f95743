//! The bytes of a connection arrive in order and unchanged, and completely unless the connection is
//! reset.
//!
//! The tape passes each event about payload of vsock connections to the checker, in the thread of
//! the world. The ends of messages (`SOCK_SEQPACKET`) must arrive at the offsets at which they were
//! sent. Each direction is a flow of [`crate::bytes`]. A connection that is still open at the end
//! of the world must have no bytes in flight. The checker returns the first violation. A reset is
//! not judged here: [`super::endings`] asks for its cause.

use std::collections::{BTreeMap, VecDeque};

use super::{Check, Violation, broken};
use crate::bytes;
use crate::event::{Direction, Event};

/// The bytes of one direction.
#[derive(Debug, Default)]
struct Flow {
    /// Bytes sent.
    sent: u64,
    /// Bytes received.
    got: u64,
    /// The offsets of the message ends that have not arrived.
    ends: VecDeque<u64>,
    /// The sender shut the direction down.
    shut: bool,
    /// The receiver observed the end.
    eof: bool,
}

/// The checker.
#[derive(Debug, Default)]
pub struct Streams {
    flows: BTreeMap<Direction, Flow>,
    /// Directions that were open at the end of the world.
    still: Vec<Direction>,
}

impl Check for Streams {
    fn see(&mut self, event: &Event) -> Result<(), Violation> {
        let fail = |what: &str| Err(broken("streams", format!("{what}: {event:?}")));
        match *event {
            Event::Sent { direction, len, end } => {
                let flow = self.flows.entry(direction).or_default();
                flow.sent += u64::from(len);
                if end {
                    flow.ends.push_back(flow.sent);
                }
            }
            Event::Got { direction, len, sum, end } => {
                let flow = self.flows.entry(direction).or_default();
                let right = bytes::take(direction.key(), flow.got, len as usize);
                flow.got += u64::from(len);
                if flow.got > flow.sent {
                    return fail("more bytes arrived than were sent");
                }
                if bytes::sum(&right) != sum {
                    return fail("payload differs from the sent payload");
                }
                if flow.eof {
                    return fail("bytes arrived after the end of the stream");
                }
                let message = flow.ends.front().copied();
                if end && message != Some(flow.got) {
                    return fail("a message ended where none was ended");
                }
                if end {
                    flow.ends.pop_front();
                } else if message.is_some_and(|at| at < flow.got) {
                    return fail("the end of a message is missing");
                }
            }
            Event::Shut(direction) => self.flows.entry(direction).or_default().shut = true,
            Event::Eof(direction) => {
                let flow = self.flows.entry(direction).or_default();
                if !flow.shut {
                    return fail("end of the stream without a shutdown by the sender");
                }
                if flow.got != flow.sent {
                    let what = format!("stream ended after {} of {} bytes", flow.got, flow.sent);
                    return fail(&what);
                }
                flow.eof = true;
            }
            Event::Still { direction, asking: false } => self.still.push(direction),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Violation> {
        // Both ends are still open; otherwise `endings` reports the connection.
        for direction in &self.still {
            let Some(flow) = self.flows.get(direction) else { continue };
            let Flow { sent, got, .. } = *flow;
            if sent != got || !flow.ends.is_empty() {
                let what = format!(
                    "only {got} of {sent} bytes arrived, and the connection is open: {direction:?}"
                );
                return Err(broken("streams", what));
            }
            if flow.shut && !flow.eof {
                return Err(broken(
                    "streams",
                    format!("the receiver did not observe the end of the stream: {direction:?}"),
                ));
            }
        }
        Ok(())
    }
}
