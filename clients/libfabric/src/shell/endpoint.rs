//! Endpoints: opening, binding, options and closing.
//!
//! # Limits
//! Only `FI_EP_RDM`, or an unspecified type as such, is opened (`-FI_EINVAL` otherwise). The
//! opening waits for the daemon and, for a service, for a search of it (`rdm::service`); a number
//! or service in use gives `-FI_EADDRINUSE`, other failures the number in `errno`. An endpoint is
//! bound to one address vector, one queue for each direction and one counter for each kind of
//! operations, all of its domain (`-FI_EDOMAIN`); bindings are not removed before the close, a
//! queue without a direction gives `-FI_EBADFLAGS`, a second queue for a direction or another
//! address vector gives `-FI_EINVAL`, and a second counter for a kind replaces the first. After
//! `FI_ENABLE` queues and counters can still be bound, an address vector cannot
//! (`-FI_EOPBADSTATE`). `FI_ENABLE` needs an address vector (`-FI_ENOAV`) and a queue or counter
//! (`-FI_ENOCQ`). Operations before `FI_ENABLE` give `-FI_EOPBADSTATE`. The only option is
//! `FI_OPT_MIN_MULTI_RECV` (`-FI_ENOPROTOOPT` for others; two permissions for CUDA and shared
//! memory can be set, without effect). `fi_tx_size_left` and `fi_rx_size_left` return a constant,
//! [`OPERATIONS_MAX`] (1,024). A close blocks until the messages that were reported as sent have
//! left, at most [`CLOSE_MAX`] (30 s), and until they are confirmed, again at most [`CLOSE_MAX`];
//! messages that have not left by then are lost, with a warning. Other operations that are in
//! progress at the close end without a completion. Until the messages have left, the other
//! endpoints of the domain make progress; no other thread may use the closing endpoint.
//!
//! # Place
//! A domain's table has [`open`] and [`open2`]; an endpoint's table has the other functions, which
//! run in the application's thread. The operations are in `msg`, `tagged`, `rma` and `atomic`; the
//! object that all share is in [`endpoint_object`](super::endpoint_object).

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_endpoint::limits::CLOSE_MAX;

use super::domain_object::domain_of;
use super::endpoint_object::{Endpoint, of_fid};
use super::object::{FidObject, location, to_status};
use super::{atomic, av, msg, rma, tagged};
use crate::abi::*;
use crate::domain::{CqBinding, DomainShared, DomainState, EpState, WaitFd, get};
use crate::errno::{self, Errno};
use crate::info;
use crate::limits::{CLOSE_PAUSE, CLOSE_PAUSE_MAX, CLOSE_SPIN, OPERATIONS_MAX};
use crate::rdm::Rdm;
use crate::rdm::stats::{READ, RECEIVED, REMOTE_READ, REMOTE_WRITTEN, SENT, WRITTEN};

static OPS: Ops = Ops { close, bind, control, ..Ops::NONE };
/// The functions in the table of this class of objects; the others are not supported.
static EP_OPS: OpsEp = OpsEp { cancel, getopt, setopt, tx_size_left, rx_size_left, ..OpsEp::NONE };
/// The functions of connection management: the own name only.
static CM_OPS: OpsCm = OpsCm { getname, ..OpsCm::NONE };

/// Opens an endpoint.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    info: *mut FiInfo,
    ep: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    if info.is_null() || ep.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller passes the `fi_info` that it got; attributes may be NULL.
    let (caps, tx_flags, rx_flags, source) = unsafe {
        let (tx, rx) = ((*info).tx_attr.as_ref(), (*info).rx_attr.as_ref());
        let flags = (tx.map_or(0, |tx| tx.op_flags), rx.map_or(0, |rx| rx.op_flags));
        let source = info::read_address((*info).src_addr, (*info).src_addrlen);
        ((*info).caps, flags.0, flags.1, source)
    };
    // SAFETY: as above.
    let kind = unsafe { (*info).ep_attr.as_ref() }.map_or(FI_EP_UNSPEC, |ep| ep.kind);
    if !matches!(kind, FI_EP_UNSPEC | FI_EP_RDM) {
        return -FI_EINVAL;
    }
    // SAFETY: the caller passes a domain that was opened here.
    let shared = unsafe { domain_of(domain) };
    let mut rdm = match Rdm::open(shared.nic_index, source.service()) {
        Ok(rdm) => rdm,
        Err(error) => return errno::of(error).wrapping_neg(),
    };
    let (vector, tx, rx, counters) = (None, None, None, [None; 6]);
    rdm.helper = shared.helper.get().cloned();
    let opened = EpState { rdm, vector, tx, rx, counters, enabled: false };
    let at = shared.state.with(|state| state.add_ep(opened));
    shared.children.fetch_add(1, Ordering::Relaxed);
    let fid = FidEp {
        fid: Fid { fclass: FI_CLASS_EP, context, ops: &OPS },
        ops: &EP_OPS,
        cm: &CM_OPS,
        msg: &msg::MSG_OPS,
        rma: &rma::RMA_OPS,
        tagged: &tagged::TAGGED_OPS,
        atomic: &atomic::ATOMIC_OPS,
        collective: &OpsCollective::NONE,
    };
    let object = FidObject { fid, shared: Arc::clone(&shared), at };
    let directed = caps & FI_DIRECTED_RECV != 0;
    let opened = Endpoint::new(object, (tx_flags, rx_flags), directed);
    // SAFETY: the caller passes a place for the endpoint.
    unsafe { ep.write(Box::into_raw(Box::new(opened)).cast()) };
    0
}

/// Opens an endpoint; the flags are not used.
pub unsafe extern "C" fn open2(
    domain: *mut FidDomain,
    info: *mut FiInfo,
    ep: *mut *mut FidEp,
    _flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as for `open`.
    unsafe { open(domain, info, ep, context) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes an endpoint that was opened here; it begins with its fid.
    let object = unsafe { of_fid(fid.cast()) }.object();
    deliver(object);
    let taken = object.shared.state.with(|state| state.remove_ep(object.at));
    if let Some(mut ep) = taken {
        ep.rdm.finish();
        ep.rdm.stats_report().write();
    }
    object.shared.children.fetch_sub(1, Ordering::Release);
    // SAFETY: the endpoint was boxed, is closed once, and no other code refers to it.
    drop(unsafe { Box::from_raw(fid.cast::<Endpoint>()) });
    0
}

/// Delivers the messages that were reported as sent before an endpoint closes. A receiver that does
/// not take them within [`CLOSE_MAX`] (30 s) loses them.
fn deliver(object: &FidObject<FidEp>) {
    let since = Instant::now();
    let look = |state: &mut DomainState| {
        // The receivers may be other endpoints of the domain that no other call polls.
        for at in 0..state.eps.len() {
            state.progress(at);
        }
        get(&mut state.eps, object.at).map_or(0, |ep| ep.rdm.unsent())
    };
    let mut pause = Duration::ZERO;
    loop {
        let unsent = object.shared.state.with(look);
        if unsent == 0 {
            return;
        }
        if since.elapsed() >= CLOSE_MAX {
            let seconds = CLOSE_MAX.as_secs();
            let text = format!(
                "an endpoint closes before its messages are delivered: {unsent} messages that were \
                 reported as sent are lost, because their receivers did not take them for \
                 {seconds} s"
            );
            return crate::log::warn(&text, true);
        }
        if pause.is_zero() {
            std::thread::yield_now();
        } else {
            std::thread::sleep(pause);
        }
        if since.elapsed() >= CLOSE_SPIN {
            pause = pause.saturating_add(CLOSE_PAUSE).min(CLOSE_PAUSE_MAX);
        }
    }
}

unsafe extern "C" fn bind(fid: *mut Fid, bound: *mut Fid, flags: u64) -> c_int {
    if bound.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller passes an endpoint that was opened here.
    let object = unsafe { of_fid(fid.cast()) }.object();
    // SAFETY: the caller passes an open object.
    to_status(match unsafe { (*bound).fclass } {
        // SAFETY: an object of this class was opened by `cq`.
        FI_CLASS_CQ => bind_cq(object, unsafe { location::<FidCq>(bound) }, flags),
        // SAFETY: an object of this class was opened by `cntr`.
        FI_CLASS_CNTR => bind_cntr(object, unsafe { location::<FidCntr>(bound) }, flags),
        // SAFETY: an object of this class was opened by `av`.
        FI_CLASS_AV => bind_av(object, unsafe { location::<FidAv>(bound) }),
        FI_CLASS_EQ => Ok(()),
        _ => Err(Errno(FI_EINVAL)),
    })
}

/// Checks that both objects belong to one domain.
fn check_domain(object: &FidObject<FidEp>, shared: &Arc<DomainShared>) -> Result<(), Errno> {
    if Arc::ptr_eq(&object.shared, shared) { Ok(()) } else { Err(Errno(FI_EDOMAIN)) }
}

/// Binds a queue to the directions in `flags`, each of which must be unbound.
fn bind_cq(
    object: &FidObject<FidEp>,
    (shared, cq): (&Arc<DomainShared>, usize),
    flags: u64,
) -> Result<(), Errno> {
    check_domain(object, shared)?;
    if flags & (FI_TRANSMIT | FI_RECV) == 0 {
        return Err(Errno(FI_EBADFLAGS));
    }
    let bound = Some(CqBinding { cq, selective: flags & FI_SELECTIVE_COMPLETION != 0 });
    shared.state.with(|state| {
        let ep = get(&mut state.eps, object.at)?;
        let taken = (flags & FI_TRANSMIT != 0 && ep.tx.is_some())
            || (flags & FI_RECV != 0 && ep.rx.is_some());
        if taken {
            return Err(Errno(FI_EINVAL));
        }
        let queue = get(&mut state.cqs, cq)?;
        attach(object.at, ep, &mut queue.eps, queue.wait_fd.as_ref())?;
        if flags & FI_TRANSMIT != 0 {
            ep.tx = bound;
        }
        if flags & FI_RECV != 0 {
            ep.rx = bound;
        }
        Ok(())
    })
}

/// Adds an endpoint to those of a queue or counter. Nothing is bound before: the index of an object
/// without endpoints may go to another object.
fn attach(
    at: usize,
    ep: &EpState,
    eps: &mut Vec<usize>,
    wait_fd: Option<&WaitFd>,
) -> Result<(), Errno> {
    if eps.contains(&at) {
        return Ok(());
    }
    if let Some(wait_fd) = wait_fd {
        wait_fd.watch(&ep.rdm).inspect_err(|_| wait_fd.unwatch(&ep.rdm))?;
    }
    eps.push(at);
    Ok(())
}

/// Binds a counter to the kinds of operations in `flags`.
fn bind_cntr(
    object: &FidObject<FidEp>,
    (shared, cntr): (&Arc<DomainShared>, usize),
    flags: u64,
) -> Result<(), Errno> {
    check_domain(object, shared)?;
    let kinds = [
        (FI_SEND, SENT),
        (FI_RECV, RECEIVED),
        (FI_READ, READ),
        (FI_WRITE, WRITTEN),
        (FI_REMOTE_READ, REMOTE_READ),
        (FI_REMOTE_WRITE, REMOTE_WRITTEN),
    ];
    shared.state.with(|state| {
        let ep = get(&mut state.eps, object.at)?;
        let counter = get(&mut state.cntrs, cntr)?;
        attach(object.at, ep, &mut counter.eps, counter.wait_fd.as_ref())?;
        for (flag, kind) in kinds {
            if flags & flag != 0
                && let Some(counter) = ep.counters.get_mut(kind)
            {
                *counter = Some(cntr);
            }
        }
        Ok(())
    })
}

/// Binds an address vector to an endpoint that is not enabled.
fn bind_av(
    object: &FidObject<FidEp>,
    (shared, av): (&Arc<DomainShared>, usize),
) -> Result<(), Errno> {
    check_domain(object, shared)?;
    shared.state.with(|state| {
        let ep = get(&mut state.eps, object.at)?;
        if ep.enabled {
            return Err(Errno(FI_EOPBADSTATE));
        }
        // The state of peers is kept by the index in a single address vector.
        if ep.vector.is_some_and(|vector| vector != av) {
            return Err(Errno(FI_EINVAL));
        }
        ep.vector = Some(av);
        Ok(())
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the caller passes an endpoint that was opened here.
    let opened = unsafe { of_fid(fid.cast()) };
    let object = opened.object();
    to_status(match command {
        FI_ENABLE => object.shared.state.with(|state| {
            let ep = get(&mut state.eps, object.at)?;
            if ep.vector.is_none() {
                return Err(Errno(FI_ENOAV));
            }
            if ep.tx.is_none() && ep.rx.is_none() && ep.counters.iter().all(Option::is_none) {
                return Err(Errno(FI_ENOCQ));
            }
            ep.enabled = true;
            Ok(())
        }),
        FI_GETOPSFLAG | FI_SETOPSFLAG if arg.is_null() => Err(Errno(FI_EINVAL)),
        FI_GETOPSFLAG => {
            let given = arg.cast::<u64>();
            // SAFETY: for these commands the caller passes flags.
            opened.flags(unsafe { given.read() }).map(|(flags, _)| {
                // SAFETY: as above.
                unsafe { given.write(flags.load(Ordering::Relaxed)) };
            })
        }
        // SAFETY: as above.
        FI_SETOPSFLAG => opened.flags(unsafe { arg.cast::<u64>().read() }).map(|(flags, given)| {
            flags.store(given, Ordering::Relaxed);
        }),
        _ => Err(Errno(FI_ENOSYS)),
    })
}

unsafe extern "C" fn getname(fid: *mut Fid, addr: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: the caller passes an endpoint that was opened here.
    let object = unsafe { of_fid(fid.cast()) }.object();
    to_status(object.shared.state.with(|state| {
        let name = get(&mut state.eps, object.at)?.rdm.name().emit();
        // SAFETY: the caller passes `len` bytes of room, or NULL.
        unsafe { av::write_address(&name, addr, len) }
    }))
}

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here.
    let ep = unsafe { of_fid(fid.cast()) };
    match ep.with(|ep, _| ep.rdm.cancel(context.addr())) {
        Ok(()) => 0,
        Err(Errno(err)) => failed_size(err),
    }
}

unsafe extern "C" fn getopt(
    fid: *mut Fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    if level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV {
        return -FI_ENOPROTOOPT;
    }
    if value.is_null() || len.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller passes an endpoint that was opened here.
    let ep = unsafe { of_fid(fid.cast()) };
    let found = ep.with(|ep, _| Ok(ep.rdm.multi_receive_min())).unwrap_or(0);
    // SAFETY: the caller passes `len` bytes of room.
    unsafe {
        if len.replace(size_of::<usize>()) < size_of::<usize>() {
            return -FI_ETOOSMALL;
        }
        value.cast::<usize>().write_unaligned(found);
    }
    0
}

unsafe extern "C" fn setopt(
    fid: *mut Fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    if level != FI_OPT_ENDPOINT {
        return -FI_ENOPROTOOPT;
    }
    if value.is_null() {
        return -FI_EINVAL;
    }
    match name {
        FI_OPT_MIN_MULTI_RECV if len == size_of::<usize>() => {
            // SAFETY: the caller passes a number of this type, and an endpoint that was opened
            // here.
            let (min, ep) = unsafe { (value.cast::<usize>().read_unaligned(), of_fid(fid.cast())) };
            to_status(ep.with(|ep, _| {
                ep.rdm.set_multi_receive_min(min);
                Ok(())
            }))
        }
        FI_OPT_MIN_MULTI_RECV => -FI_EINVAL,
        // All memory is host memory, and the provider does not use the permission.
        FI_OPT_CUDA_API_PERMITTED | FI_OPT_SHARED_MEMORY_PERMITTED => 0,
        _ => -FI_ENOPROTOOPT,
    }
}

unsafe extern "C" fn tx_size_left(_ep: *mut FidEp) -> isize {
    OPERATIONS_MAX.cast_signed()
}

unsafe extern "C" fn rx_size_left(_ep: *mut FidEp) -> isize {
    OPERATIONS_MAX.cast_signed()
}
