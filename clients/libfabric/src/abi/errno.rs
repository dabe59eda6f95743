//! Error numbers, which functions return negated.
//!
//! The numbers are positive here, as in `fi_errno(3)`: those that equal an errno of Linux have its
//! number, the others begin at 256. All modules of the crate return them to the application; the
//! module `errno` maps errors of the endpoint and the engine to them. The module has the numbers
//! and the conversion to results; the texts are libfabric's own (`fi_strerror`).

/// Success.
pub const FI_SUCCESS: i32 = 0;

macro_rules! from_libc {
    ($($name:ident = $errno:ident;)*) => {
        $(pub const $name: i32 = libc::$errno;)*
    };
}

from_libc! {
    FI_EPERM = EPERM;
    FI_ENOENT = ENOENT;
    FI_EINTR = EINTR;
    FI_EIO = EIO;
    FI_E2BIG = E2BIG;
    FI_EBADF = EBADF;
    FI_EAGAIN = EAGAIN;
    FI_ENOMEM = ENOMEM;
    FI_EACCES = EACCES;
    FI_EFAULT = EFAULT;
    FI_EBUSY = EBUSY;
    FI_ENODEV = ENODEV;
    FI_EINVAL = EINVAL;
    FI_EMFILE = EMFILE;
    FI_ENOSPC = ENOSPC;
    FI_ENOSYS = ENOSYS;
    FI_ENOMSG = ENOMSG;
    FI_ENODATA = ENODATA;
    FI_EOVERFLOW = EOVERFLOW;
    FI_EMSGSIZE = EMSGSIZE;
    FI_ENOPROTOOPT = ENOPROTOOPT;
    FI_EOPNOTSUPP = EOPNOTSUPP;
    FI_EADDRINUSE = EADDRINUSE;
    FI_EADDRNOTAVAIL = EADDRNOTAVAIL;
    FI_ENETDOWN = ENETDOWN;
    FI_ENETUNREACH = ENETUNREACH;
    FI_ECONNABORTED = ECONNABORTED;
    FI_ECONNRESET = ECONNRESET;
    FI_ENOBUFS = ENOBUFS;
    FI_EISCONN = EISCONN;
    FI_ENOTCONN = ENOTCONN;
    FI_ESHUTDOWN = ESHUTDOWN;
    FI_ETIMEDOUT = ETIMEDOUT;
    FI_ECONNREFUSED = ECONNREFUSED;
    FI_EHOSTDOWN = EHOSTDOWN;
    FI_EHOSTUNREACH = EHOSTUNREACH;
    FI_EALREADY = EALREADY;
    FI_EINPROGRESS = EINPROGRESS;
    FI_EREMOTEIO = EREMOTEIO;
    FI_ECANCELED = ECANCELED;
    FI_EKEYREJECTED = EKEYREJECTED;
}

/// Unspecified error.
pub const FI_EOTHER: i32 = 256;
/// A buffer is too small.
pub const FI_ETOOSMALL: i32 = 257;
/// Not allowed in this state.
pub const FI_EOPBADSTATE: i32 = 258;
/// An error can be read.
pub const FI_EAVAIL: i32 = 259;
/// Unsupported flags.
pub const FI_EBADFLAGS: i32 = 260;
/// No event queue is bound.
pub const FI_ENOEQ: i32 = 261;
/// Objects of different domains.
pub const FI_EDOMAIN: i32 = 262;
/// No completion queue is bound.
pub const FI_ENOCQ: i32 = 263;
/// Data was corrupted in transit.
pub const FI_ECRC: i32 = 264;
/// The message is longer than its buffer.
pub const FI_ETRUNC: i32 = 265;
/// No such key.
pub const FI_ENOKEY: i32 = 266;
/// No address vector is bound.
pub const FI_ENOAV: i32 = 267;
/// A queue is full.
pub const FI_EOVERRUN: i32 = 268;
/// No receiver is ready.
pub const FI_ENORX: i32 = 269;

/// Returns the result of a failed function of type `int`.
pub const fn failed(code: i32) -> i32 {
    code.wrapping_neg()
}

/// Returns the result of a failed function of type `ssize_t`.
pub const fn failed_size(code: i32) -> isize {
    code.wrapping_neg() as isize
}
