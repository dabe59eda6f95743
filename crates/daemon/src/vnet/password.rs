//! The password of VNET clients, and the delay after wrong passwords.
//!
//! [`Attempts::attempt`] compares in constant time. After a wrong password, attempts of the source
//! are not checked ([`PasswordResult::Wait`]) for [`VNET_DELAY_FIRST`] (1 s); each further failure
//! doubles the delay up to [`VNET_DELAY_MAX`] (5 min), and a right password or
//! [`VNET_FORGET_AFTER`] (1 h) without a failure resets it. An attempt within the delay is refused
//! even with the right password, and does not extend the delay. At most [`VNET_SOURCES_MAX`]
//! (1,024) sources are remembered; the source with the oldest last failure is forgotten first.
//!
//! The delay is per source and never blocks a thread: the session answers `ERROR` and ends. An
//! attacker with many sources is not limited, and a password on the wire is not protected. All
//! clients have the same password, which is loaded once; a changed file takes effect at the next
//! start.
//!
//! [`super::session`] calls it for each HELLO, with the attempts of all sessions behind a mutex;
//! the caller gives the time. [`crate::lifecycle`] loads the password, and `causewayd
//! --check-config` tries to ([`crate::config::environment`]).

use std::collections::HashMap;
use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::source::ClientSource;
use crate::limits::{
    VNET_DELAY_FIRST, VNET_DELAY_MAX, VNET_FORGET_AFTER, VNET_PASSWORD_BYTES_MAX, VNET_SOURCES_MAX,
};

/// The password. `Debug` does not print it.
#[derive(Clone)]
pub struct Password(Vec<u8>);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

impl Password {
    /// Reads the password from a file that only its owner can access.
    ///
    /// # Errors
    /// The problem of the file, without its content.
    pub fn load(path: &Path) -> Result<Self, String> {
        let wrong = |text: &str| format!("{}: {text}", path.display());
        let file = File::open(path).map_err(|error| wrong(&error.to_string()))?;
        let meta = file.metadata().map_err(|error| wrong(&error.to_string()))?;
        if meta.mode() & 0o077 != 0 {
            return Err(wrong("others can read or write it: make it private with chmod 600"));
        }
        let mut text = String::new();
        let most = VNET_PASSWORD_BYTES_MAX as u64 + 2;
        let read = file.take(most).read_to_string(&mut text);
        read.map_err(|error| wrong(&error.to_string()))?;
        Self::new(text.trim_end_matches(['\r', '\n'])).map_err(|text| wrong(&text))
    }

    /// Returns the password with this text.
    ///
    /// # Errors
    /// The permitted characters and length.
    pub fn new(text: &str) -> Result<Self, String> {
        let fits = (1..=VNET_PASSWORD_BYTES_MAX).contains(&text.len());
        if fits && text.bytes().all(|b| b.is_ascii_graphic()) {
            return Ok(Self(text.as_bytes().to_vec()));
        }
        let most = VNET_PASSWORD_BYTES_MAX;
        Err(format!("expected one password, 1 to {most} printable ASCII characters without blanks"))
    }

    /// Returns whether `given` is the password. The time does not depend on the result.
    pub fn is(&self, given: &str) -> bool {
        let byte = |of: &[u8], at: usize| of.get(at).copied().unwrap_or(0);
        let mut differs = u8::from(black_box(self.0.len() != given.len()));
        for at in 0..VNET_PASSWORD_BYTES_MAX {
            differs |= black_box(byte(&self.0, at) ^ byte(given.as_bytes(), at));
        }
        black_box(differs) == 0
    }
}

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswordResult {
    /// The password was right.
    Right,
    /// The password was wrong; attempts of the source are not checked for this time.
    Wrong(Duration),
    /// The password was not checked; the source must wait for this time.
    Wait(Duration),
}

/// The failed attempts of a source.
#[derive(Debug, Clone, Copy)]
struct Failures {
    /// Failures since the last reset.
    count: u32,
    /// Time of the last failure.
    last: Instant,
    /// Time until which attempts are not checked.
    until: Instant,
}

/// Sources with failed attempts. Each failure doubles the delay of the source.
#[derive(Debug, Default)]
pub struct Attempts {
    sources: HashMap<ClientSource, Failures>,
}

impl Attempts {
    /// Checks a password, unless the source must wait.
    pub fn attempt(
        &mut self,
        now: Instant,
        from: impl Into<ClientSource>,
        password: &Password,
        given: &str,
    ) -> PasswordResult {
        let source = from.into();
        let old = |f: &Failures| now.saturating_duration_since(f.last) >= VNET_FORGET_AFTER;
        if self.sources.get(&source).is_some_and(old) {
            self.sources.remove(&source);
        }
        if let Some(failures) = self.sources.get(&source) {
            let left = failures.until.saturating_duration_since(now);
            if !left.is_zero() {
                return PasswordResult::Wait(left);
            }
        }
        if password.is(given) {
            self.sources.remove(&source);
            return PasswordResult::Right;
        }
        self.make_room(&source);
        let count = self.sources.get(&source).map_or(0, |failures| failures.count);
        let delay = VNET_DELAY_FIRST.saturating_mul(1_u32.checked_shl(count).unwrap_or(u32::MAX));
        let delay = delay.min(VNET_DELAY_MAX);
        let failures = Failures { count: count.saturating_add(1), last: now, until: now + delay };
        self.sources.insert(source, failures);
        PasswordResult::Wrong(delay)
    }

    /// Forgets the source with the oldest last failure if `source` would exceed the limit.
    fn make_room(&mut self, source: &ClientSource) {
        if self.sources.len() < VNET_SOURCES_MAX || self.sources.contains_key(source) {
            return;
        }
        let oldest = self.sources.iter().min_by_key(|(_, failures)| failures.last);
        if let Some(oldest) = oldest.map(|(source, _)| *source) {
            self.sources.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn hostile_guesses_wait_twice_as_long_each_time() {
        let (mut attempts, password) = (Attempts::default(), Password::new("right").unwrap());
        let from: IpAddr = "10.0.0.9".parse().unwrap();
        let mut now = Instant::now();
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            let delay = Duration::from_secs(seconds);
            assert_eq!(
                attempts.attempt(now, from, &password, "wrong"),
                PasswordResult::Wrong(delay)
            );
            let half = PasswordResult::Wait(delay / 2);
            assert_eq!(attempts.attempt(now + delay / 2, from, &password, "right"), half);
            now += delay;
        }
        let other: IpAddr = "10.0.0.8".parse().unwrap();
        assert_eq!(
            attempts.attempt(now, other, &password, "right"),
            PasswordResult::Right,
            "a failure delays its own source only"
        );
        assert_eq!(attempts.attempt(now, from, &password, "right"), PasswordResult::Right);
        let first = PasswordResult::Wrong(VNET_DELAY_FIRST);
        assert_eq!(attempts.attempt(now, from, &password, "wrong"), first, "forgiven");
        now += VNET_FORGET_AFTER;
        assert_eq!(attempts.attempt(now, from, &password, "wrong"), first, "forgotten");
    }

    #[test]
    fn hostile_guesses_of_one_local_user_delay_no_other_user() {
        let (mut attempts, password) = (Attempts::default(), Password::new("right").unwrap());
        let now = Instant::now();
        let address = "127.0.0.1".parse().unwrap();
        let user = |uid| ClientSource { address, uid: Some(uid) };
        assert!(matches!(
            attempts.attempt(now, user(7), &password, "wrong"),
            PasswordResult::Wrong(_)
        ));
        assert!(matches!(
            attempts.attempt(now, user(7), &password, "right"),
            PasswordResult::Wait(_)
        ));
        assert_eq!(attempts.attempt(now, user(8), &password, "right"), PasswordResult::Right);
    }

    #[test]
    fn hostile_sources_take_bounded_memory() {
        let (mut attempts, password) = (Attempts::default(), Password::new("right").unwrap());
        let now = Instant::now();
        for n in 0..3 * VNET_SOURCES_MAX as u32 {
            let from = IpAddr::V4((0x0a00_0000 + n).into());
            attempts.attempt(now + Duration::from_millis(n.into()), from, &password, "x");
        }
        assert_eq!(attempts.sources.len(), VNET_SOURCES_MAX);
        let network = |n: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, n, n, n, n));
        assert!(matches!(
            attempts.attempt(now, network(1), &password, "x"),
            PasswordResult::Wrong(_)
        ));
        assert!(matches!(
            attempts.attempt(now, network(2), &password, "x"),
            PasswordResult::Wait(_)
        ));
        let mapped: IpAddr = "::ffff:10.9.9.9".parse().unwrap();
        assert!(matches!(attempts.attempt(now, mapped, &password, "x"), PasswordResult::Wrong(_)));
        let plain: IpAddr = "10.9.9.9".parse().unwrap();
        assert!(matches!(attempts.attempt(now, plain, &password, "x"), PasswordResult::Wait(_)));
    }

    #[test]
    fn vnet_password_matches_itself_only() {
        let password = Password::new("right").unwrap();
        assert!(password.is("right"));
        for wrong in ["", "r", "righ", "rights", "right\0", "Right", &"r".repeat(1000)] {
            assert!(!password.is(wrong), "{wrong}");
        }
        assert!(!format!("{password:?}").contains("right"));
        for bad in ["", "two words", "t\tb", "é", &"x".repeat(129)] {
            assert!(!Password::new(bad).unwrap_err().contains("two words"));
        }
    }

    #[test]
    fn vnet_password_file_must_be_private() {
        let path = std::env::temp_dir().join(format!("causeway-vnet-{}", std::process::id()));
        std::fs::write(&path, "s3cret\n").unwrap();
        let mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Password::load(&path)
        };
        assert!(mode(0o600).unwrap().is("s3cret"));
        for open in [0o640, 0o604, 0o620] {
            let error = mode(open).unwrap_err();
            assert!(error.contains("chmod 600") && !error.contains("s3cret"), "{error}");
        }
        std::fs::write(&path, "a\nb\n").unwrap();
        assert!(mode(0o600).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(Password::load(&path).is_err());
    }
}
