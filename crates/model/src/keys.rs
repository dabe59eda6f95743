//! Identities of daemons: X25519 key pairs, in WireGuard's text form (44 characters of base64).
//!
//! Links of kind `causeway` authenticate the peer by its public key. `causeway key` makes and
//! prints keys in its main thread; the daemon reads the key file in the dispatcher's thread of the
//! links' shard when it opens a link, and again at a reload
//! ([`commands::links::Reload`](crate::commands::links::Reload)). This module holds and converts
//! keys; the handshake is in the `link` crate, and random bytes come from the caller
//! ([`PrivateKey::new`]).
//!
//! A text of another length or with other characters is refused, with an error that does not repeat
//! it. Any 32 bytes are a valid key; the module does not check that a public key has a private
//! half. Keys are not encrypted at rest and do not expire.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use zeroize::Zeroizing;

/// Length of a key, in bytes.
pub const KEY_LEN: usize = 32;
/// Length of a key's text, in characters.
pub const KEY_TEXT_LEN: usize = 44;

/// The error of a text that is no key. It does not repeat the text, which might be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key is {KEY_TEXT_LEN} characters of base64, as `causeway key` writes it")]
pub struct KeyError;

/// Decodes the text of a key; the bytes are wiped from memory on drop.
fn decode(text: &str) -> Result<Zeroizing<[u8; KEY_LEN]>, KeyError> {
    // One byte more than a key: 44 characters without padding would decode to 33 bytes.
    let mut bytes = Zeroizing::new([0_u8; KEY_LEN + 1]);
    if text.len() != KEY_TEXT_LEN {
        return Err(KeyError);
    }
    let len = STANDARD.decode_slice(text, bytes.as_mut_slice()).map_err(|_| KeyError)?;
    let key: &[u8; KEY_LEN] = bytes.first_chunk().filter(|_| len == KEY_LEN).ok_or(KeyError)?;
    Ok(Zeroizing::new(*key))
}

/// The public key of a daemon, by which peers know it. If two daemons begin a handshake at once,
/// that of the smaller key has precedence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_LEN]);

impl PublicKey {
    /// Returns the key with these bytes.
    pub const fn new(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the key.
    pub const fn bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(|bytes| Self(*bytes))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// The private key of a daemon. `Debug` prints the public key instead; only [`PrivateKey::to_text`]
/// and [`PrivateKey::bytes`] return the secret. The bytes are wiped from memory on drop.
#[derive(Clone)]
pub struct PrivateKey(Zeroizing<[u8; KEY_LEN]>);

impl PrivateKey {
    /// Returns the key of 32 random bytes. All values are valid: X25519 clears the required bits
    /// itself.
    pub fn new(random: [u8; KEY_LEN]) -> Self {
        Self(Zeroizing::new(random))
    }

    /// Returns the secret bytes, for the handshake.
    pub fn bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// Returns the public key, with which peers are configured.
    pub fn public(&self) -> PublicKey {
        let mut public = [0; KEY_LEN];
        // Never `None`: the manifest enables the feature that provides Curve25519.
        if let Some(mut dh) = DefaultResolver.resolve_dh(&DHChoice::Curve25519) {
            dh.set(self.bytes());
            for (to, from) in public.iter_mut().zip(dh.pubkey()) {
                *to = *from;
            }
        }
        PublicKey(public)
    }

    /// Returns the text for a key file.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.bytes()))
    }
}

impl FromStr for PrivateKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(Self)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(of {})", self.public())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_pair_is_that_of_rfc_7748() {
        // RFC 7748, section 6.1: Alice's keys.
        let private = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
        let public = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
        let key: PrivateKey = private.parse().unwrap();
        assert_eq!(key.public().to_string(), public);
        assert_eq!(key.to_text().as_str(), private);
        assert_eq!(public.parse(), Ok(key.public()));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let key = PrivateKey::new([7; KEY_LEN]);
        let shown = format!("{key:?} {key:#?}");
        assert!(!shown.contains(key.to_text().as_str()));
        assert!(shown.contains(&key.public().to_string()));
    }

    #[test]
    fn key_hostile_texts_are_refused() {
        let good = PrivateKey::new([7; KEY_LEN]).to_text();
        for text in [
            "",
            "=",
            &good[..43],
            &format!("{}=", good.as_str()),
            &good.replace('=', "A"),
            &good.replace('B', "!"),
            &"ä".repeat(22),
        ] {
            assert!(text.parse::<PrivateKey>().is_err(), "{text}");
            let error = text.parse::<PublicKey>().unwrap_err().to_string();
            assert!(text.len() < 2 || !error.contains(text));
        }
    }
}
