//! Poll modes of queues (VNET/P, 4.3).

use std::fmt;

use serde::{Deserialize, Serialize};

/// What the operator chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PollPolicy {
    /// By measured rate, with hysteresis.
    #[default]
    Adaptive,
    /// Always by doorbells.
    GuestDriven,
    /// Always polled, for the idle spin at least.
    VmmDriven,
}

/// How a queue is dispatched now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PollMode {
    /// Its guest rings.
    #[default]
    GuestDriven,
    /// It is polled.
    VmmDriven,
}

impl fmt::Display for PollMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GuestDriven => "guest-driven",
            Self::VmmDriven => "vmm-driven",
        })
    }
}
