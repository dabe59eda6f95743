//! Rules of the source tree, checked by reading it: imports between floors, places and reasons of
//! `unsafe`, sizes of files and functions, names of types, and lints of crates. Each rule is first shown a sample
//! that breaks it.

#[path = "house/floors.rs"]
mod floors;
#[path = "house/names.rs"]
mod names;
#[path = "house/open.rs"]
mod open;
#[path = "house/source.rs"]
mod source;
#[path = "house/words.rs"]
mod words;

use std::path::{Path, PathBuf};

/// Returns the root of the tree.
fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    root.canonicalize().unwrap()
}

/// Collects the files that `wanted` accepts, outside build output and hidden directories.
fn files(directory: &Path, wanted: &dyn Fn(&Path) -> bool, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_symlink() || name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            files(&path, wanted, found);
        } else if wanted(&path) {
            found.push(path);
        }
    }
}

/// Returns paths relative to the root, and contents.
fn read(wanted: &dyn Fn(&Path) -> bool) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    files(&root, wanted, &mut found);
    found.sort();
    let read = |path: &PathBuf| {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    found.iter().map(read).collect()
}

fn manifests() -> Vec<(String, String)> {
    let mut all = read(&|path| path.ends_with("Cargo.toml"));
    all.retain(|(name, _)| name != "Cargo.toml");
    assert!(all.len() >= 11, "the crates are found: {}", all.len());
    all
}

fn sources() -> Vec<(String, String)> {
    let all = read(&|path| path.extension().is_some_and(|e| e == "rs"));
    assert!(all.len() > 100, "the sources are found: {}", all.len());
    all
}

fn assert_none(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn house_crates_import_from_floors_below_only() {
    let root = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert_none(floors::faults(&root, &manifests()));
}

#[test]
fn house_crates_have_the_lints_of_the_workspace() {
    let all = manifests();
    assert_none(all.iter().filter_map(|(name, text)| floors::lints(name, text)).collect());
}

#[test]
fn house_names_of_public_types_mean_one_thing() {
    assert_none(names::faults(&sources()));
}

#[test]
fn house_sources_without_a_test_program_have_no_tests() {
    let all = manifests();
    let files: Vec<_> = all.iter().flat_map(|(name, text)| floors::untested(name, text)).collect();
    assert!(!files.is_empty(), "the binaries of the tree are found");
    let sources = sources();
    let has_tests = |file: &&String| {
        let part = |name: &str| name == *file || file.ends_with('/') && name.starts_with(*file);
        let mut texts =
            sources.iter().filter(|(name, _)| part(name)).map(|(_, text)| text).peekable();
        texts.peek().is_none() || texts.any(|text| text.contains("#[test]"))
    };
    assert_none(files.iter().filter(has_tests).cloned().collect());
}

#[test]
fn house_unsafe_is_in_permitted_crates_only() {
    let all = sources();
    assert_none(all.iter().flat_map(|(name, text)| source::misplaced(name, text)).collect());
}

#[test]
fn house_unsafe_blocks_have_a_safety_comment() {
    let all = sources();
    let blocks: usize = all.iter().map(|(_, text)| source::blocks(text).count()).sum();
    assert!(blocks > 20, "the blocks of the tree are found: {blocks}");
    assert_none(all.iter().flat_map(|(name, text)| source::unexplained(name, text)).collect());
}

#[test]
fn house_fabric_names_no_type_of_a_single_service() {
    let all = sources();
    let faults = all.iter().flat_map(|(name, text)| open::faults(name, &source::code(text)));
    assert_none(faults.collect());
}

/// The list of services is the only place of the daemon that names the service of links.
#[test]
fn house_daemon_names_no_section_of_a_service() {
    let all = sources();
    let faults =
        all.iter().flat_map(|(name, text)| open::section_faults(name, text, &source::code(text)));
    let list = "crates/daemon/src/services.rs: names causeway_link, which a section registers";
    let (listed, others): (Vec<_>, Vec<_>) = faults.partition(|fault| fault == list);
    assert_eq!(listed.len(), 1, "one line lists the service of links");
    assert_none(others);
}

#[test]
fn house_files_have_at_most_800_lines() {
    let all = sources();
    assert_none(all.iter().filter_map(|(name, text)| source::long(name, text)).collect());
}

#[test]
fn house_functions_have_at_most_70_lines() {
    let all = sources();
    assert_none(all.iter().flat_map(|(name, text)| source::long_functions(name, text)).collect());
}

/// The limits are twice the highest rate of smoltcp, vhost-device and Firecracker, in tenths per
/// 1,000 words: 0.8 vague words in comments and 1.15 in documents, 0.5 pronouns `one` in both.
#[test]
fn comments_and_documents_name_their_subjects() {
    let (mut comments, mut documents) = (words::Counts::default(), words::Counts::default());
    sources().iter().for_each(|(_, code)| comments.add(&source::comments(code)));
    read(&|path| path.extension().is_some_and(|e| e == "md"))
        .iter()
        .for_each(|(_, text)| documents.add(text));
    assert!(comments.words > 100_000 && documents.words > 15_000, "{comments:?} {documents:?}");
    let mut faults = comments.faults("comments", 16, 10);
    faults.extend(documents.faults("documents", 23, 10));
    assert_none(faults);
}
