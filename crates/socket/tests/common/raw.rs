//! A vsock guest that can violate every rule: [`Frontend`] with packets.

use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use causeway_memory::Span;
use causeway_testing::frontend::{Frontend, Sizes};
use causeway_wire::vsock::{HEADER_LEN, Header};

use causeway_testing::frontend::SEND_AT;

pub const SIZES: Sizes = Sizes { file: 0x20_0000, buffer: 4096 };

pub struct Raw {
    frontend: Frontend,
    /// Receive buffer that the backend uses next.
    next: u16,
}

impl Deref for Raw {
    type Target = Frontend;

    fn deref(&self) -> &Frontend {
        &self.frontend
    }
}

impl DerefMut for Raw {
    fn deref_mut(&mut self) -> &mut Frontend {
        &mut self.frontend
    }
}

/// Returns the span of 4 KiB for the data of the `n`th packet.
pub fn data_at(n: u64) -> Span {
    Span { addr: SEND_AT + (n + 1) * 4096, len: 4096 }
}

impl Raw {
    /// Attaches to the port at `path` with new memory.
    pub fn attach(path: &Path) -> Self {
        Self::over(path, SIZES.memory())
    }

    /// Attaches with the memory of an earlier attachment.
    pub fn over(path: &Path, file: File) -> Self {
        Self { frontend: Frontend::attach(path, 0, SIZES, file), next: 0 }
    }

    /// Sends a packet with data in `spans`.
    pub fn send(&mut self, header: &Header, spans: &[Span]) {
        self.map.write(SEND_AT, &header.emit()).unwrap();
        let head = Span { addr: SEND_AT, len: HEADER_LEN as u32 };
        let all: Vec<_> = std::iter::once(head).chain(spans.iter().copied()).collect();
        self.send_chain(&all);
        self.kick();
    }

    /// Returns the number of sent chains that the backend has not returned.
    pub fn outstanding(&mut self) -> u16 {
        while self.transmit.take().unwrap().is_some() {}
        self.transmit.outstanding()
    }

    /// Returns the next received packet, if there is one. Each buffer is used once.
    pub fn receive(&mut self) -> Option<Header> {
        self.frontend.receive.take().unwrap()?;
        let mut bytes = [0; HEADER_LEN];
        self.map.read(SIZES.buffer(self.next).addr, &mut bytes).unwrap();
        self.next += 1;
        Some(Header::parse(&bytes).unwrap())
    }
}
