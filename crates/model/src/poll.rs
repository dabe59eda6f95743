//! Poll modes of queues (VNET/P, 4.3).
//!
//! [`PollPolicy`] is the choice of the operator for the whole daemon (`[dispatch]` in the
//! configuration file); [`PollMode`] is the mode of a queue now, as `causeway port show` has it.
//! The fabric measures rates and switches modes, which it calls dispatch modes
//! (`causeway_fabric::dispatch_mode`); this module holds the values alone. A policy is read at the
//! start, in the main thread. A policy cannot be set for a single port.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The poll mode that the operator configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PollPolicy {
    /// By the measured rate, with hysteresis.
    #[default]
    Adaptive,
    /// Always guest-driven: queues are served when their doorbell rings.
    GuestDriven,
    /// Always VMM-driven: queues are polled, at least for the idle spin.
    VmmDriven,
}

impl PollPolicy {
    /// The names, as operators write them.
    pub const NAMES: [&'static str; 3] = ["adaptive", "guest-driven", "vmm-driven"];
}

/// The current poll mode of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PollMode {
    /// The guest's doorbell starts service.
    #[default]
    GuestDriven,
    /// The dispatcher polls the queue.
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
