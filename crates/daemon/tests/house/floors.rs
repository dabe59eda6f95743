//! Imports between crates, by their manifests.

use toml::de::DeTable;

/// The floors. A new crate must be added with its floor.
const FLOORS: &[(&str, u8)] = &[
    ("causeway-wire", 1),
    ("causeway-memory", 1),
    ("causeway-model", 1),
    ("causeway-http", 1),
    // The forwarder and the web page of the tool: no crate of the data path.
    ("causeway-forward", 1),
    ("causeway-web", 1),
    // The directory of a site, and its process: no crate of the data path.
    ("causeway-cluster", 1),
    ("causeway-etcd", 2),
    ("causeway-host", 2),
    ("causeway-ring", 3),
    ("causeway-channel", 3),
    ("causeway-verbs", 3),
    ("causeway-attach", 4),
    ("causeway-fabric", 4),
    ("causeway-message", 4),
    ("causeway-mxoe", 4),
    ("causeway-mlx5", 4),
    ("causeway-directory", 4),
    ("causeway-ethernet", 5),
    ("causeway-socket", 5),
    ("causeway-link", 5),
    ("causeway-mx", 5),
    ("causeway-hca", 5),
    ("causeway-stream", 5),
    ("causeway-tap", 5),
    ("causeway-mlx5-driver", 5),
    ("causeway-daemon", 6),
    // The tool uses the control socket only: it imports no crate of the data path.
    ("causeway-cli", 2),
    ("causeway-holder", 6),
];

/// The permitted imports within a floor: importer and imported.
const WITHIN: &[(&str, &str)] = &[
    ("causeway-model", "causeway-wire"),
    ("causeway-web", "causeway-http"),
    ("causeway-web", "causeway-model"),
    ("causeway-forward", "causeway-model"),
    ("causeway-cluster", "causeway-model"),
    ("causeway-fabric", "causeway-attach"),
    ("causeway-daemon", "causeway-holder"),
];

/// Crates beside the floors: they may import every crate, and no crate of the floors imports them.
const BESIDE: &[&str] =
    &["vm/", "bench/", "sim/", "fuzz/", "clients/", "examples/", "tests/", "crates/testing/"];

fn parse(text: &str) -> DeTable<'_> {
    DeTable::parse(text).expect("a manifest that cargo took").into_inner()
}

fn table<'a, 'i>(from: &'a DeTable<'i>, key: &str) -> Option<&'a DeTable<'i>> {
    from.get(key)?.get_ref().as_table()
}

fn string<'a>(from: &'a DeTable<'_>, key: &str) -> Option<&'a str> {
    from.get(key)?.get_ref().as_str()
}

fn name<'a>(manifest: &'a DeTable<'_>) -> &'a str {
    table(manifest, "package").and_then(|p| string(p, "name")).expect("a package has a name")
}

fn floor(name: &str) -> Option<u8> {
    FLOORS.iter().find(|(crate_name, _)| *crate_name == name).map(|&(_, floor)| floor)
}

/// Returns the packages of a list of dependencies, by their real names.
fn named(list: &DeTable<'_>, workspace: Option<&DeTable<'_>>) -> Vec<String> {
    let package = |list: &DeTable<'_>, key: &str| {
        let entry = table(list, key)?;
        string(entry, "package").map(str::to_owned)
    };
    list.iter()
        .map(|(key, _)| {
            let key = key.get_ref();
            package(list, key)
                .or_else(|| workspace.and_then(|all| package(all, key)))
                .unwrap_or_else(|| key.to_string())
        })
        .collect()
}

/// Returns the imports of a crate's build: normal and build dependencies, for any target.
fn imports(manifest: &DeTable<'_>, workspace: Option<&DeTable<'_>>) -> Vec<String> {
    let mut places = vec![manifest];
    if let Some(targets) = table(manifest, "target") {
        places.extend(targets.iter().filter_map(|(_, value)| value.get_ref().as_table()));
    }
    places
        .iter()
        .flat_map(|place| ["dependencies", "build-dependencies"].map(|key| table(place, key)))
        .flatten()
        .flat_map(|list| named(list, workspace))
        .collect()
}

/// Returns whether `from` may import `to`.
fn allowed(from: &str, to: &str) -> bool {
    match (floor(from), floor(to)) {
        (Some(high), Some(low)) => high > low || WITHIN.contains(&(from, to)),
        _ => false,
    }
}

/// Returns every import from above or beside, and every crate without a floor. `manifests` are
/// paths and contents; `root` is the workspace's manifest.
pub fn faults(root: &str, manifests: &[(String, String)]) -> Vec<String> {
    let root = parse(root);
    let workspace = table(&root, "workspace").and_then(|w| table(w, "dependencies"));
    let parsed: Vec<_> = manifests.iter().map(|(path, text)| (path, parse(text))).collect();
    let ours: Vec<&str> = parsed.iter().map(|(_, manifest)| name(manifest)).collect();
    let mut faults = Vec::new();
    for (path, manifest) in &parsed {
        let from = name(manifest);
        if BESIDE.iter().any(|beside| path.starts_with(beside)) {
            continue;
        }
        if floor(from).is_none() {
            faults.push(format!("{path}: {from} is on no floor"));
            continue;
        }
        for to in imports(manifest, workspace) {
            if ours.contains(&to.as_str()) && !allowed(from, &to) {
                faults.push(format!("{path}: {from} may not import {to}"));
            }
        }
    }
    faults
}

/// Returns an error if a manifest does not use the workspace's lints.
pub fn lints(path: &str, text: &str) -> Option<String> {
    let manifest = parse(text);
    let lints = table(&manifest, "lints").and_then(|l| l.get("workspace"));
    let taken = lints.and_then(|value| value.get_ref().as_bool());
    (taken != Some(true)).then(|| format!("{path}: no `lints.workspace = true`"))
}

/// Returns the sources for which cargo builds no test program: the files of binaries, and the folder of
/// a library, with a slash at its end.
pub fn untested(path: &str, text: &str) -> Vec<String> {
    let manifest = parse(text);
    let folder = path.trim_end_matches("Cargo.toml");
    let is_untested = |target: &&DeTable<'_>| {
        target.get("test").and_then(|value| value.get_ref().as_bool()) == Some(false)
    };
    let binaries = manifest.get("bin").and_then(|list| list.get_ref().as_array());
    let tables = binaries.into_iter().flatten().filter_map(|binary| binary.get_ref().as_table());
    let files = tables.filter(is_untested).filter_map(|binary| string(binary, "path"));
    let library = table(&manifest, "lib").filter(is_untested).map(|_| "src/");
    files
        .map(|file| format!("{folder}{file}"))
        .chain(library.map(|l| format!("{folder}{l}")))
        .collect()
}

/// Returns a manifest of `crate_name` with `rest`.
fn sample(path: &str, crate_name: &str, rest: &str) -> (String, String) {
    (path.to_owned(), format!("[package]\nname = \"{crate_name}\"\n{rest}"))
}

/// Returns the faults of a tree with every crate, where `crate_name` has `rest`.
fn house_with(crate_name: &str, rest: &str) -> Vec<String> {
    let root = "[workspace.dependencies]\nsecret = { path = \"x\", package = \"causeway-cli\" }\n";
    let mut all: Vec<_> = FLOORS
        .iter()
        .map(|(name, _)| sample(name, name, if *name == crate_name { rest } else { "" }))
        .collect();
    all.push(sample(
        "vm/Cargo.toml",
        "causeway-vm",
        "[dependencies]\ncauseway-cli.workspace = true\n",
    ));
    if floor(crate_name).is_none() {
        all.push(sample(crate_name, crate_name, rest));
    }
    faults(root, &all)
}

#[test]
fn floors_imports_from_below_are_accepted() {
    for (crate_name, rest) in [
        ("causeway-ring", "[dependencies]\ncauseway-memory.workspace = true\nlog = \"0.4\"\n"),
        ("causeway-ring", "[dependencies]\ncauseway-host.workspace = true\n"),
        ("causeway-fabric", "[dependencies]\ncauseway-attach.workspace = true\n"),
        ("causeway-wire", "[dev-dependencies]\ncauseway-daemon.workspace = true\n"),
    ] {
        assert_eq!(house_with(crate_name, rest), Vec::<String>::new());
    }
}

#[test]
fn floors_imports_from_above_or_beside_are_found() {
    for (crate_name, rest, to) in [
        ("causeway-ring", "[dependencies]\ncauseway-attach.workspace = true\n", "causeway-attach"),
        ("causeway-wire", "[build-dependencies]\ncauseway-ring = \"*\"\n", "causeway-ring"),
        ("causeway-memory", "[dependencies.causeway-cli]\npath = \"x\"\n", "causeway-cli"),
        ("causeway-memory", "[dependencies]\ncauseway-host.workspace = true\n", "causeway-host"),
        (
            "causeway-wire",
            "[target.'cfg(unix)'.dependencies]\ncauseway-memory.workspace = true\n",
            "causeway-memory",
        ),
        (
            "causeway-wire",
            "[dependencies]\nplain = { package = \"causeway-ring\", version = \"*\" }\n",
            "causeway-ring",
        ),
        ("causeway-wire", "[dependencies]\nsecret.workspace = true\n", "causeway-cli"),
        (
            "causeway-attach",
            "[dependencies]\ncauseway-fabric.workspace = true\n",
            "causeway-fabric",
        ),
        (
            "causeway-socket",
            "[dependencies]\ncauseway-ethernet.workspace = true\n",
            "causeway-ethernet",
        ),
        (
            "causeway-ethernet",
            "[dependencies]\ncauseway-socket.workspace = true\n",
            "causeway-socket",
        ),
        ("causeway-daemon", "[dependencies]\ncauseway-vm.workspace = true\n", "causeway-vm"),
    ] {
        let expected = format!("{crate_name}: {crate_name} may not import {to}");
        assert_eq!(house_with(crate_name, rest), [expected]);
    }
}

#[test]
fn floors_crate_without_a_floor_is_found() {
    assert_eq!(house_with("causeway-attic", ""), ["causeway-attic: causeway-attic is on no floor"]);
}

#[test]
fn floors_untested_sources_are_found() {
    let text = "[[bin]]\npath = \"src/a.rs\"\ntest = false\n[[bin]]\npath = \"src/b.rs\"\n";
    assert_eq!(untested("crates/x/Cargo.toml", text), ["crates/x/src/a.rs"]);
    assert_eq!(untested("x/Cargo.toml", "[lib]\ntest = false\n"), ["x/src/"]);
    assert_eq!(untested("x/Cargo.toml", "[lib]\nname = \"x\"\n"), [""; 0]);
}

#[test]
fn floors_missing_lints_are_found() {
    assert_eq!(lints("a", "[lints]\nworkspace = true\n"), None);
    for text in
        ["", "[lints]\n", "[lints]\nworkspace = false\n", "[lints.rust]\nunsafe_code = \"deny\"\n"]
    {
        assert!(lints("a", text).is_some(), "{text:?}");
    }
}
