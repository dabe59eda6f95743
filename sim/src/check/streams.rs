//! What one end sent the other one gets, in order, as it was, and whole unless it is reset.

use std::collections::{BTreeMap, VecDeque};

use super::{Check, Violation, broken};
use crate::bytes;
use crate::event::{Event, Way};

#[derive(Debug, Default)]
struct Flow {
    sent: u64,
    got: u64,
    /// Where messages end that have not arrived.
    ends: VecDeque<u64>,
    shut: bool,
    eof: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Streams {
    flows: BTreeMap<Way, Flow>,
    still: Vec<Way>,
}

impl Check for Streams {
    fn see(&mut self, event: &Event) -> Result<(), Violation> {
        let fail = |what: &str| Err(broken("streams", format!("{what}: {event:?}")));
        match *event {
            Event::Sent { way, len, end } => {
                let flow = self.flows.entry(way).or_default();
                flow.sent += u64::from(len);
                if end {
                    flow.ends.push_back(flow.sent);
                }
            }
            Event::Got { way, len, sum, end } => {
                let flow = self.flows.entry(way).or_default();
                let right = bytes::take(way.key(), flow.got, len as usize);
                flow.got += u64::from(len);
                if flow.got > flow.sent {
                    return fail("more came than was sent");
                }
                if bytes::sum(&right) != sum {
                    return fail("other bytes came than were sent");
                }
                if flow.eof {
                    return fail("bytes came after the end");
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
            Event::Shut(way) => self.flows.entry(way).or_default().shut = true,
            Event::Eof(way) => {
                let flow = self.flows.entry(way).or_default();
                if !flow.shut {
                    return fail("an end that nobody made");
                }
                if flow.got != flow.sent {
                    let what = format!("{} of {} bytes came before the end", flow.got, flow.sent);
                    return fail(&what);
                }
                flow.eof = true;
            }
            Event::Still { way, asking: false } => self.still.push(way),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Violation> {
        // Both of its ends are open still, or the endings have something to say.
        for way in &self.still {
            let Some(flow) = self.flows.get(way) else { continue };
            let Flow { sent, got, .. } = *flow;
            if sent != got || !flow.ends.is_empty() {
                let what = format!("{got} of {sent} bytes came, and no end: {way:?}");
                return Err(broken("streams", what));
            }
            if flow.shut && !flow.eof {
                return Err(broken("streams", format!("the end was not told: {way:?}")));
            }
        }
        Ok(())
    }
}
