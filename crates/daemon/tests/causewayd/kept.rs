//! The state file: objects that are added while causewayd runs come back after its end.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::daemon_process::{DaemonProcess, await_state};
use crate::common::{Dir, model::Model, open_kept, send, send_noted, serve_kept};
use causeway_attach::native::{VsockOptions, VsockPort};
use serde_json::{Value, json};

const CAUSEWAYD: &str = env!("CARGO_BIN_EXE_causewayd");

/// Objects of the configuration file.
const LISTED: &str = "[[group]]\nname = \"blue\"\n[[port]]\nname = \"a\"\ngroup = \"blue\"\n\
    kind = \"vsock\"\ncid = 3\n[[rule]]\naction = \"reject\"\nto = \"*/*:22\"\n\
    [[rule]]\naction = \"reject\"\nto = \"*/*:23\"\n";

/// A daemon in a directory of its own.
struct Host {
    dir: Dir,
    daemon: Option<DaemonProcess>,
}

impl Host {
    fn new(listed: &str) -> Self {
        let host = Self { dir: Dir::new(), daemon: None };
        host.configure("hold = \"none\"", listed);
        host
    }

    fn configure(&self, keys: &str, listed: &str) {
        let control = self.dir.file("control.sock");
        let head = format!("[daemon]\ncontrol = \"{}\"\n{keys}\n", control.display());
        std::fs::write(self.dir.file("causeway.toml"), head + listed).unwrap();
    }

    fn start(&mut self) {
        let daemon = DaemonProcess::start(CAUSEWAYD, &self.dir.file("causeway.toml"));
        self.daemon = Some(daemon.ready(&self.dir));
    }

    fn stop(&mut self) {
        self.daemon.take().unwrap().stop();
    }

    fn restart(&mut self) {
        self.stop();
        self.start();
    }

    /// Sends a change, which must succeed, and returns its notes.
    #[track_caller]
    fn change(&self, method: &str, path: &str, body: &Value) -> Vec<String> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, notes) = send_noted(&self.dir.file("control.sock"), method, path, &body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {notes:?}");
        notes
    }

    fn get(&self, path: &str) -> Value {
        let (status, value) = send(&self.dir.file("control.sock"), "GET", path, "");
        assert_eq!(status, 200, "{path}: {value}");
        value
    }

    fn export(&self) -> String {
        self.get("/v1/config")["toml"].as_str().unwrap().to_owned()
    }

    fn names(&self, noun: &str) -> Vec<String> {
        let list = self.get(&format!("/v1/{noun}"));
        list.as_array().unwrap().iter().map(|o| o["name"].as_str().unwrap().to_owned()).collect()
    }

    fn state(&self) -> String {
        std::fs::read_to_string(self.dir.file("state.toml")).unwrap()
    }
}

/// Returns an address of this host that no other test uses.
fn own_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("127.{}.{}.{number}", pid % 200 + 20, pid / 200 % 250)
}

/// Adds an object of each type.
fn add_all(host: &Host) {
    let none = Vec::<String>::new();
    let address = own_address();
    for (noun, body) in [
        ("groups", json!({ "name": "red", "weight": 3, "kind": "wire" })),
        ("ports", json!({ "name": "n", "group": "blue", "kind": "net", "mtu": 9000 })),
        ("ports", json!({ "name": "v", "group": "red", "kind": "vsock", "cid": 5 })),
        ("ports", json!({ "name": "m", "group": "red", "kind": "mx", "hostname": "h:0" })),
        ("rules", json!({ "action": "accept", "from": "red/5:*", "index": 1 })),
        ("rules", json!({ "action": "reject", "from": "host:*" })),
        (
            "links",
            json!({ "name": "x", "group": "red", "kind": "vxlan", "vni": 7,
            "remote": "127.0.0.2", "local": format!("{address}:47890") }),
        ),
        (
            "links",
            json!({ "name": "named", "group": "blue", "kind": "vnet",
            "remote": "localhost:47891", "local": format!("{address}:47892"), "dscp": "inherit", "ecn": false }),
        ),
        (
            "links",
            json!({ "name": "tcp", "group": "blue", "kind": "tcp", "metric": 7,
            "remote": "127.0.0.1:9", "listen": format!("{address}:47893"), "transit": true }),
        ),
        (
            "routes",
            json!({ "group": "blue", "to": { "edge": "named" },
            "from": { "interface": "n" }, "source": "not-02:00:00:00:00:01" }),
        ),
    ] {
        assert_eq!(host.change("POST", &format!("/v1/{noun}"), &body), none, "{noun}");
    }
}

#[test]
fn state_objects_of_every_type_come_back_after_a_kill_and_after_a_stop() {
    let mut host = Host::new(LISTED);
    host.start();
    add_all(&host);
    let before = host.export();
    for name in ["red", "\"n\"", "\"v\"", "\"m\"", "\"x\"", "\"named\"", "\"tcp\"", "not-02"] {
        assert!(before.contains(name), "{name}: {before}");
    }
    let meta = std::fs::metadata(host.dir.file("state.toml")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    host.daemon.take().unwrap().kill();
    host.start();
    assert_eq!(host.export(), before, "after SIGKILL");
    host.restart();
    assert_eq!(host.export(), before, "after SIGTERM");
    // The exported text is a configuration with the same objects, without the state file.
    host.stop();
    std::fs::write(host.dir.file("causeway.toml"), &before).unwrap();
    std::fs::remove_file(host.dir.file("state.toml")).unwrap();
    host.start();
    assert_eq!(host.export().replace("# mtu", "mtu"), before.replace("# mtu", "mtu"));
}

#[test]
fn state_objects_that_are_deleted_do_not_come_back() {
    let mut host = Host::new(LISTED);
    host.start();
    let before = host.export();
    add_all(&host);
    // The route goes with its link.
    for path in ["links/named", "links/x", "links/tcp", "ports/n", "ports/v", "ports/m"] {
        host.change("DELETE", &format!("/v1/{path}"), &Value::Null);
    }
    for path in ["rules/3", "rules/1", "groups/red"] {
        host.change("DELETE", &format!("/v1/{path}"), &Value::Null);
    }
    assert_eq!(host.export(), before);
    host.restart();
    assert_eq!(host.export(), before);
}

#[test]
fn state_leaves_out_ephemeral_changes() {
    let mut host = Host::new(LISTED);
    host.start();
    let port = |name: &str| json!({ "name": name, "group": "blue", "kind": "net" });
    host.change("POST", "/v1/ports?ephemeral=true", &port("e"));
    host.change("POST", "/v1/ports?ephemeral=false", &port("k"));
    host.change("POST", "/v1/ports", &port("d"));
    host.change("DELETE", "/v1/ports/d?ephemeral", &Value::Null);
    let control = host.dir.file("control.sock");
    assert_eq!(send(&control, "POST", "/v1/ports?ephemeral=yes", "{}").0, 422);
    assert_eq!(host.names("ports"), ["a", "e", "k"]);
    host.restart();
    assert_eq!(host.names("ports"), ["a", "d", "k"], "the deletion was ephemeral, too");
    // A daemon without a state file says so for each change.
    host.stop();
    let mut child = Command::new(CAUSEWAYD)
        .args(["--ephemeral", "--config"])
        .arg(host.dir.file("causeway.toml"))
        .spawn()
        .unwrap();
    while std::os::unix::net::UnixStream::connect(&control).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(host.names("ports"), ["a"]);
    let notes = host.change("POST", "/v1/ports", &port("x"));
    assert!(notes[0].contains("lost when causewayd ends: causewayd runs with --ephemeral"));
    let state = host.state();
    send(&control, "POST", "/v1/shutdown", "");
    assert!(child.wait().unwrap().success());
    assert_eq!(host.state(), state);
}

#[test]
fn state_yields_to_the_configuration_file() {
    let mut host = Host::new(LISTED);
    host.start();
    let null = Value::Null;
    let notes = host.change("DELETE", "/v1/ports/a", &null);
    assert!(notes[0].starts_with("port a returns at the next start of causewayd"), "{notes:?}");
    let other = json!({ "name": "a", "group": "blue", "kind": "vsock", "cid": 9 });
    let notes = host.change("POST", "/v1/ports", &other);
    assert!(notes[0].starts_with("port a gets other values at the next start"), "{notes:?}");
    let notes = host.change("DELETE", "/v1/rules/0", &null);
    assert!(notes[0].starts_with("the rule returns at the next start"), "{notes:?}");
    host.restart();
    assert_eq!(host.get("/v1/ports/a")["cid"], 3);
    assert_eq!(host.get("/v1/rules").as_array().unwrap().len(), 2);

    // Objects of the state file lose against a file that was edited since.
    add_all(&host);
    let state = host.state();
    host.stop();
    let edited = "[[group]]\nname = \"blue\"\n[[group]]\nname = \"red\"\n\
        [[port]]\nname = \"n\"\ngroup = \"blue\"\nkind = \"net\"\nmtu = 1500\n\
        [[port]]\nname = \"w\"\ngroup = \"red\"\nkind = \"vsock\"\ncid = 5\n";
    host.configure("hold = \"none\"", edited);
    host.start();
    assert_eq!(host.get("/v1/ports/n")["mtu"], 1500);
    assert_eq!(host.names("ports"), ["m", "n", "w"], "the CID of v belongs to w");
    assert_eq!(host.names("links"), ["named", "tcp", "x"]);
    let aside = std::fs::read_to_string(host.dir.file("state.toml.bad")).unwrap();
    assert_eq!(aside, state);
    host.stop();
    host.configure("hold = \"none\"", "[[group]]\nname = \"green\"\n");
    host.start();
    assert_eq!((host.names("ports"), host.names("links").len()), (Vec::new(), 0));
    assert_eq!(host.get("/v1/routes"), json!([]), "no route without its port");
}

#[test]
fn state_file_that_cannot_be_used_is_kept_aside_and_costs_nothing_else() {
    let mut host = Host::new(LISTED);
    host.start();
    add_all(&host);
    host.stop();
    let good = host.state();
    let path = host.dir.file("state.toml");
    let cut = good[..good.len() / 2].to_owned();
    let newer = good.replace("version = 1", "version = 2");
    for (number, text) in [cut, newer, good.replace("[[port]]", "[[port]")].iter().enumerate() {
        std::fs::write(&path, text).unwrap();
        host.start();
        assert_eq!(host.names("ports"), ["a"]);
        let aside = if number == 0 { String::new() } else { format!("-{}", number + 1) };
        let aside = host.dir.file(&format!("state.toml.bad{aside}"));
        assert_eq!(&std::fs::read_to_string(aside).unwrap(), text);
        assert!(!path.exists());
        host.stop();
    }
    // An edited object with a problem costs that object.
    std::fs::write(&path, good.replace("cid = 5", "cid = 1")).unwrap();
    host.start();
    assert_eq!(host.names("ports"), ["a", "m", "n"]);
    host.stop();
    // A file that another user could write, and one that is no file.
    std::fs::write(&path, &good).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    host.start();
    assert_eq!(host.names("ports"), ["a"]);
    host.stop();
    std::fs::create_dir(&path).unwrap();
    host.start();
    assert_eq!(host.names("ports"), ["a"]);
    let port = json!({ "name": "k", "group": "blue", "kind": "net" });
    let notes = host.change("POST", "/v1/ports", &port);
    assert!(notes[0].contains("expected a regular file"), "it cannot be moved aside: {notes:?}");
}

#[test]
fn state_write_that_fails_is_in_the_reply_and_is_made_up_for() {
    let mut host = Host::new(LISTED);
    let disk = host.dir.file("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k,mode=0700", "none"])
        .arg(&disk)
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: mounting a file system needs root");
        return;
    }
    let _mounted = Mounted(&disk);
    let key = format!("hold = \"none\"\nstate_file = \"{}/state.toml\"", disk.display());
    host.configure(&key, LISTED);
    host.start();
    let port = |name: &str| json!({ "name": name, "group": "blue", "kind": "net" });
    assert_eq!(host.change("POST", "/v1/ports", &port("k")), Vec::<String>::new());
    let filler = disk.join("filler");
    let _ = std::fs::write(&filler, vec![1; 1 << 17]);
    let notes = host.change("POST", "/v1/ports", &port("l"));
    assert!(notes[0].starts_with("the change is lost when causewayd ends: cannot"), "{notes:?}");
    assert!(notes[0].contains("No space left on device"), "{notes:?}");
    let info = host.get("/v1/info");
    assert!(info["state_error"].as_str().unwrap().contains("No space left"), "{info}");
    assert_eq!(host.names("ports"), ["a", "k", "l"], "the command itself succeeds");
    std::fs::remove_file(filler).unwrap();
    assert_eq!(host.change("POST", "/v1/ports", &port("m")), Vec::<String>::new());
    host.daemon.take().unwrap().kill();
    host.start();
    assert_eq!(host.names("ports"), ["a", "k", "l", "m"]);
    host.stop();
}

/// A mounted file system, unmounted with the test.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// A route that is replaced with its link and that the applied file lacks is gone with the link when
/// its own turn comes: the state file must forget the route too.
#[test]
fn state_of_apply_forgets_a_deleted_route_of_a_replaced_link() {
    let link = "[[link]]\nname = \"x\"\ngroup = \"blue\"\nkind = \"vxlan\"\nremote = \"10.0.0.2\"\n\
                vni = 7\n";
    let listed = LISTED.to_owned() + link;
    let (control, _kept) = serve_kept(Arc::new(Model::default()), &listed);
    let state = || std::fs::read_to_string(control.dir.file("state.toml")).unwrap_or_default();
    let route = json!({ "group": "blue", "to": { "edge": "x" } }).to_string();
    assert_eq!(send_noted(&control.socket, "POST", "/v1/routes", &route), (201, Vec::new()));
    assert!(state().contains("[[route]]"), "{}", state());
    let file = std::fs::read_to_string(control.dir.file("causeway.toml")).unwrap();
    let body = json!({ "text": file.replace("vni = 7", "vni = 8") }).to_string();
    let (status, reply) = send(&control.socket, "POST", "/v1/apply", &body);
    assert_eq!(status, 200, "{reply}");
    let changes: Vec<_> = reply["changes"].as_array().unwrap().iter().collect();
    let changes: Vec<_> = changes.iter().map(|c| (&c["action"], &c["what"], &c["done"])).collect();
    let yes = json!(true);
    let (replace, delete) = (json!("replace"), json!("delete"));
    assert_eq!(changes, [(&replace, &json!("link"), &yes), (&delete, &json!("route"), &yes)]);
    assert!(!state().contains("[[route]]"), "{}", state());
}

#[test]
fn state_of_apply_is_what_the_file_of_the_daemon_does_not_have() {
    let (control, kept) = serve_kept(Arc::new(Model::default()), LISTED);
    let own = control.dir.file("causeway.toml");
    let apply = |text: &str| {
        let body = json!({ "text": text, "file": "c.toml" }).to_string();
        let (status, notes) = send_noted(&control.socket, "POST", "/v1/apply", &body);
        assert_eq!(status, 200);
        notes
    };
    let state = || std::fs::read_to_string(control.dir.file("state.toml")).unwrap_or_default();
    let port = "[[port]]\nname = \"new\"\ngroup = \"blue\"\nkind = \"net\"\n";
    let file = std::fs::read_to_string(&own).unwrap();
    // Objects of another file are kept.
    assert_eq!(apply(&(file.clone() + port)), Vec::<String>::new());
    assert!(state().contains("name = \"new\""), "{}", state());
    // Objects that the other file lacks return with the daemon's own file.
    let lacks = file.replace("name = \"a\"", "name = \"b\"");
    let notes = apply(&lacks);
    assert!(notes[0].starts_with("port a returns at the next start"), "{notes:?}");
    assert!(state().contains("name = \"b\"") && !state().contains("name = \"new\""));
    // The daemon's own file, edited: nothing is left for the state file.
    let edited = file.replace("name = \"a\"", "name = \"c\"") + port;
    std::fs::write(&own, &edited).unwrap();
    assert_eq!(apply(&edited), Vec::<String>::new());
    assert!(!state().contains("[[port]]"), "{}", state());
    assert_eq!(kept.error(), None);
    let diff = |text: &str| {
        let body = json!({ "text": text }).to_string();
        send(&control.socket, "POST", "/v1/config/diff", &body).1["changes"].clone()
    };
    assert_eq!(diff(&edited), json!([]));
    let changes = diff(&file);
    let shown: Vec<_> =
        changes.as_array().unwrap().iter().map(|c| (&c["action"], &c["name"])).collect();
    assert_eq!(
        shown,
        [
            (&json!("add"), &json!("c")),
            (&json!("add"), &json!("new")),
            (&json!("delete"), &json!("a"))
        ]
    );
}

#[test]
fn state_file_has_one_daemon() {
    let mut host = Host::new(LISTED);
    host.start();
    let text = std::fs::read_to_string(host.dir.file("causeway.toml")).unwrap();
    let (other, socket) = (host.dir.file("other.toml"), host.dir.file("other.sock"));
    let text = text.replace("control.sock", "other.sock").replace("name = \"a\"", "name = \"z\"");
    std::fs::write(&other, text).unwrap();
    let mut child = Command::new(CAUSEWAYD).arg("--config").arg(&other).spawn().unwrap();
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let (_, notes) = send_noted(&socket, "POST", "/v1/groups", r#"{"name":"red"}"#);
    assert!(notes[0].contains("is in use by another causewayd"), "{notes:?}");
    send(&socket, "POST", "/v1/shutdown", "");
    assert!(child.wait().unwrap().success());
    assert!(!host.dir.file("state.toml").exists());
}

#[test]
fn state_names_guests_that_a_stop_cut_off() {
    let mut host = Host::new(LISTED);
    host.start();
    let guest = VsockPort::attach(&host.dir.file("a.sock"), VsockOptions::default()).unwrap();
    await_state(&host.dir, "a", "running");
    assert_eq!(host.get("/v1/ports/a")["cut_off"], Value::Null);
    host.restart();
    drop(guest);
    for _ in 0..2 {
        let cut_off = host.get("/v1/ports/a")["cut_off"].as_str().unwrap().to_owned();
        assert!(cut_off.contains("reboot the guest"), "{cut_off}");
        assert!(cut_off.contains("its VMM does not reconnect vsock"), "{cut_off}");
        // The next daemon knows it, too, as long as no guest comes.
        host.restart();
    }
    let _guest = VsockPort::attach(&host.dir.file("a.sock"), VsockOptions::default()).unwrap();
    await_state(&host.dir, "a", "running");
    assert_eq!(host.get("/v1/ports/a")["cut_off"], Value::Null);
}

#[test]
fn state_object_that_the_host_refuses_waits_for_the_next_start() {
    let mut host = Host::new(LISTED);
    let place = host.dir.file("later");
    let text = format!(
        "[state]\nversion = 1\n[[port]]\nname = \"w\"\ngroup = \"blue\"\nkind = \"net\"\n\
         socket = \"{}/w.sock\"\n# End of the state.\n",
        place.display()
    );
    std::fs::write(host.dir.file("state.toml"), text).unwrap();
    std::fs::set_permissions(host.dir.file("state.toml"), std::fs::Permissions::from_mode(0o600))
        .unwrap();
    host.start();
    let port = |name: &str| json!({ "name": name, "group": "blue", "kind": "net" });
    host.change("POST", "/v1/ports", &port("k"));
    assert_eq!(host.names("ports"), ["a", "k"]);
    assert!(host.state().contains("later/w.sock"), "{}", host.state());
    std::fs::create_dir(&place).unwrap();
    host.restart();
    assert_eq!(host.names("ports"), ["a", "k", "w"]);
    // A waiting object can be deleted, too.
    host.stop();
    std::fs::remove_dir_all(&place).unwrap();
    host.start();
    host.change("DELETE", "/v1/ports/w", &Value::Null);
    assert!(!host.state().contains("w.sock"), "{}", host.state());
    assert_eq!(send(&host.dir.file("control.sock"), "DELETE", "/v1/ports/w", "").0, 404);
}

#[test]
fn state_object_that_was_deleted_until_the_next_start_can_be_deleted_for_good() {
    let mut host = Host::new(LISTED);
    host.start();
    host.change("POST", "/v1/groups", &json!({ "name": "red" }));
    let link = json!({ "name": "far", "group": "red", "kind": "vnet", "remote": "127.0.0.2",
        "local": format!("{}:47894", own_address()) });
    host.change("POST", "/v1/links", &link);
    let paths = ["/v1/links/far", "/v1/groups/red"];
    for path in paths {
        host.change("DELETE", &format!("{path}?ephemeral"), &Value::Null);
    }
    assert!(host.state().contains("\"far\"") && host.state().contains("\"red\""));
    for path in paths {
        host.change("DELETE", path, &Value::Null);
        assert_eq!(send(&host.dir.file("control.sock"), "DELETE", path, "").0, 404, "{path}");
    }
    assert!(!host.state().contains("\"far\"") && !host.state().contains("\"red\""));
}

/// Sends a random change, which may be refused.
fn random_change(socket: &Path, random: &mut impl FnMut(usize) -> usize) {
    let name = format!("o{}", random(6));
    let group = ["blue", "red"][random(2)];
    let delete = |noun: &str, name: String| ("DELETE", format!("/v1/{noun}/{name}"), Value::Null);
    let add = |noun: &str, body: Value| ("POST", format!("/v1/{noun}"), body);
    let end = match random(2) {
        0 => json!({ "interface": name }),
        _ => json!({ "edge": name }),
    };
    let rule =
        json!({ "action": "reject", "to": format!("*/*:{}", random(5)), "index": random(6) });
    let (method, path, body) = match random(11) {
        0 => add("groups", json!({ "name": "red" })),
        1 => delete("groups", "red".into()),
        2 | 3 => add("ports", json!({ "name": name, "group": group, "kind": "net" })),
        4 => delete("ports", name),
        5 => {
            let (kind, remote) = ("vnet", format!("10.0.0.{}", random(200) + 1));
            add("links", json!({ "name": name, "group": group, "kind": kind, "remote": remote }))
        }
        6 => delete("links", name),
        7 => add("rules", rule),
        8 => delete("rules", random(6).to_string()),
        9 => add("routes", json!({ "group": group, "to": end })),
        _ => delete("routes", (random(20) + 1).to_string()),
    };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    send(socket, method, &path, &body);
}

#[test]
fn state_of_random_histories_comes_back() {
    let listed = "[[group]]\nname = \"blue\"\n";
    for seed in 1..=20_u64 {
        let mut state = seed;
        let mut random = |bound: usize| {
            state =
                state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            (state >> 33) as usize % bound
        };
        let (control, kept) = serve_kept(Arc::new(Model::default()), listed);
        for _ in 0..60 {
            random_change(&control.socket, &mut random);
        }
        let before = kept.export().unwrap();
        kept.close(&|_| false);
        let next = open_kept(&control.dir, Arc::new(Model::default()), listed);
        assert_eq!(next.export().unwrap(), before, "seed {seed}");
        assert!(!control.dir.file("state.toml.bad").exists(), "seed {seed}");
        next.close(&|_| false);
    }
}
