//! The handshake of a session: Noise IK (X25519, AES-256-GCM, SHA-256), one round trip.
//!
//! The initiator knows the responder's public key. The responder learns the initiator's key from
//! the first message and checks that a tunnel is configured for it. The first message carries a
//! growing time, so that a replayed initiation has no effect, and a cookie if the responder is
//! under load ([`crate::handshake_guard`]).
//!
//! This module encodes and checks messages. It keeps no timers and retransmits nothing:
//! [`crate::tunnel::Tunnel`] does. It does not compare times or limit rates: the tunnel refuses an
//! initiation with a time that is not newer (an older time only while a session exists), and
//! [`crate::tunnel_set`] asks the guard before [`ReceivedInitiation::read`]. A message with another
//! length or a failed check is refused by a [`Refusal`], without an answer, and changes no state:
//! the caller drops and counts it. Randomness is an argument. All calls come from the thread of the
//! tunnel (in the daemon, the shard of links).

use std::fmt;

use causeway_wire::tunnel::{DatagramKind, OUTER_LEN, Outer};
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver, RingResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use crate::refusal::Refusal;
use crate::session::TunnelSession;
use causeway_model::keys::{KEY_LEN, PrivateKey, PublicKey};

/// The protocol by its Noise name.
pub const PROTOCOL: &str = "Noise_IK_25519_AESGCM_SHA256";
/// Prologue that both ends hash first, so that messages of other protocols are rejected.
const PROLOGUE: &[u8] = b"causeway tunnel 1";

/// Length of a cookie, in bytes.
pub const COOKIE_LEN: usize = 16;
/// Bytes of an initiation that a cookie reply repeats.
pub const COOKIE_ECHO_LEN: usize = 16;
/// Payload of an initiation: a time and a session index.
const INIT_PAYLOAD_LEN: usize = 12;
/// Payload of a response: a session index.
const RESPONSE_PAYLOAD_LEN: usize = 4;
/// Length of a Noise tag, in bytes.
const TAG: usize = 16;
/// Length of the first Noise message: an ephemeral key, the sealed static key and the sealed
/// payload.
const INIT_MESSAGE_LEN: usize = KEY_LEN + KEY_LEN + TAG + INIT_PAYLOAD_LEN + TAG;
/// Length of the second Noise message: an ephemeral key and the sealed payload.
const RESPONSE_MESSAGE_LEN: usize = KEY_LEN + RESPONSE_PAYLOAD_LEN + TAG;
/// Length of an initiation, in bytes.
pub const INIT_LEN: usize = OUTER_LEN + COOKIE_LEN + INIT_MESSAGE_LEN;
/// Length of a response, in bytes.
pub const RESPONSE_LEN: usize = OUTER_LEN + RESPONSE_MESSAGE_LEN;
/// Length of a cookie reply, in bytes.
pub const COOKIE_REPLY_LEN: usize = OUTER_LEN + COOKIE_LEN + COOKIE_ECHO_LEN;

/// Random bytes for one ephemeral key, and no more.
struct SingleUseRng(Option<Zeroizing<[u8; KEY_LEN]>>);

impl Random for SingleUseRng {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), snow::Error> {
        let bytes = self.0.take().ok_or(snow::Error::Rng)?;
        if out.len() != bytes.len() {
            return Err(snow::Error::Rng);
        }
        out.copy_from_slice(bytes.as_slice());
        Ok(())
    }
}

/// Resolver for ring's ciphers and hashes, with the caller's random bytes.
struct SeededResolver([u8; KEY_LEN]);

impl CryptoResolver for SeededResolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SingleUseRng(Some(Zeroizing::new(self.0)))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        RingResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        RingResolver.resolve_cipher(choice)
    }
}

/// Returns HMAC-SHA-256 of `data`.
pub(crate) fn mac(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    // ring always has this hash.
    if let Some(mut hash) = RingResolver.resolve_hash(&HashChoice::SHA256) {
        hash.hmac(key, data, &mut out);
    }
    out
}

/// Returns the state of a new handshake with our private key; `random` seeds the ephemeral key.
fn builder<'a>(own: &'a PrivateKey, random: [u8; KEY_LEN]) -> Result<Builder<'a>, snow::Error> {
    let params: NoiseParams = PROTOCOL.parse()?;
    Builder::with_resolver(params, Box::new(SeededResolver(random)))
        .prologue(PROLOGUE)?
        .local_private_key(own.bytes())
}

/// A handshake begun by this host.
pub struct Initiation {
    state: Box<HandshakeState>,
    /// The initiation as it is sent; a cookie is inserted here.
    datagram: [u8; INIT_LEN],
    /// Our index of the new session.
    index: u32,
    /// Whether a cookie was inserted. A second cookie is refused.
    has_cookie: bool,
}

impl fmt::Debug for Initiation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiation").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Initiation {
    /// Begins a handshake with `peer`. `index` is our index of the new session; `time` is in ns
    /// since 1970 and larger than in any earlier initiation. `None` if `peer` is no usable key.
    pub fn new(
        own: &PrivateKey,
        peer: &PublicKey,
        index: u32,
        time: u64,
        random: [u8; KEY_LEN],
    ) -> Option<Self> {
        let builder = builder(own, random).ok()?.remote_public_key(peer.bytes()).ok()?;
        let mut state = Box::new(builder.build_initiator().ok()?);
        let mut datagram = [0; INIT_LEN];
        let (header, rest) = datagram.split_first_chunk_mut::<OUTER_LEN>()?;
        *header = Outer { kind: DatagramKind::Init, receiver: 0, counter: u64::from(index) }.emit();
        let mut payload = [0; INIT_PAYLOAD_LEN];
        let (first, last) = payload.split_first_chunk_mut::<8>()?;
        *first = time.to_be_bytes();
        last.copy_from_slice(&index.to_be_bytes());
        state.write_message(&payload, rest.get_mut(COOKIE_LEN..)?).ok()?;
        Some(Self { state, datagram, index, has_cookie: false })
    }

    /// Returns the datagram to send.
    pub const fn datagram(&self) -> &[u8] {
        &self.datagram
    }

    /// Returns our index of the new session.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Inserts the cookie that the responder asked for; `body` is the datagram behind its header.
    ///
    /// # Errors
    /// [`Refusal::Unasked`] if the reply belongs to another initiation or a cookie was inserted
    /// before, [`Refusal::Truncated`].
    pub fn take_cookie(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let (cookie, echo) = body.split_first_chunk::<COOKIE_LEN>().ok_or(Refusal::Truncated)?;
        let message = self.datagram.get_mut(OUTER_LEN..).ok_or(Refusal::Truncated)?;
        let (place, message) =
            message.split_at_mut_checked(COOKIE_LEN).ok_or(Refusal::Truncated)?;
        if self.has_cookie || message.get(..COOKIE_ECHO_LEN) != Some(echo) {
            return Err(Refusal::Unasked);
        }
        place.copy_from_slice(cookie);
        self.has_cookie = true;
        Ok(())
    }

    /// Reads the response and returns the peer's index of the session; `body` is the datagram
    /// behind its header. Then [`Initiation::finish`] returns the session.
    ///
    /// # Errors
    /// [`Refusal::Forged`] or [`Refusal::Truncated`]: the state is unchanged, so continue to wait.
    pub fn read(&mut self, body: &[u8]) -> Result<u32, Refusal> {
        let mut payload = [0; RESPONSE_MESSAGE_LEN];
        if body.len() != RESPONSE_MESSAGE_LEN {
            return Err(Refusal::Truncated);
        }
        self.state.read_message(body, &mut payload).map_err(|_| Refusal::Forged)?;
        payload.first_chunk().map(|index| u32::from_be_bytes(*index)).ok_or(Refusal::Truncated)
    }

    /// Returns the session; `remote` is the peer's index from [`Initiation::read`].
    ///
    /// # Errors
    /// [`Refusal::Unasked`] before a successful [`Initiation::read`].
    pub fn finish(self, remote: u32) -> Result<TunnelSession, Refusal> {
        let keys = self.state.into_stateless_transport_mode().map_err(|_| Refusal::Unasked)?;
        Ok(TunnelSession::noise(keys, self.index, remote))
    }
}

/// An initiation of a sender that knows our key and has proven to own its key.
pub struct ReceivedInitiation {
    state: Box<HandshakeState>,
    /// The initiator's public key.
    peer: PublicKey,
    /// Time in the initiation, in ns since 1970 by the initiator's clock.
    time: u64,
    /// The initiator's index of the new session.
    remote: u32,
}

impl fmt::Debug for ReceivedInitiation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, time, remote, .. } = self;
        let mut shown = f.debug_struct("Call");
        shown.field("peer", peer).field("time", time).field("remote", remote).finish()
    }
}

/// Splits the body of an initiation (the datagram behind its header) into cookie and Noise message.
///
/// # Errors
/// [`Refusal::Truncated`] for any other length.
pub fn split_init(body: &[u8]) -> Result<([u8; COOKIE_LEN], &[u8]), Refusal> {
    let (cookie, message) = body.split_first_chunk().ok_or(Refusal::Truncated)?;
    if message.len() != INIT_MESSAGE_LEN {
        return Err(Refusal::Truncated);
    }
    Ok((*cookie, message))
}

/// Returns the cookie reply to an initiation with that header and message.
pub fn cookie_reply(init: &Outer, message: &[u8], cookie: &[u8; COOKIE_LEN]) -> Vec<u8> {
    let [.., a, b, c, d] = init.counter.to_be_bytes();
    let receiver = u32::from_be_bytes([a, b, c, d]);
    let mut reply = Vec::with_capacity(COOKIE_REPLY_LEN);
    reply.extend(Outer { kind: DatagramKind::Cookie, receiver, counter: 0 }.emit());
    reply.extend(cookie);
    reply.extend(message.get(..COOKIE_ECHO_LEN).unwrap_or(&[]));
    reply
}

impl ReceivedInitiation {
    /// Decrypts an initiation. Costs multiplications on the curve, so call
    /// [`crate::handshake_guard::HandshakeGuard::admit`] first. `random` is for the response.
    ///
    /// # Errors
    /// [`Refusal::Forged`], [`Refusal::Truncated`].
    pub fn read(
        own: &PrivateKey,
        init: &Outer,
        message: &[u8],
        random: [u8; KEY_LEN],
    ) -> Result<Self, Refusal> {
        let forged = |_| Refusal::Forged;
        let builder = builder(own, random).map_err(forged)?;
        let mut state = Box::new(builder.build_responder().map_err(forged)?);
        let mut payload = [0; INIT_MESSAGE_LEN];
        state.read_message(message, &mut payload).map_err(forged)?;
        let (time, rest) = payload.split_first_chunk().ok_or(Refusal::Truncated)?;
        let remote = rest.first_chunk().ok_or(Refusal::Truncated)?;
        let (time, remote) = (u64::from_be_bytes(*time), u32::from_be_bytes(*remote));
        if init.counter != u64::from(remote) || init.receiver != 0 {
            return Err(Refusal::Forged);
        }
        let peer = state.get_remote_static().and_then(|key| key.first_chunk());
        let peer = PublicKey::new(*peer.ok_or(Refusal::Forged)?);
        Ok(Self { state, peer, time, remote })
    }

    /// Returns the initiator's public key.
    pub const fn peer(&self) -> &PublicKey {
        &self.peer
    }

    /// Returns the time in the initiation, by the initiator's clock: ns since 1970.
    pub const fn time(&self) -> u64 {
        self.time
    }

    /// Returns the session and the response datagram. Send on the session only once the peer has
    /// used it.
    ///
    /// # Errors
    /// [`Refusal::Forged`] for keys that no honest peer has, [`Refusal::Truncated`].
    pub fn answer(mut self, index: u32) -> Result<(TunnelSession, Vec<u8>), Refusal> {
        let header = Outer { kind: DatagramKind::Response, receiver: self.remote, counter: 0 };
        let mut datagram = header.emit().to_vec();
        datagram.resize(RESPONSE_LEN, 0);
        let body = datagram.get_mut(OUTER_LEN..).ok_or(Refusal::Truncated)?;
        let written = self.state.write_message(&index.to_be_bytes(), body);
        written.map_err(|_| Refusal::Forged)?;
        let keys = self.state.into_stateless_transport_mode().map_err(|_| Refusal::Forged)?;
        Ok((TunnelSession::noise(keys, index, self.remote), datagram))
    }
}
