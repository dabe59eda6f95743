//! One endpoint, and messages of it.

use std::time::{Duration, Instant};

use crate::api::{Address, Api, Handle, Segment, Status};
use crate::args::Own;
use crate::error::Error;
use crate::order::KEY;

/// See above. Closed when dropped.
#[derive(Debug)]
pub struct Endpoint<'a> {
    api: &'a Api,
    handle: Handle,
    blocking: bool,
    patience_s: u32,
}

/// A message under way.
#[derive(Debug)]
pub struct Request(Handle);

impl<'a> Endpoint<'a> {
    /// Opens one.
    pub fn open(api: &'a Api, own: &Own, number: u32) -> Result<Self, Error> {
        if let Some(core) = own.core {
            let mut set = rustix::thread::CpuSet::new();
            if core < rustix::thread::CpuSet::MAX_CPU {
                set.set(core);
            }
            let pinned = rustix::thread::sched_setaffinity(None, &set);
            pinned.map_err(|error| Error::Core(core, error))?;
        }
        let (mut handle, null) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: there are no parameters, and the handle is ours.
        let code = unsafe { (api.open)(own.board, number, KEY, null, 0, &raw mut handle) };
        api.check("mx_open_endpoint", code)?;
        Ok(Self { api, handle, blocking: own.blocking, patience_s: own.patience })
    }

    /// Connects to an endpoint of a board, which may not be there yet.
    pub fn connect(&self, nic: u64, number: u32) -> Result<Address, Error> {
        let mut address = Address::default();
        let until = Instant::now() + Duration::from_secs(self.patience_s.into());
        loop {
            // SAFETY: the endpoint is open, and the address ours.
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
    /// The bytes are there until the request has ended or the endpoint is closed, and nobody writes
    /// them meanwhile.
    #[inline]
    pub unsafe fn send(
        &self,
        to: Address,
        info: u64,
        bytes: &[u8],
        sync: bool,
    ) -> Result<Request, Error> {
        let (send, name) = match sync {
            true => (self.api.issend, "mx_issend"),
            false => (self.api.isend, "mx_isend"),
        };
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut segment = Segment { bytes: bytes.as_ptr().cast_mut().cast(), len };
        let (mut request, null) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the endpoint is open, the values are ours, and the bytes as the caller says.
        let code =
            unsafe { send(self.handle, &raw mut segment, 1, to, info, null, &raw mut request) };
        self.api.check(name, code).map(|()| Request(request))
    }

    /// Receives what has exactly this match information.
    ///
    /// # Safety
    /// The room is there until the request has ended or the endpoint is closed, and nobody uses it
    /// meanwhile but other receives.
    #[inline]
    pub unsafe fn receive(&self, info: u64, into: &mut [u8]) -> Result<Request, Error> {
        let len = u32::try_from(into.len()).unwrap_or(u32::MAX);
        let mut segment = Segment { bytes: into.as_mut_ptr().cast(), len };
        let (mut request, null) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (segment, into) = (&raw mut segment, &raw mut request);
        // SAFETY: the endpoint is open, the values are ours, and the room as the caller says.
        let code = unsafe { (self.api.irecv)(self.handle, segment, 1, info, u64::MAX, null, into) };
        self.api.check("mx_irecv", code).map(|()| Request(request))
    }

    /// Whether a message has ended, and well.
    pub fn test(&self, request: &mut Request) -> Result<bool, Error> {
        let mut status = Status::default();
        self.look(request, &mut status)
    }

    /// The same, and how. The status is read where it was written, and only what of it is of
    /// interest: to copy what was just written in pieces takes as long as a message.
    #[inline]
    fn look(&self, request: &mut Request, status: &mut Status) -> Result<bool, Error> {
        let mut result = 0_u32;
        let (named, ended) = (&raw mut request.0, &raw mut result);
        // SAFETY: the endpoint is open, and all values are ours.
        let code = unsafe { (self.api.test)(self.handle, named, status, ended) };
        self.api.check("mx_test", code)?;
        if result != 0 {
            self.api.ended(status)?;
        }
        Ok(result != 0)
    }

    /// Waits until a message has ended, for as long as the peer has patience.
    pub fn wait(&self, request: Request) -> Result<(), Error> {
        self.wait_in(request, &mut Status::default())
    }

    /// The same, for who waits for many: with room for how each ended.
    #[inline]
    pub fn wait_in(&self, mut request: Request, status: &mut Status) -> Result<(), Error> {
        // Mostly it has.
        if !self.blocking && self.look(&mut request, status)? {
            return Ok(());
        }
        let ended = self.wait_for(request, Some(self.patience_s), status)?;
        if ended { Ok(()) } else { Err(Error::Silent(self.patience_s)) }
    }

    /// Waits until a message has ended, for ever.
    pub fn wait_ever(&self, request: Request) -> Result<Status, Error> {
        let mut status = Status::default();
        let ended = self.wait_for(request, None, &mut status)?;
        if ended { Ok(status) } else { Err(Error::Silent(0)) }
    }

    fn wait_for(
        &self,
        mut request: Request,
        s: Option<u32>,
        status: &mut Status,
    ) -> Result<bool, Error> {
        /// Looks between two looks at the clock.
        const LOOKS: u32 = 1 << 16;
        // Most messages end before anybody needs to know what time it is.
        let mut since: Option<Instant> = None;
        let mut late = || {
            let since = *since.get_or_insert_with(Instant::now);
            s.is_some_and(|s| since.elapsed() > Duration::from_secs(s.into()))
        };
        loop {
            if self.blocking {
                let mut result = 0_u32;
                let (named, ended) = (&raw mut request.0, &raw mut result);
                // SAFETY: the endpoint is open, and all values are ours.
                let code = unsafe { (self.api.wait)(self.handle, named, 1000, status, ended) };
                self.api.check("mx_wait", code)?;
                if result != 0 {
                    return self.api.ended(status).map(|()| true);
                }
            } else {
                for _ in 0..LOOKS {
                    if self.look(&mut request, status)? {
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

impl Drop for Endpoint<'_> {
    fn drop(&mut self) {
        // SAFETY: it is open, and closed once.
        unsafe { (self.api.close)(self.handle) };
    }
}
