//! Configuration examples of the documents.

use std::path::Path;

use causeway_daemon::config::{Config, ConfigContext};
use causeway_daemon::services::{Registered, SERVICES};

use super::read;

/// Tables that an example may refer to without showing them.
const AROUND: &str = "[[group]]\nname = \"blue\"\n";
/// The placeholder of a public key, and a key.
const KEY: (&str, &str) = ("KEY-OF-B", "bm9uIGVzdCBhZCBhc3RyYSBtb2xsaXMgZSB0ZXJyaXM=");

/// Returns the problems of the blocks of TOML in a page.
pub fn faults(page: &str) -> Vec<String> {
    let text = read(page);
    let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let faults =
        blocks.filter_map(|block| problem(block).map(|why| format!("{page}: {why}\n{block}")));
    faults.collect()
}

fn problem(block: &str) -> Option<String> {
    let context = ConfigContext {
        run_dir: Some("/run/causeway".into()),
        underlay: Some(|_| None),
        ..ConfigContext::of_process(Registered::of(SERVICES))
    };
    let mut text = block.replace(KEY.0, KEY.1);
    if !text.contains("[[group]]") {
        text.push_str(AROUND);
    }
    Config::parse(Path::new("example"), &text, &context).err().map(|error| error.to_string())
}

#[test]
fn examples_with_unknown_keys_are_found() {
    assert_eq!(problem("[daemon]\nhold = \"all\"\n"), None);
    assert!(problem("[daemon]\nholds = \"all\"\n").unwrap().contains("holds"));
}
