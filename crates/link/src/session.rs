//! A session: keys that both ends of a tunnel share for minutes, or the agreement to use none.
//!
//! Seals plaintexts into datagrams of at most [`DATAGRAM_BYTES_MAX`] (65,507) bytes, and opens
//! them. All threads that send share a session: sealing changes only an atomic counter, and
//! counters may leave the host in another order than they were taken. Opening belongs to the thread
//! of the tunnel (in the daemon, the shard of links), which also keeps the
//! [`crate::replay::Replay`] of the session.
//!
//! A session does not check for replays and does not renew itself. It reports
//! [`SESSION_DATAGRAMS_REKEY`] (2^48) sealed datagrams by [`TunnelSession::needs_rekey`], and
//! refuses to seal after [`SESSION_DATAGRAMS_MAX`] (2^60), so that frames are dropped until a
//! handshake succeeds; the tunnel ends an encrypted session by age. A plain session neither
//! encrypts nor authenticates.
//!
//! `crate::handshake` creates encrypted sessions and `crate::tunnel` plain ones; [`crate::pack`]
//! and the tunnel's control datagrams (`crate::tunnel::keepalive`) seal, and
//! `crate::tunnel::records` opens.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_wire::tunnel::{DatagramKind, OUTER_LEN, Outer, TAG_LEN};
use snow::StatelessTransportState;

use crate::limits::{DATAGRAM_BYTES_MAX, SESSION_DATAGRAMS_MAX, SESSION_DATAGRAMS_REKEY};
use crate::refusal::Refusal;

/// Why a plaintext could not be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The key has sealed too many datagrams.
    #[error("the session is used up: a new handshake is in progress")]
    UsedUp,
    /// The plaintext is longer than a datagram or than its buffer.
    #[error("{0} bytes of plaintext do not fit a datagram")]
    Room(usize),
}

/// The protection of datagrams.
enum Cipher {
    /// The keys of a completed Noise handshake.
    Noise(Box<StatelessTransportState>),
    /// No encryption: any host on the path can read and forge datagrams.
    Plain,
}

/// A session.
pub struct TunnelSession {
    cipher: Cipher,
    /// Our index of the session: the receiver field of datagrams to us.
    local: u32,
    /// The peer's index: the receiver field of datagrams to the peer.
    remote: u32,
    /// Counter of the next datagram.
    counter: AtomicU64,
}

impl fmt::Debug for TunnelSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("plain", &self.is_plain())
            .field("local", &self.local)
            .field("remote", &self.remote)
            .field("counter", &self.sealed())
            .finish()
    }
}

impl TunnelSession {
    /// Returns the session of a completed handshake; `local` and `remote` are the ends' indices.
    pub fn noise(keys: StatelessTransportState, local: u32, remote: u32) -> Self {
        let cipher = Cipher::Noise(Box::new(keys));
        Self { cipher, local, remote, counter: AtomicU64::new(0) }
    }

    /// Returns a session without encryption.
    pub const fn plain() -> Self {
        Self { cipher: Cipher::Plain, local: 0, remote: 0, counter: AtomicU64::new(0) }
    }

    /// Returns whether the session has no encryption.
    pub const fn is_plain(&self) -> bool {
        matches!(self.cipher, Cipher::Plain)
    }

    /// Returns our index of the session.
    pub const fn local(&self) -> u32 {
        self.local
    }

    /// Returns the number of datagrams sealed so far.
    pub fn sealed(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }

    /// Returns whether the session should be replaced: [`SESSION_DATAGRAMS_REKEY`] (2^48) datagrams
    /// were sealed.
    pub fn needs_rekey(&self) -> bool {
        self.sealed() >= SESSION_DATAGRAMS_REKEY
    }

    /// Returns the difference in length between a datagram and its plaintext, in bytes.
    pub const fn overhead(&self) -> usize {
        match self.cipher {
            Cipher::Noise(_) => OUTER_LEN + TAG_LEN,
            Cipher::Plain => OUTER_LEN,
        }
    }

    /// Seals `text` into the front of `out` and returns the datagram's length in bytes: that of the
    /// text and [`Self::overhead`]. `out` may be longer. Allocates nothing.
    ///
    /// # Errors
    /// [`SealError`]: the contents of `out` must not be sent.
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
                DatagramKind::Data
            }
            Cipher::Plain => {
                body.copy_from_slice(text);
                DatagramKind::Plain
            }
        };
        *header = Outer { kind, receiver: self.remote, counter }.emit();
        Ok(text.len().saturating_add(self.overhead()))
    }

    /// Seals `text` and appends the datagram to `out`.
    ///
    /// # Errors
    /// [`SealError`]: `out` is unchanged.
    pub fn seal(&self, text: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        let start = out.len();
        out.resize(start.saturating_add(text.len()).saturating_add(self.overhead()), 0);
        let sealed = self.seal_into(text, out.get_mut(start..).unwrap_or(&mut []));
        if sealed.is_err() {
            out.truncate(start);
        }
        sealed.map(|_| ())
    }

    /// Opens `sealed`, the body of a datagram with `counter`, into the front of `out`, which must
    /// be at least as long. Returns the length of the plaintext in bytes.
    ///
    /// # Errors
    /// [`Refusal::Forged`], [`Refusal::Truncated`], [`Refusal::Oversized`]: the contents of `out`
    /// are then meaningless.
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
