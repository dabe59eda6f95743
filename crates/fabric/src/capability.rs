//! Capabilities: the names by which services use each other's abilities.
//!
//! A capability is declared beside its requests, for example in [`crate::carrier`], and a service
//! that answers them registers it
//! ([`ServiceRegistration::capabilities`](crate::ServiceRegistration::capabilities)). A controller
//! finds the name of the service by [`Control::provider`](crate::Control::provider). Capabilities
//! are compared by their words, so two must not have the same.

use std::fmt;

/// An ability that other services use without knowing which service provides it, in words that
/// complete "a service that …". It is declared beside its requests, for example in
/// [`crate::carrier`]. The first service with a capability provides it
/// ([`Control::provider`](crate::Control::provider)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability(pub &'static str);

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
