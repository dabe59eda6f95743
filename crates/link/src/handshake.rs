//! Two daemons agree on a session: Noise IK (X25519, AES-256-GCM, SHA-256), one round trip.
//!
//! The initiator knows the responder's public key; the responder learns the initiator's from the
//! first message and looks whether it knows it. The first message carries a time that must grow,
//! so that an old one cannot be played again, and a cookie that a busy responder may have asked
//! for (see [`crate::gate`]). Randomness comes in as an argument.

use std::fmt;

use causeway_wire::tunnel::{Kind, OUTER_LEN, Outer};
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver, RingResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use crate::refusal::Refusal;
use crate::session::Session;
use causeway_model::keys::{KEY_LEN, PrivateKey, PublicKey};

/// The protocol, by Noise's name for it.
pub const PROTOCOL: &str = "Noise_IK_25519_AESGCM_SHA256";
/// What both ends hash first, so that other protocols' messages mean nothing here.
const PROLOGUE: &[u8] = b"causeway tunnel 1";

/// Length of a cookie, in bytes.
pub const COOKIE_LEN: usize = 16;
/// Bytes of an initiation that the one who asks for a cookie repeats.
pub const ECHO_LEN: usize = 16;
/// What an initiation says: a time and a session's number.
const INIT_SAYS_LEN: usize = 12;
/// What an answer says: a session's number.
const RESPONSE_SAYS_LEN: usize = 4;
/// Length of a Noise tag, in bytes.
const TAG: usize = 16;
/// Length of the first Noise message: an ephemeral key, the static key sealed, and what it says.
const INIT_MESSAGE_LEN: usize = KEY_LEN + KEY_LEN + TAG + INIT_SAYS_LEN + TAG;
/// Length of the second: an ephemeral key and what it says.
const RESPONSE_MESSAGE_LEN: usize = KEY_LEN + RESPONSE_SAYS_LEN + TAG;
/// Length of an initiation, in bytes.
pub const INIT_LEN: usize = OUTER_LEN + COOKIE_LEN + INIT_MESSAGE_LEN;
/// Length of its answer, in bytes.
pub const RESPONSE_LEN: usize = OUTER_LEN + RESPONSE_MESSAGE_LEN;
/// Length of a request for a cookie, in bytes.
pub const COOKIE_REPLY_LEN: usize = OUTER_LEN + COOKIE_LEN + ECHO_LEN;

/// Random bytes for one ephemeral key, and no more.
struct Once(Option<Zeroizing<[u8; KEY_LEN]>>);

impl Random for Once {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), snow::Error> {
        let bytes = self.0.take().ok_or(snow::Error::Rng)?;
        if out.len() != bytes.len() {
            return Err(snow::Error::Rng);
        }
        out.copy_from_slice(bytes.as_slice());
        Ok(())
    }
}

/// ring's ciphers and hashes, and randomness that was given to us.
struct Resolver([u8; KEY_LEN]);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(Zeroizing::new(self.0)))))
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

/// A keyed sum over `data`: HMAC-SHA-256.
pub(crate) fn mac(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    // Always there: ring has it.
    if let Some(mut hash) = RingResolver.resolve_hash(&HashChoice::SHA256) {
        hash.hmac(key, data, &mut out);
    }
    out
}

fn builder<'a>(own: &'a PrivateKey, random: [u8; KEY_LEN]) -> Result<Builder<'a>, snow::Error> {
    let params: NoiseParams = PROTOCOL.parse()?;
    Builder::with_resolver(params, Box::new(Resolver(random)))
        .prologue(PROLOGUE)?
        .local_private_key(own.bytes())
}

/// A handshake that we began.
pub struct Initiation {
    state: Box<HandshakeState>,
    datagram: [u8; INIT_LEN],
    index: u32,
    /// Whether a cookie was put in: once is enough.
    has_cookie: bool,
}

impl fmt::Debug for Initiation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiation").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Initiation {
    /// Begins a handshake with `peer`. `index` is our number for the session to be, `time` is in
    /// ns since 1970 and larger than in any initiation before. None where `peer` is no usable key.
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
        *header = Outer { kind: Kind::Init, receiver: 0, counter: u64::from(index) }.emit();
        let mut says = [0; INIT_SAYS_LEN];
        let (first, last) = says.split_first_chunk_mut::<8>()?;
        *first = time.to_be_bytes();
        last.copy_from_slice(&index.to_be_bytes());
        state.write_message(&says, rest.get_mut(COOKIE_LEN..)?).ok()?;
        Some(Self { state, datagram, index, has_cookie: false })
    }

    /// What to send.
    pub const fn datagram(&self) -> &[u8] {
        &self.datagram
    }

    /// Our number for the session to be.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Puts in the cookie that was asked for; `body` is what stood behind the header.
    ///
    /// # Errors
    /// [`Refusal::Unasked`] when it answers another initiation, or this one has a cookie.
    pub fn take_cookie(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let (cookie, echo) = body.split_first_chunk::<COOKIE_LEN>().ok_or(Refusal::Truncated)?;
        let message = self.datagram.get_mut(OUTER_LEN..).ok_or(Refusal::Truncated)?;
        let (place, message) =
            message.split_at_mut_checked(COOKIE_LEN).ok_or(Refusal::Truncated)?;
        if self.has_cookie || message.get(..ECHO_LEN) != Some(echo) {
            return Err(Refusal::Unasked);
        }
        place.copy_from_slice(cookie);
        self.has_cookie = true;
        Ok(())
    }

    /// Reads the answer; `body` is what stood behind the header. A forged answer does no harm.
    /// Once it is right, [`Initiation::finish`] gives the session.
    ///
    /// # Errors
    /// [`Refusal::Forged`]: go on waiting.
    pub fn read(&mut self, body: &[u8]) -> Result<u32, Refusal> {
        let mut says = [0; RESPONSE_MESSAGE_LEN];
        if body.len() != RESPONSE_MESSAGE_LEN {
            return Err(Refusal::Truncated);
        }
        self.state.read_message(body, &mut says).map_err(|_| Refusal::Forged)?;
        says.first_chunk().map(|index| u32::from_be_bytes(*index)).ok_or(Refusal::Truncated)
    }

    /// The session, once [`Initiation::read`] told `remote`, the peer's number for it.
    ///
    /// # Errors
    /// [`Refusal::Unasked`] before that.
    pub fn finish(self, remote: u32) -> Result<Session, Refusal> {
        let keys = self.state.into_stateless_transport_mode().map_err(|_| Refusal::Unasked)?;
        Ok(Session::noise(keys, self.index, remote))
    }
}

/// A handshake that somebody began with us, who knows our key and has proven to have its own.
pub struct Call {
    state: Box<HandshakeState>,
    peer: PublicKey,
    time: u64,
    remote: u32,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, time, remote, .. } = self;
        let mut shown = f.debug_struct("Call");
        shown.field("peer", peer).field("time", time).field("remote", remote).finish()
    }
}

/// The cookie and the message of an initiation; `body` is what stood behind the header.
///
/// # Errors
/// [`Refusal::Truncated`], also for what is too long.
pub fn split_init(body: &[u8]) -> Result<([u8; COOKIE_LEN], &[u8]), Refusal> {
    let (cookie, message) = body.split_first_chunk().ok_or(Refusal::Truncated)?;
    if message.len() != INIT_MESSAGE_LEN {
        return Err(Refusal::Truncated);
    }
    Ok((*cookie, message))
}

/// The request for a cookie in answer to an initiation of that header and message.
pub fn cookie_reply(init: &Outer, message: &[u8], cookie: &[u8; COOKIE_LEN]) -> Vec<u8> {
    let [.., a, b, c, d] = init.counter.to_be_bytes();
    let receiver = u32::from_be_bytes([a, b, c, d]);
    let mut reply = Vec::with_capacity(COOKIE_REPLY_LEN);
    reply.extend(Outer { kind: Kind::Cookie, receiver, counter: 0 }.emit());
    reply.extend(cookie);
    reply.extend(message.get(..ECHO_LEN).unwrap_or(&[]));
    reply
}

impl Call {
    /// Reads an initiation of that header: costs two multiplications on the curve, so ask the
    /// [`crate::gate::Gate`] first. `random` is for our answer.
    ///
    /// # Errors
    /// [`Refusal::Forged`].
    pub fn read(
        own: &PrivateKey,
        init: &Outer,
        message: &[u8],
        random: [u8; KEY_LEN],
    ) -> Result<Self, Refusal> {
        let forged = |_| Refusal::Forged;
        let builder = builder(own, random).map_err(forged)?;
        let mut state = Box::new(builder.build_responder().map_err(forged)?);
        let mut says = [0; INIT_MESSAGE_LEN];
        state.read_message(message, &mut says).map_err(forged)?;
        let (time, rest) = says.split_first_chunk().ok_or(Refusal::Truncated)?;
        let remote = rest.first_chunk().ok_or(Refusal::Truncated)?;
        let (time, remote) = (u64::from_be_bytes(*time), u32::from_be_bytes(*remote));
        if init.counter != u64::from(remote) || init.receiver != 0 {
            return Err(Refusal::Forged);
        }
        let peer = state.get_remote_static().and_then(|key| key.first_chunk());
        let peer = PublicKey::new(*peer.ok_or(Refusal::Forged)?);
        Ok(Self { state, peer, time, remote })
    }

    /// Who calls.
    pub const fn peer(&self) -> &PublicKey {
        &self.peer
    }

    /// When, by its own clock: ns since 1970.
    pub const fn time(&self) -> u64 {
        self.time
    }

    /// Answers: the session, to be used for sending only once the peer has, and the datagram.
    ///
    /// # Errors
    /// [`Refusal::Forged`] for keys that no honest peer has.
    pub fn answer(mut self, index: u32) -> Result<(Session, Vec<u8>), Refusal> {
        let header = Outer { kind: Kind::Response, receiver: self.remote, counter: 0 };
        let mut datagram = header.emit().to_vec();
        datagram.resize(RESPONSE_LEN, 0);
        let body = datagram.get_mut(OUTER_LEN..).ok_or(Refusal::Truncated)?;
        let written = self.state.write_message(&index.to_be_bytes(), body);
        written.map_err(|_| Refusal::Forged)?;
        let keys = self.state.into_stateless_transport_mode().map_err(|_| Refusal::Forged)?;
        Ok((Session::noise(keys, index, self.remote), datagram))
    }
}
