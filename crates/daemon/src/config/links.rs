//! Reads the `[control]` table from TOML.

use std::net::SocketAddr;
use std::path::PathBuf;

use causeway_model::Name;

use super::VnetConfig;
use super::check::FileValue;
use super::problem::Problems;
use super::read::{Spans, keep};
use super::section::Section;

pub(super) const CONTROL_KEYS: [&str; 4] =
    ["vnet_listen", "vnet_password_file", "vnet_group", "vnet_file"];

/// Reads `[control]`. The positions of its keys are kept for the check of its group.
pub(super) fn control(section: &Section<'_, '_>, problems: &mut Problems) -> FileValue<VnetConfig> {
    let mut spans = Spans::new();
    let listen = section.parsed::<SocketAddr>("vnet_listen", problems);
    let listen = keep(&mut spans, "vnet_listen", listen);
    let mut path = |key| -> Option<PathBuf> { keep(&mut spans, key, section.path(key, problems)) };
    let (password_file, file) = (path("vnet_password_file"), path("vnet_file"));
    let group = keep(&mut spans, "vnet_group", section.parsed::<Name>("vnet_group", problems));
    if listen.is_some() {
        let expected = "clients of vnet_listen must give a password";
        section.require("vnet_password_file", expected, problems);
    }
    if listen.is_some() || file.is_some() {
        section.require(
            "vnet_group",
            "VNET commands apply to the links and routes of one group",
            problems,
        );
    }
    let value = VnetConfig { listen, password_file, group, file };
    FileValue { value, spans, whole: section.span.clone() }
}
