//! The VNET language: lines of a session, and the same lines as a file. Target `vnet_language`.
//! Every line is refused or is a command that prints to a form with the same meaning, and a session
//! without authority changes nothing. Commands reach a model, not a daemon.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use causeway_daemon::fabric::FabricControl as _;
use causeway_daemon::vnet::password::Password;
use causeway_daemon::vnet::session::{Session, SessionContext};
use causeway_daemon::vnet::{file, parse, print};
use causeway_model::Name;
use causeway_model::commands::links;
use causeway_model::draft::host::assume_resolved;
use causeway_model::{Command, NetSpec, Offloads, PortKind, PortSpec, SocketAccess};

use crate::model::Model;

const PASSWORD: &str = "s3cret";

fn group() -> Name {
    "blue".parse().expect("a name")
}

/// Builds a group `blue` with two ports and a raw link, and a second group with its own.
fn model() -> Arc<Model> {
    let model = Arc::new(Model::default());
    let port = |name: &str, group: &str, mac: &str| {
        let net = NetSpec {
            mac: mac.parse().expect("an address"),
            guest_mac: None,
            mtu: 1500,
            queue_pairs: 1,
            learn: false,
            offloads: Offloads::All,
        };
        Command::PortAdd(PortSpec {
            name: name.parse().expect("a name"),
            group: group.parse().expect("a name"),
            socket: format!("/{name}").into(),
            memory_max: None,
            access: SocketAccess::default(),
            kind: PortKind::of(net),
        })
    };
    let link = |name: &str, group: &str| {
        let json =
            serde_json::json!({"name": name, "group": group, "kind": "raw", "interface": "eth0"});
        Command::service(links::Add(Box::new(serde_json::from_value(json).expect("a link"))))
    };
    let red: Name = "red".parse().expect("a name");
    for command in [
        Command::GroupAdd(group().into()),
        Command::GroupAdd(red.into()),
        port("vm1", "blue", "02:00:00:00:00:01"),
        port("vm2", "blue", "02:00:00:00:00:02"),
        port("vm3", "red", "02:00:00:00:00:03"),
        link("lan", "blue"),
        link("10.0.0.7", "red"),
    ] {
        model.call(command).expect("a valid command");
    }
    model
}

/// Runs one input. Every line is refused, or is a command that prints in a form that parses to the
/// same command; each answer is complete; an unauthorised session changes no state; and a file that
/// passed validation is executed to its end.
pub fn run(data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        if let Ok(Some(command)) = parse(line) {
            let printed = print::line(&command);
            // In its long form a command may exceed the limit of a line.
            if printed.len() <= causeway_daemon::limits::VNET_LINE_BYTES_MAX {
                assert_eq!(parse(printed.as_bytes()), Ok(Some(command)), "{printed}");
            }
        }
    }
    talk(data);
    let model = model();
    let before = model.changes();
    match file::check(&*model, &group(), assume_resolved, "f", data) {
        Ok(script) => {
            let steps = script.steps.len();
            let done = script.execute(&*model);
            assert_eq!(done.expect("validated steps"), steps);
            assert_eq!(model.changes(), before + steps as u64);
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("f:") && text.ends_with("nothing was changed"), "{text}");
            assert_eq!(model.changes(), before);
        }
    }
}

/// Sends the same lines to a session.
fn talk(data: &[u8]) {
    let model = model();
    let password = Password::new(PASSWORD).expect("a password");
    let context = Arc::new(SessionContext::new(
        model.clone(),
        group(),
        password,
        assume_resolved,
        Arc::default(),
    ));
    let mut session = Session::new(context, IpAddr::V4(Ipv4Addr::LOCALHOST));
    let (now, before) = (Instant::now(), model.changes());
    for line in data.split(|byte| *byte == b'\n').take(64) {
        let output = session.line(now, line);
        assert!(output.text.is_empty() || output.text.ends_with('\n'), "{:?}", output.text);
        if let Some(last) = output.text.lines().last() {
            assert!(last.starts_with("OK") || last.starts_with("ERROR "), "{last}");
            let answers = |line: &&str| line.starts_with("OK") || line.starts_with("ERROR");
            assert_eq!(output.text.lines().filter(answers).count(), 1, "{}", output.text);
        }
        if !session.is_authenticated() {
            assert_eq!(model.changes(), before, "an unauthorised session changed the state");
        }
        if output.end {
            break;
        }
    }
}

/// Returns sessions that use every form.
pub fn seeds() -> Vec<Vec<u8>> {
    let links = "HELLO s3cret 0.9\nADDLINK 10.0.0.2 9003 9000 pw UDP\nADD 10.0.0.3 9001 TCP\n\
                 ADD LINK fd00::2 9000\nADD LINK far.example 7 UDP\nLIST LINKS\nDEL LINK 2\n\
                 DELETELINK 10.0.0.3 0 pw TCP\nREGISTERLINK myself 9000 UDP\n\
                 DEREGISTERLINK MYSELF UDP\nDONE\n";
    let routes = "hello s3cret 0.9 add 10.0.0.2 9000\nADDROUTE any not-02:00:00:00:00:01 EDGE \
                  10.0.0.2\nADD 02:00:00:00:00:01 none INTERFACE vm2 INTERFACE lan\nADD ROUTE any \
                  any INTERFACE 02:00:00:00:00:02 EDGE 10.0.0.2\nADDROUTE any any EDGE lan ANY \
                  ANY\nLIST ROUTES\nDEL ROUTE 1\nDELETEROUTE any any EDGE lan\nDEVICES?\n";
    let file = "# both ends\nADD LINK 10.0.0.2 9000\nADDROUTE any any EDGE 10.0.0.2 INTERFACE \
                vm1\nDELETEROUTE any any EDGE 10.0.0.2 INTERFACE vm1\nDELETELINK 10.0.0.2 0 x \
                UDP\nADD LINK 10.0.0.2 9001\n";
    [links, routes, file].map(|text| text.as_bytes().to_vec()).to_vec()
}
