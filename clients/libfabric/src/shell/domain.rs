//! Domains: a NIC of this host and the objects that are opened in it. A domain has no traffic of
//! its own; its endpoints do.
//!
//! Opening chooses the first NIC that matches the `fi_info`, and fixes lock and progress: with
//! `FI_THREAD_DOMAIN` and manual progress the lock is serial, and the application must not overlap
//! its calls: overlapping calls may change the domain's state at the same time, which nothing
//! detects. Otherwise any thread may call at any time, and waits for the lock. With automatic
//! progress a thread runs as long as the domain (`progress_thread`); with manual progress a thread
//! runs while messages wait for a slow connect (`connect_thread`). This thread claims the serial
//! lock for each poll: a call of the application meanwhile does not fail, but looks every 20 us
//! until the claim ends ([`causeway_endpoint::lock`]).
//!
//! # Limits
//! Opening queries the daemons of the NICs (`FI_ENODEV` if no NIC answers or matches, `FI_EINVAL`
//! if the `fi_info` exceeds the capabilities, the kernel's error if the progress thread cannot
//! start) and keeps no connection; the NIC does not change after that. A domain does not notice the
//! end of its daemon; its endpoints do, and register with the next daemon
//! (`causeway_endpoint::paths`). A domain refuses to close with `FI_EBUSY` while it has objects. A
//! bound event queue gets no events, and a bind to another object fails with `FI_EINVAL`. Flags of
//! `fi_domain2` have no effect. Functions of the table that the provider lacks (such as scalable
//! endpoints, shared contexts, poll sets and collectives) return `-FI_ENOSYS`.
//!
//! # Place
//! `fabric` opens domains; [`DOMAIN_OPS`] opens the objects, and `mr::MR_OPS` registers memory.
//! `nics` queries the daemons. All functions run in the calling thread of the application.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use causeway_endpoint::lock::Guarded;

use super::domain_object::DomainObject;
use super::fabric_object::HeldFabric;
use super::{atomic, av, cntr, cq, endpoint, mr};
use crate::abi::*;
use crate::domain::{ConnectThread, DomainShared, DomainState, process, progress_thread};
use crate::errno::Errno;
use crate::info::{self, Hints};
use crate::nics::{self, LocalNic};

static OPS: Ops = Ops { close, bind, ..Ops::NONE };
/// The functions in the table of this class of objects; the others return `-FI_ENOSYS`.
static DOMAIN_OPS: OpsDomain = OpsDomain {
    av_open: av::open,
    cq_open: cq::open,
    cntr_open: cntr::open,
    endpoint: endpoint::open,
    endpoint2: endpoint::open2,
    query_atomic: atomic::query,
    ..OpsDomain::NONE
};

/// Returns the NIC that matches the hints.
fn choose_nic(hints: &Hints) -> Result<LocalNic, c_int> {
    let nics = nics::all().map_err(|_| FI_ENODEV)?;
    let mut chosen = nics.into_iter().filter(|nic| info::matches_hints(hints, nic));
    chosen.next().ok_or(FI_ENODEV)
}

/// Opens a domain.
///
/// # Safety
/// The fabric was opened here; other pointers are as the interface requires, and none is NULL
/// except `context`.
pub unsafe fn open(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    domain: *mut *mut FidDomain,
    _flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let api_version = unsafe { (*fabric).api_version };
    // SAFETY: guaranteed by the caller.
    let chosen = unsafe { info::read_chosen(info, api_version) };
    let chosen = chosen.and_then(|(hints, offer)| Ok((choose_nic(&hints)?.index, offer)));
    let (nic_index, offer) = match chosen {
        Ok(chosen) => chosen,
        Err(code) => return failed(code),
    };
    process::begin();
    let shared = Arc::new(DomainShared {
        state: Guarded::new(DomainState::default()),
        helper: OnceLock::new(),
        nic_index,
        children: AtomicUsize::new(0),
        basic: offer.mr_mode & FI_MR_BASIC != 0,
        api_version,
    });
    let is_auto = offer.data_progress == FI_PROGRESS_AUTO;
    if offer.threading == FI_THREAD_DOMAIN && !is_auto {
        // SAFETY: no other code refers to the domain yet. The application serialises its calls
        // (`FI_THREAD_DOMAIN`), and threads of the provider claim the lock.
        unsafe { shared.state.set_serial() };
    }
    if !is_auto {
        shared.helper.get_or_init(|| Arc::new(ConnectThread::new(&shared)));
    } else if let Err(Errno(err)) = progress_thread::begin(&shared) {
        return failed(err);
    }
    process::register(&shared);
    let fid = Fid { fclass: FI_CLASS_DOMAIN, context, ops: &OPS };
    let fid = FidDomain { fid, ops: &DOMAIN_OPS, mr: &mr::MR_OPS };
    // SAFETY: guaranteed by the caller.
    let fabric = unsafe { HeldFabric::new(fabric) };
    let opened = Box::new(DomainObject::new(fid, shared, fabric));
    // SAFETY: guaranteed by the caller.
    unsafe { domain.write(Box::into_raw(opened).cast()) };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let domain = fid.cast::<DomainObject>();
    // SAFETY: the caller closes a domain that was opened here; it begins with its fid.
    let shared = unsafe { &*domain }.shared();
    if shared.children.load(Ordering::Acquire) != 0 {
        return -FI_EBUSY;
    }
    progress_thread::end(shared);
    // SAFETY: the domain was boxed, is closed once, and has no children.
    drop(unsafe { Box::from_raw(domain) });
    0
}

/// All calls complete before they return, so a bound event queue gets no events.
unsafe extern "C" fn bind(_fid: *mut Fid, bound: *mut Fid, _flags: u64) -> c_int {
    // SAFETY: the caller passes an open object.
    if !bound.is_null() && unsafe { (*bound).fclass } == FI_CLASS_EQ { 0 } else { -FI_EINVAL }
}
