//! A network guest that can break every rule: [`Frontend`] with frames.

use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use causeway_memory::Span;
use causeway_testing::frontend::{Frontend, Sizes};

use causeway_testing::frontend::{RECEIVE, SEND_AT, TRANSMIT};

pub const SIZES: Sizes = Sizes { file: 0x10_0000, buffer: 2048 };

pub struct Raw(Frontend);

impl Deref for Raw {
    type Target = Frontend;

    fn deref(&self) -> &Frontend {
        &self.0
    }
}

impl DerefMut for Raw {
    fn deref_mut(&mut self) -> &mut Frontend {
        &mut self.0
    }
}

impl Raw {
    /// Attaches to the port at `path` with new memory.
    pub fn attach(path: &Path) -> Self {
        Self::over(path, SIZES.memory())
    }

    /// Attaches with the memory of an earlier attachment.
    pub fn over(path: &Path, file: File) -> Self {
        Self(Frontend::attach(path, super::ALL, SIZES, file))
    }

    /// Sends a frame without offloads.
    pub fn send(&mut self, frame: &[u8]) {
        self.map.write(SEND_AT, &[&[0; 12], frame].concat()).unwrap();
        let len = (frame.len() + 12) as u32;
        self.send_chain(&[Span { addr: SEND_AT, len }]);
    }

    /// Sends a chain of `spans` and rings both doorbells.
    pub fn send_chain(&mut self, spans: &[Span]) {
        self.0.send_chain(spans);
        self.kick_all();
    }

    /// Overwrites the available index of the transmit ring.
    pub fn jump(&self, index: u16) {
        self.map.write(TRANSMIT.avail().0 + 2, &index.to_le_bytes()).unwrap();
    }

    /// Overwrites a descriptor: 0 for the receive ring, 1 for the transmit ring.
    pub fn describe(&self, ring: usize, at: u16, span: Span, flags: u16, next: u16) {
        let mut bytes = span.addr.to_le_bytes().to_vec();
        bytes.extend(span.len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        let base = [RECEIVE, TRANSMIT][ring].desc().0;
        self.map.write(base + 16 * u64::from(at), &bytes).unwrap();
    }
}
