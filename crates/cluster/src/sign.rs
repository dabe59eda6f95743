//! Signatures over records: Ed25519 (RFC 8032), by the library `ring`.
//!
//! Each host has a signing key of its own, beside the X25519 key of its tunnels. The public half
//! stands in the host's record; a claim is accepted only with a signature of that key over the
//! address, the epoch, the host and the mark of a withdrawal. The module draws no random numbers:
//! the caller passes a seed.
//! Texts are base64, as the other keys of the project.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Length of a seed and of a public key, in bytes.
pub const KEY_LEN: usize = 32;
/// Length of a signature, in bytes.
pub const SIGNATURE_LEN: usize = 64;

/// The error of a text that is no key or signature. It does not repeat the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {0} bytes in base64")]
pub struct TextError(usize);

fn decode<const N: usize>(text: &str) -> Result<[u8; N], TextError> {
    // Bounds the decoded bytes: base64 has 4 characters for 3 bytes.
    if text.len() > N.saturating_mul(2) {
        return Err(TextError(N));
    }
    let bytes = Zeroizing::new(STANDARD.decode(text).map_err(|_| TextError(N))?);
    bytes.as_slice().try_into().map_err(|_| TextError(N))
}

/// A host's private key for signatures.
pub struct SigningKey {
    seed: Zeroizing<[u8; KEY_LEN]>,
    pair: Ed25519KeyPair,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(of {})", self.public())
    }
}

impl SigningKey {
    /// Returns the key of 32 random bytes.
    ///
    /// # Errors
    /// The library refuses the seed, which it does for a wrong length only.
    pub fn new(seed: [u8; KEY_LEN]) -> Result<Self, TextError> {
        let seed = Zeroizing::new(seed);
        let pair = Ed25519KeyPair::from_seed_unchecked(seed.as_slice());
        Ok(Self { pair: pair.map_err(|_| TextError(KEY_LEN))?, seed })
    }

    /// Returns the public key.
    pub fn public(&self) -> VerifyingKey {
        let mut bytes = [0; KEY_LEN];
        for (to, from) in bytes.iter_mut().zip(self.pair.public_key().as_ref()) {
            *to = *from;
        }
        VerifyingKey(bytes)
    }

    /// Returns the signature of bytes.
    pub fn sign(&self, bytes: &[u8]) -> Signature {
        let mut out = [0; SIGNATURE_LEN];
        for (to, from) in out.iter_mut().zip(self.pair.sign(bytes).as_ref()) {
            *to = *from;
        }
        Signature(out)
    }

    /// Returns the text for a key file.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.seed.as_slice()))
    }
}

impl FromStr for SigningKey {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        Self::new(decode(text)?)
    }
}

/// A host's public key for signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VerifyingKey([u8; KEY_LEN]);

impl VerifyingKey {
    /// Returns whether a signature over bytes is of this key.
    pub fn verifies(&self, bytes: &[u8], signature: &Signature) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(bytes, &signature.0).is_ok()
    }
}

/// A signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Signature([u8; SIGNATURE_LEN]);

impl Signature {
    /// Returns a signature of which no key is known, for a record that is signed next.
    pub const fn none() -> Self {
        Self([0; SIGNATURE_LEN])
    }
}

impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl TryFrom<String> for VerifyingKey {
    type Error = TextError;
    fn try_from(text: String) -> Result<Self, TextError> {
        decode(&text).map(Self)
    }
}

impl From<VerifyingKey> for String {
    fn from(key: VerifyingKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for Signature {
    type Error = TextError;
    fn try_from(text: String) -> Result<Self, TextError> {
        decode(&text).map(Self)
    }
}

impl From<Signature> for String {
    fn from(signature: Signature) -> Self {
        STANDARD.encode(signature.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_that_of_rfc_8032() {
        // RFC 8032, 7.1, test 2.
        let hex = |text: &str| -> Vec<u8> {
            let pairs = text.as_bytes().chunks(2);
            pairs
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect()
        };
        let seed = hex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb");
        let public = hex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        let signature = hex("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
             085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
        let key = SigningKey::new(seed.try_into().unwrap()).unwrap();
        assert_eq!(key.public().0.to_vec(), public);
        assert_eq!(key.sign(&[0x72]).0.to_vec(), signature);
        assert!(key.public().verifies(&[0x72], &key.sign(&[0x72])));
        assert!(!key.public().verifies(&[0x73], &key.sign(&[0x72])));
        let again: SigningKey = key.to_text().parse().unwrap();
        assert_eq!(again.public(), key.public());
    }

    #[test]
    fn signature_hostile_texts_are_refused() {
        for text in ["", "=", "AAAA", &"A".repeat(10_000)] {
            assert!(text.parse::<SigningKey>().is_err());
            assert!(VerifyingKey::try_from(text.to_owned()).is_err());
            assert!(Signature::try_from(text.to_owned()).is_err());
        }
        let key = SigningKey::new([7; 32]).unwrap();
        assert!(!format!("{key:?}").contains(key.to_text().as_str()));
    }
}
