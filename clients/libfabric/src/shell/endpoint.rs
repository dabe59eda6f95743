//! Endpoints: opened, bound, named; and what all operations have in common.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_endpoint::limits::CLOSE_MAX;
use libc::iovec;

use super::auto::Auto;
use super::object::{Object, answer, usable};
use super::state::{
    Bound, Ep, READ, RECEIVED, REMOTE_READ, REMOTE_WRITTEN, SENT, Shared, State, WRITTEN, of, place,
};
use super::{atomic, av, cntr, cq, msg, rma, tagged};
use crate::abi::*;
use crate::errno;
use crate::info;
use crate::limits::{CLOSE_LOOK, CLOSE_PAUSE, INJECT_MAX, OPERATIONS_MAX, PIECES_MAX};
use crate::rdm::{Env, Errno, Place, Rdm, Report, Span};

/// An endpoint as the application has it.
#[derive(Debug)]
#[repr(C)]
pub struct Endpoint {
    object: Object<FidEp>,
    /// The flags of calls that have none. Another thread may set them meanwhile (`FI_SETOPSFLAG`).
    tx_flags: AtomicU64,
    rx_flags: AtomicU64,
    /// Receives may be from one endpoint only; else whom they name means nothing.
    directed: bool,
}

static OPS: Ops = Ops { close, bind, control, ..Ops::NONE };
static EP_OPS: OpsEp = OpsEp { cancel, getopt, setopt, tx_size_left, rx_size_left, ..OpsEp::NONE };
static CM_OPS: OpsCm = OpsCm { getname, ..OpsCm::NONE };

/// Opens one.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    info: *mut FiInfo,
    ep: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    if info.is_null() || ep.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller has what it asked for there; attributes may be NULL.
    let (caps, tx_flags, rx_flags, source) = unsafe {
        let (tx, rx) = ((*info).tx_attr.as_ref(), (*info).rx_attr.as_ref());
        let flags = (tx.map_or(0, |tx| tx.op_flags), rx.map_or(0, |rx| rx.op_flags));
        let source = info::place((*info).src_addr, (*info).src_addrlen);
        ((*info).caps, flags.0, flags.1, source)
    };
    // SAFETY: as above.
    let kind = unsafe { (*info).ep_attr.as_ref() }.map_or(FI_EP_UNSPEC, |ep| ep.kind);
    if !matches!(kind, FI_EP_UNSPEC | FI_EP_RDM) {
        return -FI_EINVAL;
    }
    // SAFETY: the caller has a domain of ours.
    let shared = unsafe { usable(domain) };
    let mut rdm = match Rdm::open(shared.board, source.service()) {
        Ok(rdm) => rdm,
        Err(error) => return errno::of(error).wrapping_neg(),
    };
    let (book, tx, rx, counters) = (None, None, None, [None; 6]);
    rdm.helper = shared.helper.get().cloned();
    let opened = Ep { rdm, book, tx, rx, counters, enabled: false };
    let at = shared.state.with(|state| {
        Auto::came(state);
        place(&mut state.eps, opened)
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
    let object = Object { fid, shared: Arc::clone(&shared), at };
    let directed = caps & FI_DIRECTED_RECV != 0;
    let [tx_flags, rx_flags] = [tx_flags, rx_flags].map(AtomicU64::new);
    let opened = Endpoint { object, tx_flags, rx_flags, directed };
    // SAFETY: the caller has a place there for it.
    unsafe { ep.write(Box::into_raw(Box::new(opened)).cast()) };
    0
}

/// The same, with flags of which there are none for us.
pub unsafe extern "C" fn open2(
    domain: *mut FidDomain,
    info: *mut FiInfo,
    ep: *mut *mut FidEp,
    _flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as of `open`.
    unsafe { open(domain, info, ep, context) }
}

/// One that the application gives.
///
/// # Safety
/// It is an endpoint of ours that is open.
#[inline]
pub unsafe fn of_fid<'a>(ep: *mut FidEp) -> &'a Endpoint {
    // SAFETY: as the caller says; it begins with its fid.
    unsafe { &*ep.cast::<Endpoint>() }
}

impl Endpoint {
    /// Does something with it.
    #[inline]
    pub fn with<R>(
        &self,
        run: impl FnOnce(&mut Ep, Env<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.object.shared.state.with(|state| state.with_ep(self.object.at, run))
    }

    /// Begins an operation. If there is no room, all go on, so that there is later.
    #[inline]
    pub fn begin(&self, run: impl FnOnce(&mut Ep, Env<'_>) -> Result<(), Errno>) -> isize {
        let enabled = |ep: &mut Ep, env: Env<'_>| {
            if ep.enabled { run(ep, env) } else { Err(Errno(FI_EOPBADSTATE)) }
        };
        self.object.shared.state.with(|state| match state.with_ep(self.object.at, enabled) {
            Ok(()) => {
                if state.asleep > 0 {
                    state.rouse(self.object.at);
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

    /// The flags of a call that has none.
    #[inline]
    pub fn tx_flags(&self) -> u64 {
        self.tx_flags.load(Ordering::Relaxed)
    }

    /// Returns the flags of the direction that `given` names, and the others of these.
    fn flags(&self, given: u64) -> Result<(&AtomicU64, u64), Errno> {
        let direction = given & (FI_TRANSMIT | FI_RECV);
        let flags = match direction {
            FI_TRANSMIT => &self.tx_flags,
            FI_RECV => &self.rx_flags,
            _ => return Err(Errno(FI_EINVAL)),
        };
        Ok((flags, given & !direction))
    }

    /// Whom alone a receive is from.
    #[inline]
    pub fn from(&self, named: FiAddr) -> FiAddr {
        if self.directed { named } else { FI_ADDR_UNSPEC }
    }

    /// See [`Self::tx_flags`].
    #[inline]
    pub fn rx_flags(&self) -> u64 {
        self.rx_flags.load(Ordering::Relaxed)
    }
}

impl Ep {
    /// What is told of an operation that sends.
    #[inline]
    pub fn tx_report(&self, flags: u64, what: u64, context: *mut c_void, place: &Place) -> Report {
        let quiet = self.tx.is_none_or(|tx| tx.selective) && flags & FI_COMPLETION == 0;
        Report { context: context.addr(), flags: what, quiet, tag: 0, buf: 0, len: place.len() }
    }

    /// The same of one that receives.
    #[inline]
    pub fn rx_report(&self, flags: u64, what: u64, context: *mut c_void, place: &Place) -> Report {
        let quiet = self.rx.is_none_or(|rx| rx.selective) && flags & FI_COMPLETION == 0;
        Report {
            context: context.addr(),
            flags: what,
            quiet,
            tag: 0,
            buf: place.start(),
            len: place.len(),
        }
    }
}

/// Returns the place of one piece of the application's memory.
///
/// # Safety
/// As of [`Span::new`]: the caller lends the memory to the operation that gets the place, until that
/// is reported or, where the interface says so, until the call returns.
#[inline]
pub unsafe fn piece(buf: *const c_void, len: usize) -> Place {
    // SAFETY: as the caller says.
    Place::One(unsafe { Span::new(buf.cast_mut().cast(), len) })
}

/// Returns the place of several pieces.
///
/// # Safety
/// So many are there, and for each as of [`piece`].
pub unsafe fn pieces(iov: *const iovec, count: usize) -> Result<Place, Errno> {
    if count > PIECES_MAX || (iov.is_null() && count > 0) {
        return Err(Errno(FI_EINVAL));
    }
    let all = (0..count).map(|at| {
        // SAFETY: as the caller says.
        unsafe {
            let iovec { iov_base, iov_len } = iov.wrapping_add(at).read();
            Span::new(iov_base.cast(), iov_len)
        }
    });
    Place::of(all.collect()).ok_or(Errno(FI_EMSGSIZE))
}

/// Whether so much may be sent with the memory free at once.
pub fn injectable(len: usize) -> Result<(), Errno> {
    if len > INJECT_MAX { Err(Errno(FI_EMSGSIZE)) } else { Ok(()) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes an endpoint that we opened; it begins with its fid.
    let Endpoint { object, .. } = unsafe { &*fid.cast::<Endpoint>() };
    deliver(object);
    let taken = object.shared.state.with(|state| {
        let ep = state.eps.get_mut(object.at).and_then(Option::take);
        unbind(state, object.at, ep.as_ref());
        if let Some(ep) = &ep {
            Auto::went(state, ep);
        }
        ep
    });
    if let Some(mut ep) = taken {
        ep.rdm.finish();
        crate::say::account(&ep.rdm.account());
        crate::say::fetched(&ep.rdm.endpoint.way.channels.fetched());
    }
    object.shared.children.fetch_sub(1, Ordering::Release);
    // SAFETY: it came out of a box, is closed once, and nothing has it any more.
    drop(unsafe { Box::from_raw(fid.cast::<Endpoint>()) });
    0
}

/// Before an endpoint is closed: what the application was told is sent is handed over, as its
/// receivers take it. A receiver that does not within [`CLOSE_MAX`] gets no more.
fn deliver(object: &Object<FidEp>) {
    let since = Instant::now();
    let look = |state: &mut State| {
        // Its receivers may be other endpoints of the domain, for which nobody else calls.
        for at in 0..state.eps.len() {
            state.progress(at);
        }
        of(&mut state.eps, object.at).map_or(0, |ep| ep.rdm.unsent())
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
                "an endpoint is closed and {unsent} messages that were told as sent are lost: their \
                 receivers did not take them for {seconds} s"
            );
            return crate::say::warn(&text, true);
        }
        if pause.is_zero() {
            std::thread::yield_now();
        } else {
            std::thread::sleep(pause);
        }
        if since.elapsed() >= CLOSE_LOOK {
            pause = pause.saturating_add(CLOSE_PAUSE.0).min(CLOSE_PAUSE.1);
        }
    }
}

/// Queues and counters know it no more.
fn unbind(state: &mut State, at: usize, ep: Option<&Ep>) {
    for cq in state.cqs.iter_mut().flatten().filter(|cq| cq.eps.contains(&at)) {
        cq.eps.retain(|&other| other != at);
        if let (Some(sleep), Some(ep)) = (&cq.sleep, ep) {
            sleep.forget(ep);
        }
    }
    for cntr in state.cntrs.iter_mut().flatten().filter(|cntr| cntr.eps.contains(&at)) {
        cntr.eps.retain(|&other| other != at);
        if let (Some(sleep), Some(ep)) = (&cntr.sleep, ep) {
            sleep.forget(ep);
        }
    }
}

unsafe extern "C" fn bind(fid: *mut Fid, bound: *mut Fid, flags: u64) -> c_int {
    if bound.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller gives an endpoint that we opened.
    let Endpoint { object, .. } = unsafe { &*fid.cast::<Endpoint>() };
    // SAFETY: and an object that is open.
    answer(match unsafe { (*bound).fclass } {
        // SAFETY: an object of this class is one of `cq`.
        FI_CLASS_CQ => bind_cq(object, unsafe { cq::bound(bound) }, flags),
        // SAFETY: of `cntr`.
        FI_CLASS_CNTR => bind_cntr(object, unsafe { cntr::bound(bound) }, flags),
        // SAFETY: of `av`.
        FI_CLASS_AV => bind_av(object, unsafe { av::bound(bound) }),
        FI_CLASS_EQ => Ok(()),
        _ => Err(Errno(FI_EINVAL)),
    })
}

/// Whether both are of one domain.
fn together(object: &Object<FidEp>, shared: &Arc<Shared>) -> Result<(), Errno> {
    if Arc::ptr_eq(&object.shared, shared) { Ok(()) } else { Err(Errno(FI_EDOMAIN)) }
}

fn bind_cq(
    object: &Object<FidEp>,
    (shared, cq): (&Arc<Shared>, usize),
    flags: u64,
) -> Result<(), Errno> {
    together(object, shared)?;
    if flags & (FI_TRANSMIT | FI_RECV) == 0 {
        return Err(Errno(FI_EBADFLAGS));
    }
    let bound = Some(Bound { cq, selective: flags & FI_SELECTIVE_COMPLETION != 0 });
    shared.state.with(|state| {
        let ep = of(&mut state.eps, object.at)?;
        let taken = (flags & FI_TRANSMIT != 0 && ep.tx.is_some())
            || (flags & FI_RECV != 0 && ep.rx.is_some());
        if taken {
            return Err(Errno(FI_EINVAL));
        }
        if flags & FI_TRANSMIT != 0 {
            ep.tx = bound;
        }
        if flags & FI_RECV != 0 {
            ep.rx = bound;
        }
        let queue = of(&mut state.cqs, cq)?;
        if let Some(sleep) = &queue.sleep {
            sleep.watch(ep)?;
        }
        if !queue.eps.contains(&object.at) {
            queue.eps.push(object.at);
        }
        Ok(())
    })
}

fn bind_cntr(
    object: &Object<FidEp>,
    (shared, cntr): (&Arc<Shared>, usize),
    flags: u64,
) -> Result<(), Errno> {
    together(object, shared)?;
    let places = [
        (FI_SEND, SENT),
        (FI_RECV, RECEIVED),
        (FI_READ, READ),
        (FI_WRITE, WRITTEN),
        (FI_REMOTE_READ, REMOTE_READ),
        (FI_REMOTE_WRITE, REMOTE_WRITTEN),
    ];
    shared.state.with(|state| {
        let ep = of(&mut state.eps, object.at)?;
        for (flag, place) in places {
            if flags & flag != 0
                && let Some(place) = ep.counters.get_mut(place)
            {
                *place = Some(cntr);
            }
        }
        let counter = of(&mut state.cntrs, cntr)?;
        if let Some(sleep) = &counter.sleep {
            sleep.watch(ep)?;
        }
        if !counter.eps.contains(&object.at) {
            counter.eps.push(object.at);
        }
        Ok(())
    })
}

fn bind_av(object: &Object<FidEp>, (shared, av): (&Arc<Shared>, usize)) -> Result<(), Errno> {
    together(object, shared)?;
    shared.state.with(|state| {
        let ep = of(&mut state.eps, object.at)?;
        if ep.enabled {
            return Err(Errno(FI_EOPBADSTATE));
        }
        // What is known of numbers is of those in one.
        if ep.book.is_some_and(|book| book != av) {
            return Err(Errno(FI_EINVAL));
        }
        ep.book = Some(av);
        Ok(())
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the caller gives an endpoint that we opened.
    let opened = unsafe { &*fid.cast::<Endpoint>() };
    let object = &opened.object;
    answer(match command {
        FI_ENABLE => object.shared.state.with(|state| {
            let ep = of(&mut state.eps, object.at)?;
            if ep.book.is_none() {
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
            // SAFETY: for these commands the caller has flags there.
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
    // SAFETY: the caller gives an endpoint that we opened.
    let Endpoint { object, .. } = unsafe { &*fid.cast::<Endpoint>() };
    answer(object.shared.state.with(|state| {
        let name = of(&mut state.eps, object.at)?.rdm.name().emit();
        // SAFETY: and the room that it says.
        unsafe { av::write_address(&name, addr, len) }
    }))
}

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    // SAFETY: the caller gives an endpoint that we opened.
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
    // SAFETY: the caller gives an endpoint that we opened.
    let ep = unsafe { &*fid.cast::<Endpoint>() };
    let found = ep.with(|ep, _| Ok(ep.rdm.multi_receive_min)).unwrap_or(0);
    // SAFETY: and the room that it says.
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
            // SAFETY: the caller has such a number there, and gives an endpoint that we opened.
            let (min, ep) =
                unsafe { (value.cast::<usize>().read_unaligned(), &*fid.cast::<Endpoint>()) };
            answer(ep.with(|ep, _| {
                ep.rdm.multi_receive_min = min;
                Ok(())
            }))
        }
        FI_OPT_MIN_MULTI_RECV => -FI_EINVAL,
        // There is no other memory here, and what is allowed is not used.
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
