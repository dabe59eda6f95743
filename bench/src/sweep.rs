//! Removal of leftovers of interrupted runs: folders, network namespaces.
//!
//! `report` calls [`sweep`] before the first row. A leftover has the benchmark's prefix and the
//! number of a process that no longer exists; other names, and those of running benchmarks, stay. A
//! leftover with the number of another, running process stays until that process ends. Only the
//! folder for temporary files and the list of `ip netns` are searched. Errors are ignored.

use std::path::Path;
use std::process::Command;

use crate::peers::process::{PREFIX, run};

/// Returns whether a name belongs to a process that has ended.
fn is_stale(name: &str) -> bool {
    let id = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
    let id = id.and_then(|id| id.parse::<u32>().ok());
    id.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists())
}

/// Removes leftovers of processes that have ended.
pub fn sweep() {
    let folders = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for folder in folders.filter(|f| f.file_name().to_str().is_some_and(is_stale)) {
        let _ = std::fs::remove_dir_all(folder.path());
    }
    let spaces = run(Command::new("ip").args(["netns", "list"])).unwrap_or_default();
    let names = spaces.lines().filter_map(|line| line.split_whitespace().next());
    for name in names.filter(|name| is_stale(name)) {
        let _ = run(Command::new("ip").args(["netns", "del", name]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_selects_only_names_of_ended_benchmarks() {
        assert!(!is_stale(&format!("{PREFIX}{}-0", std::process::id())));
        // Above Linux's largest process ID (2^22).
        assert!(is_stale(&format!("{PREFIX}99999999-ovs-1")));
        assert!(!is_stale("another-99999999-0"));
        assert!(!is_stale(&format!("{PREFIX}x")));
    }
}
