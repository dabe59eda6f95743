//! Links of Markdown files.

use std::path::{Component, Path, PathBuf};

use super::{read, root};

/// Returns the text without blocks and spans of code.
fn prose(text: &str) -> String {
    let mut out = String::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            // Odd pieces are between backquotes; a link's own text may be code.
            let pieces = line.split('`').enumerate();
            let kept = pieces.map(|(number, piece)| if number % 2 == 0 { piece } else { "x" });
            out.push_str(&kept.collect::<String>());
        }
        out.push('\n');
    }
    out
}

/// Returns the targets of links and images.
pub fn targets(text: &str) -> Vec<String> {
    let text = prose(text);
    let rests = text.split("](").skip(1);
    rests.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// Returns the anchors of a file's headings, in GitHub's form.
fn anchors(text: &str) -> Vec<String> {
    let mut is_code = false;
    let headings = text.lines().filter(|line| {
        is_code ^= line.starts_with("```");
        !is_code && line.starts_with('#')
    });
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Returns the links of a page that lead nowhere, or from a page of the book out of it.
pub fn faults(page: &str) -> Vec<String> {
    let text = read(page);
    let fault =
        |target: &String| fault(page, &text, target).map(|why| format!("{page}: {target}: {why}"));
    targets(&text).iter().filter_map(fault).collect()
}

fn fault(page: &str, text: &str, target: &str) -> Option<String> {
    if target.starts_with("https://") {
        return None;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() { page.to_owned() } else { joined(page, path)? };
    if !root().join(&file).exists() {
        return Some("there is no such file".into());
    }
    let is_page = |path: &str| path.starts_with("docs/");
    if is_page(page) && !is_page(&file) {
        return Some("the book has the files in docs only: name the file without a link".into());
    }
    if heading.is_empty() {
        return None;
    }
    let anchors = if file == page { anchors(text) } else { anchors(&read(&file)) };
    (!anchors.iter().any(|anchor| anchor == heading))
        .then(|| format!("no such heading in {anchors:?}"))
}

/// Returns the path of a target, relative to the root of the tree.
fn joined(page: &str, target: &str) -> Option<String> {
    let mut path = PathBuf::from(page);
    path.pop();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            _ => return Some(format!("{target} (absolute)")),
        }
    }
    Some(path.display().to_string())
}

#[test]
fn links_are_found_outside_of_code() {
    let text = "[a](b.md#c) `[x](y)` ![i](p.svg)\n```\n[z](z)\n```\n[`code`](d.md)\n";
    assert_eq!(targets(text), ["b.md#c", "p.svg", "d.md"]);
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let of = |target| fault("docs/README.md", "# A b\n", target);
    assert!(of("guide/none.md").is_some() && of("#none").is_some() && of("../README.md").is_some());
    assert!(of("performance.md#none").is_some());
    assert_eq!((of("#a-b"), of("guide/qemu.md"), of("https://x.org/")), (None, None, None));
}
