//! Removes files that earlier causewayds left for held ports.
//!
//! In the holder's directory each held port has files by the hash of its name: the inner socket,
//! and those that its service keeps for the next causewayd (a vsock port's ledger, an adapter's
//! record). A service removes them with the port. A port that left the configuration while no
//! causewayd ran has no service that removes them, and a record is memory of the host.
//!
//! [`crate::held_ports`] calls [`remove_stale`] once, in the thread `lifecycle`, after all
//! configured ports were added and the holder has released the others. The caller must name every
//! held port: the files of any other are removed, also if a process uses them. Other files of the
//! directory stay; so does a file that cannot be removed, with a warning. A directory that cannot
//! be read has no files.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Digits of a port's hash in the names of its files.
pub const HASH_DIGITS: usize = 16;

/// Removes the files of ports whose inner socket is not in `held`. Returns their number.
pub fn remove_stale(dir: &Path, held: &BTreeSet<PathBuf>) -> usize {
    let stems: BTreeSet<&OsStr> = held.iter().filter_map(|inner| inner.file_stem()).collect();
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let mut removed = 0_usize;
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(stem) = path.file_stem().filter(|stem| is_hash(stem)) else { continue };
        if path.extension().is_none() || stems.contains(stem) {
            continue;
        }
        match std::fs::remove_file(&path) {
            Ok(()) => removed = removed.saturating_add(1),
            Err(error) => log::warn!(
                path:% = path.display(), error:% = error;
                "cannot remove the file of a held port that is no longer configured: it keeps memory of the host"
            ),
        }
    }
    if removed > 0 {
        log::info!(files = removed; "files of held ports that are no longer configured were removed");
    }
    removed
}

/// Returns whether a text is the hash of a port's name.
fn is_hash(stem: &OsStr) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    stem.len() == HASH_DIGITS && stem.as_encoded_bytes().iter().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_files_of_other_ports_are_removed_and_others_stay() {
        let dir = std::env::temp_dir().join(format!("causeway-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (own, gone) = ("00000000000000aa", "00000000000000bb");
        let stale = [format!("{gone}.inner"), format!("{gone}.hca"), format!("{gone}.open")];
        let kept = [
            format!("{own}.inner"),
            format!("{own}.hca"),
            "control".to_owned(),
            "lock".to_owned(),
            "note.hca".to_owned(),
            gone.to_owned(),
            "00000000000000BB.hca".to_owned(),
        ];
        for name in stale.iter().chain(&kept) {
            std::fs::write(dir.join(name), b"").unwrap();
        }
        let held = [dir.join(format!("{own}.inner"))].into();
        assert_eq!(remove_stale(&dir, &held), 3);
        assert!(stale.iter().all(|name| !dir.join(name).exists()));
        assert!(kept.iter().all(|name| dir.join(name).exists()));
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(remove_stale(&dir, &held), 0, "no holder");
    }
}
