//! Reliable connections.
//!
//! A queue pair is created, initialised, connected once, and ended; it does not reconnect. Sends
//! are inline and have at most [`INLINE_BYTES_MAX`] (160) bytes; reads and writes of remote memory
//! are not offered here, but the peer may perform them on [`Registration`]s. The caller bounds the
//! work requests by the depth, beyond which a post fails. A failed work request puts the queue pair
//! into the error state: all others fail, too. `adapter::link` of the endpoint crate owns one.

use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::abi;
use crate::adapter::{Creator, Gid, Port};
use crate::completion::{CompletionQueue, Queue};
use crate::error::Error;
use crate::registration::{Domain, ProtectionDomain, Registration};

/// Longest send, in bytes: it is copied into the work request.
pub const INLINE_BYTES_MAX: usize = 160;
/// Time until an unacknowledged message is sent again: 4.096 us * 2^14, or 67 ms.
const TIMEOUT: u8 = 14;
/// Repetitions until a silent peer counts as lost.
const RETRIES: u8 = 7;
/// Repetitions while the peer has no receive posted; 7 stands for no limit.
const RNR_RETRIES: u8 = 7;
/// Pause that the peer makes while no receive is posted here; 12 stands for 0.64 ms.
const RNR_TIMER: u8 = 12;
/// Routers that a packet may pass.
const HOPS: u8 = 64;

/// A queue pair of type RC. Every send reports a completion.
#[derive(Debug)]
pub struct QueuePair {
    domain: Arc<Domain>,
    /// Destroyed after the queue pair.
    _completions: Arc<Queue>,
    qp: NonNull<abi::Qp>,
    number: u32,
    creator: Creator,
}

// SAFETY: libibverbs permits calls for an object from any thread.
unsafe impl Send for QueuePair {}
// SAFETY: as for Send.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Creates a queue pair with room for `depth` sends and as many receives, which all report to
    /// `completions`.
    ///
    /// # Errors
    /// [`Error::Call`]; [`Error::Inline`] if the adapter cannot copy [`INLINE_BYTES_MAX`] bytes.
    pub fn new(
        domain: &ProtectionDomain,
        completions: &CompletionQueue,
        depth: u32,
    ) -> Result<Self, Error> {
        let opened = &domain.0.opened;
        let cq = completions.0.cq.as_ptr();
        let mut attributes = abi::QpInitAttr {
            qp_context: ptr::null_mut(),
            send_cq: cq,
            recv_cq: cq,
            srq: ptr::null_mut(),
            cap: abi::QpCap {
                max_send_wr: depth,
                max_recv_wr: depth,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: INLINE_BYTES_MAX as u32,
            },
            qp_type: abi::QPT_RC,
            sq_sig_all: 1,
        };
        // SAFETY: domain and queue live; the attributes are read and written during the call.
        let qp = unsafe { (opened.library.create_qp)(domain.0.pd.as_ptr(), &mut attributes) };
        let qp = NonNull::new(qp).ok_or_else(|| opened.error("ibv_create_qp"))?;
        // SAFETY: the library returned a valid object.
        let number = unsafe { (*qp.as_ptr()).qp_num };
        let pair = Self {
            domain: Arc::clone(&domain.0),
            _completions: Arc::clone(&completions.0),
            qp,
            number,
            creator: Creator::now(),
        };
        let most = attributes.cap.max_inline_data as usize;
        match most < INLINE_BYTES_MAX {
            true => Err(Error::Inline { wanted: INLINE_BYTES_MAX, most }),
            false => Ok(pair),
        }
    }

    /// Returns the number of the queue pair.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Makes the queue pair ready for receives of [`Self::receive`], which may be posted from then
    /// on.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn initialise(&self, port: &Port) -> Result<(), Error> {
        let rights = abi::ACCESS_REMOTE_WRITE | abi::ACCESS_REMOTE_READ;
        let mut attributes = abi::QpAttr {
            qp_state: abi::QPS_INIT,
            port_num: port.number,
            qp_access_flags: rights.unsigned_abs(),
            ..Default::default()
        };
        let mask = abi::QP_STATE | abi::QP_PKEY_INDEX | abi::QP_PORT | abi::QP_ACCESS_FLAGS;
        self.modify(&mut attributes, mask)
    }

    /// Connects the queue pair, after [`Self::initialise`], to the queue pair `number` at the own
    /// address `own`.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn connect_to_own(&self, port: &Port, own: &Gid, number: u32) -> Result<(), Error> {
        let route = abi::GlobalRoute {
            dgid: own.bytes,
            sgid_index: own.index,
            hop_limit: HOPS,
            ..Default::default()
        };
        let path =
            abi::AhAttr { grh: route, is_global: 1, port_num: port.number, ..Default::default() };
        let mut attributes = abi::QpAttr {
            qp_state: abi::QPS_RTR,
            path_mtu: port.mtu,
            dest_qp_num: number,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RNR_TIMER,
            ah_attr: path,
            ..Default::default()
        };
        let to_receive = abi::QP_STATE
            | abi::QP_AV
            | abi::QP_PATH_MTU
            | abi::QP_DEST_QPN
            | abi::QP_RQ_PSN
            | abi::QP_MAX_DEST_RD_ATOMIC
            | abi::QP_MIN_RNR_TIMER;
        self.modify(&mut attributes, to_receive)?;
        attributes.qp_state = abi::QPS_RTS;
        attributes.timeout = TIMEOUT;
        attributes.retry_cnt = RETRIES;
        attributes.rnr_retry = RNR_RETRIES;
        attributes.max_rd_atomic = 1;
        let to_send = abi::QP_STATE
            | abi::QP_TIMEOUT
            | abi::QP_RETRY_CNT
            | abi::QP_RNR_RETRY
            | abi::QP_SQ_PSN
            | abi::QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attributes, to_send)
    }

    /// Initialises and connects the queue pair.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn connect(&self, port: &Port, own: &Gid, number: u32) -> Result<(), Error> {
        self.initialise(port)?;
        self.connect_to_own(port, own, number)
    }

    /// Ends the connection: all work requests complete with an error.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn end(&self) -> Result<(), Error> {
        let mut attributes = abi::QpAttr { qp_state: abi::QPS_ERR, ..Default::default() };
        self.modify(&mut attributes, abi::QP_STATE)
    }

    fn modify(&self, attributes: &mut abi::QpAttr, mask: c_int) -> Result<(), Error> {
        let opened = &self.domain.opened;
        // SAFETY: the queue pair lives; the attributes are read during the call.
        let result = unsafe { (opened.library.modify_qp)(self.qp.as_ptr(), attributes, mask) };
        opened.check("ibv_modify_qp", result)
    }

    /// Posts a send of `bytes`, which are copied, with immediate data if given. Its completion has
    /// the identifier `id`.
    ///
    /// # Errors
    /// [`Error::Inline`] for more than [`INLINE_BYTES_MAX`] bytes; [`Error::Call`] without room in
    /// the send queue.
    pub fn send(&self, id: u64, bytes: &[u8], immediate: Option<u32>) -> Result<(), Error> {
        let wanted = bytes.len();
        let length = u32::try_from(wanted).ok().filter(|_| wanted <= INLINE_BYTES_MAX);
        let length = length.ok_or(Error::Inline { wanted, most: INLINE_BYTES_MAX })?;
        let addr = bytes.as_ptr().expose_provenance() as u64;
        let mut element = abi::Sge { addr, length, lkey: 0 };
        let mut request = abi::SendWr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: &mut element,
            num_sge: i32::from(length > 0),
            opcode: if immediate.is_some() { abi::WR_SEND_WITH_IMM } else { abi::WR_SEND },
            send_flags: abi::SEND_SIGNALED | if length > 0 { abi::SEND_INLINE } else { 0 },
            imm_data: immediate.unwrap_or(0).to_be(),
            rest: [0; 11],
        };
        let mut bad = ptr::null_mut();
        let opened = &self.domain.opened;
        let result = match opened.ops().post_send {
            // SAFETY: the queue pair lives. Request, element and bytes are read during the call
            // only, since the bytes are inline.
            Some(post) => unsafe { post(self.qp.as_ptr(), &mut request, &mut bad) },
            None => -1,
        };
        opened.check("ibv_post_send", result)
    }

    /// Posts a receive of at most `len` bytes into `memory` at offset `at`, after
    /// [`Self::initialise`]. Its completion has the identifier `id`. If `memory` is dropped before,
    /// the receive ends with an error.
    ///
    /// # Errors
    /// [`Error::Range`], or [`Error::Call`] without room in the receive queue.
    pub fn receive(
        &self,
        id: u64,
        memory: &Registration,
        at: usize,
        len: usize,
    ) -> Result<(), Error> {
        let mut element = memory.element(at, len)?;
        let mut request =
            abi::RecvWr { wr_id: id, next: ptr::null_mut(), sg_list: &mut element, num_sge: 1 };
        let mut bad = ptr::null_mut();
        let opened = &self.domain.opened;
        let result = match opened.ops().post_recv {
            // SAFETY: the queue pair lives, and the request is read during the call. The adapter
            // writes to the memory only by the key, which ends with the registration, before the
            // memory is unmapped.
            Some(post) => unsafe { post(self.qp.as_ptr(), &mut request, &mut bad) },
            None => -1,
        };
        opened.check("ibv_post_recv", result)
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if self.creator.is_here() {
            // SAFETY: the queue pair was created once.
            unsafe { (self.domain.opened.library.destroy_qp)(self.qp.as_ptr()) };
        }
    }
}
