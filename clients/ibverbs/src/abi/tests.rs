//! Compares layouts and numbers with those of the installed header, which a C program prints.

use std::fmt::Write as _;
use std::process::Command;

use super::*;

/// The header; without it the test is skipped.
const HEADER: &str = "/usr/include/infiniband/verbs.h";

/// Returns C expressions with their values in this crate: offsets of fields and sizes.
macro_rules! layouts {
    ($($c:literal $ours:ident $size:literal { $($field:ident $($theirs:literal)?),* $(,)? })*) => {{
        let mut lines: Vec<(String, u64)> = Vec::new();
        $(
            $(
                let name = [$($theirs,)? stringify!($field)][0];
                let ours = std::mem::offset_of!($ours, $field) as u64;
                lines.push((format!("offsetof(struct {}, {name})", $c), ours));
            )*
            if $size {
                lines.push((format!("sizeof(struct {})", $c), size_of::<$ours>() as u64));
            }
        )*
        lines
    }};
}

/// Returns C constants with their values in this crate.
macro_rules! numbers {
    ($($ours:ident $c:literal),* $(,)?) => {
        vec![$(($c.to_owned(), $ours as u64)),*]
    };
}

#[test]
fn abi_agrees_with_the_installed_header() {
    if !std::path::Path::new(HEADER).exists() {
        eprintln!("skipped: {HEADER} is missing; install libibverbs-dev");
        return;
    }
    let mut lines = layouts! {
        "ibv_context" Context false { device, cmd_fd, async_fd, num_comp_vectors,
            ops }
        "ibv_context_ops" ContextOps true { poll_cq, req_notify_cq, post_send, post_recv }
        "ibv_pd" Pd true { context, handle }
        "ibv_mr" Mr true { addr, length, handle, lkey, rkey }
        "ibv_comp_channel" CompChannel true { context, fd, refcnt }
        "ibv_cq" Cq false { context, channel, cq_context, handle, cqe }
        "ibv_qp" Qp false { context, pd, send_cq, recv_cq, handle, qp_num }
        "ibv_qp_cap" QpCap true { max_send_wr, max_inline_data }
        "ibv_qp_init_attr" QpInitAttr true { send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        "ibv_global_route" GlobalRoute true { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        "ibv_ah_attr" AhAttr true { grh, dlid, sl, is_global, port_num }
        "ibv_qp_attr" QpAttr true { qp_state, path_mtu, rq_psn, sq_psn, dest_qp_num, qp_access_flags,
            cap, ah_attr, alt_ah_attr, pkey_index, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
            port_num, timeout, retry_cnt, rnr_retry, rate_limit }
        "ibv_sge" Sge true { addr, length, lkey }
        "ibv_send_wr" SendWr true { wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data,
            rest "wr" }
        "ibv_recv_wr" RecvWr true { wr_id, next, sg_list, num_sge }
        "ibv_wc" Wc true { wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp,
            wc_flags, pkey_index, slid, sl, dlid_path_bits }
        "ibv_port_attr" PortAttr true { state, active_mtu, gid_tbl_len, pkey_tbl_len, phys_state,
            link_layer, flags, port_cap_flags2 }
        "ibv_gid_entry" GidEntry true { gid, gid_index, port_num, gid_type, ndev_ifindex }
    };
    lines.extend(numbers! {
        QPT_RC "IBV_QPT_RC", QPS_INIT "IBV_QPS_INIT", QPS_RTR "IBV_QPS_RTR", QPS_RTS "IBV_QPS_RTS",
        QPS_ERR "IBV_QPS_ERR", QP_STATE "IBV_QP_STATE", QP_ACCESS_FLAGS "IBV_QP_ACCESS_FLAGS",
        QP_PKEY_INDEX "IBV_QP_PKEY_INDEX", QP_PORT "IBV_QP_PORT", QP_AV "IBV_QP_AV",
        QP_PATH_MTU "IBV_QP_PATH_MTU", QP_TIMEOUT "IBV_QP_TIMEOUT",
        QP_RETRY_CNT "IBV_QP_RETRY_CNT", QP_RNR_RETRY "IBV_QP_RNR_RETRY",
        QP_RQ_PSN "IBV_QP_RQ_PSN", QP_MAX_QP_RD_ATOMIC "IBV_QP_MAX_QP_RD_ATOMIC",
        QP_MIN_RNR_TIMER "IBV_QP_MIN_RNR_TIMER", QP_SQ_PSN "IBV_QP_SQ_PSN",
        QP_MAX_DEST_RD_ATOMIC "IBV_QP_MAX_DEST_RD_ATOMIC", QP_DEST_QPN "IBV_QP_DEST_QPN",
        ACCESS_LOCAL_WRITE "IBV_ACCESS_LOCAL_WRITE", ACCESS_REMOTE_WRITE "IBV_ACCESS_REMOTE_WRITE",
        ACCESS_REMOTE_READ "IBV_ACCESS_REMOTE_READ", WR_SEND "IBV_WR_SEND",
        WR_SEND_WITH_IMM "IBV_WR_SEND_WITH_IMM", SEND_SIGNALED "IBV_SEND_SIGNALED",
        SEND_INLINE "IBV_SEND_INLINE", WC_SUCCESS "IBV_WC_SUCCESS", WC_RECV "IBV_WC_RECV",
        WC_WITH_IMM "IBV_WC_WITH_IMM", PORT_ACTIVE "IBV_PORT_ACTIVE",
        GID_TYPE_ROCE_V2 "IBV_GID_TYPE_ROCE_V2",
    });
    let printed = print(&lines);
    let theirs: Vec<u64> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(theirs.len(), lines.len());
    for ((expression, ours), theirs) in lines.iter().zip(theirs) {
        assert_eq!(*ours, theirs, "{expression}");
    }
}

/// Compiles and runs a C program that prints the values of the expressions.
fn print(lines: &[(String, u64)]) -> String {
    let mut source =
        "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n"
            .to_owned();
    for (expression, _) in lines {
        let _ = writeln!(source, "printf(\"%llu\\n\", (unsigned long long)({expression}));");
    }
    source.push_str("return 0; }\n");
    let dir = std::env::temp_dir().join(format!("causeway-ibverbs-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (file, program) = (dir.join("layout.c"), dir.join("layout"));
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(&file).status().unwrap();
    assert!(compiled.success());
    let output = Command::new(&program).output().unwrap();
    let _ = std::fs::remove_dir_all(&dir);
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}
