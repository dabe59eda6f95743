//! The handler of each opcode.
//!
//! `crate::run_commands` calls [`execute`] for each delivered command, in the dispatcher's turn of
//! the port's group; [`super::queue`] reads and answers the entry of the command queue. [`execute`]
//! runs a command on private input and output and writes its status; after a failure the output is
//! zero but for the status. [`execute`] never fails: each failure is counted, and the first 16 in
//! the life of the function are logged ([`crate::limits::LOG_LINES_MAX`]; a reset adds none).
//! Commands without a handler are answered with *bad operation*, those of [`Handler::Accept`] with
//! success and zeros. A successful command that changes objects is recorded for the next causewayd
//! (`crate::record::journal`). `crate::record::restore` calls [`run`] for recorded commands, which
//! neither counts nor logs nor records.

use causeway_verbs::{Adapter, AdapterId, Subnet};
use causeway_wire::mlx5::command::{Opcode as O, Status};

use super::{
    Input, Outcome, Output, capability, completion_queue, event_queue, memory_key,
    modify_queue_pair, multicast, queue_pair, receive_queue, register, trivial, vport,
};
use crate::ethernet::command as ethernet;
use crate::function::Function;
use crate::record::journal;

/// A handler, by the objects that it needs.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// Succeeds without an effect; the output is zeros.
    Accept,
    /// Needs objects of the function.
    Function(fn(&mut Function, Input<'_>, &mut Output<'_>) -> Outcome),
    /// Needs regions or limits of the adapter.
    Adapter(fn(&mut Adapter<Function>, Input<'_>, &mut Output<'_>) -> Outcome),
    /// Needs queue pairs.
    Subnet(fn(&mut Subnet<Function>, AdapterId, Input<'_>, &mut Output<'_>) -> Outcome),
}

use Handler::{Accept, Adapter as A, Function as F, Subnet as S};

/// All supported opcodes. Others are answered with [`Status::BadOperation`].
pub(crate) const HANDLERS: &[(O, Handler)] = &[
    (O::QueryHcaCapabilities, F(capability::query)),
    (O::QueryAdapter, F(capability::adapter)),
    (O::InitHca, Accept),
    (O::TeardownHca, S(capability::restart)),
    (O::EnableHca, S(capability::restart)),
    (O::DisableHca, S(capability::restart)),
    (O::QueryPages, F(trivial::query_pages)),
    (O::ManagePages, Accept),
    (O::SetHcaCapabilities, Accept),
    (O::QueryIssi, F(capability::query_issi)),
    (O::SetIssi, F(capability::set_issi)),
    (O::SetDriverVersion, Accept),
    (O::CreateMemoryKey, A(memory_key::create)),
    (O::QueryMemoryKey, A(memory_key::query)),
    (O::DestroyMemoryKey, A(memory_key::destroy)),
    (O::QuerySpecialContexts, F(memory_key::special)),
    (O::CreateEventQueue, F(event_queue::create)),
    (O::DestroyEventQueue, F(event_queue::destroy)),
    (O::QueryEventQueue, F(event_queue::query)),
    (O::CreateCompletionQueue, F(completion_queue::create)),
    (O::DestroyCompletionQueue, F(completion_queue::destroy)),
    (O::QueryCompletionQueue, F(completion_queue::query)),
    (O::ModifyCompletionQueue, F(completion_queue::modify)),
    (O::CreateQueuePair, S(queue_pair::create)),
    (O::DestroyQueuePair, S(queue_pair::destroy)),
    (O::QueryQueuePair, S(queue_pair::query)),
    (O::ResetToInit, S(modify_queue_pair::modify)),
    (O::ChangeInit, S(modify_queue_pair::modify)),
    (O::InitToReadyToReceive, S(modify_queue_pair::modify)),
    (O::ReadyToReceiveToReadyToSend, S(modify_queue_pair::modify)),
    (O::ChangeReadyToSend, S(modify_queue_pair::modify)),
    (O::SendQueueErrorToReadyToSend, S(modify_queue_pair::modify)),
    (O::DrainedToReadyToSend, S(modify_queue_pair::modify)),
    (O::ToError, S(modify_queue_pair::to_error)),
    (O::ToReset, S(modify_queue_pair::to_reset)),
    (O::ManagementDatagram, Accept),
    (O::ArmSharedReceiveQueue, A(receive_queue::arm)),
    (O::CreateXrcSharedReceiveQueue, F(receive_queue::create_xrc)),
    (O::DestroyXrcSharedReceiveQueue, A(receive_queue::destroy)),
    (O::QueryXrcSharedReceiveQueue, F(receive_queue::query_xrc)),
    (O::ArmXrcSharedReceiveQueue, A(receive_queue::arm)),
    (O::CreateReceivePool, F(receive_queue::create)),
    (O::ModifyReceivePool, A(receive_queue::modify)),
    (O::DestroyReceivePool, A(receive_queue::destroy)),
    (O::QueryReceivePool, F(receive_queue::query)),
    (O::QueryVportState, F(vport::query_state)),
    (O::ModifyVportState, Accept),
    (O::QueryNicVportContext, F(vport::query_nic)),
    (O::ModifyNicVportContext, F(vport::modify_nic)),
    (O::QueryRoceAddress, F(vport::query_roce)),
    (O::SetRoceAddress, F(vport::set_roce)),
    (O::QueryHcaVportPartitionKey, F(vport::query_pkey)),
    (O::QueryVnicEnvironment, Accept),
    (O::QueryVportCounter, A(ethernet::query_vport_counter)),
    (O::AllocateQueueCounter, F(trivial::alloc_counter)),
    (O::DeallocateQueueCounter, F(trivial::dealloc_counter)),
    (O::QueryQueueCounter, F(ethernet::query_queue_counter)),
    (O::AllocateProtectionDomain, F(trivial::alloc_pd)),
    (O::DeallocateProtectionDomain, F(trivial::dealloc_pd)),
    (O::AllocateUar, F(trivial::alloc_uar)),
    (O::DeallocateUar, F(trivial::dealloc_uar)),
    (O::AccessRegister, F(register::access)),
    (O::AttachToMulticastGroup, S(multicast::attach)),
    (O::DetachFromMulticastGroup, S(multicast::detach)),
    (O::Nop, Accept),
    (O::AllocateXrcDomain, F(trivial::alloc_xrcd)),
    (O::DeallocateXrcDomain, F(trivial::dealloc_xrcd)),
    (O::AllocateTransportDomain, F(trivial::alloc_td)),
    (O::DeallocateTransportDomain, F(trivial::dealloc_td)),
    (O::CreateTir, F(ethernet::create_tir)),
    (O::ModifyTir, F(ethernet::modify_tir)),
    (O::DestroyTir, F(ethernet::destroy_tir)),
    (O::QueryTir, F(ethernet::query_tir)),
    (O::CreateSendQueue, F(ethernet::create_send_queue)),
    (O::ModifySendQueue, F(ethernet::modify_send_queue)),
    (O::DestroySendQueue, F(ethernet::destroy_send_queue)),
    (O::QuerySendQueue, F(ethernet::query_send_queue)),
    (O::CreateReceiveQueue, F(ethernet::create_receive_queue)),
    (O::ModifyReceiveQueue, F(ethernet::modify_receive_queue)),
    (O::DestroyReceiveQueue, F(ethernet::destroy_receive_queue)),
    (O::QueryReceiveQueue, F(ethernet::query_receive_queue)),
    (O::CreateTis, F(ethernet::create_tis)),
    (O::ModifyTis, F(ethernet::modify_tis)),
    (O::DestroyTis, F(ethernet::destroy_tis)),
    (O::QueryTis, F(ethernet::query_tis)),
    (O::CreateReceiveQueueTable, F(ethernet::create_queue_table)),
    (O::ModifyReceiveQueueTable, F(ethernet::modify_queue_table)),
    (O::DestroyReceiveQueueTable, F(ethernet::destroy_queue_table)),
    (O::QueryReceiveQueueTable, F(ethernet::query_queue_table)),
    (O::SetFlowTableRoot, F(ethernet::set_root)),
    (O::CreateFlowTable, F(ethernet::create_table)),
    (O::DestroyFlowTable, F(ethernet::destroy_table)),
    (O::ModifyFlowTable, F(ethernet::modify_table)),
    (O::CreateFlowGroup, F(ethernet::create_group)),
    (O::DestroyFlowGroup, F(ethernet::destroy_group)),
    (O::SetFlowTableEntry, F(ethernet::set_entry)),
    (O::DeleteFlowTableEntry, F(ethernet::delete_entry)),
    (O::AllocateFlowCounter, F(ethernet::allocate_flow_counter)),
    (O::DeallocateFlowCounter, F(ethernet::deallocate_flow_counter)),
    (O::QueryFlowCounter, Accept),
];

/// Returns the handler of an opcode.
pub(crate) fn handler(opcode: u16) -> Option<Handler> {
    let opcode = O::from_raw(opcode)?;
    HANDLERS.iter().find(|(own, _)| *own == opcode).map(|(_, handler)| *handler)
}

/// Executes a command and fills its output.
pub(crate) fn execute(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    input: Input<'_>,
    output: &mut [u8],
) {
    let result = run(subnet, adapter, input, &mut Output(output));
    let Ok(function) = super::function(subnet, adapter) else { return };
    function.counters.commands = function.counters.commands.wrapping_add(1);
    function.note_command(input.u16(0).unwrap_or(0));
    let status = match result {
        Ok(()) => Status::Ok,
        Err(status) => {
            output.fill(0);
            function.count_failure(input.u16(0).unwrap_or(0), status);
            status
        }
    };
    // A handler may have written the whole output; the status and syndrome are not its part.
    let header = status.header().to_bytes();
    for (to, from) in output.iter_mut().zip(header.iter().take(8)) {
        *to = *from;
    }
    if status == Status::Ok && function.record.is_some() {
        journal::note(subnet, adapter, input, output);
    }
}

/// Executes a command without its status, counters and record.
pub(crate) fn run(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    input: Input<'_>,
    output: &mut Output<'_>,
) -> Outcome {
    match handler(input.u16(0)?).ok_or(Status::BadOperation)? {
        Accept => Ok(()),
        F(handler) => handler(super::function(subnet, adapter)?, input, output),
        A(handler) => {
            handler(subnet.adapter_mut(adapter).ok_or(Status::BadResource)?, input, output)
        }
        S(handler) => handler(subnet, adapter, input, output),
    }
}

impl Function {
    /// Counts a failed command. The first failures of a function are logged: a driver retries some
    /// commands without end.
    fn count_failure(&mut self, opcode: u16, status: Status) {
        self.counters.failed_commands = self.counters.failed_commands.wrapping_add(1);
        if status == Status::BadOperation {
            self.counters.unknown_commands = self.counters.unknown_commands.wrapping_add(1);
        }
        if let Some(left) = self.log_lines.checked_sub(1) {
            self.log_lines = left;
            let name = O::from_raw(opcode).map_or("unknown", O::as_str);
            log::warn!(
                "a driver's command failed: the driver handles the status \
                 (opcode={opcode:#x} name={name} status={status})"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispatch_has_each_opcode_once() {
        for (index, (opcode, _)) in HANDLERS.iter().enumerate() {
            let others = HANDLERS.iter().skip(index + 1);
            assert!(others.clone().all(|(other, _)| other != opcode), "{opcode}");
        }
    }
}
