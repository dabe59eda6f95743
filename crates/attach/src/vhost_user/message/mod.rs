//! vhost-user messages: a 12-byte header, a payload, and descriptors.
//!
//! All numbers are in host byte order. Payload lengths and descriptor counts are exact, with four
//! exceptions that real frontends need: a memory table may have room after its last region
//! (user-mode Linux), REM_MEM_REG may carry a descriptor that is ignored (old QEMU), SET_LOG_FD may
//! carry a number that is ignored, and an in-flight description is 20 bytes, or 24 where its
//! sender's compiler padded it. The module checks form, the number of regions of a table and the
//! range of a configuration space; the backend checks each message against its state.
//!
//! [`super::server`] decodes the messages that [`super::stream`] has read; [`crate::native`]
//! encodes requests. Requests outside the enum [`Message`] are errors ([`Reason::Unknown`]), and
//! each error ends the connection. The module does no I/O; decoding closes file descriptors that do
//! not belong to the request. It runs in the caller's thread: a dispatcher, a relay of the holder,
//! or a native client's.

mod header;
mod payload;
#[cfg(test)]
mod tests;

use causeway_host::ReceivedFd;
pub use header::{HEADER_BYTES, Header};
pub use payload::{
    ConfigSpace, InflightSpec, LogSpec, RegionSpec, RingAddresses, RingEvent, RingValue,
    emit_region, emit_table,
};
use payload::{FieldReader, NO_DESCRIPTOR};

use super::fault::Reason;
use crate::limits::{CONFIG_BYTES_MAX, TABLE_REGIONS_MAX};
use crate::vhost_user::codes::FrontendReq;

/// Length of a region's description, in bytes.
const REGION_BYTES: usize = 32;

/// A decoded request, with the descriptors that belong to it.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names are the specification's")]
pub enum Message {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(Vec<(RegionSpec, ReceivedFd)>),
    SetVringNum(RingValue),
    SetVringAddr(RingAddresses),
    SetVringBase(RingValue),
    GetVringBase(RingValue),
    SetVringKick(RingEvent),
    SetVringCall(RingEvent),
    SetVringErr(RingEvent),
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetVringEnable(RingValue),
    GetConfig(ConfigSpace),
    SetConfig(ConfigSpace),
    GetInflightFd(InflightSpec),
    SetInflightFd(InflightSpec, ReceivedFd),
    ResetDevice,
    SetBackendReqFd(ReceivedFd),
    GetMaxMemSlots,
    AddMemReg(RegionSpec, ReceivedFd),
    RemMemReg(RegionSpec),
    SetStatus(u64),
    GetStatus,
    SetLogBase(LogSpec, ReceivedFd),
    SetLogFd(ReceivedFd),
}

impl Message {
    /// Decodes the payload of `request`. Descriptors that do not belong to it are closed.
    ///
    /// # Errors
    /// Returns an error if the length, the number of descriptors or a value is invalid.
    pub fn decode(
        request: FrontendReq,
        payload: &[u8],
        fds: Vec<ReceivedFd>,
    ) -> Result<Self, Reason> {
        use FrontendReq as R;
        let mut decoder = PayloadDecoder { request, payload, fds };
        Ok(match request {
            R::GET_FEATURES => decoder.empty(Self::GetFeatures)?,
            R::SET_FEATURES => Self::SetFeatures(decoder.number()?),
            R::SET_OWNER => decoder.empty(Self::SetOwner)?,
            R::RESET_OWNER => decoder.empty(Self::ResetOwner)?,
            R::SET_MEM_TABLE => Self::SetMemTable(decoder.table()?),
            R::SET_VRING_NUM => Self::SetVringNum(decoder.ring_value()?),
            R::SET_VRING_ADDR => Self::SetVringAddr(decoder.ring_addresses()?),
            R::SET_VRING_BASE => Self::SetVringBase(decoder.ring_value()?),
            R::GET_VRING_BASE => Self::GetVringBase(decoder.ring_value()?),
            R::SET_VRING_KICK => Self::SetVringKick(decoder.ring_event()?),
            R::SET_VRING_CALL => Self::SetVringCall(decoder.ring_event()?),
            R::SET_VRING_ERR => Self::SetVringErr(decoder.ring_event()?),
            R::GET_PROTOCOL_FEATURES => decoder.empty(Self::GetProtocolFeatures)?,
            R::SET_PROTOCOL_FEATURES => Self::SetProtocolFeatures(decoder.number()?),
            R::GET_QUEUE_NUM => decoder.empty(Self::GetQueueNum)?,
            R::SET_VRING_ENABLE => Self::SetVringEnable(decoder.ring_value()?),
            R::GET_CONFIG => Self::GetConfig(decoder.config()?),
            R::SET_CONFIG => Self::SetConfig(decoder.config()?),
            R::GET_INFLIGHT_FD => Self::GetInflightFd(decoder.inflight(0)?),
            R::SET_INFLIGHT_FD => Self::SetInflightFd(decoder.inflight(1)?, decoder.fd()?),
            R::RESET_DEVICE => decoder.empty(Self::ResetDevice)?,
            R::SET_BACKEND_REQ_FD => {
                decoder.exactly(0, 1)?;
                Self::SetBackendReqFd(decoder.fd()?)
            }
            R::GET_MAX_MEM_SLOTS => decoder.empty(Self::GetMaxMemSlots)?,
            R::ADD_MEM_REG => Self::AddMemReg(decoder.region(1)?, decoder.fd()?),
            R::REM_MEM_REG => {
                decoder.fds.truncate(decoder.fds.len().saturating_sub(1));
                Self::RemMemReg(decoder.region(0)?)
            }
            R::SET_STATUS => Self::SetStatus(decoder.number()?),
            R::GET_STATUS => decoder.empty(Self::GetStatus)?,
            R::SET_LOG_BASE => Self::SetLogBase(decoder.log()?, decoder.fd()?),
            R::SET_LOG_FD => {
                // Some frontends send a number as well, which has no meaning.
                if decoder.exactly(0, 1).is_err() {
                    decoder.exactly(8, 1)?;
                }
                Self::SetLogFd(decoder.fd()?)
            }
            other => return Err(Reason::Unknown(other.into())),
        })
    }

    /// Decodes the number of a 64-bit reply or request.
    ///
    /// # Errors
    /// Returns an error if the payload is not 8 bytes.
    pub fn decode_number(request: FrontendReq, payload: &[u8]) -> Result<u64, Reason> {
        PayloadDecoder { request, payload, fds: Vec::new() }.number()
    }

    /// Decodes the queue and value of a GET_VRING_BASE reply.
    ///
    /// # Errors
    /// Returns an error if the payload is not 8 bytes.
    pub fn decode_ring_value(request: FrontendReq, payload: &[u8]) -> Result<RingValue, Reason> {
        PayloadDecoder { request, payload, fds: Vec::new() }.ring_value()
    }

    /// Decodes a GET_CONFIG reply.
    ///
    /// # Errors
    /// Returns an error if the length or the range is invalid.
    pub fn decode_config(payload: &[u8]) -> Result<ConfigSpace, Reason> {
        PayloadDecoder { request: FrontendReq::GET_CONFIG, payload, fds: Vec::new() }.config()
    }
}

/// A message while it is decoded.
struct PayloadDecoder<'a> {
    request: FrontendReq,
    payload: &'a [u8],
    fds: Vec<ReceivedFd>,
}

impl<'a> PayloadDecoder<'a> {
    /// Checks the payload's length and the number of descriptors.
    fn exactly(&self, bytes: usize, fds: usize) -> Result<FieldReader<'a>, Reason> {
        let request = self.request;
        if self.payload.len() != bytes {
            return Err(Reason::Size { request, got: self.payload.len(), want: bytes });
        }
        self.descriptors(fds)?;
        Ok(FieldReader(self.payload))
    }

    /// Checks the number of file descriptors.
    fn descriptors(&self, want: usize) -> Result<(), Reason> {
        let got = self.fds.len();
        if got == want { Ok(()) } else { Err(self.wrong_descriptors(want)) }
    }

    fn wrong_descriptors(&self, want: usize) -> Reason {
        Reason::Descriptors { request: self.request, got: self.fds.len(), want }
    }

    /// Takes the last file descriptor.
    fn fd(&mut self) -> Result<ReceivedFd, Reason> {
        self.fds.pop().ok_or_else(|| self.wrong_descriptors(1))
    }

    /// Returns `message`, which has neither payload nor descriptors.
    fn empty(&self, message: Message) -> Result<Message, Reason> {
        self.exactly(0, 0).map(|_| message)
    }

    /// Decodes a 64-bit number.
    fn number(&self) -> Result<u64, Reason> {
        Ok(self.exactly(8, 0)?.u64())
    }

    fn ring_value(&self) -> Result<RingValue, Reason> {
        let mut reader = self.exactly(8, 0)?;
        Ok(RingValue { index: reader.u32(), value: reader.u32() })
    }

    fn ring_addresses(&self) -> Result<RingAddresses, Reason> {
        let mut r = self.exactly(40, 0)?;
        Ok(RingAddresses {
            index: r.u32(),
            flags: r.u32(),
            descriptors: r.u64(),
            used: r.u64(),
            available: r.u64(),
            log: r.u64(),
        })
    }

    /// Decodes a queue index with its eventfd, if any.
    fn ring_event(&mut self) -> Result<RingEvent, Reason> {
        let value = FieldReader(self.payload).u64();
        let polled = value & NO_DESCRIPTOR != 0;
        self.exactly(8, usize::from(!polled))?;
        // The index has eight bits; the next bit marks a missing descriptor.
        let index = u32::try_from(value & !NO_DESCRIPTOR).unwrap_or(u32::MAX);
        Ok(RingEvent { index, fd: self.fds.pop() })
    }

    /// Decodes a memory table: 1 to [`TABLE_REGIONS_MAX`] (8) regions, a descriptor for each.
    fn table(&mut self) -> Result<Vec<(RegionSpec, ReceivedFd)>, Reason> {
        let mut reader = FieldReader(self.payload);
        let regions = reader.u32();
        reader.u32();
        let count = regions as usize;
        if count == 0 || count > TABLE_REGIONS_MAX {
            return Err(Reason::TableRegions(regions));
        }
        let want = count.saturating_mul(REGION_BYTES).saturating_add(8);
        if self.payload.len() < want {
            return Err(Reason::Size { request: self.request, got: self.payload.len(), want });
        }
        self.descriptors(count)?;
        let fds = std::mem::take(&mut self.fds);
        Ok(fds.into_iter().map(|fd| (reader.region(), fd)).collect())
    }

    /// Decodes a single region with `fds` descriptors.
    fn region(&self, fds: usize) -> Result<RegionSpec, Reason> {
        let mut reader = self.exactly(REGION_BYTES.saturating_add(8), fds)?;
        reader.u64();
        Ok(reader.region())
    }

    /// Decodes a part of the configuration space.
    fn config(&self) -> Result<ConfigSpace, Reason> {
        let mut r = FieldReader(self.payload);
        let (offset, size, flags) = (r.u32(), r.u32(), r.u32());
        let end = (offset as usize).checked_add(size as usize);
        if size == 0 || end.is_none_or(|end| end > CONFIG_BYTES_MAX) {
            return Err(Reason::ConfigRange { request: self.request, offset, size });
        }
        self.exactly((size as usize).saturating_add(12), 0)?;
        Ok(ConfigSpace { offset, size, flags, bytes: r.0.to_vec() })
    }

    fn log(&self) -> Result<LogSpec, Reason> {
        let mut r = self.exactly(16, 1)?;
        Ok(LogSpec { len: r.u64(), offset: r.u64() })
    }

    /// Decodes the shape of the in-flight buffer, of 20 or 24 bytes.
    fn inflight(&self, fds: usize) -> Result<InflightSpec, Reason> {
        let padded = self.payload.len() == 24;
        let mut r = self.exactly(if padded { 24 } else { 20 }, fds)?;
        Ok(InflightSpec {
            len: r.u64(),
            offset: r.u64(),
            queues: r.u16(),
            ring_size: r.u16(),
            padded,
        })
    }
}
