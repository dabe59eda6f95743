//! Commands of the documents are accepted by the command line.

use std::path::{Path, PathBuf};

use clap::Parser as _;

use super::Cli;

/// Returns README.md and the Markdown files in docs.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let folders = ["docs", "docs/guide", "docs/reference", "docs/design"];
    let entries = folders.iter().flat_map(|folder| root.join(folder).read_dir().unwrap());
    let files = entries.map(|entry| entry.unwrap().path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    files.filter(is_page).chain([root.join("README.md")]).collect()
}

/// Returns the calls of `causeway` in the blocks of code of a page.
fn calls(text: &str) -> Vec<String> {
    let blocks = text.split("\n```").enumerate().filter(|(number, _)| number % 2 == 1);
    let lines = blocks.flat_map(|(_, block)| block.lines().skip(1));
    let starts = ["causeway ", "$ causeway ", "sudo causeway ", "eval \"$(causeway "];
    let call =
        |line: &str| starts.iter().find_map(|start| line.strip_prefix(start)).map(str::to_owned);
    lines.filter_map(call).collect()
}

/// Returns the words of a call, as a shell would, up to a comment, a pipe or the end of a command.
fn words(call: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (vec!["causeway".to_owned()], String::new(), None);
    for c in call.chars().chain([' ']) {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '#' | '|' | ';' | '&' | '>' | ')') if word.is_empty() => break,
            (None, ')') => {
                words.push(std::mem::take(&mut word));
                break;
            }
            (None, ' ') if !word.is_empty() => words.push(std::mem::take(&mut word)),
            (None, ' ') => {}
            (_, c) => word.push(c),
        }
    }
    words
}

/// Returns the error of the command line for the words of a call, if it is refused.
fn refusal(call: &str) -> Option<String> {
    let placeholders = [
        ("KEY-OF-A", "bm9uIGVzdCBhZCBhc3RyYSBtb2xsaXMgZSB0ZXJyaXM="),
        ("KEY-OF-B", "bm9uIGVzdCBhZCBhc3RyYSBtb2xsaXMgZSB0ZXJyaXM="),
        ("MAC1", "52:54:00:00:00:01"),
        ("MAC2", "52:54:00:00:00:02"),
    ];
    let given = |text: String, (name, value): (&str, &str)| text.replace(name, value);
    let call = placeholders.into_iter().fold(call.to_owned(), given);
    Cli::try_parse_from(words(&call)).err().map(|error| format!("causeway {call}: {error}"))
}

#[test]
fn documents_show_commands_that_are_accepted() {
    let mut count = 0;
    let mut faults = Vec::new();
    for page in documents() {
        let calls = calls(&std::fs::read_to_string(&page).unwrap());
        count += calls.len();
        let refused = calls.iter().filter_map(|call| refusal(call));
        faults.extend(refused.map(|why| format!("{}: {why}", page.display())));
    }
    assert!(count > 50, "the commands are found: {count}");
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn documents_commands_are_split_like_a_shell() {
    let text = "a\n```sh\ncauseway port list   # all\n$ causeway rule add reject --from 'b/*:*' --to 'host:*'\n```\n";
    let calls = calls(text);
    assert_eq!(words(&calls[0]), ["causeway", "port", "list"]);
    assert_eq!(words(&calls[1])[5..], ["b/*:*", "--to", "host:*"]);
    assert_eq!(words("mpi-env --slurm)\" && srun"), ["causeway", "mpi-env", "--slurm"]);
    assert!(refusal("port lisst").is_some() && refusal("port list").is_none());
}
