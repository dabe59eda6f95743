//! Links, routes, traffic, keys, `apply` and `vnet`: the tool as a process against the daemon's
//! control socket.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;

use crate::common::{ControlSocket, Dir, model::Model, serve};

const KEY: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

struct Host {
    control: ControlSocket,
    model: Arc<Model>,
    dir: Dir,
}

impl Host {
    /// Starts a daemon with two ports in group blue.
    fn start() -> Self {
        let model = Arc::new(Model::default());
        let host = Self { control: serve(model.clone()), model, dir: Dir::new() };
        host.ok("group add blue");
        host.ok("port add vm1-net --kind net --group blue --mac 52:54:00:00:00:01");
        host.ok("port add vm2-net --kind net --group blue");
        host
    }

    /// Returns exit status, stdout and stderr; words are separated by blanks.
    fn run(&self, words: &str) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_causeway"))
            .env("CAUSEWAY_CONTROL", &self.control.socket)
            .current_dir(&self.dir.0)
            .args(words.split_whitespace())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    #[track_caller]
    fn ok(&self, words: &str) -> String {
        let (status, out, error) = self.run(words);
        assert_eq!(status, 0, "{words}: {out}{error}");
        assert_eq!(error, "", "{words}");
        out
    }

    #[track_caller]
    fn json(&self, words: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(words)).unwrap()
    }

    #[track_caller]
    fn fails(&self, words: &str, status: i32, says: &str) -> String {
        let (got, out, error) = self.run(words);
        assert_eq!(got, status, "{words}: {out}{error}");
        assert!(error.contains(says), "{words}: {error}");
        out
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.file(name), text).unwrap();
    }
}

/// Returns the words of a line.
fn words(text: &str, line: usize) -> Vec<&str> {
    text.lines().nth(line).unwrap().split_whitespace().collect()
}

#[test]
fn link_add_list_show_and_delete() {
    let host = Host::start();
    let out = host.ok(&format!("link add to-b --group blue --remote far.example --key {KEY}"));
    assert_eq!(out, "link to-b to 10.0.0.9:51871 is up: the peer answers\n");
    host.ok("link add v --group blue --kind vxlan --remote 10.0.0.3 --vni 42 --metric 5 --transit --dscp inherit --ecn false");
    let shown = host.ok("link show v");
    for part in ["dscp        inherit", "ecn         no"] {
        assert!(shown.contains(part), "{part} not in\n{shown}");
    }
    host.ok("link add lan --group blue --kind raw --interface eth1");
    host.ok(
        "link add t --group blue --kind tls --remote 10.0.0.4 --certificate c.pem --private-key \
         k.pem --authorities a.pem --peer-name b.example",
    );
    let tls = host.json("link show t -j");
    assert_eq!(
        tls["certificate"],
        host.dir.file("c.pem").canonicalize().unwrap_or(host.dir.file("c.pem")).to_str().unwrap()
    );
    assert_eq!(tls["remote"], "10.0.0.4:9002");
    let shown = host.ok("link show t");
    assert!(shown.contains("certificate  expired on 2001-09-09"), "{shown}");
    let list = host.ok("link list");
    assert_eq!(
        words(&list, 0),
        ["NAME", "GROUP", "KIND", "PEER", "STATE", "RTT", "LOSS", "PATH-MTU", "METRIC"]
    );
    assert_eq!(words(&list, 1)[..4], ["lan", "blue", "raw", "eth1"]);
    assert_eq!(
        words(&list, 3),
        ["to-b", "blue", "causeway", "10.0.0.9:51871", "up", "62", "us", "0", "%", "1500", "100"]
    );
    let shown = host.ok("link show to-b");
    for part in [
        "state up: the peer answers",
        KEY,
        "dscp 0",
        "ecn yes",
        "path MTU 1500",
        "drop_forged_total",
    ] {
        let plain = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(plain.contains(part), "{part} not in\n{shown}");
    }
    assert!(!shown.contains("drop_runt_total"), "counters that are 0 are omitted\n{shown}");
    assert_eq!(host.json("link show to-b -j")["counters"]["drop_runt_total"], 0);
    assert_eq!(host.json("link list --group blue -j").as_array().unwrap().len(), 4);
    assert_eq!(host.ok("link del v"), "link v deleted\n");
    host.fails("link del v", 3, "see `causeway link list`");
    assert_eq!(host.json("link del v --if-exists -j")["changed"], false);
    assert!(host.ok("group list").contains("lan t to-b"));
    host.fails("group del blue", 1, "has ports");
}

#[test]
fn link_add_refusals_name_the_reason() {
    let host = Host::start();
    host.ok(&format!("link add to-b --group blue --remote far.example --key {KEY}"));
    host.fails("link list --group red", 3, "see `causeway group list`");
    let again = format!("link add to-b --group blue --remote far.example --key {KEY}");
    host.fails(&again, 1, "exists");
    host.ok(&format!("{again} --may-exist"));
    host.fails(
        "link add to-b --group blue --kind vnet --remote far.example --may-exist",
        1,
        "exists with group \"blue\" and kind \"causeway\"",
    );
    host.fails("link add x --group red --kind vnet --remote 10.0.0.2", 3, "causeway group add red");
    host.fails("link add x --group blue", 1, "key: a link of kind \"causeway\" needs it");
    host.fails("link add x --group blue --key short", 2, "44 characters");
    host.fails("link add x --group blue --kind vnet --dscp 64", 2, "or 0 to 63");
    host.fails(
        "link add x --group blue --kind tcp --remote 10.0.0.2 --dscp 46",
        1,
        "dscp: a link of kind \"tcp\" has no such key",
    );
    host.fails("link add x --group blue --kind udp", 2, "possible values");
    host.fails("link add x --group blue --kind vnet --remote nobody", 1, "cannot be resolved");
    host.fails("link add x --group blue --kind vnet --remote 1.2.3.4 --vni 3", 1, "no such key");
}

#[test]
fn route_add_list_and_delete() {
    let host = Host::start();
    host.ok("group add strict --forwarding routes");
    assert!(host.ok("group show strict").contains("forwarding  routes"));
    host.ok("group add lab --kind wire");
    assert!(host.ok("group show lab").contains("kind        wire"));
    host.fails("group add lab --may-exist", 1, "another kind");
    host.ok("group del lab");
    host.fails("group add strict --may-exist", 1, "another forwarding");
    host.ok("link add l --group blue --kind vnet --remote 10.0.0.2");
    let add = "route add --group blue --destination not-52:54:00:00:00:02 --to edge:l";
    assert_eq!(host.ok(&format!("{add} --from interface:vm1-net")), "route 1 added\n");
    assert_eq!(host.json(&format!("{add} -j"))["index"], 2);
    host.fails(add, 1, "the same");
    assert!(host.ok(&format!("{add} --may-exist")).contains("exists already"));
    let list = host.ok("route list");
    assert_eq!(
        words(&list, 2),
        ["1", "blue", "any", "not-52:54:00:00:00:02", "edge:l", "interface:vm1-net", "6", "9"]
    );
    assert_eq!(words(&list, 1)[5], "any");
    assert_eq!(host.json("route list --group strict -j"), serde_json::json!([]));
    host.fails("route add --group blue --to port:x", 2, "expected edge:LINK or interface:PORT");
    host.fails("route add --group blue --to edge:x", 3, "see `causeway link list`");
    host.fails("route add --group blue --to interface:x", 3, "see `causeway port list`");
    host.fails("route add --group blue --to edge:l --source some", 2, "not-MAC");
    host.fails("route del 9", 3, "see `causeway route list`");
    host.ok("route del 9 --if-exists");
    assert_eq!(host.ok("route del 1"), "route 1 deleted\n");
    host.ok("link del l");
    assert_eq!(host.json("route list -j"), serde_json::json!([]), "it named the link");
}

#[test]
fn traffic_table_has_the_busiest_pair_first() {
    let host = Host::start();
    let table = host.ok("traffic blue");
    assert_eq!(
        words(&table, 0),
        [
            "SOURCE",
            "DESTINATION",
            "FROM",
            "MBIT/S",
            "FRAMES",
            "BYTES",
            "MESSAGES",
            "MESSAGE",
            "BYTES"
        ]
    );
    assert_eq!(
        words(&table, 1),
        ["02:00:00:00:00:02", "02:00:00:00:00:03", "vm2", "16.00", "20", "2000", "6", "600"]
    );
    assert!(table.contains("3 frames and messages belong to pairs that did not fit"), "{table}");
    assert_eq!(host.json("traffic blue -o json")["pairs"][0]["from"], "vm1");
    host.fails("traffic red", 3, "see `causeway group list`");
}

#[test]
fn stats_show_links_under_ports() {
    let host = Host::start();
    assert!(!host.ok("stats").contains("Links"));
    host.ok("link add l --group blue --kind vnet --remote 10.0.0.2");
    let stats = host.ok("stats");
    assert_eq!(
        words(&stats, 5),
        ["NAME", "STATE", "RX-PACKETS", "RX-BYTES", "TX-PACKETS", "TX-BYTES", "DROPPED", "FAULTS"]
    );
    assert_eq!(words(&stats, 6), ["l", "up", "6", "0", "5", "0", "2", "0"]);
    let rates = host.json("stats --count 1 -j");
    assert_eq!(rates["links"][0]["rates"]["receive_packets_per_second"], 0.0);
    assert_eq!(host.ok("stats --port vm1-net").lines().count(), 2);
}

#[test]
fn key_generate_never_shows_the_private_key_by_accident() {
    let host = Host::start();
    let public = host.ok("key generate --out key");
    let file = host.dir.file("key");
    let private = std::fs::read_to_string(&file).unwrap();
    assert_eq!((private.len(), public.len()), (45, 45));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_ne!(private, public);
    assert_eq!(host.ok("key public key"), public);
    assert_eq!(host.json("key public key -j")["public_key"], public.trim());
    host.fails("key generate --out key", 1, "exists");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), private, "not overwritten");
    assert_ne!(host.ok("key generate"), host.ok("key generate"));
    // RFC 7748, section 6.1.
    host.write("alice", "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\n");
    assert_eq!(host.ok("key public alice").trim(), KEY);
    host.write("bad", "c0rrect-horse");
    let (status, out, error) = host.run("key public bad");
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(error.contains("44 characters") && !error.contains("c0rrect"), "{error}");
    host.fails("key public none", 2, "No such file");
}

const FILE: &str = r#"
[[group]]
name = "blue"
[[port]]
name = "vm1-net"
group = "blue"
kind = "net"
mac = "52:54:00:00:00:01"
[[link]]
name = "l"
group = "blue"
kind = "vnet"
remote = "far.example"
[[route]]
group = "blue"
to = { edge = "l" }
"#;

#[test]
fn apply_prints_a_diff() {
    let host = Host::start();
    host.write("c.toml", FILE);
    let dry = host.ok("apply -f c.toml --dry-run");
    let lines: Vec<&str> = dry.lines().collect();
    assert!(lines[0].starts_with("- port vm2-net: group blue, kind net"), "{dry}");
    assert!(
        lines[1]
            .starts_with("+ link l: dscp 0, ecn true, group blue, kind vnet, local 0.0.0.0:9000"),
        "{dry}"
    );
    assert_eq!(lines[2..], ["+ route blue: any > any, to edge l", "3 changes to make"]);
    assert_eq!(host.json("port list -j").as_array().unwrap().len(), 2, "nothing was done");
    assert!(host.ok("apply -f c.toml").ends_with("3 changes made\n"));
    assert_eq!(host.ok("apply -f c.toml"), "nothing to change\n");
    assert_eq!(host.json("apply -f c.toml -j")["changes"], serde_json::json!([]));

    host.write("c.toml", &FILE.replace("far.example", "10.0.0.3"));
    let diff = host.ok("apply -f c.toml");
    assert!(
        diff.contains("~ link l: remote 10.0.0.9:9000 -> 10.0.0.3:9000, remote_host"),
        "{diff}"
    );
    assert!(diff.contains("~ route blue: any > any, to edge l: because"), "{diff}");
    host.write("c.toml", &FILE.replace("kind = \"vnet\"", "kind = \"vmet\""));
    host.fails("apply -f c.toml", 1, "c.toml:12:8: key \"kind\": expected one of causeway");
    host.fails("apply -f none.toml", 2, "No such file");
    host.fails("apply", 2, "--file");
}

#[test]
fn apply_that_fails_prints_the_changes_not_made() {
    let host = Host::start();
    host.write("c.toml", FILE);
    host.model.fail_after(1);
    let out =
        host.fails("apply -f c.toml", 65, "add link l: the host ran out of something; 1 of 3");
    assert!(out.starts_with("- port vm2-net") && out.matches("(not made)").count() == 2, "{out}");
    let json = host.fails("apply -f c.toml -j", 65, "0 of 2 changes");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["changes"][0]["done"], false);
    host.model.succeed_again();
    assert!(host.ok("apply -f c.toml").ends_with("2 changes made\n"));
}

#[test]
fn vnet_files_are_executed() {
    let host = Host::start();
    host.write("l.vnet", "ADD LINK 10.0.0.2 9000\nADDROUTE any any EDGE 10.0.0.2\n");
    let dry = host.ok("vnet l.vnet --group blue --dry-run");
    assert_eq!(
        dry,
        "add link 10.0.0.2\nadd route blue: any > any, to edge 10.0.0.2\n2 changes to make\n"
    );
    assert!(host.ok("vnet l.vnet --group blue").ends_with("2 changes made\n"));
    host.fails("vnet l.vnet --group blue", 1, "l.vnet:1: link 10.0.0.2 goes there already");
    host.fails("vnet l.vnet --group red", 3, "see `causeway group list`");
    assert_eq!(host.json("link show 10.0.0.2 -j")["kind"], "vnet");
}
