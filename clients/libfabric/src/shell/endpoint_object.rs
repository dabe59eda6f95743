//! The object of an endpoint, and the common part of all operations.
//!
//! [`Endpoint::begin`] starts every operation: it takes the domain's lock, checks that the endpoint
//! is enabled (`-FI_EOPBADSTATE` otherwise), calls `rdm`, and, if `rdm` has no room (`FI_EAGAIN`),
//! makes progress so that a repeated call succeeds. The object has the default flags of operations;
//! all other state is in `domain`. [`of_fid`] trusts the pointer of the application.
//!
//! `msg`, `tagged`, `rma` and `atomic` convert their arguments and call [`Endpoint::begin`], in the
//! application's thread; [`endpoint`](super::endpoint) opens, binds and closes the object.

use std::sync::atomic::{AtomicU64, Ordering};

use super::object::FidObject;
use crate::abi::{
    FI_ADDR_UNSPEC, FI_EAGAIN, FI_EINVAL, FI_EOPBADSTATE, FI_RECV, FI_TRANSMIT, FiAddr, FidEp,
    failed_size,
};
use crate::domain::EpState;
use crate::errno::Errno;
use crate::rdm::DomainEnv;

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
    /// Returns an endpoint with its default flags. `directed`: receives may have a source.
    pub fn new(object: FidObject<FidEp>, (tx_flags, rx_flags): (u64, u64), directed: bool) -> Self {
        let [tx_flags, rx_flags] = [tx_flags, rx_flags].map(AtomicU64::new);
        Self { object, tx_flags, rx_flags, directed }
    }

    /// Returns the object, which has the domain and the index of the endpoint's state.
    pub fn object(&self) -> &FidObject<FidEp> {
        &self.object
    }

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
    ///
    /// # Errors
    /// `FI_EINVAL` unless there is exactly one direction.
    pub fn flags(&self, given: u64) -> Result<(&AtomicU64, u64), Errno> {
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
