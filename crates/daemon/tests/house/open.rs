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

#[test]
fn open_types_of_services_are_found_in_the_fabric_only() {
    let sample = "use causeway_model::{Name, LinkSpec};\nfn f(x: &RouteEnds) {}\n";
    let expected = "crates/fabric/src/a.rs: names LinkSpec, which belongs to a service above";
    assert_eq!(faults("crates/fabric/src/a.rs", sample), [expected]);
    assert_eq!(faults("crates/link/src/a.rs", sample), Vec::<String>::new());
    let call = "causeway_model::commands::links::List";
    assert_eq!(faults("crates/fabric/src/a.rs", call).len(), 1);
}
