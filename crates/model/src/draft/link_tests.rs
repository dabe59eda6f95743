//! Defaults and refusals of link drafts.

use super::*;

const KEY: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

fn one(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    match host {
        "far" => {
            Ok(vec![format!("[fd00::2]:{port}").parse().unwrap(), ([10, 0, 0, 2], port).into()])
        }
        "lost" => Err("host \"lost\" cannot be resolved".into()),
        other => host::assume_resolved(other, port),
    }
}

fn spec(rest: &str) -> Result<LinkSpec, String> {
    let json = format!(r#"{{"name":"l","group":"blue"{rest}}}"#);
    let values: Map<String, Value> = serde_json::from_str(&json).unwrap();
    let problem = |all: Vec<Problem>| format!("{}: {}", all[0].path, all[0].text);
    let draft = LinkDraft::read(&values).map_err(problem)?;
    let filled = draft.clone().filled(Path::new("/etc/k"));
    assert_eq!(filled.clone().filled(Path::new("/x")), filled, "{json}");
    let spec = draft.into_spec(Path::new("/etc/k"), one).map_err(|e| e.to_string());
    if let Ok(spec) = &spec {
        assert_eq!(&filled.into_spec(Path::new("/x"), one).unwrap(), spec, "{json}");
    }
    spec
}

#[test]
fn link_defaults_are_filled_in() {
    let key = format!(r#","key":"{KEY}""#);
    let LinkKind::Causeway(tunnel) = spec(&key).unwrap().kind else { panic!("another kind") };
    assert_eq!((tunnel.remote, tunnel.local), (None, "[::]:51871".parse().unwrap()));
    assert_eq!(tunnel.private_key, Path::new("/etc/k"));
    assert_eq!(tunnel.vni, derived_vni(&"blue".parse().unwrap()));
    for (rest, remote, local) in [
        (r#","kind":"vnet","remote":"10.0.0.2""#, "10.0.0.2:9000", "0.0.0.0:9000"),
        (r#","kind":"vnet","remote":"fd00::2""#, "[fd00::2]:9000", "[::]:9000"),
        (r#","kind":"vnet","remote":"far""#, "[fd00::2]:9000", "[::]:9000"),
        (r#","kind":"vnet","remote":"far","local":"0.0.0.0""#, "10.0.0.2:9000", "0.0.0.0:9000"),
        (r#","kind":"vnet","remote":"far:7","local":":8""#, "[fd00::2]:7", "[::]:8"),
        (r#","kind":"vxlan","vni":5,"remote":"10.0.0.2""#, "10.0.0.2:4789", "0.0.0.0:4789"),
        (
            r#","kind":"causeway-plain","remote":"10.0.0.2:5","local":"10.0.0.1:6""#,
            "10.0.0.2:5",
            "10.0.0.1:6",
        ),
    ] {
        let kind = spec(rest).unwrap().kind;
        let (LinkKind::Vnet(udp) | LinkKind::Vxlan(udp) | LinkKind::CausewayPlain(udp)) = kind
        else {
            panic!("another kind")
        };
        assert_eq!((udp.remote, udp.local), (remote.parse().unwrap(), local.parse().unwrap()));
    }
    let tcp = spec(r#","kind":"tcp","remote":"10.0.0.2","listen":"0.0.0.0""#).unwrap();
    let LinkKind::Tcp(stream) = tcp.kind else { panic!("another kind") };
    assert_eq!(stream.listen, Some("0.0.0.0:9001".parse().unwrap()));
    let files = r#""certificate":"/c","private_key":"/p","authorities":"/a""#;
    let tls = spec(&format!(r#","kind":"tls","remote":"far",{files}"#)).unwrap();
    let LinkKind::Tls(tls) = tls.kind else { panic!("another kind") };
    assert_eq!((tls.peer_name.as_str(), tls.stream.remote.port()), ("far", 9002));
}

#[test]
fn link_vni_differs_between_groups_and_is_stable() {
    assert_eq!(derived_vni(&"blue".parse().unwrap()), derived_vni(&"blue".parse().unwrap()));
    let all: std::collections::HashSet<u32> =
        (0..100).map(|n| derived_vni(&format!("group{n}").parse().unwrap())).collect();
    assert_eq!(all.len(), 100);
    assert!(all.iter().all(|vni| *vni <= VNI_MAX));
}

#[test]
fn link_hostile_drafts_are_refused_with_the_expected_form() {
    for (rest, expected) in [
        ("", "key: a link of kind \"causeway\" needs it"),
        (r#","key":"x""#, "44 characters"),
        (r#","kind":"udp""#, "expected one of causeway"),
        (r#","kind":"vnet""#, "remote: a link of kind \"vnet\" needs it"),
        (r#","kind":"vnet","remote":"lost""#, "cannot be resolved"),
        (r#","kind":"vnet","remote":"a b""#, "expected HOST"),
        (r#","kind":"vnet","remote":"0.0.0.0""#, "one peer"),
        (r#","kind":"vnet","remote":"ff02::1""#, "one peer"),
        (r#","kind":"vnet","remote":"10.0.0.2","vni":1"#, "vni: a link of kind \"vnet\" has no"),
        (
            r#","kind":"vnet","remote":"10.0.0.2","local":"here""#,
            "local: \"here\": expected ADDRESS",
        ),
        (r#","kind":"vnet","remote":"10.0.0.2","local":"::""#, "family"),
        (r#","kind":"vxlan","remote":"10.0.0.2""#, "vni: a link of kind \"vxlan\" needs it"),
        (r#","kind":"vxlan","remote":"10.0.0.2","vni":16777216"#, "0 to 16777215"),
        (
            r#","kind":"tcp","remote":"10.0.0.2","local":":1""#,
            "local: a link of kind \"tcp\" has no",
        ),
        (r#","kind":"tcp","remote":"10.0.0.2","listen":":x""#, "listen: "),
        (r#","kind":"tls","remote":"10.0.0.2""#, "private_key: a link of kind \"tls\" needs it"),
        (
            r#","kind":"tls","remote":"a","certificate":"c","private_key":"/p","authorities":"/a""#,
            "certificate: expected an absolute path",
        ),
        (r#","kind":"raw""#, "interface: a link of kind \"raw\" needs it"),
        (r#","kind":"raw","interface":"""#, "interface"),
        (r#","kind":"raw","interface":"a/b""#, "interface"),
        (r#","kind":"raw","interface":"0123456789abcdef""#, "1 to 15 bytes"),
        (r#","kind":"raw","interface":"eth0","speed":1"#, "speed: did you mean"),
    ] {
        let error = spec(rest).unwrap_err();
        assert!(error.contains(expected), "{rest}: {error}");
    }
}
