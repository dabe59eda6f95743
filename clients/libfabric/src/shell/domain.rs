//! Domains: a board of this host, and what is opened of it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use causeway_endpoint::lock::Guarded;

use super::auto::Auto;
use super::helper::Helper;
use super::state::{Shared, State};
use super::{atomic, av, cntr, cq, endpoint, mr};
use crate::abi::*;
use crate::boards::{self, Board};
use crate::fabric;
use crate::info::{self, Asked};
use crate::rdm::Errno;

/// A domain as the application has it.
#[derive(Debug)]
#[repr(C)]
pub struct Domain {
    fid: FidDomain,
    fabric: *mut FidFabric,
    pub shared: Arc<Shared>,
}

static OPS: Ops = Ops { close, bind, ..Ops::NONE };
static DOMAIN_OPS: OpsDomain = OpsDomain {
    av_open: av::open,
    cq_open: cq::open,
    cntr_open: cntr::open,
    endpoint: endpoint::open,
    endpoint2: endpoint::open2,
    query_atomic: atomic::query,
    ..OpsDomain::NONE
};

/// The board that an application chose.
fn board(asked: &Asked) -> Result<Board, c_int> {
    let boards = boards::all().map_err(|_| FI_ENODEV)?;
    let mut chosen = boards.into_iter().filter(|board| info::is_wanted(asked, board));
    chosen.next().ok_or(FI_ENODEV)
}

/// Opens one.
///
/// # Safety
/// The fabric is one of ours; other pointers are what the interface says of them, none NULL but
/// `context`.
pub unsafe fn open(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    domain: *mut *mut FidDomain,
    _flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the caller says.
    let api_version = unsafe { (*fabric).api_version };
    // SAFETY: as the caller says.
    let chosen = unsafe { info::chosen(info, api_version) };
    let chosen = chosen.and_then(|(asked, offer)| Ok((board(&asked)?.number, offer)));
    let (board, offer) = match chosen {
        Ok(chosen) => chosen,
        Err(code) => return failed(code),
    };
    super::process::begin();
    let shared = Arc::new(Shared {
        state: Guarded::new(State::default()),
        helper: OnceLock::new(),
        board,
        children: AtomicUsize::new(0),
        basic: offer.mr_mode & FI_MR_BASIC != 0,
        api_version,
    });
    let auto = offer.data_progress == FI_PROGRESS_AUTO;
    if offer.threading == FI_THREAD_DOMAIN && !auto {
        // SAFETY: nobody else has the domain yet. The application serialises all calls of it
        // (`FI_THREAD_DOMAIN`), and threads of the provider claim the lock.
        unsafe { shared.state.set_serial() };
    }
    if !auto {
        shared.helper.get_or_init(|| Arc::new(Helper::new(&shared)));
    } else if let Err(Errno(err)) = Auto::begin(&shared) {
        return failed(err);
    }
    super::process::note(&shared);
    let fid = Fid { fclass: FI_CLASS_DOMAIN, context, ops: &OPS };
    let fid = FidDomain { fid, ops: &DOMAIN_OPS, mr: &mr::MR_OPS };
    let opened = Box::new(Domain { fid, fabric, shared });
    // SAFETY: as the caller says.
    unsafe {
        fabric::hold(fabric);
        domain.write(Box::into_raw(opened).cast());
    }
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let domain = fid.cast::<Domain>();
    // SAFETY: the caller closes a domain that we opened; it begins with its fid.
    let opened = unsafe { &*domain };
    let (busy, fabric) = (opened.shared.children.load(Ordering::Acquire) != 0, opened.fabric);
    if busy {
        return -FI_EBUSY;
    }
    Auto::end(&opened.shared);
    // SAFETY: it came out of a box, is closed once, and nothing has it any more; the fabric was
    // held for it.
    unsafe {
        drop(Box::from_raw(domain));
        fabric::release(fabric);
    }
    0
}

/// Nothing is done later, so an event queue has nothing to tell.
unsafe extern "C" fn bind(_fid: *mut Fid, bound: *mut Fid, _flags: u64) -> c_int {
    // SAFETY: the caller gives an object that is open.
    if !bound.is_null() && unsafe { (*bound).fclass } == FI_CLASS_EQ { 0 } else { -FI_EINVAL }
}
