//! A process that is attached.

use std::os::fd::OwnedFd;

use causeway_attach::local::{Ended, Local, Received};
use causeway_fabric::{PortId, ServiceWatch};
use causeway_wire::local::{Ask, Tell};

/// See above.
#[derive(Debug)]
pub struct Client {
    pub port: PortId,
    local: Local,
    #[expect(dead_code, reason = "held for its drop")]
    watch: ServiceWatch,
    /// Whether it has said which version it speaks.
    pub greeted: bool,
    /// Why it is to be parted from.
    ended: Option<Ended>,
}

impl Client {
    pub fn new(port: PortId, local: Local, watch: ServiceWatch) -> Self {
        Self { port, local, watch, greeted: false, ended: None }
    }

    /// Its next question, if there is one, and the memory that comes with it.
    pub fn next(&mut self) -> Option<(Ask, Option<OwnedFd>)> {
        match self.local.receive() {
            Ok(Some(Received { bytes, mut fds })) => match Ask::parse(&bytes) {
                Ok(ask) => {
                    let wanted = usize::from(matches!(ask, Ask::Region { .. }));
                    if fds.len() == wanted {
                        return Some((ask, fds.pop()));
                    }
                    self.end(Ended::Descriptors);
                }
                Err(error) => self.end(Ended::Host(std::io::Error::other(error))),
            },
            Ok(None) => {}
            Err(ended) => self.end(ended),
        }
        None
    }

    /// Tells it something.
    pub fn tell(&mut self, tell: &Tell, fds: Vec<OwnedFd>) {
        if self.ended.is_none()
            && let Err(ended) = self.local.send(tell.emit(), fds)
        {
            self.end(ended);
        }
    }

    /// There is room in its socket again.
    pub fn flush(&mut self) {
        if let Err(ended) = self.local.flush() {
            self.end(ended);
        }
    }

    /// It is to be parted from; the first reason counts.
    pub fn end(&mut self, ended: Ended) {
        self.ended.get_or_insert(ended);
    }

    /// Why it is to be parted from, if it is.
    pub fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }
}
