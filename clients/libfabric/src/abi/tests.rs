//! Compares layouts and numbers with those of the installed headers, which a C program prints.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use super::*;

/// The presence of this header shows that the headers are installed.
const HEADER: &str = "rdma/fabric.h";
const INCLUDES: &[&str] = &[
    "stddef.h",
    "stdio.h",
    HEADER,
    "rdma/fi_atomic.h",
    "rdma/fi_cm.h",
    "rdma/fi_collective.h",
    "rdma/fi_domain.h",
    "rdma/fi_endpoint.h",
    "rdma/fi_eq.h",
    "rdma/fi_errno.h",
    "rdma/fi_rma.h",
    "rdma/fi_tagged.h",
    "rdma/providers/fi_prov.h",
];

/// A line that the program prints: a C expression and its value in this crate. A field of a later
/// version is only compared with headers that have it.
struct Line {
    since: (u32, u32),
    expression: String,
    ours: u64,
}

/// Declares comparisons of structures: the size, the offsets of the fields by their names in Rust
/// (and in C if these differ), then the fields of later versions. The size of a structure that grew
/// is only compared with the newest headers.
macro_rules! layouts {
    ($($c:literal $ours:ident {
        $($field:ident $($theirs:literal)?),* $(,)?
        $(; $($later:ident $major:literal $minor:literal),* $(,)?)?
    })*) => {{
        let mut lines = Vec::new();
        $(
            let line = |since, field: &str, ours: usize| Line {
                since,
                expression: format!("offsetof({}, {field})", $c),
                ours: ours as u64,
            };
            let newest = [(1, 0) $($(, ($major, $minor))*)?].into_iter().max().unwrap();
            $(
                let name = [$($theirs,)? stringify!($field)][0];
                lines.push(line((1, 0), name, std::mem::offset_of!($ours, $field)));
            )*
            $($(
                let ours = std::mem::offset_of!($ours, $later);
                lines.push(line(($major, $minor), stringify!($later), ours));
            )*)?
            lines.push(Line {
                since: newest,
                expression: format!("sizeof({})", $c),
                ours: size_of::<$ours>() as u64,
            });
        )*
        lines
    }};
}

macro_rules! numbers {
    ($($name:ident)*) => {
        vec![$(Line {
            since: (1, 0),
            expression: stringify!($name).to_owned(),
            ours: $name as i64 as u64,
        }),*]
    };
}

fn all_layouts() -> Vec<Line> {
    let mut lines = objects();
    lines.extend(operations());
    lines.extend(tables());
    lines
}

/// The offsets in objects and their attributes.
fn objects() -> Vec<Line> {
    layouts! {
        "struct fi_info" FiInfo {
            next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle,
            tx_attr, rx_attr, ep_attr, domain_attr, fabric_attr, nic,
        }
        "struct fi_tx_attr" FiTxAttr {
            caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit,
            rma_iov_limit, tclass,
        }
        "struct fi_rx_attr" FiRxAttr {
            caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit,
        }
        "struct fi_ep_attr" FiEpAttr {
            kind "type", protocol, protocol_version, max_msg_size, msg_prefix_size,
            max_order_raw_size, max_order_war_size, max_order_waw_size, mem_tag_format,
            tx_ctx_cnt, rx_ctx_cnt, auth_key_size, auth_key,
        }
        "struct fi_domain_attr" FiDomainAttr {
            domain, name, threading, control_progress, data_progress, resource_mgmt, av_type,
            mr_mode, mr_key_size, cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt, rx_ctx_cnt,
            max_ep_tx_ctx, max_ep_rx_ctx, max_ep_stx_ctx, max_ep_srx_ctx, cntr_cnt, mr_iov_limit,
            caps, mode, auth_key, auth_key_size, max_err_data, mr_cnt, tclass;
            max_ep_auth_key 1 20, max_group_id 2 0, max_cntr_value 2 5, max_err_cntr_value 2 5,
            max_xpu_ctx_cnt 2 7,
        }
        "struct fi_fabric_attr" FiFabricAttr { fabric, name, prov_name, prov_version, api_version }
        "struct fid" Fid { fclass, context, ops }
        "struct fid_fabric" FidFabric { fid, ops, api_version }
        "struct fid_domain" FidDomain { fid, ops, mr }
        "struct fid_ep" FidEp { fid, ops, cm, msg, rma, tagged, atomic, collective }
        "struct fid_pep" FidPep { fid, ops, cm }
        "struct fid_stx" FidStx { fid, ops }
        "struct fid_av" FidAv { fid, ops }
        "struct fid_mr" FidMr { fid, mem_desc, key }
        "struct fid_mc" FidMc { fid, fi_addr }
        "struct fid_eq" FidEq { fid, ops }
        "struct fid_cq" FidCq { fid, ops }
        "struct fid_cntr" FidCntr { fid, ops }
        "struct fid_wait" FidWait { fid, ops }
        "struct fid_poll" FidPoll { fid, ops }
        "struct fi_alias" FiAlias { fid, flags }
        "struct fi_av_attr" FiAvAttr {
            kind "type", rx_ctx_bits, count, ep_per_node, name, map_addr, flags,
        }
        "struct fi_mr_attr" FiMrAttr {
            mr_iov, iov_count, access, offset, requested_key, context, auth_key_size, auth_key,
            iface, device;
            hmem_data 1 19, page_size 2 0, base_mr 2 0, sub_mr_cnt 2 0,
        }
        "struct fi_mr_raw_attr" FiMrRawAttr { flags, base_addr, raw_key, key_size }
        "struct fi_mr_map_raw" FiMrMapRaw { flags, base_addr, raw_key, key_size, key }
        "struct fi_eq_attr" FiEqAttr { size, flags, wait_obj, signaling_vector, wait_set }
        "struct fi_eq_entry" FiEqEntry { fid, context, data }
        "struct fi_eq_err_entry" FiEqErrEntry {
            fid, context, data, err, prov_errno, err_data, err_data_size,
        }
        "struct fi_cq_attr" FiCqAttr {
            size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set,
        }
    }
}

/// The offsets in operations and their completions.
fn operations() -> Vec<Line> {
    layouts! {
        "struct fi_cq_entry" FiCqEntry { op_context }
        "struct fi_cq_msg_entry" FiCqMsgEntry { op_context, flags, len }
        "struct fi_cq_data_entry" FiCqDataEntry { op_context, flags, len, buf, data }
        "struct fi_cq_tagged_entry" FiCqTaggedEntry { op_context, flags, len, buf, data, tag }
        "struct fi_cq_err_entry" FiCqErrEntry {
            op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data,
            err_data_size;
            src_addr 1 20,
        }
        "struct fi_cntr_attr" FiCntrAttr { events, wait_obj, wait_set, flags }
        "struct fi_wait_attr" FiWaitAttr { wait_obj, flags }
        "struct fi_wait_pollfd" FiWaitPollfd { change_index, nfds, fd }
        "struct fi_poll_attr" FiPollAttr { flags }
        "struct fi_msg" FiMsg { msg_iov, desc, iov_count, addr, context, data }
        "struct fi_msg_tagged" FiMsgTagged {
            msg_iov, desc, iov_count, addr, tag, ignore, context, data,
        }
        "struct fi_msg_rma" FiMsgRma {
            msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data,
        }
        "struct fi_msg_atomic" FiMsgAtomic {
            msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, datatype, op, context, data,
        }
        "struct fi_rma_iov" FiRmaIov { addr, len, key }
        "struct fi_rma_ioc" FiRmaIoc { addr, count, key }
        "struct fi_ioc" FiIoc { addr, count }
        "struct fi_atomic_attr" FiAtomicAttr { count, size }
        "struct fi_collective_attr" FiCollectiveAttr {
            op, datatype, datatype_attr, max_members, mode,
        }
        "struct fi_context" FiContext { internal }
        "struct fi_context2" FiContext2 { internal }
        "struct fi_recv_context" FiRecvContext { ep, context }
        "struct fi_provider" FiProvider {
            version, fi_version, context, name, getinfo, fabric, cleanup,
        }
    }
}

/// The offsets in tables. Their sizes are not compared, because a table may be shorter than in
/// newer headers and contains its size.
fn tables() -> Vec<Line> {
    let lines = layouts! {
        "struct fi_ops" Ops { size, close, bind, control, ops_open, tostr, ops_set }
        "struct fi_ops_fabric" OpsFabric {
            size, domain, passive_ep, eq_open, wait_open, trywait, domain2,
        }
        "struct fi_ops_domain" OpsDomain {
            size, av_open, cq_open, endpoint, scalable_ep, cntr_open, poll_open, stx_ctx, srx_ctx,
            query_atomic, query_collective, endpoint2,
        }
        "struct fi_ops_ep" OpsEp {
            size, cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left, tx_size_left,
        }
        "struct fi_ops_cm" OpsCm {
            size, setname, getname, getpeer, connect, listen, accept, reject, shutdown, join,
        }
        "struct fi_ops_msg" OpsMsg {
            size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata,
        }
        "struct fi_ops_tagged" OpsTagged {
            size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata,
        }
        "struct fi_ops_rma" OpsRma {
            size, read, readv, readmsg, write, writev, writemsg, inject, writedata, injectdata,
        }
        "struct fi_ops_atomic" OpsAtomic {
            size, write, writev, writemsg, inject, readwrite, readwritev, readwritemsg, compwrite,
            compwritev, compwritemsg, writevalid, readwritevalid, compwritevalid,
        }
        "struct fi_ops_collective" OpsCollective {
            size, barrier, broadcast, alltoall, allreduce, allgather, reduce_scatter, reduce,
            scatter, gather, msg, barrier2,
        }
        "struct fi_ops_av" OpsAv {
            size, insert, insertsvc, insertsym, remove, lookup, straddr, av_set,
        }
        "struct fi_ops_mr" OpsMr { size, reg, regv, regattr }
        "struct fi_ops_eq" OpsEq { size, read, readerr, write, sread, strerror }
        "struct fi_ops_cq" OpsCq {
            size, read, readfrom, readerr, sread, sreadfrom, signal, strerror,
        }
        "struct fi_ops_cntr" OpsCntr { size, read, readerr, add, set, wait, adderr, seterr }
        "struct fi_ops_wait" OpsWait { size, wait }
        "struct fi_ops_poll" OpsPoll { size, poll, poll_add, poll_del }
    };
    lines.into_iter().filter(|line| !line.expression.starts_with("sizeof")).collect()
}

fn all_flags() -> Vec<Line> {
    numbers! {
        FI_MSG FI_RMA FI_TAGGED FI_ATOMIC FI_MULTICAST FI_COLLECTIVE FI_READ FI_WRITE FI_RECV
        FI_SEND FI_REMOTE_READ FI_REMOTE_WRITE FI_MULTI_RECV FI_REMOTE_CQ_DATA FI_MORE FI_PEEK
        FI_TRIGGER FI_FENCE FI_PRIORITY FI_COMPLETION FI_INJECT FI_INJECT_COMPLETE
        FI_TRANSMIT_COMPLETE FI_DELIVERY_COMPLETE FI_AFFINITY FI_COMMIT_COMPLETE FI_MATCH_COMPLETE
        FI_PEER_TRANSFER FI_AV_USER_ID FI_PEER FI_XPU_TRIGGER FI_HMEM_HOST_ALLOC
        FI_HMEM_DEVICE_ONLY FI_HMEM FI_VARIABLE_MSG FI_RMA_PMEM FI_SOURCE_ERR FI_LOCAL_COMM
        FI_REMOTE_COMM FI_SHARED_AV FI_PROV_ATTR_ONLY FI_NUMERICHOST FI_RMA_EVENT FI_SOURCE
        FI_NAMED_RX_CTX FI_DIRECTED_RECV FI_TRANSMIT FI_EVENT FI_CLAIM FI_DISCARD
        FI_SELECTIVE_COMPLETION FI_REG_MR FI_SYMMETRIC FI_SYNC_ERR FI_UNIVERSE FI_FETCH_ATOMIC
        FI_COMPARE_ATOMIC FI_CONTEXT FI_MSG_PREFIX FI_ASYNC_IOV FI_RX_CQ_DATA FI_LOCAL_MR
        FI_NOTIFY_FLAGS_ONLY FI_RESTRICTED_COMP FI_CONTEXT2 FI_BUFFERED_RECV FI_ORDER_NONE
        FI_ORDER_STRICT FI_ORDER_RAR FI_ORDER_RAW FI_ORDER_RAS FI_ORDER_WAR FI_ORDER_WAW
        FI_ORDER_WAS FI_ORDER_SAR FI_ORDER_SAW FI_ORDER_SAS FI_ORDER_DATA FI_ORDER_RMA_RAR
        FI_ORDER_RMA_RAW FI_ORDER_RMA_WAR FI_ORDER_RMA_WAW FI_ORDER_ATOMIC_RAR FI_ORDER_ATOMIC_RAW
        FI_ORDER_ATOMIC_WAR FI_ORDER_ATOMIC_WAW FI_ADDR_UNSPEC FI_ADDR_NOTAVAIL FI_KEY_NOTAVAIL
    }
}

fn all_numbers() -> Vec<Line> {
    let mut lines = numbers! {
        FI_FORMAT_UNSPEC FI_SOCKADDR FI_SOCKADDR_IN FI_ADDR_STR FI_EP_UNSPEC FI_EP_MSG FI_EP_DGRAM
        FI_EP_RDM FI_PROV_SPECIFIC FI_PROTO_UNSPEC FI_SHARED_CONTEXT FI_THREAD_UNSPEC
        FI_THREAD_SAFE FI_THREAD_FID FI_THREAD_DOMAIN FI_THREAD_COMPLETION FI_THREAD_ENDPOINT
        FI_PROGRESS_UNSPEC FI_PROGRESS_AUTO FI_PROGRESS_MANUAL FI_RM_UNSPEC FI_RM_DISABLED
        FI_RM_ENABLED FI_TC_UNSPEC FI_TC_BEST_EFFORT FI_AV_UNSPEC FI_AV_MAP FI_AV_TABLE
        FI_MR_UNSPEC FI_MR_BASIC FI_MR_SCALABLE FI_MR_LOCAL FI_MR_RAW FI_MR_VIRT_ADDR
        FI_MR_ALLOCATED FI_MR_PROV_KEY FI_MR_MMU_NOTIFY FI_MR_RMA_EVENT FI_MR_ENDPOINT FI_MR_HMEM
        FI_MR_COLLECTIVE FI_HMEM_SYSTEM FI_CLASS_UNSPEC FI_CLASS_FABRIC FI_CLASS_DOMAIN
        FI_CLASS_EP FI_CLASS_SEP FI_CLASS_RX_CTX FI_CLASS_SRX_CTX FI_CLASS_TX_CTX
        FI_CLASS_STX_CTX FI_CLASS_PEP FI_CLASS_INTERFACE FI_CLASS_AV FI_CLASS_MR FI_CLASS_EQ
        FI_CLASS_CQ FI_CLASS_CNTR FI_CLASS_WAIT FI_CLASS_POLL FI_CLASS_CONNREQ FI_CLASS_MC
        FI_CLASS_NIC FI_CLASS_AV_SET FI_GETFIDFLAG FI_SETFIDFLAG FI_GETOPSFLAG FI_SETOPSFLAG
        FI_ALIAS FI_GETWAIT FI_ENABLE FI_BACKLOG FI_GET_RAW_MR FI_MAP_RAW_MR FI_UNMAP_KEY
        FI_QUEUE_WORK FI_CANCEL_WORK FI_FLUSH_WORK FI_REFRESH FI_DUP FI_GETWAITOBJ FI_GET_VAL
        FI_SET_VAL FI_EXPORT_FID FI_OPT_ENDPOINT FI_OPT_MIN_MULTI_RECV FI_OPT_CM_DATA_SIZE
        FI_OPT_BUFFERED_MIN FI_OPT_BUFFERED_LIMIT FI_OPT_SEND_BUF_SIZE FI_OPT_RECV_BUF_SIZE
        FI_OPT_TX_SIZE FI_OPT_RX_SIZE FI_OPT_FI_HMEM_P2P FI_OPT_XPU_TRIGGER FI_NOTIFY FI_CONNREQ
        FI_CONNECTED FI_SHUTDOWN FI_MR_COMPLETE FI_AV_COMPLETE FI_JOIN_COMPLETE
        FI_CQ_FORMAT_UNSPEC FI_CQ_FORMAT_CONTEXT FI_CQ_FORMAT_MSG FI_CQ_FORMAT_DATA
        FI_CQ_FORMAT_TAGGED FI_CQ_COND_NONE FI_CQ_COND_THRESHOLD FI_CNTR_EVENTS_COMP FI_WAIT_NONE
        FI_WAIT_UNSPEC FI_WAIT_SET FI_WAIT_FD FI_WAIT_MUTEX_COND FI_WAIT_YIELD FI_WAIT_POLLFD
    };
    lines.extend(numbers! {
        FI_INT8 FI_UINT8 FI_INT16 FI_UINT16 FI_INT32 FI_UINT32 FI_INT64 FI_UINT64 FI_FLOAT
        FI_DOUBLE FI_FLOAT_COMPLEX FI_DOUBLE_COMPLEX FI_LONG_DOUBLE FI_LONG_DOUBLE_COMPLEX
        FI_INT128 FI_UINT128 FI_MIN FI_MAX FI_SUM FI_PROD FI_LOR FI_LAND FI_BOR FI_BAND FI_LXOR
        FI_BXOR FI_ATOMIC_READ FI_ATOMIC_WRITE FI_CSWAP FI_CSWAP_NE FI_CSWAP_LE FI_CSWAP_LT
        FI_CSWAP_GE FI_CSWAP_GT FI_MSWAP FI_SUCCESS FI_EPERM FI_ENOENT FI_EINTR FI_EIO FI_E2BIG
        FI_EBADF FI_EAGAIN FI_ENOMEM FI_EACCES FI_EFAULT FI_EBUSY FI_ENODEV FI_EINVAL FI_EMFILE
        FI_ENOSPC FI_ENOSYS FI_ENOMSG FI_ENODATA FI_EOVERFLOW FI_EMSGSIZE FI_ENOPROTOOPT
        FI_EOPNOTSUPP FI_EADDRINUSE FI_EADDRNOTAVAIL FI_ENETDOWN FI_ENETUNREACH FI_ECONNABORTED
        FI_ECONNRESET FI_ENOBUFS FI_EISCONN FI_ENOTCONN FI_ESHUTDOWN FI_ETIMEDOUT FI_ECONNREFUSED
        FI_EHOSTDOWN FI_EHOSTUNREACH FI_EALREADY FI_EINPROGRESS FI_EREMOTEIO FI_ECANCELED
        FI_EKEYREJECTED FI_EOTHER FI_ETOOSMALL FI_EOPBADSTATE FI_EAVAIL FI_EBADFLAGS FI_ENOEQ
        FI_EDOMAIN FI_ENOCQ FI_ECRC FI_ETRUNC FI_ENOKEY FI_ENOAV FI_EOVERRUN FI_ENORX
    });
    let later = |since, lines: Vec<Line>| lines.into_iter().map(move |line| Line { since, ..line });
    lines.extend(later((1, 18), numbers! { FI_OPT_CUDA_API_PERMITTED }));
    lines.extend(later((1, 21), numbers! { FI_PROGRESS_CONTROL_UNIFIED }));
    lines.extend(later(
        (2, 0),
        numbers! {
            FI_OPT_SHARED_MEMORY_PERMITTED FI_OPT_MAX_MSG_SIZE FI_OPT_MAX_TAGGED_SIZE
            FI_OPT_MAX_RMA_SIZE FI_OPT_MAX_ATOMIC_SIZE FI_OPT_INJECT_MSG_SIZE
            FI_OPT_INJECT_TAGGED_SIZE FI_OPT_INJECT_RMA_SIZE FI_OPT_INJECT_ATOMIC_SIZE
            FI_CNTR_EVENTS_BYTES
        },
    ));
    lines
}

/// Returns a C program that prints each expression with its value.
fn program(lines: &[Line]) -> String {
    let mut text = String::new();
    for include in INCLUDES {
        writeln!(text, "#include <{include}>").unwrap();
    }
    text.push_str("int main(void) {\n");
    for Line { since: (major, minor), expression, .. } in lines {
        writeln!(
            text,
            "#if FI_MAJOR_VERSION > {major} || \
             (FI_MAJOR_VERSION == {major} && FI_MINOR_VERSION >= {minor})\n\
             printf(\"%s = %llu\\n\", \"{expression}\", (unsigned long long)(long long)({expression}));\n\
             #endif"
        )
        .unwrap();
    }
    text.push_str("return 0;\n}\n");
    text
}

fn compiler(arguments: &[&str], source: &str) -> std::process::Output {
    use std::io::Write as _;
    let mut child = Command::new("cc")
        .args(["-x", "c", "-std=c11", "-D_GNU_SOURCE", "-w"])
        .args(arguments)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Returns the values in the installed headers, or `None` without headers.
fn header_values(lines: &[Line]) -> Option<Vec<String>> {
    if !compiler(&["-E", "-o", "/dev/null"], &format!("#include <{HEADER}>\n")).status.success() {
        return None;
    }
    let path = std::env::temp_dir().join(format!("causeway-fi-layout-{}", std::process::id()));
    let out = path.to_str().unwrap();
    let compiled = compiler(&["-o", out], &program(lines));
    let output = Command::new(&path).output();
    let _ = std::fs::remove_file(&path);
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    Some(output.lines().map(str::to_owned).collect())
}

#[test]
fn layouts_and_numbers_are_those_of_the_headers() {
    let mut lines = all_layouts();
    lines.extend(all_flags());
    lines.extend(all_numbers());
    // A wrong value is detected.
    lines.push(Line { since: (1, 0), expression: "sizeof(char)".to_owned(), ours: 2 });
    let Some(output) = header_values(&lines) else {
        eprintln!("libfabric's headers are not installed (libfabric-dev): nothing is compared");
        return;
    };
    let ours: std::collections::BTreeMap<&str, u64> =
        lines.iter().map(|line| (line.expression.as_str(), line.ours)).collect();
    let wrong: Vec<String> = output
        .iter()
        .filter_map(|line| {
            let (expression, theirs) = line.split_once(" = ").unwrap();
            let ours = ours[expression];
            (theirs.parse() != Ok(ours)).then(|| format!("{expression} is {theirs}, not {ours}"))
        })
        .collect();
    assert_eq!(wrong, ["sizeof(char) is 1, not 2"]);
    let old = lines.iter().filter(|line| line.since == (1, 0)).count();
    assert!(output.len() >= old && old > 500, "{} of {old}", output.len());
}

#[test]
fn abi_tables_without_functions_fail_and_have_their_size() {
    assert_eq!(Ops::NONE.size, size_of::<Ops>());
    assert_eq!(OpsCntr::NONE.size, size_of::<[usize; 8]>());
    let null = std::ptr::null_mut();
    // SAFETY: the functions do not use their arguments.
    unsafe {
        assert_eq!((Ops::NONE.close)(null), -FI_ENOSYS);
        let null = std::ptr::null_mut();
        assert_eq!((OpsMsg::NONE.inject)(null, std::ptr::null(), 0, 0), -(FI_ENOSYS as isize));
        assert_eq!((OpsCntr::NONE.read)(std::ptr::null_mut()), 0);
        let (av, to) = (std::ptr::null_mut(), std::ptr::null_mut());
        let text = (OpsAv::NONE.straddr)(av, std::ptr::null(), std::ptr::null_mut(), to);
        assert!(text.is_null());
    }
}
