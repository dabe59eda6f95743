//! Endpoints: objects, options and tables of functions, as in `fi_endpoint(3)`, `fi_msg(3)`,
//! `fi_tagged(3)`, `fi_rma(3)`, `fi_atomic(3)`, `fi_cm(3)` and `fi_collective(3)`.
//!
//! An endpoint and its tables name each other, so they are declared together. The arguments of the
//! functions are in lower modules: buffers and messages in [`message`](super::message) and
//! [`atomic`](super::atomic).
//!
//! The application's threads call the functions through the tables. `shell` fills the tables of
//! messages, remote memory and atomic operations, that of the endpoint, and `fi_getname`; the
//! other functions return `-FI_ENOSYS` and have no effect. Endpoints of the provider are
//! connectionless; MPI libraries use collectives of their own over messages. Passive endpoints,
//! shared contexts and multicast groups have layouts only; the provider opens none. The module has
//! no behaviour: `shell` checks the numbers of options and buffers, tags, and the length of
//! injected messages; `rdm` checks other lengths and limits, and a full queue is `-FI_EAGAIN`.

use std::ffi::{c_int, c_void};

use libc::iovec;

use super::atomic::{FiIoc, FiMsgAtomic};
use super::attr::{FiRxAttr, FiTxAttr};
use super::av::FiAddr;
use super::fid::Fid;
use super::message::{FiMsg, FiMsgRma, FiMsgTagged};
use super::ops::tables;

/// `struct fid_ep`. No table may be NULL, because applications call through all of them.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidEp {
    pub fid: Fid,
    pub ops: *const OpsEp,
    pub cm: *const OpsCm,
    pub msg: *const OpsMsg,
    pub rma: *const OpsRma,
    pub tagged: *const OpsTagged,
    pub atomic: *const OpsAtomic,
    pub collective: *const OpsCollective,
}

/// `struct fid_pep`: a passive endpoint.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidPep {
    pub fid: Fid,
    pub ops: *const OpsEp,
    pub cm: *const OpsCm,
}

/// `struct fid_stx`: a shared transmit context.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidStx {
    pub fid: Fid,
    pub ops: *const OpsEp,
}

/// `struct fid_mc`: a multicast group.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FidMc {
    pub fid: Fid,
    pub fi_addr: FiAddr,
}

tables! {
    /// `struct fi_ops_ep`.
    OpsEp {
        cancel(fid: *mut Fid, context: *mut c_void) -> isize;
        getopt(
            fid: *mut Fid, level: c_int, name: c_int, value: *mut c_void, len: *mut usize,
        ) -> c_int;
        setopt(
            fid: *mut Fid, level: c_int, name: c_int, value: *const c_void, len: usize,
        ) -> c_int;
        tx_ctx(
            ep: *mut FidEp, index: c_int, attr: *mut FiTxAttr, tx: *mut *mut FidEp,
            context: *mut c_void,
        ) -> c_int;
        rx_ctx(
            ep: *mut FidEp, index: c_int, attr: *mut FiRxAttr, rx: *mut *mut FidEp,
            context: *mut c_void,
        ) -> c_int;
        rx_size_left(ep: *mut FidEp) -> isize;
        tx_size_left(ep: *mut FidEp) -> isize;
    }

    /// `struct fi_ops_cm`.
    OpsCm {
        setname(fid: *mut Fid, addr: *mut c_void, len: usize) -> c_int;
        getname(fid: *mut Fid, addr: *mut c_void, len: *mut usize) -> c_int;
        getpeer(ep: *mut FidEp, addr: *mut c_void, len: *mut usize) -> c_int;
        connect(
            ep: *mut FidEp, addr: *const c_void, param: *const c_void, paramlen: usize,
        ) -> c_int;
        listen(pep: *mut FidPep) -> c_int;
        accept(ep: *mut FidEp, param: *const c_void, paramlen: usize) -> c_int;
        reject(
            pep: *mut FidPep, handle: *mut Fid, param: *const c_void, paramlen: usize,
        ) -> c_int;
        shutdown(ep: *mut FidEp, flags: u64) -> c_int;
        join(
            ep: *mut FidEp, addr: *const c_void, flags: u64, mc: *mut *mut FidMc,
            context: *mut c_void,
        ) -> c_int;
    }

    /// `struct fi_ops_msg`.
    OpsMsg {
        recv(
            ep: *mut FidEp, buf: *mut c_void, len: usize, desc: *mut c_void, from: FiAddr,
            context: *mut c_void,
        ) -> isize;
        recvv(
            ep: *mut FidEp, iov: *const iovec, desc: *mut *mut c_void, count: usize, from: FiAddr,
            context: *mut c_void,
        ) -> isize;
        recvmsg(ep: *mut FidEp, msg: *const FiMsg, flags: u64) -> isize;
        send(
            ep: *mut FidEp, buf: *const c_void, len: usize, desc: *mut c_void, to: FiAddr,
            context: *mut c_void,
        ) -> isize;
        sendv(
            ep: *mut FidEp, iov: *const iovec, desc: *mut *mut c_void, count: usize, to: FiAddr,
            context: *mut c_void,
        ) -> isize;
        sendmsg(ep: *mut FidEp, msg: *const FiMsg, flags: u64) -> isize;
        inject(ep: *mut FidEp, buf: *const c_void, len: usize, to: FiAddr) -> isize;
        senddata(
            ep: *mut FidEp, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            to: FiAddr, context: *mut c_void,
        ) -> isize;
        injectdata(
            ep: *mut FidEp, buf: *const c_void, len: usize, data: u64, to: FiAddr,
        ) -> isize;
    }

    /// `struct fi_ops_tagged`.
    OpsTagged {
        recv(
            ep: *mut FidEp, buf: *mut c_void, len: usize, desc: *mut c_void, from: FiAddr,
            tag: u64, ignore: u64, context: *mut c_void,
        ) -> isize;
        recvv(
            ep: *mut FidEp, iov: *const iovec, desc: *mut *mut c_void, count: usize, from: FiAddr,
            tag: u64, ignore: u64, context: *mut c_void,
        ) -> isize;
        recvmsg(ep: *mut FidEp, msg: *const FiMsgTagged, flags: u64) -> isize;
        send(
            ep: *mut FidEp, buf: *const c_void, len: usize, desc: *mut c_void, to: FiAddr,
            tag: u64, context: *mut c_void,
        ) -> isize;
        sendv(
            ep: *mut FidEp, iov: *const iovec, desc: *mut *mut c_void, count: usize, to: FiAddr,
            tag: u64, context: *mut c_void,
        ) -> isize;
        sendmsg(ep: *mut FidEp, msg: *const FiMsgTagged, flags: u64) -> isize;
        inject(ep: *mut FidEp, buf: *const c_void, len: usize, to: FiAddr, tag: u64) -> isize;
        senddata(
            ep: *mut FidEp, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            to: FiAddr, tag: u64, context: *mut c_void,
        ) -> isize;
        injectdata(
            ep: *mut FidEp, buf: *const c_void, len: usize, data: u64, to: FiAddr, tag: u64,
        ) -> isize;
    }

    /// `struct fi_ops_rma`.
    OpsRma {
        read(
            ep: *mut FidEp, buf: *mut c_void, len: usize, desc: *mut c_void, from: FiAddr,
            addr: u64, key: u64, context: *mut c_void,
        ) -> isize;
        readv(
            ep: *mut FidEp, iov: *const iovec, desc: *mut *mut c_void, count: usize, from: FiAddr,
            addr: u64, key: u64, context: *mut c_void,
        ) -> isize;
        readmsg(ep: *mut FidEp, msg: *const FiMsgRma, flags: u64) -> isize;
        write(
            ep: *mut FidEp, buf: *const c_void, len: usize, desc: *mut c_void, to: FiAddr,
            addr: u64, key: u64, context: *mut c_void,
        ) -> isize;
        writev(
            ep: *mut FidEp, iov: *const iovec, desc: *mut *mut c_void, count: usize, to: FiAddr,
            addr: u64, key: u64, context: *mut c_void,
        ) -> isize;
        writemsg(ep: *mut FidEp, msg: *const FiMsgRma, flags: u64) -> isize;
        inject(
            ep: *mut FidEp, buf: *const c_void, len: usize, to: FiAddr, addr: u64, key: u64,
        ) -> isize;
        writedata(
            ep: *mut FidEp, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            to: FiAddr, addr: u64, key: u64, context: *mut c_void,
        ) -> isize;
        injectdata(
            ep: *mut FidEp, buf: *const c_void, len: usize, data: u64, to: FiAddr, addr: u64,
            key: u64,
        ) -> isize;
    }

    /// `struct fi_ops_atomic`.
    OpsAtomic {
        write(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void, to: FiAddr,
            addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void,
        ) -> isize;
        writev(
            ep: *mut FidEp, iov: *const FiIoc, desc: *mut *mut c_void, count: usize, to: FiAddr,
            addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void,
        ) -> isize;
        writemsg(ep: *mut FidEp, msg: *const FiMsgAtomic, flags: u64) -> isize;
        inject(
            ep: *mut FidEp, buf: *const c_void, count: usize, to: FiAddr, addr: u64, key: u64,
            datatype: u32, op: u32,
        ) -> isize;
        readwrite(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, to: FiAddr, addr: u64, key: u64,
            datatype: u32, op: u32, context: *mut c_void,
        ) -> isize;
        readwritev(
            ep: *mut FidEp, iov: *const FiIoc, desc: *mut *mut c_void, count: usize,
            resultv: *mut FiIoc, result_desc: *mut *mut c_void, result_count: usize, to: FiAddr,
            addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void,
        ) -> isize;
        readwritemsg(
            ep: *mut FidEp, msg: *const FiMsgAtomic, resultv: *mut FiIoc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64,
        ) -> isize;
        compwrite(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            compare: *const c_void, compare_desc: *mut c_void, result: *mut c_void,
            result_desc: *mut c_void, to: FiAddr, addr: u64, key: u64, datatype: u32, op: u32,
            context: *mut c_void,
        ) -> isize;
        compwritev(
            ep: *mut FidEp, iov: *const FiIoc, desc: *mut *mut c_void, count: usize,
            comparev: *const FiIoc, compare_desc: *mut *mut c_void, compare_count: usize,
            resultv: *mut FiIoc, result_desc: *mut *mut c_void, result_count: usize, to: FiAddr,
            addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void,
        ) -> isize;
        compwritemsg(
            ep: *mut FidEp, msg: *const FiMsgAtomic, comparev: *const FiIoc,
            compare_desc: *mut *mut c_void, compare_count: usize, resultv: *mut FiIoc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64,
        ) -> isize;
        writevalid(ep: *mut FidEp, datatype: u32, op: u32, count: *mut usize) -> c_int;
        readwritevalid(ep: *mut FidEp, datatype: u32, op: u32, count: *mut usize) -> c_int;
        compwritevalid(ep: *mut FidEp, datatype: u32, op: u32, count: *mut usize) -> c_int;
    }

    /// `struct fi_ops_collective`.
    OpsCollective {
        barrier(ep: *mut FidEp, group: FiAddr, context: *mut c_void) -> isize;
        broadcast(
            ep: *mut FidEp, buf: *mut c_void, count: usize, desc: *mut c_void, group: FiAddr,
            root: FiAddr, datatype: u32, flags: u64, context: *mut c_void,
        ) -> isize;
        alltoall(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, group: FiAddr, datatype: u32,
            flags: u64, context: *mut c_void,
        ) -> isize;
        allreduce(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, group: FiAddr, datatype: u32, op: u32,
            flags: u64, context: *mut c_void,
        ) -> isize;
        allgather(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, group: FiAddr, datatype: u32,
            flags: u64, context: *mut c_void,
        ) -> isize;
        reduce_scatter(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, group: FiAddr, datatype: u32, op: u32,
            flags: u64, context: *mut c_void,
        ) -> isize;
        reduce(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, group: FiAddr, root: FiAddr,
            datatype: u32, op: u32, flags: u64, context: *mut c_void,
        ) -> isize;
        scatter(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, group: FiAddr, root: FiAddr,
            datatype: u32, flags: u64, context: *mut c_void,
        ) -> isize;
        gather(
            ep: *mut FidEp, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, group: FiAddr, root: FiAddr,
            datatype: u32, flags: u64, context: *mut c_void,
        ) -> isize;
        msg(
            ep: *mut FidEp, msg: *const c_void, resultv: *mut FiIoc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64,
        ) -> isize;
        barrier2(ep: *mut FidEp, group: FiAddr, flags: u64, context: *mut c_void) -> isize;
    }
}

/// The level of all options.
pub const FI_OPT_ENDPOINT: c_int = 0;

// Options: of type `size_t` unless noted.
pub const FI_OPT_MIN_MULTI_RECV: c_int = 0;
pub const FI_OPT_CM_DATA_SIZE: c_int = 1;
pub const FI_OPT_BUFFERED_MIN: c_int = 2;
pub const FI_OPT_BUFFERED_LIMIT: c_int = 3;
pub const FI_OPT_SEND_BUF_SIZE: c_int = 4;
pub const FI_OPT_RECV_BUF_SIZE: c_int = 5;
pub const FI_OPT_TX_SIZE: c_int = 6;
pub const FI_OPT_RX_SIZE: c_int = 7;
/// An `int`.
pub const FI_OPT_FI_HMEM_P2P: c_int = 8;
pub const FI_OPT_XPU_TRIGGER: c_int = 9;
/// A `bool`, since 1.18.
pub const FI_OPT_CUDA_API_PERMITTED: c_int = 10;
/// A `bool`, since 1.19.
pub const FI_OPT_SHARED_MEMORY_PERMITTED: c_int = 11;
/// Since 1.19, as the following.
pub const FI_OPT_MAX_MSG_SIZE: c_int = 12;
pub const FI_OPT_MAX_TAGGED_SIZE: c_int = 13;
pub const FI_OPT_MAX_RMA_SIZE: c_int = 14;
pub const FI_OPT_MAX_ATOMIC_SIZE: c_int = 15;
pub const FI_OPT_INJECT_MSG_SIZE: c_int = 16;
pub const FI_OPT_INJECT_TAGGED_SIZE: c_int = 17;
pub const FI_OPT_INJECT_RMA_SIZE: c_int = 18;
pub const FI_OPT_INJECT_ATOMIC_SIZE: c_int = 19;
