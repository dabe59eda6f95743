//! The exported symbols with their versions, and the layouts of the headers.

use std::collections::BTreeSet;
use std::process::Command;

use crate::common::{compile, library};

/// Symbols with a version. All others have none.
const VERSIONED: &[(&str, &str)] = &[
    ("mx_open_endpoint", "MX_0.9"),
    ("mx_decompose_endpoint_addr", "MX_0.9"),
    ("mx_get_info", "MX_0.91"),
    ("mx_test", "MX_0.91"),
    ("mx_wait", "MX_0.91"),
    ("mx_iprobe", "MX_0.91"),
    ("mx__init_api", "MX_0.92"),
];
const PLAIN: &str = "mx_finalize mx_set_error_handler mx_strerror mx_strstatus mx_close_endpoint \
    mx_wakeup mx_disable_progression mx_reenable_progression mx_progress mx_isend mx_issend \
    mx_irecv mx_cancel mx_test_any mx_wait_any mx_ipeek mx_peek mx_probe mx_ibuffered mx_buffered \
    mx_context mx_hostname_to_nic_id mx_nic_id_to_hostname mx_board_number_to_nic_id \
    mx_nic_id_to_board_number mx_connect mx_iconnect mx_disconnect mx_get_endpoint_addr \
    mx_decompose_endpoint_addr2 mx_set_endpoint_addr_context mx_get_endpoint_addr_context \
    mx_set_request_timeout mx_register_unexp_handler mx_register_unexp_callback mx_forget mx_iput \
    mx_iget mx_open_board mx__get_mapper_state mx__regcache_clean mx_raw_handle \
    mx_raw_open_endpoint mx_raw_close_endpoint mx_raw_send mx_raw_next_event \
    mx_raw_set_route_begin mx_raw_set_route_end mx_raw_set_route mx_raw_set_route_mag \
    mx_raw_clear_routes mx_raw_remove_peer mx_raw_set_map_version mx_raw_num_ports \
    mx_raw_line_speed mx_raw_set_hostname mx_raw_set_peer_name mx_raw_set_nic_reply_info";

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_symbols_and_versions_are_those_of_mx() {
    let path = library().join("libmyriexpress.so");
    let found: BTreeSet<String> =
        said(Command::new("nm").args(["-D", "--defined-only"]).arg(&path))
            .lines()
            .map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
            .collect();
    let mut expected: BTreeSet<String> =
        PLAIN.split_whitespace().map(|name| format!("T {name}")).collect();
    expected.extend(VERSIONED.iter().map(|(name, version)| format!("T {name}@@{version}")));
    assert_eq!(expected.len(), 65);
    expected.extend(["MX_ERRORS_ARE_FATAL", "MX_ERRORS_RETURN"].map(|name| format!("D {name}")));
    expected.extend(["MX_0.0", "MX_0.9", "MX_0.91", "MX_0.92"].map(|node| format!("A {node}")));
    assert_eq!(found, expected);
    let dynamic = said(Command::new("readelf").arg("-d").arg(&path));
    assert!(dynamic.contains("soname: [libmyriexpress.so]"), "{dynamic}");
}

#[test]
fn layouts_are_those_of_mx() {
    let expected = "mx_endpoint_t 8 8|mx_request_t 8 8|mx_raw_endpoint_t 8 8|\
        mx_endpoint_addr_t 16 8|mx_segment_t 16 8|mx_segment_t.segment_length 8|mx_status_t 48 8|\
        mx_status_t.source 8|mx_status_t.match_info 24|mx_status_t.msg_length 32|\
        mx_status_t.xfer_length 36|mx_status_t.context 40|mx_param_t 16 8|mx_param_t.val 8|\
        mx_param_t.val.context_id.shift 9|mx_mapper_state_t 36 4|mx_mapper_state_t.mapper_mac 4|\
        mx_mapper_state_t.iport 10|mx_mapper_state_t.map_version 12|mx_mapper_state_t.flags 32|\
        mx_return_t 4 4|mx_status_code_t 4 4|mx_param_key_t 4 4|mx_get_info_key_t 4 4|\
        mx_unexp_handler_action_t 4 4|mx_raw_status_t 4 4|mx_endpt_handle_t 4 4|\
        mx_host_type_t 4 4|mx_line_speed_t 4 4|mx_error_handler_t 8 8";
    let program = compile("layout.c");
    let found = said(&mut Command::new(&program));
    assert_eq!(found.trim().replace('\n', "|"), expected);
}

#[test]
fn builds_with_a_prefix_find_all_they_look_for() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let prefix = std::env::temp_dir().join(format!("causeway-mx-prefix-{}", std::process::id()));
    said(
        Command::new("sh")
            .arg(root.join("scripts/install-myriexpress.sh"))
            .args([&prefix, &library()]),
    );
    for path in [
        "include/myriexpress.h",
        "include/mx_extensions.h",
        "include/mx_io.h",
        "include/mx_raw.h",
        "include/mx_internals/mx__fops.h",
        "include/mx_internals/mx__driver_interface.h",
        "lib/libmyriexpress.so",
        "lib/libopen-mx.so.0",
    ] {
        assert!(prefix.join(path).exists(), "{path}");
    }
    let text = std::fs::read_to_string(prefix.join("lib/pkgconfig/myriexpress.pc")).unwrap();
    assert!(
        text.contains(&format!("prefix={}\n", prefix.display())) && !text.contains('@'),
        "{text}"
    );
    std::fs::remove_dir_all(prefix).unwrap();
}

#[test]
fn errors_end_the_process_unless_a_handler_is_set() {
    let program = compile("fatal.c");
    let run = |name: &str| Command::new(&program).env(name, "0").output().unwrap();
    let fatal = run("UNRELATED");
    assert_eq!(fatal.status.code(), Some(255));
    assert!(String::from_utf8_lossy(&fatal.stderr).contains("mx_finalize"), "{fatal:?}");
    for name in ["MX_FATAL_ERRORS", "OMX_FATAL_ERRORS", "MX_ERRORS_ARE_FATAL"] {
        assert_eq!(run(name).status.code(), Some(4), "{name}");
    }
}
