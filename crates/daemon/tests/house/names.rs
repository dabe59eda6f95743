//! Public type names that mean different things in different crates.
//!
//! A name may be public in [`CRATES_MAX`] crates: the two sides of an interface, for example. Names that
//! more crates use are listed with their number, which may only become smaller.

use std::collections::{BTreeMap, BTreeSet};

/// Crates in which a type name may be public.
const CRATES_MAX: usize = 2;

/// Names in more crates, with the number of crates. `Error`, `Event` and `Counters` are read with the
/// name of their module; the views have one name in `model` and in the programs that read them.
const KNOWN: &[(&str, usize)] = &[
    ("Change", 3),
    ("ConnectionEnd", 3),
    ("Counters", 5),
    ("Error", 3),
    ("Event", 5),
    ("Frame", 3),
    ("LinkView", 3),
    ("Nic", 3),
    ("PortView", 3),
    ("Registers", 3),
    ("Report", 3),
    ("Transport", 3),
];

/// Returns the public types that a source file defines outside of other items.
fn types(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let mut words =
            line.strip_prefix("pub ")?.split(|c: char| !c.is_alphanumeric() && c != '_');
        let is_type = matches!(words.next()?, "struct" | "enum" | "trait" | "type" | "union");
        words.next().filter(|name| is_type && !name.is_empty())
    })
}

/// Returns the names that too many crates define, and listed names that fewer crates define now.
pub fn faults(sources: &[(String, String)]) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (path, text) in sources {
        let parts: Vec<&str> = path.split('/').collect();
        if let ["crates", name, "src", ..] = parts[..]
            && name != "testing"
        {
            for found in types(text) {
                crates.entry(found).or_default().insert(name);
            }
        }
    }
    let known: BTreeMap<_, _> = KNOWN.iter().copied().collect();
    let fault = |name: &str, by: usize| {
        let most = known.get(name).copied().unwrap_or(CRATES_MAX);
        (by > most)
            .then(|| format!("{name}: public in {by} crates; at most {most} may use the name"))
    };
    let found = crates.iter().filter_map(|(name, by)| fault(name, by.len()));
    let stale =
        KNOWN.iter().filter(|(name, most)| crates.get(name).map_or(0, BTreeSet::len) < *most);
    let stale = stale.map(|(name, most)| format!("{name}: fewer than {most} crates: lower KNOWN"));
    found.chain(stale).collect()
}

#[test]
fn names_of_types_in_too_many_crates_are_found() {
    let of = |name: &str, code: &str| (format!("crates/{name}/src/a.rs"), code.to_owned());
    let code = "pub struct Place<T>(T);\n    pub struct Inner;\npub(crate) enum Kind {}\n";
    assert_eq!(types(code).collect::<Vec<_>>(), ["Place"]);
    let sources = ["one", "two", "three", "testing"].map(|name| of(name, code));
    let expected = "Place: public in 3 crates; at most 2 may use the name";
    assert_eq!(faults(&sources)[0], expected);
    let place = |faults: Vec<String>| faults.iter().any(|fault| fault.starts_with("Place"));
    assert!(!place(faults(&sources[..2])), "two crates may");
}
