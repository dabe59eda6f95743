//! Captures that go on, and who fetches from them.

use std::collections::BTreeMap;
use std::time::Instant;

use super::links::{no_link, unexpected};
use super::{Registry, Reply};
use crate::capture::Recording;
use crate::limits::{CAPTURE_IDLE, CAPTURES_MAX};
use crate::orders::{Order, Outcome};
use crate::shard::ports::no_port;
use causeway_model::CaptureSpec;
use causeway_model::RouteEnd;
use causeway_model::{Answer, CaptureView, CommandError};

/// The captures that go on, by number.
#[derive(Debug, Default)]
pub(super) struct Captures {
    all: BTreeMap<u64, (Recording, Instant)>,
    last: u64,
    /// A thread ends those that nobody fetches from.
    watched: bool,
}

impl Captures {
    /// Ends those that nobody fetches from.
    fn tidy(&mut self) {
        self.all.retain(|_, (_, fetched)| fetched.elapsed() < CAPTURE_IDLE);
    }
}

fn no_capture(number: u64) -> CommandError {
    CommandError::NotFound { what: "capture", name: number.to_string() }
}

impl Registry {
    /// Whether captures go on, and nobody watches them yet: from now on the caller does.
    pub(crate) fn begin_watch(&mut self) -> bool {
        !self.captures.all.is_empty() && !std::mem::replace(&mut self.captures.watched, true)
    }

    /// Whoever watches ends the captures that nobody fetches from; when none goes on it is over.
    pub(crate) fn watch(&mut self) -> bool {
        self.captures.tidy();
        self.captures.watched = !self.captures.all.is_empty();
        self.captures.watched
    }

    /// Nobody could be found to watch.
    pub(crate) fn end_watch(&mut self) {
        self.captures.watched = false;
    }

    pub(super) fn capture_begin(&mut self, spec: CaptureSpec) -> Reply {
        self.captures.tidy();
        let group = match &spec.at {
            RouteEnd::Interface(name) => {
                let (port, _) = self.ports.get(name).ok_or_else(|| no_port(name))?;
                port.group.clone()
            }
            RouteEnd::Edge(name) => {
                let (link, _) = self.links.get(name).ok_or_else(|| no_link(name))?;
                link.group.clone()
            }
        };
        self.check_end(&group, &spec.at)?;
        self.captures.tidy();
        if self.captures.all.len() >= CAPTURES_MAX {
            let many = format!("there are {CAPTURES_MAX} captures already: end one");
            return Err(CommandError::Conflict(many));
        }
        match self.order(&Self::frames_key(&group), Order::Capture(spec))? {
            Outcome::Recording(recording) => {
                self.captures.last = self.captures.last.saturating_add(1);
                let capture = self.captures.last;
                self.captures.all.insert(capture, (recording, Instant::now()));
                Ok(Answer::Capture(CaptureView { capture }))
            }
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn capture_fetch(&mut self, number: u64) -> Reply {
        self.captures.tidy();
        let found = self.captures.all.get_mut(&number);
        let (recording, fetched) = found.ok_or_else(|| no_capture(number))?;
        *fetched = Instant::now();
        Ok(Answer::Fetched(recording.fetch()))
    }

    pub(super) fn capture_stop(&mut self, number: u64) -> Reply {
        let (recording, _) = self.captures.all.get(&number).ok_or_else(|| no_capture(number))?;
        recording.close();
        Ok(Answer::Done)
    }

    pub(super) fn capture_end(&mut self, number: u64) -> Reply {
        self.captures.all.remove(&number).map(|_| Answer::Done).ok_or_else(|| no_capture(number))
    }
}
