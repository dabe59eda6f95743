//! Refusals of records, and their texts.
//!
//! A refused record replaces no accepted record and is counted by its reason. A refused claim
//! marks the accepted claim on its address as missing; that of another host is dropped after 1 h
//! ([`crate::replica`]). A conflict of a host's keys is also an alarm. Pure; runs in the caller's
//! thread.

use causeway_model::limits::SITE_RULES_MAX;
use causeway_model::{Name, SitePolicyError};

use crate::limits::GROUPS_MAX;
use crate::record::RecordError;

/// The reason for which a record was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordRefusal {
    /// The key or the value has not the form of the schema, or a rule of a group names another one.
    Malformed,
    /// The record has a newer version.
    Version,
    /// The signature is not that of the host.
    Signature,
    /// The record is older than the accepted one; of claims with one epoch, the claim of the host
    /// with the smaller name, or a live claim after its withdrawal.
    Older,
    /// The epoch lies more than a day in the future.
    Future,
    /// The host is evicted.
    Evicted,
    /// Another group has the number, another host the key of tunnels, or the host another signing
    /// key than before.
    Conflict,
    /// A limit is reached.
    Full,
}

impl RecordRefusal {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::Malformed,
        Self::Version,
        Self::Signature,
        Self::Older,
        Self::Future,
        Self::Evicted,
        Self::Conflict,
        Self::Full,
    ];

    /// Returns the name of the counter.
    pub const fn counter(self) -> &'static str {
        match self {
            Self::Malformed => "refused_malformed_total",
            Self::Version => "refused_version_total",
            Self::Signature => "refused_signature_total",
            Self::Older => "refused_older_total",
            Self::Future => "refused_future_total",
            Self::Evicted => "refused_evicted_total",
            Self::Conflict => "refused_conflict_total",
            Self::Full => "refused_full_total",
        }
    }

    /// Returns the text of the alarm about the refused record of a group.
    pub(crate) fn group_alarm(self, group: &Name) -> String {
        let (reason, remedy) = match self {
            Self::Version => (
                "is of a newer release".to_owned(),
                "upgrade causeway-directory on this host".to_owned(),
            ),
            Self::Conflict => (
                "has the number of another group".to_owned(),
                format!(
                    "`causeway cluster group del {group}` and `causeway cluster group add {group} \
                     --vni N` give it another one; then set its forwarding and rules again"
                ),
            ),
            Self::Full => (
                format!("is beyond the limit of {GROUPS_MAX} groups"),
                "delete a group that no host needs by `causeway cluster group del`".to_owned(),
            ),
            _ => (
                format!(
                    "is malformed, has more than {SITE_RULES_MAX} rules, or a rule of another group"
                ),
                format!(
                    "`causeway cluster group show {group}` names the error, and `group set` \
                     corrects the record"
                ),
            ),
        };
        format!(
            "the record of group {group} {reason}: it is refused, and a record that was accepted \
             before stays in force; {remedy}"
        )
    }
}

impl From<RecordError> for RecordRefusal {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Version(_) => Self::Version,
            RecordError::Long(_) | RecordError::Form(_) | RecordError::Range(_) => Self::Malformed,
        }
    }
}

impl From<SitePolicyError> for RecordRefusal {
    fn from(_: SitePolicyError) -> Self {
        Self::Malformed
    }
}

/// The conflict of a host's record with known keys. The record of another host is refused; the own
/// record is accepted, with the alarm. The alarm ends with an accepted record of the host, with the
/// end of its lease, and with its eviction.
#[derive(Debug, Clone)]
pub(crate) enum HostConflict {
    /// The signing key is not that of the known record.
    SigningKey,
    /// Another host has the same key of tunnels.
    TunnelKey(Name),
}

impl HostConflict {
    /// Returns the text of the alarm about a host.
    pub fn alarm(&self, id: &Name) -> String {
        match self {
            Self::SigningKey => format!(
                "the record of host {id} has another signing key than before: it is refused; if the \
                 host was installed anew, evict and readmit it, else find the author of the record"
            ),
            Self::TunnelKey(other) => format!(
                "the record of host {id} has the key of the tunnels of host {other}: it is refused; \
                 give {id} a key of its own, or evict {other} if it is the same host"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_a_group_names_what_the_operator_can_do_about_its_reason() {
        let group: Name = "blue".parse().unwrap();
        for (refusal, remedy) in [
            (RecordRefusal::Version, "upgrade causeway-directory"),
            (RecordRefusal::Conflict, "group add blue --vni N"),
            (RecordRefusal::Full, "delete a group"),
            (RecordRefusal::Malformed, "group show blue"),
        ] {
            let alarm = refusal.group_alarm(&group);
            assert!(alarm.contains("group blue") && alarm.contains(remedy), "{alarm}");
        }
    }
}
