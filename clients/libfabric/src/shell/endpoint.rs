//! Endpoints: opening, binding, options and closing, and the common part of all operations.
//!
//! [`Endpoint::begin`] starts every operation: it takes the domain's lock, checks that the endpoint
//! is enabled, calls `rdm`, and, if `rdm` has no room (`FI_EAGAIN`), makes progress so that a
//! repeated call succeeds.
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
//! `msg`, `tagged`, `rma` and `atomic` convert their arguments and call [`Endpoint::begin`].

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_endpoint::limits::CLOSE_MAX;
use libc::iovec;

use super::object::{FidObject, domain_of, to_status};
use super::progress_thread::ProgressThread;
use super::state::{
    CqBinding, DomainShared, DomainState, EpState, READ, RECEIVED, REMOTE_READ, REMOTE_WRITTEN,
    SENT, WRITTEN, get, insert,
};
use super::wait_fd::WaitFd;
use super::{atomic, av, cntr, cq, msg, rma, tagged};
use crate::abi::*;
use crate::errno::{self, Errno};
use crate::info;
use crate::limits::{
    CLOSE_PAUSE, CLOSE_PAUSE_MAX, CLOSE_SPIN, INJECT_MAX, OPERATIONS_MAX, SEGMENTS_MAX,
};
use crate::rdm::{AppSpan, DomainEnv, Payload, Rdm, ReportTemplate};

/// An endpoint that an application opened.
#[derive(Debug)]
#[repr(C)]
pub struct Endpoint {
    /// The object that the application has a pointer to; must be first.
    object: FidObject<FidEp>,
    /// Default flags of transmit operations. Other threads may set them at any time
    /// (`FI_SETOPSFLAG`).
    tx_flags: AtomicU64,
    /// Default flags of receives, as `tx_flags`.
    rx_flags: AtomicU64,
    /// Whether receives may be directed (`FI_DIRECTED_RECV`); otherwise their source is ignored.
    directed: bool,
}

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
    let at = shared.state.with(|state| {
        ProgressThread::endpoint_opened(state);
        insert(&mut state.eps, opened)
    });
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
    let [tx_flags, rx_flags] = [tx_flags, rx_flags].map(AtomicU64::new);
    let opened = Endpoint { object, tx_flags, rx_flags, directed };
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

/// Returns the endpoint of a fid.
///
/// # Safety
/// The endpoint was opened here and is open.
#[inline]
pub unsafe fn of_fid<'a>(ep: *mut FidEp) -> &'a Endpoint {
    // SAFETY: guaranteed by the caller; an endpoint begins with its fid.
    unsafe { &*ep.cast::<Endpoint>() }
}

impl Endpoint {
    /// Runs `run` with the endpoint's state.
    ///
    /// # Errors
    /// The error of `run`, or `FI_EINVAL` for a closed endpoint.
    #[inline]
    pub fn with<R>(
        &self,
        run: impl FnOnce(&mut EpState, DomainEnv<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.object.shared.state.with(|state| state.with_ep(self.object.at, run))
    }

    /// Starts an operation. Without room for it, the endpoint makes progress, so that a later
    /// attempt succeeds.
    #[inline]
    pub fn begin(
        &self,
        run: impl FnOnce(&mut EpState, DomainEnv<'_>) -> Result<(), Errno>,
    ) -> isize {
        let enabled = |ep: &mut EpState, env: DomainEnv<'_>| {
            if ep.enabled { run(ep, env) } else { Err(Errno(FI_EOPBADSTATE)) }
        };
        self.object.shared.state.with(|state| match state.with_ep(self.object.at, enabled) {
            Ok(()) => {
                if state.asleep > 0 {
                    state.wake_if_busy(self.object.at);
                }
                0
            }
            Err(Errno(err)) => {
                if err == FI_EAGAIN {
                    state.progress(self.object.at);
                }
                failed_size(err)
            }
        })
    }

    /// Returns the default flags of transmit operations.
    #[inline]
    pub fn tx_flags(&self) -> u64 {
        self.tx_flags.load(Ordering::Relaxed)
    }

    /// Returns the flags of the direction in `given`, and the remaining bits of `given`.
    fn flags(&self, given: u64) -> Result<(&AtomicU64, u64), Errno> {
        let direction = given & (FI_TRANSMIT | FI_RECV);
        let flags = match direction {
            FI_TRANSMIT => &self.tx_flags,
            FI_RECV => &self.rx_flags,
            _ => return Err(Errno(FI_EINVAL)),
        };
        Ok((flags, given & !direction))
    }

    /// Returns the source of a receive: `named`, or any source without `FI_DIRECTED_RECV`.
    #[inline]
    pub fn from(&self, named: FiAddr) -> FiAddr {
        if self.directed { named } else { FI_ADDR_UNSPEC }
    }

    /// Returns the default flags of receive operations.
    #[inline]
    pub fn rx_flags(&self) -> u64 {
        self.rx_flags.load(Ordering::Relaxed)
    }
}

impl EpState {
    /// Returns the completion of a transmit operation. `what` is its flags, such as `FI_SEND`; the
    /// completion is quiet if `flags` lacks `FI_COMPLETION` and the binding is selective or absent.
    #[inline]
    pub fn tx_report(
        &self,
        flags: u64,
        what: u64,
        context: *mut c_void,
        payload: &Payload,
    ) -> ReportTemplate {
        let quiet = self.tx.is_none_or(|tx| tx.selective) && flags & FI_COMPLETION == 0;
        ReportTemplate {
            context: context.addr(),
            flags: what,
            quiet,
            tag: 0,
            buf: 0,
            len: payload.len(),
        }
    }

    /// Returns the completion of a receive operation, as [`Self::tx_report`] does.
    #[inline]
    pub fn rx_report(
        &self,
        flags: u64,
        what: u64,
        context: *mut c_void,
        payload: &Payload,
    ) -> ReportTemplate {
        let quiet = self.rx.is_none_or(|rx| rx.selective) && flags & FI_COMPLETION == 0;
        ReportTemplate {
            context: context.addr(),
            flags: what,
            quiet,
            tag: 0,
            buf: payload.start(),
            len: payload.len(),
        }
    }
}

/// Returns the payload of a contiguous buffer.
///
/// # Safety
/// As for [`AppSpan::new`]: the caller lends the memory to the operation until that completes or,
/// if the interface allows it, until the call returns.
#[inline]
pub unsafe fn buffer(buf: *const c_void, len: usize) -> Payload {
    // SAFETY: guaranteed by the caller.
    Payload::One(unsafe { AppSpan::new(buf.cast_mut().cast(), len) })
}

/// Returns the payload of several segments.
///
/// # Errors
/// `FI_EINVAL` for too many segments, `FI_EMSGSIZE` if the sum of the lengths overflows.
///
/// # Safety
/// `iov` has `count` segments, and each is as for [`buffer`].
pub unsafe fn segments(iov: *const iovec, count: usize) -> Result<Payload, Errno> {
    if count > SEGMENTS_MAX || (iov.is_null() && count > 0) {
        return Err(Errno(FI_EINVAL));
    }
    let all = (0..count).map(|at| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let iovec { iov_base, iov_len } = iov.wrapping_add(at).read();
            AppSpan::new(iov_base.cast(), iov_len)
        }
    });
    Payload::of(all.collect()).ok_or(Errno(FI_EMSGSIZE))
}

/// Checks the length of an injected message.
///
/// # Errors
/// `FI_EMSGSIZE` above [`INJECT_MAX`] (4,096 bytes).
pub fn injectable(len: usize) -> Result<(), Errno> {
    if len > INJECT_MAX { Err(Errno(FI_EMSGSIZE)) } else { Ok(()) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes an endpoint that was opened here; it begins with its fid.
    let Endpoint { object, .. } = unsafe { &*fid.cast::<Endpoint>() };
    deliver(object);
    let taken = object.shared.state.with(|state| {
        let ep = state.eps.get_mut(object.at).and_then(Option::take);
        unbind(state, object.at, ep.as_ref());
        if let Some(ep) = &ep {
            ProgressThread::endpoint_closed(state, ep);
        }
        ep
    });
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

/// Removes an endpoint from its queues and counters.
fn unbind(state: &mut DomainState, at: usize, ep: Option<&EpState>) {
    for cq in state.cqs.iter_mut().flatten().filter(|cq| cq.eps.contains(&at)) {
        cq.eps.retain(|&other| other != at);
        if let (Some(wait_fd), Some(ep)) = (&cq.wait_fd, ep) {
            wait_fd.unwatch(ep);
        }
    }
    for cntr in state.cntrs.iter_mut().flatten().filter(|cntr| cntr.eps.contains(&at)) {
        cntr.eps.retain(|&other| other != at);
        if let (Some(wait_fd), Some(ep)) = (&cntr.wait_fd, ep) {
            wait_fd.unwatch(ep);
        }
    }
}

unsafe extern "C" fn bind(fid: *mut Fid, bound: *mut Fid, flags: u64) -> c_int {
    if bound.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller passes an endpoint that was opened here.
    let Endpoint { object, .. } = unsafe { &*fid.cast::<Endpoint>() };
    // SAFETY: the caller passes an open object.
    to_status(match unsafe { (*bound).fclass } {
        // SAFETY: an object of this class belongs to `cq`.
        FI_CLASS_CQ => bind_cq(object, unsafe { cq::location(bound) }, flags),
        // SAFETY: an object of this class belongs to `cntr`.
        FI_CLASS_CNTR => bind_cntr(object, unsafe { cntr::location(bound) }, flags),
        // SAFETY: an object of this class belongs to `av`.
        FI_CLASS_AV => bind_av(object, unsafe { av::location(bound) }),
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
        wait_fd.watch(ep).inspect_err(|_| wait_fd.unwatch(ep))?;
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
    let opened = unsafe { &*fid.cast::<Endpoint>() };
    let object = &opened.object;
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
    let Endpoint { object, .. } = unsafe { &*fid.cast::<Endpoint>() };
    to_status(object.shared.state.with(|state| {
        let name = get(&mut state.eps, object.at)?.rdm.name().emit();
        // SAFETY: the caller passes `len` bytes of room, or NULL.
        unsafe { av::write_address(&name, addr, len) }
    }))
}

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    // SAFETY: the caller passes an endpoint that was opened here.
    let ep = unsafe { &*fid.cast::<Endpoint>() };
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
    let ep = unsafe { &*fid.cast::<Endpoint>() };
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
            let (min, ep) =
                unsafe { (value.cast::<usize>().read_unaligned(), &*fid.cast::<Endpoint>()) };
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
