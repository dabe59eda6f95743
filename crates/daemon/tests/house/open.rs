//! Names of services in crates that must not know any service.

/// The crates, and types of the model that belong to single services. Several services write captures
/// (`CaptureSpec`, `CaptureChunk`) and count traffic (`TrafficView`).
const CLOSED_TO: &[(&str, &[&str])] = &[(
    "crates/fabric/src/",
    &[
        "LinkSpec",
        "LinkKind",
        "LinkView",
        "LinkState",
        "RouteSpec",
        "RouteEnd",
        "RouteView",
        "CaptureView",
        "PeerView",
        "HcaView",
        "NetSpec",
        "VsockSpec",
        "MxSpec",
        "HcaSpec",
        "commands",
    ],
)];

/// Files that may name them: tests that build a port of any kind.
const EXCEPT: &[&str] = &["crates/fabric/src/dispatcher/tests.rs"];

/// Returns the types of single services that a file of an open crate names.
pub fn faults(path: &str, code: &str) -> Vec<String> {
    if EXCEPT.contains(&path) {
        return Vec::new();
    }
    let closed = CLOSED_TO.iter().filter(|(crate_path, _)| path.starts_with(crate_path));
    let words: Vec<&str> = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    closed
        .flat_map(|(_, types)| types.iter())
        .filter(|name| words.contains(name))
        .map(|name| format!("{path}: names {name}, which belongs to a service above"))
        .collect()
}

/// Words of a single service that the daemon must not use beside its list of services: the service
/// registers them as a section.
const SECTION_WORDS: &[&str] = &[
    "LinkSpec",
    "LinkKind",
    "LinkKindName",
    "LinkDraft",
    "LinkView",
    "LinkState",
    "LinkStats",
    "RouteSpec",
    "RouteEnd",
    "RouteView",
    "LINK_FIELDS",
    "ROUTE_FIELDS",
    "LINKS_MAX",
    "ROUTES_MAX",
    "link",
    "links",
    "route",
    "routes",
    "causeway_link",
];

/// The part of the daemon that may use them: the language VNET, which has commands for links and
/// routes.
const SECTION_WORDS_IN: &str = "crates/daemon/src/vnet/";

/// Returns the words of single sections in the code of the daemon, without tests. `lines` has
/// literals, `code` has none.
pub fn section_faults(path: &str, lines: &str, code: &str) -> Vec<String> {
    let is_test = path.ends_with("tests.rs");
    let is_other = path.starts_with(SECTION_WORDS_IN);
    if !path.starts_with("crates/daemon/src/") || is_test || is_other {
        return Vec::new();
    }
    let end = lines.find("#[cfg(test)]").unwrap_or(lines.len());
    let text = code.get(..end).unwrap_or(code);
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let named = words.filter(|word| SECTION_WORDS.contains(word)).map(str::to_owned);
    let quoted = ["\"link\"", "\"route\"", "[[link]]", "[[route]]"];
    let code_lines = lines.get(..end).unwrap_or(lines).lines();
    let code_lines = code_lines.filter(|line| !line.trim_start().starts_with("//"));
    let literals: String = code_lines.collect::<Vec<_>>().join("\n");
    let quoted = quoted.into_iter().filter(|word| literals.contains(word)).map(str::to_owned);
    named
        .chain(quoted)
        .map(|word| format!("{path}: names {word}, which a section registers"))
        .collect()
}

#[test]
fn open_words_of_sections_are_found_in_the_daemon_only() {
    let faults = |path: &str, text: &str| section_faults(path, text, &super::source::code(text));
    let plan = "crates/daemon/src/plan/mod.rs";
    assert_eq!(faults(plan, "use causeway_model::LinkSpec; // a route\n").len(), 1);
    assert_eq!(faults(plan, "let kind = \"link\"; let blinks = 1;").len(), 1);
    assert_eq!(
        faults(plan, "fn f() {}\n#[cfg(test)]\nmod tests { use super::RouteSpec; }").len(),
        0
    );
    assert_eq!(faults("crates/daemon/src/vnet/plan.rs", "LinkSpec").len(), 0);
    assert_eq!(faults("crates/link/src/io/open.rs", "LinkSpec").len(), 0);
}

#[test]
fn open_types_of_services_are_found_in_the_fabric_only() {
    let sample = "use causeway_model::{Name, LinkSpec};\nfn f(x: &RouteEnds) {}\n";
    let expected = "crates/fabric/src/a.rs: names LinkSpec, which belongs to a service above";
    assert_eq!(faults("crates/fabric/src/a.rs", sample), [expected]);
    assert_eq!(faults("crates/link/src/a.rs", sample), Vec::<String>::new());
    let call = "causeway_model::commands::links::List";
    assert_eq!(faults("crates/fabric/src/a.rs", call).len(), 1);
}
