//! Captures of queue pairs: tshark reads their packets.

use std::process::{Command, Stdio};

use causeway_fabric::capture::{JoinCapture, Recording};
use causeway_model::{CaptureSpec, Filter, RouteEnd};

use crate::rig::{Rig, Stream, name, options};

/// Begins a capture at port `n`.
fn begin(rig: &mut Rig, n: u8, snap: u32) -> Recording {
    let at = RouteEnd::Interface(name(n));
    let spec = CaptureSpec { at, filter: Filter::default(), snap, count: 0 };
    let recording = Recording::new("p", snap, 0);
    rig.shard.ask(JoinCapture { spec, recording: recording.clone() }).unwrap();
    recording
}

/// Returns fields of each packet as tshark prints them, or `None` without tshark.
fn tshark(file: &[u8], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let version = Command::new("tshark").arg("--version").stdout(Stdio::null()).status();
    if version.is_err() {
        eprintln!("skipped: there is no tshark");
        return None;
    }
    let path = std::env::temp_dir().join(format!("verbs-{}.pcapng", std::process::id()));
    std::fs::write(&path, file).unwrap();
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-r"]).arg(&path);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| line.split('\t').map(str::to_owned).collect();
    Some(text.lines().map(line).collect())
}

#[test]
fn capture_of_queue_pairs_is_readable_by_tshark() {
    let mut rig = Rig::new();
    let (mut to, mut guest) = (rig.start(1, options(1)), rig.start(2, options(2)));
    let mut stream = Stream::new(&mut rig, &mut guest, &mut to);
    let recording = begin(&mut rig, 2, 0);
    stream.post_receive(&to);
    stream.post_write(&guest, 2500);
    stream.post_read(&guest, 100);
    stream.post_send(&guest, 5);
    rig.settle();
    assert_eq!(stream.reap(&guest), 3);
    let chunk = recording.fetch();
    assert_eq!((chunk.frames, chunk.dropped), (8, 0));
    let fields = ["opcode", "psn", "destqp"].map(|field| format!("infiniband.bth.{field}"));
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let more = ["infiniband.reth.dmalen", "infiniband.aeth.syndrome.opcode", "udp.dstport"];
    let Some(packets) = tshark(&chunk.bytes, &[&fields[..], &more].concat()) else { return };
    let own = format!("0x{:06x}", stream.from.number);
    let peer = format!("0x{:06x}", stream.to.number);
    let expected = [
        ["6", "0", &peer, "2500", "", "4791"],
        ["7", "1", &peer, "", "", "4791"],
        ["8", "2", &peer, "", "", "4791"],
        ["17", "2", &own, "", "0", "4791"],
        ["12", "3", &peer, "100", "", "4791"],
        ["16", "3", &own, "", "0", "4791"],
        ["4", "4", &peer, "", "", "4791"],
        ["17", "4", &own, "", "0", "4791"],
    ];
    assert_eq!(packets, expected);
}

#[test]
fn capture_ends_with_its_reader_and_its_port() {
    let mut rig = Rig::new();
    let (mut to, mut guest) = (rig.start(1, options(1)), rig.start(2, options(2)));
    let mut stream = Stream::new(&mut rig, &mut guest, &mut to);
    let (kept, dropped) = (begin(&mut rig, 1, 64), begin(&mut rig, 1, 64));
    drop(dropped);
    stream.post_write(&guest, 64);
    rig.settle();
    assert_eq!(kept.fetch().frames, 2);
    rig.shard.port_delete(&name(1)).unwrap();
    assert!(kept.fetch().closed);
    let at = RouteEnd::Interface(name(1));
    let spec = CaptureSpec { at, filter: Filter::default(), snap: 0, count: 0 };
    let again = JoinCapture { spec, recording: Recording::new("p", 0, 0) };
    assert!(rig.shard.ask(again).is_err(), "the port does not exist");
}
