//! The journal: which commands are recorded, and under which keys.
//!
//! A successful command that makes or changes an object is recorded with its whole input; the
//! destruction of the object removes its entries. Changes of one object have keys of their own, by
//! the fields that they select, so that the entries of an object are bounded and the last change of
//! a field is the last entry that has it. Memory regions, which work requests change too, and
//! contexts of queue pairs are recorded by their present values instead, limits of shared receive
//! queues by words ([`super::progress`]).
//!
//! Queries, and commands without an effect, are not recorded. A hostile driver can fill the journal
//! (64 MiB); then its own function has no record, and the next causewayd makes it report an
//! internal error. `command::dispatch` calls [`note`] after each successful command, in the
//! dispatcher's thread.

use causeway_verbs::region::Region;
use causeway_verbs::{AdapterId, Subnet};
use causeway_wire::mlx5::command::Opcode as O;

use super::layout::{COMMAND, Words};
use super::redo::Changes;
use super::{Key, Record, region};
use crate::command::Input;
use crate::function::Function;

/// Part of the context of a queue pair.
pub(super) const CONTEXT_PART: u64 = 1;
/// Fields of a change that have keys of their own; others have no effect. So an object has at most
/// 256 changes of a kind.
const FIELD_BITS: u64 = 0xff;
/// Modifiers of a change that have keys of their own.
const MODIFIER_BITS: u16 = 0xff;
/// First part of memberships in multicast groups.
const MEMBER_PART: u64 = 1 << 63;
/// Number of the objects of which a function has one.
const SINGLE: u32 = 0;
/// Mark of a command in progress that was executed: its answer is recorded.
const EXECUTED: u64 = 1 << 33;
/// Mark of a command in progress.
const IN_PROGRESS: u64 = 1 << 32;

/// The effect of a command on the journal.
enum Effect {
    None,
    /// Makes an object; its number is in the output.
    Creates,
    /// Destroys the object of the input's number.
    Destroys(O),
    /// Changes an object; the key is given.
    Changes(Key),
    /// Removes entries of a key's object from the key's part to another part.
    Removes(Key, u64),
    /// Changes the queue pair of the input's number.
    ChangesQueuePair,
}

/// Returns the key of a change of an object that a command made.
fn change(of: O, input: Input<'_>, fields: u64) -> Option<Effect> {
    let opcode = u64::from(input.u16(0).ok()?);
    let part = opcode << 48 | fields & 0xffff_ffff_ffff;
    Some(Effect::Changes(Key { object: of.raw(), number: input.number().ok()?, part }))
}

/// Returns the key of a change of something that has no number.
fn single(opcode: O, part: u64) -> Effect {
    Effect::Changes(Key { object: opcode.raw(), number: SINGLE, part: part.wrapping_add(1) })
}

/// Returns the effect of a command that succeeded.
fn effect(opcode: O, input: Input<'_>) -> Option<Effect> {
    use Effect::{ChangesQueuePair, Creates, Destroys};
    let word = |at| input.u32(at).ok().map(u64::from);
    Some(match opcode {
        O::CreateMemoryKey
        | O::CreateEventQueue
        | O::CreateCompletionQueue
        | O::CreateQueuePair
        | O::CreateXrcSharedReceiveQueue
        | O::CreateReceivePool
        | O::AllocateQueueCounter
        | O::AllocateProtectionDomain
        | O::AllocateUar
        | O::AllocateXrcDomain
        | O::AllocateTransportDomain
        | O::CreateTir
        | O::CreateSendQueue
        | O::CreateReceiveQueue
        | O::CreateTis
        | O::CreateReceiveQueueTable
        | O::CreateFlowTable
        | O::CreateFlowGroup
        | O::AllocateFlowCounter => Creates,
        O::DestroyMemoryKey => Destroys(O::CreateMemoryKey),
        O::DestroyEventQueue => Destroys(O::CreateEventQueue),
        O::DestroyCompletionQueue => Destroys(O::CreateCompletionQueue),
        O::DestroyQueuePair => Destroys(O::CreateQueuePair),
        // Both kinds of shared receive queues have numbers of one table.
        O::DestroyXrcSharedReceiveQueue | O::DestroyReceivePool => Destroys(O::CreateReceivePool),
        O::DeallocateQueueCounter => Destroys(O::AllocateQueueCounter),
        O::DeallocateProtectionDomain => Destroys(O::AllocateProtectionDomain),
        O::DeallocateUar => Destroys(O::AllocateUar),
        O::DeallocateXrcDomain => Destroys(O::AllocateXrcDomain),
        O::DeallocateTransportDomain => Destroys(O::AllocateTransportDomain),
        O::DestroyTir => Destroys(O::CreateTir),
        O::DestroySendQueue => Destroys(O::CreateSendQueue),
        O::DestroyReceiveQueue => Destroys(O::CreateReceiveQueue),
        O::DestroyTis => Destroys(O::CreateTis),
        O::DestroyReceiveQueueTable => Destroys(O::CreateReceiveQueueTable),
        O::DeallocateFlowCounter => Destroys(O::AllocateFlowCounter),
        O::ResetToInit
        | O::ChangeInit
        | O::InitToReadyToReceive
        | O::ReadyToReceiveToReadyToSend
        | O::ChangeReadyToSend
        | O::SendQueueErrorToReadyToSend
        | O::DrainedToReadyToSend
        | O::ToError
        | O::ToReset => ChangesQueuePair,
        O::ModifyCompletionQueue => {
            let kind = u64::from(input.modifier().ok()? & MODIFIER_BITS) << 8;
            change(O::CreateCompletionQueue, input, kind | word(0x0c)? & FIELD_BITS)?
        }
        O::ModifySendQueue => change(O::CreateSendQueue, input, word(0x14)? & FIELD_BITS)?,
        O::ModifyReceiveQueue => change(O::CreateReceiveQueue, input, word(0x14)? & FIELD_BITS)?,
        O::ModifyTir => change(O::CreateTir, input, word(0x14)? & FIELD_BITS)?,
        O::ModifyTis => change(O::CreateTis, input, word(0x14)? & FIELD_BITS)?,
        O::ModifyReceiveQueueTable => change(O::CreateReceiveQueueTable, input, 0)?,
        O::ModifyNicVportContext => single(opcode, word(0x0c)? << 8 | list_type(input)?),
        O::SetRoceAddress => single(opcode, u64::from(input.u16(0x08).ok()?)),
        O::AttachToMulticastGroup => Effect::Changes(member(input)?),
        O::DetachFromMulticastGroup => {
            let key = member(input)?;
            Effect::Removes(key, key.part)
        }
        _ => return flow_effect(opcode, input),
    })
}

/// Offset of the list type in MODIFY_NIC_VPORT_CONTEXT.
const LIST_TYPE: usize = causeway_wire::mlx5::vport::MODIFY_NIC_CONTEXT + LIST_TYPE_IN_CONTEXT;
/// Offset of the list type in the context.
const LIST_TYPE_IN_CONTEXT: usize = 0xf0;

/// Bits of the list type.
const LIST_TYPE_BITS: u8 = 7;

/// Returns the list that MODIFY_NIC_VPORT_CONTEXT changes.
fn list_type(input: Input<'_>) -> Option<u64> {
    let list = input.tail(LIST_TYPE).ok()?.first().copied()?;
    Some(u64::from(list & LIST_TYPE_BITS))
}

/// Returns the key of a membership in a multicast group.
fn member(input: Input<'_>) -> Option<Key> {
    let gid = input.array::<16>(causeway_wire::mlx5::queue_pair::MULTICAST_GID).ok()?;
    let gid = u128::from_be_bytes(gid);
    let mixed = (gid >> 64) as u64 ^ (gid as u64).rotate_left(17);
    let number = input.number().ok()?;
    Some(Key { object: O::CreateQueuePair.raw(), number, part: MEMBER_PART | mixed })
}

/// Returns the effect of a command about flow tables.
fn flow_effect(opcode: O, input: Input<'_>) -> Option<Effect> {
    use causeway_wire::mlx5::steering::{EntryInput, TableReference};
    let table = || TableReference::parse(input.bytes()).ok();
    let key = |object: O, number, part| Key { object: object.raw(), number, part };
    // The parts of an entry follow each other: the new entry first.
    let entry = |index: u32| (u64::from(index) << 16, u64::from(index) << 16 | 0xffff);
    Some(match opcode {
        O::SetFlowTableRoot => single(opcode, u64::from(table()?.table_type)),
        O::ModifyFlowTable => {
            let part = u64::from(opcode.raw()) << 48;
            Effect::Changes(key(O::CreateFlowTable, table()?.table, part))
        }
        O::DestroyFlowTable => {
            Effect::Removes(key(O::CreateFlowTable, table()?.table, 0), u64::MAX)
        }
        O::DestroyFlowGroup => {
            Effect::Removes(key(O::CreateFlowGroup, table()?.group, 0), u64::MAX)
        }
        O::SetFlowTableEntry => {
            let new = EntryInput::parse(input.bytes()).ok()?;
            let is_changed = input.modifier().ok()? != 0;
            let fields = if is_changed { 1 << 8 | u64::from(new.select) } else { 0 };
            Effect::Changes(key(O::SetFlowTableEntry, new.table, entry(new.index).0 | fields))
        }
        O::DeleteFlowTableEntry => {
            let reference = table()?;
            let (first, last) = entry(reference.index);
            Effect::Removes(key(O::SetFlowTableEntry, reference.table, first), last)
        }
        _ => Effect::None,
    })
}

/// Returns whether a command makes an object with a number.
pub(super) fn is_creation(input: Input<'_>) -> bool {
    let opcode = input.u16(0).ok().and_then(O::from_raw);
    opcode.is_some_and(|opcode| matches!(effect(opcode, input), Some(Effect::Creates)))
}

/// Returns the kind of object in the keys of a creation.
fn object_of(opcode: O) -> O {
    match opcode {
        O::CreateXrcSharedReceiveQueue => O::CreateReceivePool,
        other => other,
    }
}

/// Returns the table of words of the object that a command is about.
pub(super) fn words_of(opcode: O) -> Option<Words> {
    Some(match opcode {
        O::CreateEventQueue => Words::EventQueue,
        O::CreateCompletionQueue | O::ModifyCompletionQueue => Words::CompletionQueue,
        O::CreateXrcSharedReceiveQueue
        | O::CreateReceivePool
        | O::ArmSharedReceiveQueue
        | O::ArmXrcSharedReceiveQueue
        | O::ModifyReceivePool => Words::ReceivePool,
        O::CreateSendQueue | O::ModifySendQueue => Words::SendQueue,
        O::CreateReceiveQueue | O::ModifyReceiveQueue => Words::ReceiveQueue,
        O::CreateQueuePair => Words::QueuePair,
        _ => return None,
    })
}

/// Records a command that succeeded, with its answer.
pub(crate) fn note(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    input: Input<'_>,
    output: &[u8],
) {
    let Some(own) = subnet.adapter_mut(adapter) else { return };
    let Some(mut record) = own.queues_mut().record.take() else { return };
    let opcode = input.u16(0).ok().and_then(O::from_raw);
    if let Some(opcode) = opcode {
        let number = |bytes: Input<'_>| bytes.number().unwrap_or(SINGLE);
        let made = number(Input(output));
        let found = effect(opcode, input);
        let mut changes = Changes::default();
        let mut is_recorded = true;
        match found {
            Some(Effect::Creates) if opcode == O::CreateMemoryKey => {
                if let Some(region) = own.regions().region(made) {
                    record.stage_region(made, region);
                }
            }
            Some(Effect::Creates) => {
                let key = Key { object: object_of(opcode).raw(), number: made, part: 0 };
                record.stage(key, &[input.bytes()]);
            }
            Some(Effect::Destroys(of)) => record.remove(of.raw(), number(input), 0..=u64::MAX),
            Some(Effect::Changes(key)) => record.stage(key, &[input.bytes()]),
            Some(Effect::Removes(key, last)) => {
                record.remove(key.object, key.number, key.part..=last);
            }
            Some(Effect::ChangesQueuePair) => {
                let number = number(input);
                let key = Key { object: O::CreateQueuePair.raw(), number, part: CONTEXT_PART };
                let state = own.queue_pair(number).map(|pair| pair.state()).unwrap_or_default();
                if let Some(queues) = own.queues_mut().objects.queue_pairs.get_mut(number) {
                    queues.progress.set_state(state);
                    record.stage(key, &[&queues.context.to_bytes()]);
                    let at = record.words(Words::QueuePair, number);
                    queues.progress.collect_all(at, &mut changes);
                }
            }
            Some(Effect::None) | None => is_recorded = false,
        }
        let is_made = matches!(found, Some(Effect::Creates));
        if let Some(words) = words_of(opcode) {
            let number = if is_made { made } else { number(input) };
            let at = record.words(words, number);
            if is_made {
                record.reserve_words(at);
            }
            own.queues_mut().objects.collect(words, number, at, &mut changes);
        }
        if is_recorded {
            record.answer(output, &mut changes);
        }
        record.commit(changes);
    }
    own.queues_mut().record = Some(record);
}

/// A command that was in progress when the process was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommandInProgress {
    /// Index in the command queue.
    pub index: u32,
    /// First bytes of the output, if the command was executed.
    pub output: Option<[u8; 16]>,
}

impl Record {
    /// Returns the offset of the first word of an object.
    #[inline]
    pub(super) fn words(&self, of: Words, number: u32) -> usize {
        self.layout.words(of, number)
    }

    /// Stages the present value of a region.
    pub(crate) fn stage_region(&mut self, number: u32, of: &Region) {
        let key = Key { object: O::CreateMemoryKey.raw(), number, part: 0 };
        let (head, pages) = region::encode(of);
        self.stage(key, &[&head, &pages]);
    }

    /// Notes that a command of the command queue begins.
    pub(crate) fn begin_command(&mut self, index: u32) {
        self.command = index;
        let mut changes = Changes::default();
        changes.push((COMMAND, IN_PROGRESS | u64::from(index)));
        self.commit(changes);
    }

    /// Adds the answer of the command in progress.
    fn answer(&self, output: &[u8], changes: &mut Changes) {
        changes.push((COMMAND, IN_PROGRESS | EXECUTED | u64::from(self.command)));
        let (words, _) = output.as_chunks::<8>();
        for (word, at) in words.iter().take(2).zip([8_usize, 16]) {
            changes.push((COMMAND.wrapping_add(at), u64::from_le_bytes(*word)));
        }
    }

    /// Notes that the command in progress is answered, and has no event.
    pub(crate) fn end_command(&mut self) {
        let mut changes = Changes::default();
        changes.push(self.command_end());
        self.commit(changes);
    }

    /// Returns the word that ends the command in progress.
    pub(crate) fn command_end(&self) -> (usize, u64) {
        (COMMAND, 0)
    }

    /// Returns the command that was in progress, as the file has it.
    pub(super) fn command_in_progress(&self) -> Option<CommandInProgress> {
        let word = self.view.load_word(COMMAND).ok()?;
        if word & IN_PROGRESS == 0 {
            return None;
        }
        let output = self.view.read(COMMAND.wrapping_add(8)).ok()?;
        Some(CommandInProgress {
            index: word as u32,
            output: (word & EXECUTED != 0).then_some(output),
        })
    }
}
