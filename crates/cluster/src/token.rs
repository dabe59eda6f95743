//! Tokens by which a host joins a site: used once, and until they expire.
//!
//! A token is text for an operator: `SITE.ID.SECRET`. etcd has a [`TokenRecord`] without the secret:
//! only its SHA-256, so that a reader of etcd cannot use the token. [`JoinToken::check`] decides whether
//! a token admits a host, and returns the record that marks it used; the caller writes that record
//! in a transaction on the revision that it read, so that of two joins with one token one succeeds.
//! The record has a lease, which ends a day after the token expires
//! ([`TOKEN_KEPT_SECONDS`](crate::limits::TOKEN_KEPT_SECONDS)): until then a refusal has its reason.
//!
//! A token is checked by the program that joins, not by etcd: the guide states what it protects.
//! The module draws no random numbers, reads no clock and performs no I/O; it runs in the caller's
//! thread.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use causeway_model::Name;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::key::{is_token_id, token_path};
use crate::limits::{TOKEN_BYTES_MAX, TOKEN_ID_LEN};
use crate::record::{RecordError, VERSION, read, write};

/// Length of a secret, in bytes.
pub const SECRET_LEN: usize = 32;

/// The reason for which a token does not admit a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// The text is no token.
    #[error("the token is malformed: expected SITE.ID.SECRET, as `token create` prints it")]
    Malformed,
    /// The token is of another site, or etcd does not have its site.
    #[error(
        "the token is of site {0}, which is not the site of this etcd: check the URL, or make a \
         token in this site"
    )]
    Site(Name),
    /// etcd has no record of the token.
    #[error("etcd does not know the token: it was deleted, or expired long ago; make a new one")]
    Unknown,
    /// The secret is another one.
    #[error("the token has a wrong secret: copy it again, or make a new one")]
    Secret,
    /// The token admitted a host before.
    #[error("the token was used by host {0}: a token is used once; make a new one")]
    Used(Name),
    /// The time of the token is over.
    #[error("the token has expired: make a new one")]
    Expired,
    /// The token is for another host.
    #[error("the token is for host {0}: join with --host {0}, or make another token")]
    Host(Name),
    /// The token was used or deleted during the check.
    #[error("the token was used or deleted at the same time: make a new one")]
    Raced,
}

impl TokenRefusal {
    /// Returns the name of the reason in [`JoinsRecord::refused`].
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Site(_) => "site",
            Self::Unknown => "unknown",
            Self::Secret => "secret",
            Self::Used(_) | Self::Raced => "used",
            Self::Expired => "expired",
            Self::Host(_) => "host",
        }
    }
}

/// A token. Its `Debug` form has no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    site: Name,
    id: String,
    secret: Zeroizing<[u8; SECRET_LEN]>,
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({}.{})", self.site, self.id)
    }
}

impl FromStr for JoinToken {
    type Err = TokenRefusal;

    fn from_str(text: &str) -> Result<Self, TokenRefusal> {
        let wrong = || TokenRefusal::Malformed;
        if text.len() > TOKEN_BYTES_MAX {
            return Err(wrong());
        }
        // Names of sites may have dots.
        let (rest, secret) = text.rsplit_once('.').ok_or_else(wrong)?;
        let (site, id) = rest.rsplit_once('.').ok_or_else(wrong)?;
        if !is_token_id(id) {
            return Err(wrong());
        }
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.decode(secret).map_err(|_| wrong())?);
        let secret = secret.as_slice().try_into().map_err(|_| wrong())?;
        let site = site.parse().map_err(|_| wrong())?;
        Ok(Self { site, id: id.to_owned(), secret: Zeroizing::new(secret) })
    }
}

impl JoinToken {
    /// Returns a token of a site, of random bytes.
    pub fn new(site: Name, random: &[u8; SECRET_LEN], id: &[u8; TOKEN_ID_LEN / 2]) -> Self {
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { site, id, secret: Zeroizing::new(*random) }
    }

    /// Returns the text for the operator.
    pub fn to_text(&self) -> Zeroizing<String> {
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(self.secret.as_slice()));
        Zeroizing::new(format!("{}.{}.{}", self.site, self.id, secret.as_str()))
    }

    /// Returns the site.
    pub const fn site(&self) -> &Name {
        &self.site
    }

    /// Returns the number of the token, [`TOKEN_ID_LEN`] (16) hexadecimal digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the key of the record in etcd.
    pub fn path(&self) -> String {
        token_path(&self.site, &self.id)
    }

    /// Returns the digest of the secret and of the key of the record: a record that is copied to
    /// another key admits no host.
    fn digest(&self) -> String {
        let path = self.path();
        let bytes =
            Zeroizing::new([b"causeway-token-1", path.as_bytes(), &self.secret[..]].concat());
        URL_SAFE_NO_PAD.encode(digest(&SHA256, &bytes))
    }

    /// Returns the record for etcd; `host` is the only host that may use the token, if given.
    pub fn record(&self, host: Option<Name>, lease: u64) -> TokenRecord {
        TokenRecord { v: VERSION, digest: Some(self.digest()), host, lease, used_by: None }
    }

    /// Returns the record that marks the token as used by a host.
    ///
    /// # Errors
    /// The token does not admit the host.
    pub fn check(
        &self,
        record: &TokenRecord,
        host: &Name,
        is_expired: bool,
    ) -> Result<TokenRecord, TokenRefusal> {
        if let Some(by) = &record.used_by {
            return Err(TokenRefusal::Used(by.clone()));
        }
        if record.digest.as_ref() != Some(&self.digest()) {
            return Err(TokenRefusal::Secret);
        }
        if is_expired {
            return Err(TokenRefusal::Expired);
        }
        if let Some(other) = record.host.as_ref().filter(|other| *other != host) {
            return Err(TokenRefusal::Host(other.clone()));
        }
        Ok(TokenRecord { digest: None, used_by: Some(host.clone()), ..record.clone() })
    }
}

/// A token in etcd. Operators write it, and the host that uses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Version.
    pub v: u32,
    /// SHA-256 of the secret and of the key of the record; absent after the token was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The only host that may use the token; any host if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Name>,
    /// Lease of the record; the token has expired when less than [`TOKEN_KEPT_SECONDS`](crate::limits::TOKEN_KEPT_SECONDS) are left.
    pub lease: u64,
    /// The host that used the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<Name>,
}

impl TokenRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// The value is no record of a token.
    pub fn read(value: &[u8]) -> Result<Self, RecordError> {
        read(value)
    }

    /// Returns the value for etcd.
    pub fn write(&self) -> Vec<u8> {
        write(self)
    }
}

/// The site itself: `cluster init` writes it once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteRecord {
    /// Version.
    pub v: u32,
    /// Time of day of the first `init`, in ns since 1970.
    pub created: u64,
}

impl SiteRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// The value is no record of a site.
    pub fn read(value: &[u8]) -> Result<Self, RecordError> {
        read(value)
    }

    /// Returns the value for etcd.
    pub fn write(&self) -> Vec<u8> {
        write(self)
    }
}

/// Joins with a token that were refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinsRecord {
    /// Version.
    pub v: u32,
    /// Number of refusals by reason ([`TokenRefusal::as_str`]).
    pub refused: BTreeMap<String, u64>,
}

impl JoinsRecord {
    /// Reads a record; a value that is none counts from 0.
    pub fn read(value: &[u8]) -> Self {
        read(value).unwrap_or_default()
    }

    /// Returns the value with one more refusal.
    #[must_use]
    pub fn count(mut self, refusal: &TokenRefusal) -> Vec<u8> {
        let count = self.refused.entry(refusal.as_str().into()).or_default();
        *count = count.saturating_add(1);
        self.v = VERSION;
        write(&self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn token_admits_its_host_once() {
        let token = JoinToken::new(name("lab.a"), &[7; SECRET_LEN], &[1; 8]);
        assert_eq!(token.to_text().parse::<JoinToken>().unwrap(), token);
        let record = token.record(Some(name("h1")), 5);
        assert_eq!(TokenRecord::read(&record.write()).unwrap(), record);
        assert!(!String::from_utf8(record.write()).unwrap().contains(&token.to_text()[23..]));
        let used = token.check(&record, &name("h1"), false).unwrap();
        assert_eq!((&used.digest, used.lease), (&None, 5));
        let refused = |record, host, is_expired| token.check(record, &name(host), is_expired);
        assert_eq!(refused(&used, "h1", false), Err(TokenRefusal::Used(name("h1"))));
        assert_eq!(refused(&record, "h2", false), Err(TokenRefusal::Host(name("h1"))));
        assert_eq!(refused(&record, "h1", true), Err(TokenRefusal::Expired));
        let guess = JoinToken::new(name("lab.a"), &[8; SECRET_LEN], &[1; 8]);
        assert_eq!(guess.check(&record, &name("h1"), false), Err(TokenRefusal::Secret));
        // A record of another token, or of another site, has another digest.
        let copied = JoinToken::new(name("lab"), &[7; SECRET_LEN], &[1; 8]);
        assert_eq!(copied.check(&record, &name("h1"), false), Err(TokenRefusal::Secret));
        assert!(!format!("{token:?}").contains("BwcH"));
    }

    #[test]
    fn token_hostile_texts_are_refused() {
        let good = JoinToken::new(name("lab"), &[7; SECRET_LEN], &[1; 8]).to_text();
        let long = format!("{}{}", "a".repeat(10_000), good.as_str());
        for text in [
            "",
            ".",
            "..",
            "lab",
            "lab.0101010101010101",
            &good[1..].replace("ab", ""),
            &good[..good.len() - 1],
            &good.replace("0101", "01/1"),
            &good.replace("0101", "0A01"),
            &format!("{}A", good.as_str()),
            &format!("../{}", good.as_str()),
            &long,
        ] {
            assert_eq!(text.parse::<JoinToken>(), Err(TokenRefusal::Malformed), "{text}");
        }
    }

    #[test]
    fn token_refusals_are_counted_by_reason() {
        let mut value = JoinsRecord::read(b"garbage").count(&TokenRefusal::Expired);
        value = JoinsRecord::read(&value).count(&TokenRefusal::Used(name("h1")));
        value = JoinsRecord::read(&value).count(&TokenRefusal::Raced);
        let record = JoinsRecord::read(&value);
        assert_eq!((record.refused["expired"], record.refused["used"]), (1, 2));
    }
}
