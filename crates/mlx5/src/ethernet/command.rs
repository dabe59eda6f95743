//! Commands of the Ethernet side.

use causeway_wire::mlx5::command::{Opcode, Status};

use super::Kind;
use crate::command::{Input, Outcome, Output};
use crate::function::Function;
use crate::limits::STEERING_INPUT_MAX;

/// Offset of the context in input and output of commands about queues and transport interfaces.
const CONTEXT: usize = 0x20;

/// Returns the kind of object of an opcode.
fn kind(opcode: Opcode) -> Option<Kind> {
    use Opcode as O;
    Some(match opcode {
        O::CreateTir | O::ModifyTir | O::DestroyTir | O::QueryTir => Kind::Tir,
        O::CreateTis | O::ModifyTis | O::DestroyTis | O::QueryTis => Kind::Tis,
        O::CreateReceiveQueueTable
        | O::ModifyReceiveQueueTable
        | O::DestroyReceiveQueueTable
        | O::QueryReceiveQueueTable => Kind::ReceiveTable,
        O::CreateSendQueue | O::ModifySendQueue | O::DestroySendQueue | O::QuerySendQueue => {
            Kind::SendQueue
        }
        O::CreateReceiveQueue
        | O::ModifyReceiveQueue
        | O::DestroyReceiveQueue
        | O::QueryReceiveQueue => Kind::ReceiveQueue,
        O::CreateFlowTable | O::DestroyFlowTable | O::QueryFlowTable | O::ModifyFlowTable => {
            Kind::FlowTable
        }
        O::CreateFlowGroup | O::DestroyFlowGroup | O::QueryFlowGroup => Kind::FlowGroup,
        O::AllocateFlowCounter | O::DeallocateFlowCounter | O::QueryFlowCounter => {
            Kind::FlowCounter
        }
        _ => return None,
    })
}

fn kind_of(input: Input<'_>) -> Result<Kind, Status> {
    let opcode = Opcode::from_raw(input.u16(0)?);
    opcode.and_then(kind).ok_or(Status::BadOperation)
}

pub(crate) fn create(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    output.check_number()?;
    let kind = kind_of(input)?;
    let table = f.objects.ethernet.table_mut(kind).ok_or(Status::BadOperation)?;
    if input.bytes().len() > STEERING_INPUT_MAX {
        return Err(Status::BadParameter);
    }
    let number = table.insert(input.bytes().to_vec()).map_err(|_| Status::ExceededLimit)?;
    output.put_number(number)
}

pub(crate) fn destroy(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let kind = kind_of(input)?;
    // Flow tables and groups have their number behind the type of the table.
    let number = match kind {
        Kind::FlowTable => input.u32(0x14)? & 0xff_ffff,
        Kind::FlowGroup => input.u32(0x18)?,
        _ => input.number()?,
    };
    let table = f.objects.ethernet.table_mut(kind).ok_or(Status::BadOperation)?;
    table.remove(number).map(drop).ok_or(Status::BadResource)
}

pub(crate) fn modify(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let kind = kind_of(input)?;
    let number = input.number()?;
    let state = input.array::<1>(CONTEXT.wrapping_add(1))?;
    let table = f.objects.ethernet.table_mut(kind).ok_or(Status::BadOperation)?;
    let object = table.get_mut(number).ok_or(Status::BadResource)?;
    if matches!(kind, Kind::SendQueue | Kind::ReceiveQueue)
        && let Some(byte) = object.get_mut(CONTEXT.wrapping_add(1))
    {
        *byte = (*byte & 0x0f) | (state.first().copied().unwrap_or(0) & 0xf0);
    }
    Ok(())
}

pub(crate) fn query(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let table = f.objects.ethernet.table(kind_of(input)?).ok_or(Status::BadOperation)?;
    let object = table.get(input.number()?).ok_or(Status::BadResource)?;
    output.put_truncated(CONTEXT, object.get(CONTEXT..).unwrap_or(&[]));
    Ok(())
}
