//! A session: keys that both ends of a tunnel share for a while, or the agreement to do without.
//!
//! Sealing is shared by all threads that send: the counter is atomic and nothing else changes.
//! Opening belongs to one thread, which also keeps the [`crate::replay::Replay`] of the session.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_wire::tunnel::{Kind, OUTER_LEN, Outer, TAG_LEN};
use snow::StatelessTransportState;

use crate::limits::{DATAGRAM_BYTES_MAX, SESSION_DATAGRAMS_MAX, SESSION_DATAGRAMS_REKEY};
use crate::refusal::Refusal;

/// Why a text could not be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Too many datagrams for one key.
    #[error("the session is used up; a new one is agreed on while the peer answers")]
    UsedUp,
    /// The text is longer than a datagram, or than the room for it.
    #[error("the text of {0} bytes has no room in a datagram")]
    Room(usize),
}

enum Cipher {
    Noise(Box<StatelessTransportState>),
    /// By name only: anybody on the way can read and write.
    Plain,
}

/// A session.
pub struct Session {
    cipher: Cipher,
    /// Our number for it: what datagrams to us say.
    local: u32,
    /// The peer's number for it: what datagrams to the peer say.
    remote: u32,
    /// The next datagram's counter.
    counter: AtomicU64,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("plain", &self.is_plain())
            .field("local", &self.local)
            .field("remote", &self.remote)
            .field("counter", &self.sealed())
            .finish()
    }
}

impl Session {
    /// A session of a finished handshake; `local` and `remote` are the ends' numbers for it.
    pub fn noise(keys: StatelessTransportState, local: u32, remote: u32) -> Self {
        let cipher = Cipher::Noise(Box::new(keys));
        Self { cipher, local, remote, counter: AtomicU64::new(0) }
    }

    /// A session without secrets.
    pub const fn plain() -> Self {
        Self { cipher: Cipher::Plain, local: 0, remote: 0, counter: AtomicU64::new(0) }
    }

    /// Whether there are no secrets.
    pub const fn is_plain(&self) -> bool {
        matches!(self.cipher, Cipher::Plain)
    }

    /// Our number for it.
    pub const fn local(&self) -> u32 {
        self.local
    }

    /// Datagrams sealed so far.
    pub fn sealed(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }

    /// Whether it has sealed enough and should have a successor.
    pub fn is_worn(&self) -> bool {
        self.sealed() >= SESSION_DATAGRAMS_REKEY
    }

    /// What a datagram is longer than its text by, in bytes.
    pub const fn overhead(&self) -> usize {
        match self.cipher {
            Cipher::Noise(_) => OUTER_LEN + TAG_LEN,
            Cipher::Plain => OUTER_LEN,
        }
    }

    /// Writes a datagram with `text` at the front of `out`, and says its length in bytes: that of
    /// the text and [`Self::overhead`]. `out` may be longer. Nothing is allocated.
    ///
    /// # Errors
    /// [`SealError`]: `out` is then not to be sent.
    pub fn seal_into(&self, text: &[u8], out: &mut [u8]) -> Result<usize, SealError> {
        let room = SealError::Room(text.len());
        let len = text.len().checked_add(self.overhead()).filter(|len| *len <= DATAGRAM_BYTES_MAX);
        let out = len.and_then(|len| out.get_mut(..len)).ok_or(room)?;
        let (header, body) = out.split_first_chunk_mut::<OUTER_LEN>().ok_or(room)?;
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        if counter >= SESSION_DATAGRAMS_MAX {
            return Err(SealError::UsedUp);
        }
        let kind = match &self.cipher {
            Cipher::Noise(keys) => {
                keys.write_message(counter, text, body).map_err(|_| room)?;
                Kind::Data
            }
            Cipher::Plain => {
                body.copy_from_slice(text);
                Kind::Plain
            }
        };
        *header = Outer { kind, receiver: self.remote, counter }.emit();
        Ok(text.len().saturating_add(self.overhead()))
    }

    /// Puts a datagram with `text` behind what is in `out`.
    ///
    /// # Errors
    /// [`SealError`]: `out` is then as it was.
    pub fn seal(&self, text: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        let start = out.len();
        out.resize(start.saturating_add(text.len()).saturating_add(self.overhead()), 0);
        let sealed = self.seal_into(text, out.get_mut(start..).unwrap_or(&mut []));
        if sealed.is_err() {
            out.truncate(start);
        }
        sealed.map(|_| ())
    }

    /// Opens what stood behind the header of a datagram with `counter`, into the front of `out`,
    /// which must be as long as `sealed`. Says the length of the text.
    ///
    /// # Errors
    /// [`Refusal::Forged`], [`Refusal::Truncated`]; what is in `out` then means nothing.
    pub fn open(&self, counter: u64, sealed: &[u8], out: &mut [u8]) -> Result<usize, Refusal> {
        let out = out.get_mut(..sealed.len()).ok_or(Refusal::Oversized)?;
        match &self.cipher {
            Cipher::Noise(_) if sealed.len() < TAG_LEN => Err(Refusal::Truncated),
            Cipher::Noise(keys) => {
                keys.read_message(counter, sealed, out).map_err(|_| Refusal::Forged)
            }
            Cipher::Plain => {
                out.copy_from_slice(sealed);
                Ok(sealed.len())
            }
        }
    }
}
