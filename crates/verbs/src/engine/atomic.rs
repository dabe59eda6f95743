//! Atomic operations: compare-and-swap and fetch-and-add of 8 bytes of the responder's memory, in
//! the byte order of the host.
//!
//! The 8 bytes must be aligned as the request and the guest address name them, else the responder
//! refuses the request as invalid. The operation is a single instruction, atomic with respect to
//! all adapters and to the guest's own processors. The old value is written to the requester's
//! segments, which must have 8 bytes in total ([`Status::LocalLength`] otherwise). If their memory
//! is no longer granted, the request fails with [`Status::LocalProtection`] although the operation
//! was performed.
//!
//! Only reliable connections have atomic operations; others, and inline data, fail with
//! [`Status::LocalQueuePairOperation`]. If queue pair or region of the responder does not permit
//! them, the request fails with [`Status::RemoteInvalidRequest`] or [`Status::RemoteAccess`], and
//! both queue pairs move to the error state. `connected.rs` calls this module after it has found
//! the responder. Masked operations and operands of other lengths are not supported. All of it runs
//! in the dispatcher's thread that serves the subnet.

use causeway_memory::{Cursor, Map, OutOfGrant};

use crate::adapter_id::AdapterId;
use crate::engine::responder::Fault;
use crate::engine::segments::Place;
use crate::engine::state::{Requester, Scratch};
use crate::engine::step::{Origin, Step};
use crate::limits::STEP_SPANS_MAX;
use crate::queues::Queues;
use crate::region::Rights;
use crate::subnet::Subnet;
use crate::work::{Operation, RemoteAddress, Status};

/// Bytes of the operand.
const OPERAND_BYTES: u64 = 8;

/// The change that an atomic operation makes.
#[derive(Debug, Clone, Copy)]
enum Change {
    Swap { compare: u64, swap: u64 },
    Add(u64),
}

impl Change {
    /// Changes the 8 bytes at a guest address. Returns the old value.
    fn apply(self, map: &Map, addr: u64) -> Result<u64, OutOfGrant> {
        match self {
            Self::Swap { compare, swap } => map.compare_exchange_u64(addr, compare, swap),
            Self::Add(summand) => map.fetch_add_u64(addr, summand),
        }
    }
}

impl<Q: Queues> Subnet<Q> {
    /// Executes an atomic operation.
    pub(super) fn atomic(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        scratch: &mut Scratch,
        there: (AdapterId, u32),
    ) -> Step {
        self.end_unanswered(origin, requester);
        requester.refusal = None;
        let (remote, change) = match requester.work.operation {
            Operation::CompareSwap { remote, compare, swap } => {
                (remote, Change::Swap { compare, swap })
            }
            Operation::FetchAdd { remote, add } => (remote, Change::Add(add)),
            _ => return Step::Failed(Status::LocalQueuePairOperation),
        };
        if let Err(status) = self.resolve_result(origin, requester, scratch) {
            return Step::Failed(status);
        }
        if let Some(adapter) = self.adapter_mut(there.0) {
            adapter.establish(there.1);
        }
        let addr = match self.resolve_operand(there, remote, scratch) {
            Ok(addr) => addr,
            Err(fault) => return self.refuse(origin, there, fault),
        };
        if let Some(adapter) = self.adapter_mut(origin.id) {
            adapter.queues.begins(origin.number);
        }
        let Some(remote) = self.adapter(there.0) else { return Step::More };
        let Ok(old) = change.apply(remote.queues.map(), addr) else {
            return self.refuse(origin, there, Fault::Access);
        };
        let Some(own) = self.adapter(origin.id) else { return Step::More };
        let mut to = Cursor::new(&scratch.to);
        if to.write(own.queues.map(), &old.to_ne_bytes()).is_err() {
            return Step::Failed(Status::LocalProtection);
        }
        requester.transfer.total = OPERAND_BYTES;
        Step::Done
    }

    /// Resolves the requester's memory for the old value.
    fn resolve_result(
        &self,
        origin: &Origin,
        requester: &Requester,
        scratch: &mut Scratch,
    ) -> Result<(), Status> {
        if self.check_requester(origin, requester)? != OPERAND_BYTES {
            return Err(Status::LocalLength);
        }
        let adapter = self.adapter(origin.id).ok_or(Status::LocalProtection)?;
        let access = adapter.access(origin.attributes.domain, Rights::LOCAL_WRITE);
        scratch.to.clear();
        let out = (STEP_SPANS_MAX, &mut scratch.to);
        let segments = &requester.work.segments;
        let resolved = access.resolve(segments, Place::default(), OPERAND_BYTES, out);
        match resolved {
            Ok(OPERAND_BYTES) => Ok(()),
            _ => Err(Status::LocalProtection),
        }
    }

    /// Returns the guest address of the operand.
    fn resolve_operand(
        &self,
        (there, number): (AdapterId, u32),
        remote: RemoteAddress,
        scratch: &mut Scratch,
    ) -> Result<u64, Fault> {
        let adapter = self.adapter(there).ok_or(Fault::Request)?;
        let pair = adapter.queue_pairs.get(number).ok_or(Fault::Request)?;
        if !pair.attributes().rights.contains(Rights::REMOTE_ATOMIC)
            || !remote.address.is_multiple_of(OPERAND_BYTES)
        {
            return Err(Fault::Request);
        }
        scratch.from.clear();
        let range = (remote.address, OPERAND_BYTES);
        let (domain, needed) = (pair.remote_domain(), Rights::REMOTE_ATOMIC);
        let resolved =
            adapter.regions.resolve(remote.key, domain, range, needed, &mut scratch.from);
        resolved.map_err(|_| Fault::Access)?;
        match scratch.from.as_slice() {
            [span] if span.addr.is_multiple_of(OPERAND_BYTES) => Ok(span.addr),
            _ => Err(Fault::Request),
        }
    }
}
