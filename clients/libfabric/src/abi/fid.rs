//! The header of all objects: its layout, the classes of objects, the commands of `control`, and the
//! table of functions, as in `fi_control(3)`.
//!
//! A [`Fid`] begins each object and has its class, the application's context, and the functions for
//! closing, binding and commands. The application's threads call the functions through the table,
//! which each module of `shell` fills for its objects. The module has no behaviour, and knows no
//! object but the header. The functions trust the class of an object; only a binding and
//! `fi_trywait` check the class of their arguments.

use std::ffi::{c_char, c_int, c_void};

use super::ops::tables;

/// `struct fid`: an object of the interface begins with it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *const Ops,
}

tables! {
    /// `struct fi_ops`.
    Ops {
        close(fid: *mut Fid) -> c_int;
        bind(fid: *mut Fid, bound: *mut Fid, flags: u64) -> c_int;
        control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int;
        ops_open(
            fid: *mut Fid, name: *const c_char, flags: u64, ops: *mut *mut c_void,
            context: *mut c_void,
        ) -> c_int;
        tostr(fid: *const Fid, buf: *mut c_char, len: usize) -> c_int;
        ops_set(
            fid: *mut Fid, name: *const c_char, flags: u64, ops: *mut c_void,
            context: *mut c_void,
        ) -> c_int;
    }
}

// Classes of objects.
pub const FI_CLASS_UNSPEC: usize = 0;
pub const FI_CLASS_FABRIC: usize = 1;
pub const FI_CLASS_DOMAIN: usize = 2;
pub const FI_CLASS_EP: usize = 3;
pub const FI_CLASS_SEP: usize = 4;
pub const FI_CLASS_RX_CTX: usize = 5;
pub const FI_CLASS_SRX_CTX: usize = 6;
pub const FI_CLASS_TX_CTX: usize = 7;
pub const FI_CLASS_STX_CTX: usize = 8;
pub const FI_CLASS_PEP: usize = 9;
pub const FI_CLASS_INTERFACE: usize = 10;
pub const FI_CLASS_AV: usize = 11;
pub const FI_CLASS_MR: usize = 12;
pub const FI_CLASS_EQ: usize = 13;
pub const FI_CLASS_CQ: usize = 14;
pub const FI_CLASS_CNTR: usize = 15;
pub const FI_CLASS_WAIT: usize = 16;
pub const FI_CLASS_POLL: usize = 17;
pub const FI_CLASS_CONNREQ: usize = 18;
pub const FI_CLASS_MC: usize = 19;
pub const FI_CLASS_NIC: usize = 20;
pub const FI_CLASS_AV_SET: usize = 21;

// Commands of `control`.
pub const FI_GETFIDFLAG: c_int = 0;
pub const FI_SETFIDFLAG: c_int = 1;
pub const FI_GETOPSFLAG: c_int = 2;
pub const FI_SETOPSFLAG: c_int = 3;
pub const FI_ALIAS: c_int = 4;
pub const FI_GETWAIT: c_int = 5;
pub const FI_ENABLE: c_int = 6;
pub const FI_BACKLOG: c_int = 7;
pub const FI_GET_RAW_MR: c_int = 8;
pub const FI_MAP_RAW_MR: c_int = 9;
pub const FI_UNMAP_KEY: c_int = 10;
pub const FI_QUEUE_WORK: c_int = 11;
pub const FI_CANCEL_WORK: c_int = 12;
pub const FI_FLUSH_WORK: c_int = 13;
pub const FI_REFRESH: c_int = 14;
pub const FI_DUP: c_int = 15;
pub const FI_GETWAITOBJ: c_int = 16;
pub const FI_GET_VAL: c_int = 17;
pub const FI_SET_VAL: c_int = 18;
pub const FI_EXPORT_FID: c_int = 19;

/// `struct fi_alias`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FiAlias {
    pub fid: *mut *mut Fid,
    pub flags: u64,
}
