//! The printed XML against the schema of the installed libvirt.

#[path = "../../daemon/tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::{Dir, model::Model, serve};
use serde_json::Value;

/// The schema of a domain, from the packages of libvirt.
const SCHEMA: &str = "/usr/share/libvirt/schemas/domain.rng";

/// Returns a domain with the elements that `causeway … --for libvirt -j` prints.
fn domain(value: &Value) -> String {
    let elements = value["elements"].as_array().unwrap();
    let of = |parent: &str| -> String {
        let wanted = elements.iter().filter(|element| element["parent"] == parent);
        let wanted = wanted.filter(|element| element["condition"].is_null());
        wanted.map(|element| element["xml"].as_str().unwrap()).collect()
    };
    let namespace = elements.iter().find_map(|element| element["namespace"].as_str());
    format!(
        "<domain type='qemu' {}><name>guest</name>\
         <os><type arch='x86_64' machine='q35'>hvm</type></os>\
         <devices>{}</devices>{}</domain>",
        namespace.unwrap_or_default(),
        of("domain/devices"),
        of("domain"),
    )
}

/// Returns the faults of a domain by the schema.
fn faults(domain: &str) -> Option<String> {
    let dir = Dir::new();
    let file = dir.file("domain.xml");
    std::fs::write(&file, domain).unwrap();
    let mut xmllint = Command::new("xmllint");
    let output = xmllint.args(["--noout", "--relaxng", SCHEMA]).arg(&file).output().unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn vm_show_prints_xml_that_the_schema_of_libvirt_accepts() {
    let xmllint = Command::new("xmllint").arg("--version").output();
    if xmllint.is_err() || !Path::new(SCHEMA).exists() {
        eprintln!("skipped: xmllint or {SCHEMA} is missing (libxml2-utils, libvirt0)");
        return;
    }
    let control = serve(Arc::new(Model::default()));
    let causeway = |words: &str| {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_causeway"));
        tool.env("CAUSEWAY_CONTROL", &control.socket).args(words.split_whitespace());
        let output = tool.output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for words in [
        "group add blue",
        "port add vm1-net --kind net --group blue --mtu 9000",
        "port add vm1-net2 --kind net --group blue --queue-pairs 4 --offloads xdp",
        "port add vm1-vsock --kind vsock --group blue --cid 3",
        "port add vm1-rdma --kind hca --group blue",
        "port add odd --kind net --group blue --socket /tmp/a'b<&>\".sock",
    ] {
        causeway(words);
    }
    for words in [
        "vm show vm1 --for libvirt --memory 2G -j",
        "port show vm1-net --for libvirt -j --memory 512M",
        "port show odd --for libvirt --memory 1G -j",
    ] {
        let domain = domain(&serde_json::from_str(&causeway(words)).unwrap());
        assert_eq!(faults(&domain), None, "{words}: {domain}");
        let wrong = domain.replace("mode='client'", "mode='neither'");
        assert!(faults(&wrong).is_some(), "the schema is checked");
    }
}
