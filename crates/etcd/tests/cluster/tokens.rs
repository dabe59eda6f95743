//! A site is made by one command, and hosts join with tokens.

use causeway_testing::folder::Folder;
use serde_json::{Value, json};

use crate::hosts::{EtcdServer, Host, udp_port, wait};

/// A host that joins with files of its own.
struct Joining<'a> {
    server: &'a EtcdServer,
    folder: Folder,
}

impl<'a> Joining<'a> {
    fn new(server: &'a EtcdServer) -> Self {
        Self { server, folder: Folder::new("token") }
    }

    fn settings(&self) -> Option<String> {
        std::fs::read_to_string(self.folder.join("directory.env")).ok()
    }

    /// Returns the arguments of `join`.
    fn arguments(&self, token: &str, host: &str) -> Vec<String> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let (url, key, settings) = (self.server.url(), file("key"), file("directory.env"));
        let words = ["join", &url, "--token", token, "--endpoint", "192.0.2.11", "--no-start"];
        let mut all: Vec<String> = words.map(str::to_owned).into();
        all.extend(["--key".into(), key, "--settings".into(), settings]);
        if !host.is_empty() {
            all.extend(["--host".into(), host.into()]);
        }
        all
    }

    /// Joins; returns the error, empty without one.
    fn join(&self, token: &str, host: &str) -> String {
        let all = self.arguments(token, host);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let output = self.server.try_verb(&all);
        let errors = String::from_utf8(output.stderr).unwrap();
        if output.status.success() { String::new() } else { errors }
    }
}

fn create(server: &EtcdServer, options: &[&str]) -> String {
    let all = [&["token", "create"], options].concat();
    server.verb(&all).trim().to_owned()
}

fn list(server: &EtcdServer) -> Value {
    serde_json::from_str(&server.verb(&["token", "list"])).unwrap()
}

#[test]
fn token_admits_a_host_once_and_refusals_are_counted() {
    let server = EtcdServer::start();
    let early = server.try_verb(&["token", "create"]);
    assert!(String::from_utf8(early.stderr).unwrap().contains("cluster init"));
    server.verb(&["init", "--group", "blue=7"]);
    server.verb(&["init", "--group", "blue=7"]);
    assert!(server.verb(&["group", "list"]).contains("\"blue\""));

    let joining = Joining::new(&server);
    let refused = |token: &str, host: &str, text: &str| {
        let error = joining.join(token, host);
        assert!(error.contains("refused") && error.contains(text), "{text}: {error}");
    };
    let for_h2 = create(&server, &["--host", "h2"]);
    refused("nonsense", "h1", "malformed");
    refused(&for_h2.replace("lab.", "other."), "h1", "site other");
    refused(&for_h2, "h1", "for host h2");
    let id = for_h2.split('.').nth(1).unwrap();
    let guess = format!("lab.{id}.{}", "A".repeat(43));
    refused(&guess, "h2", "wrong secret");
    let deleted = create(&server, &[]);
    server.verb(&["token", "delete", deleted.split('.').nth(1).unwrap()]);
    refused(&deleted, "h1", "does not know");
    let short = create(&server, &["--ttl", "1s"]);
    let short_id = short.split('.').nth(1).unwrap();
    wait("the token expires", || {
        let all = list(&server)["tokens"].as_array().unwrap().clone();
        let found = all.into_iter().find(|token| token["id"] == short_id).unwrap();
        (found["state"] == "expired").then_some(())
    });
    refused(&short, "h1", "expired");
    assert_eq!(joining.settings(), None, "a refused token changes nothing");

    // A step that fails on the host leaves the token unused.
    let mut bad = joining.arguments(&for_h2, "");
    bad.extend(["--endpoint".into(), "a\"b".into()]);
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    assert!(!server.try_verb(&bad).status.success());
    assert_eq!(joining.settings(), None);

    // The token names the host and the site.
    assert_eq!(joining.join(&for_h2, ""), "");
    let settings = joining.settings().unwrap();
    assert!(settings.contains("CAUSEWAY_HOST=h2\n") && settings.contains("CAUSEWAY_SITE=lab\n"));
    refused(&for_h2, "h2", "used by host h2");
    let all = list(&server);
    let counts = json!({
        "malformed": 1, "site": 1, "host": 1, "secret": 1, "unknown": 1, "expired": 1, "used": 1,
    });
    assert_eq!(all["refused_joins"], counts);
    let stored = format!("{all}{}", server.verb(&["export"]));
    assert!(!stored.contains(for_h2.rsplit('.').next().unwrap()));

    // A host ignores the keys, and counts none as malformed.
    let host = Host::start(1, &server, udp_port());
    let view = host.await_state("follows");
    assert_eq!(view["status"]["counters"]["refused_malformed_total"], 0);
}

#[test]
fn token_of_two_joins_at_once_admits_one() {
    let server = EtcdServer::start();
    server.verb(&["init"]);
    let token = create(&server, &[]);
    let hosts: Vec<Joining<'_>> = (0..4).map(|_| Joining::new(&server)).collect();
    let started: Vec<_> = hosts
        .iter()
        .map(|host| {
            let all = host.arguments(&token, "h1");
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            server.command(&all).spawn().unwrap()
        })
        .collect();
    let done: Vec<bool> =
        started.into_iter().map(|mut child| child.wait().unwrap().success()).collect();
    assert_eq!(done.iter().filter(|done| **done).count(), 1, "{done:?}");
    let settings = hosts.iter().filter(|host| host.settings().is_some()).count();
    assert_eq!(settings, 1);
    assert_eq!(list(&server)["refused_joins"], json!({ "used": 3 }));
}

#[test]
fn init_makes_roles_with_the_rights_that_a_host_needs() {
    let server = EtcdServer::start();
    let printed = server.verb(&["init", "--group", "blue=7", "--role", "h1"]);
    assert!(printed.starts_with("etcdctl role add h1\n"), "{printed}");
    // A repetition finds the role.
    for _ in 0..2 {
        server.verb(&["init", "--role", "h1", "--apply-roles"]);
    }
    let token = create(&server, &["--host", "h1"]);
    for user in ["root", "h1"] {
        let body = format!(r#"{{"name":"{user}","password":"{user}"}}"#);
        server.post("/v3/auth/user/add", &body, None);
        if user == "root" {
            server.post("/v3/auth/role/add", r#"{"name":"root"}"#, None);
        }
        let body = format!(r#"{{"user":"{user}","role":"{user}"}}"#);
        server.post("/v3/auth/user/grant", &body, None);
    }
    server.post("/v3/auth/enable", "{}", None);

    let folder = Folder::new("roles");
    std::fs::write(folder.join("h1"), "h1").unwrap();
    let password = folder.join("h1").display().to_string();
    let login = ["--etcd-user", "h1", "--etcd-password-file", &password];
    let joining = Joining::new(&server);
    let mut join = joining.arguments(&token, "");
    join.extend(login.map(str::to_owned));
    let join: Vec<&str> = join.iter().map(String::as_str).collect();
    server.verb(&join);
    // The host may not share groups, evict, or make a site.
    for verb in [&["group", "add", "red", "--vni", "8"][..], &["evict", "h2"]] {
        let output = server.try_verb(&[verb, &login].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains("permission denied"), "{verb:?}: {errors}");
    }
    let host = Host::start_as(1, &server, udp_port(), Some("h1"));
    let _guest = host.attach(0);
    wait("the host and its claim are in etcd", || {
        let all = server.verb(&[&["export"][..], &login].concat());
        (all.contains("/host/h1") && all.contains("/mac/blue/")).then_some(())
    });
    let view = host.await_view("/v1/cluster", |view| view["status"]["alarm"] == "");
    assert_eq!(view["status"]["counters"]["writes_refused_total"], 0);
}
