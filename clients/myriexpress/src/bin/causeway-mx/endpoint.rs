//! The local endpoint of the tool, and its messages.
//!
//! Each send or receive is one request; the caller keeps its memory until the request has ended
//! (`unsafe`). [`BenchEndpoint::wait`] fails after the patience of the command line
//! ([`Error::Silent`]); it polls meanwhile, or sleeps in the library with `--blocking`.
//! [`BenchEndpoint::connect`] repeats a connect after any error, for the same time, and fails with
//! the last error; an attempt takes at most 1 s, and 10 ms lie between two. One thread uses an
//! endpoint. `measure` and `serve` open it, and `traffic` exchanges messages.

use std::time::{Duration, Instant};

use crate::api::{Api, ApiSegment, ApiStatus, MxAddress, MxHandle};
use crate::args::EndpointArgs;
use crate::bench_request::KEY;
use crate::error::Error;

/// An open endpoint. It is closed when dropped.
#[derive(Debug)]
pub struct BenchEndpoint<'a> {
    api: &'a Api,
    handle: MxHandle,
    /// Whether waits sleep in the library instead of polling (`--blocking`).
    blocking: bool,
    /// Maximum time without a message, in seconds (`--patience`).
    patience_s: u32,
}

/// A pending message.
#[derive(Debug)]
pub struct PendingMessage(MxHandle);

impl<'a> BenchEndpoint<'a> {
    /// Opens an endpoint.
    pub fn open(api: &'a Api, own: &EndpointArgs, number: u32) -> Result<Self, Error> {
        if let Some(core) = own.core {
            let mut set = rustix::thread::CpuSet::new();
            if core < rustix::thread::CpuSet::MAX_CPU {
                set.set(core);
            }
            let pinned = rustix::thread::sched_setaffinity(None, &set);
            pinned.map_err(|error| Error::Core(core, error))?;
        }
        let (mut handle, null) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: there are no parameters, and `handle` is a local variable.
        let code = unsafe { (api.open)(own.board, number, KEY, null, 0, &raw mut handle) };
        api.check("mx_open_endpoint", code)?;
        Ok(Self { api, handle, blocking: own.blocking, patience_s: own.patience })
    }

    /// Connects to an endpoint of a NIC. Repeats the attempt until the endpoint is open, at most
    /// for the patience of this endpoint.
    pub fn connect(&self, nic: u64, number: u32) -> Result<MxAddress, Error> {
        let mut address = MxAddress::default();
        let until = Instant::now() + Duration::from_secs(self.patience_s.into());
        loop {
            // SAFETY: the endpoint is open, and `address` is a local variable.
            let code = unsafe {
                (self.api.connect)(self.handle, nic, number, KEY, 1000, &raw mut address)
            };
            if code == 0 || Instant::now() > until {
                return self.api.check("mx_connect", code).map(|()| address);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends bytes.
    ///
    /// # Safety
    /// The bytes must stay valid and unchanged until the request has ended or the endpoint is
    /// closed.
    #[inline]
    pub unsafe fn send(
        &self,
        to: MxAddress,
        info: u64,
        bytes: &[u8],
        sync: bool,
    ) -> Result<PendingMessage, Error> {
        let (send, name) = match sync {
            true => (self.api.issend, "mx_issend"),
            false => (self.api.isend, "mx_isend"),
        };
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut segment = ApiSegment { bytes: bytes.as_ptr().cast_mut().cast(), len };
        let (mut request, null) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the endpoint is open, the values are local, and the caller guarantees the bytes.
        let code =
            unsafe { send(self.handle, &raw mut segment, 1, to, info, null, &raw mut request) };
        self.api.check(name, code).map(|()| PendingMessage(request))
    }

    /// Receives a message with exactly this match information.
    ///
    /// # Safety
    /// The buffer must stay valid until the request has ended or the endpoint is closed. Until then
    /// only other receives may use it.
    #[inline]
    pub unsafe fn receive(&self, info: u64, into: &mut [u8]) -> Result<PendingMessage, Error> {
        let len = u32::try_from(into.len()).unwrap_or(u32::MAX);
        let mut segment = ApiSegment { bytes: into.as_mut_ptr().cast(), len };
        let (mut request, null) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (segment, into) = (&raw mut segment, &raw mut request);
        // SAFETY: the endpoint is open, the values are local, and the caller guarantees the buffer.
        let code = unsafe { (self.api.irecv)(self.handle, segment, 1, info, u64::MAX, null, into) };
        self.api.check("mx_irecv", code).map(|()| PendingMessage(request))
    }

    /// Returns whether a message has ended. Fails if it ended without success.
    pub fn test(&self, request: &mut PendingMessage) -> Result<bool, Error> {
        let mut status = ApiStatus::default();
        self.test_in(request, &mut status)
    }

    /// As [`Self::test`], with the status. The caller reads only the fields that it needs, in
    /// place: a copy of a status that was just written in parts takes as long as a message.
    #[inline]
    fn test_in(&self, request: &mut PendingMessage, status: &mut ApiStatus) -> Result<bool, Error> {
        let mut result = 0_u32;
        let (named, ended) = (&raw mut request.0, &raw mut result);
        // SAFETY: the endpoint is open, and all values are local.
        let code = unsafe { (self.api.test)(self.handle, named, status, ended) };
        self.api.check("mx_test", code)?;
        if result != 0 {
            self.api.ended(status)?;
        }
        Ok(result != 0)
    }

    /// Waits for the end of a message, at most for the patience of this endpoint.
    pub fn wait(&self, request: PendingMessage) -> Result<(), Error> {
        self.wait_in(request, &mut ApiStatus::default())
    }

    /// As [`Self::wait`], with a status that is reused for many messages.
    #[inline]
    pub fn wait_in(
        &self,
        mut request: PendingMessage,
        status: &mut ApiStatus,
    ) -> Result<(), Error> {
        // Most messages have ended already.
        if !self.blocking && self.test_in(&mut request, status)? {
            return Ok(());
        }
        let ended = self.wait_for(request, Some(self.patience_s), status)?;
        if ended { Ok(()) } else { Err(Error::Silent(self.patience_s)) }
    }

    /// Waits for the end of a message without a limit.
    pub fn wait_ever(&self, request: PendingMessage) -> Result<ApiStatus, Error> {
        let mut status = ApiStatus::default();
        let ended = self.wait_for(request, None, &mut status)?;
        if ended { Ok(status) } else { Err(Error::Silent(0)) }
    }

    fn wait_for(
        &self,
        mut request: PendingMessage,
        s: Option<u32>,
        status: &mut ApiStatus,
    ) -> Result<bool, Error> {
        /// Number of polls between two reads of the clock.
        const LOOKS: u32 = 1 << 16;
        // Most messages end before the clock is needed.
        let mut since: Option<Instant> = None;
        let mut late = || {
            let since = *since.get_or_insert_with(Instant::now);
            s.is_some_and(|s| since.elapsed() > Duration::from_secs(s.into()))
        };
        loop {
            if self.blocking {
                let mut result = 0_u32;
                let (named, ended) = (&raw mut request.0, &raw mut result);
                // SAFETY: the endpoint is open, and all values are local.
                let code = unsafe { (self.api.wait)(self.handle, named, 1000, status, ended) };
                self.api.check("mx_wait", code)?;
                if result != 0 {
                    return self.api.ended(status).map(|()| true);
                }
            } else {
                for _ in 0..LOOKS {
                    if self.test_in(&mut request, status)? {
                        return Ok(true);
                    }
                }
            }
            if late() {
                return Ok(false);
            }
        }
    }
}

impl Drop for BenchEndpoint<'_> {
    fn drop(&mut self) {
        // SAFETY: the endpoint is open, and is closed once.
        unsafe { (self.api.close)(self.handle) };
    }
}
