//! One command prepares a host.

use std::os::unix::fs::PermissionsExt as _;

use causeway_testing::folder::Folder;

use crate::hosts::EtcdServer;

#[test]
fn join_makes_the_key_and_writes_the_settings_of_the_service() {
    let (etcd, folder) = (EtcdServer::start(), Folder::new("join"));
    let file = |name: &str| folder.join(name).display().to_string();
    let (key, settings) = (file("key"), file("directory.env"));
    let join = |group: &str| {
        etcd.verb(&[
            "join",
            "--endpoint",
            "192.0.2.11",
            "--host",
            "h1",
            "--group",
            group,
            "--key",
            &key,
            "--settings",
            &settings,
            "--no-start",
        ])
    };
    join("blue=7");
    let made = std::fs::read_to_string(&key).unwrap();
    assert!(made.trim().parse::<causeway_model::keys::PrivateKey>().is_ok());
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&settings).unwrap();
    for line in [
        format!("CAUSEWAY_ETCD={}", etcd.url()),
        "CAUSEWAY_SITE=lab".into(),
        "CAUSEWAY_HOST=h1".into(),
        "CAUSEWAY_ENDPOINT=192.0.2.11".into(),
        format!("CAUSEWAY_KEY={key}"),
    ] {
        assert!(text.lines().any(|known| known == line), "{line}: {text}");
    }
    // Again, with another group: the key and the operator's settings stay.
    std::fs::write(&settings, format!("{text}# ours\n CAUSEWAY_LINK_IDLE = \"0\"\nCAUSEWAY_X=1\n"))
        .unwrap();
    join("red=8");
    join("red=8");
    let again = std::fs::read_to_string(&settings).unwrap();
    assert_eq!(again, format!("{text}CAUSEWAY_LINK_IDLE=0\n"));
    assert_eq!(std::fs::read_to_string(&key).unwrap(), made);
    let groups = etcd.verb(&["group", "list"]);
    assert!(groups.contains("\"red\"") && groups.contains("\"blue\""), "{groups}");
}
