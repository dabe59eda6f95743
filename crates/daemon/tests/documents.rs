//! The documents follow the code: generated pages equal it, links lead to files and headings, the
//! book lists every page, and configuration examples are accepted.
//!
//! `CAUSEWAY_UPDATE_DOCUMENTS=1 cargo test -p causeway-daemon --test documents` writes the generated
//! parts: everything below the line [`MARK`] of a page.

#[path = "common/mod.rs"]
mod common;
#[path = "documents/examples.rs"]
mod examples;
#[path = "documents/keys.rs"]
mod keys;
#[path = "documents/limits.rs"]
mod limits;
#[path = "documents/links.rs"]
mod links;
#[path = "documents/routes.rs"]
mod routes;

use std::path::{Path, PathBuf};

/// The line above the generated part of a page.
const MARK: &str =
    "<!-- The rest of this page is generated: see crates/daemon/tests/documents.rs. -->\n";
const UPDATE: &str = "CAUSEWAY_UPDATE_DOCUMENTS=1 cargo test -p causeway-daemon --test documents";

/// Returns the root of the tree.
fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    root.canonicalize().unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the Markdown files of the tree, as paths relative to its root.
fn documents() -> Vec<String> {
    let (mut folders, mut found) = (vec![root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_symlink() || name.starts_with('.') || name == "target" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path.strip_prefix(root()).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    assert!(found.len() > 30, "the documents are found: {found:?}");
    found
}

/// Compares the part of a page below [`MARK`] with `text`, or writes it on request.
#[track_caller]
fn check_generated(page: &str, text: &str) {
    let now = read(page);
    let (head, _) = now.split_once(MARK).unwrap_or_else(|| panic!("{page} has no line {MARK}"));
    let wanted = format!("{head}{MARK}{text}");
    if std::env::var_os("CAUSEWAY_UPDATE_DOCUMENTS").is_some() {
        std::fs::write(root().join(page), &wanted).unwrap();
    }
    assert!(read(page) == wanted, "{page} differs from the code: run {UPDATE}");
}

#[test]
fn documents_reference_of_the_configuration_equals_the_tables() {
    check_generated("docs/reference/causeway.toml.md", &keys::page());
}

#[test]
fn documents_reference_of_limits_equals_the_constants() {
    check_generated("docs/reference/limits.md", &limits::page());
}

#[test]
fn documents_links_lead_to_files_and_headings() {
    let faults: Vec<String> = documents().iter().flat_map(|page| links::faults(page)).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn documents_book_lists_every_page() {
    let summary = links::targets(&read("docs/SUMMARY.md"));
    let listed: Vec<String> = summary.iter().map(|target| format!("docs/{target}")).collect();
    let is_missing = |page: &&String| page.starts_with("docs/") && !listed.contains(page);
    let pages = documents();
    let missing: Vec<_> =
        pages.iter().filter(|page| *page != "docs/SUMMARY.md").filter(is_missing).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
}

#[test]
fn documents_configuration_examples_are_accepted() {
    let faults: Vec<String> = documents().iter().flat_map(|page| examples::faults(page)).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn documents_openapi_describes_every_path_of_the_control_api() {
    routes::check();
}
