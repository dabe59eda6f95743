//! Commands about the virtual port and the GID table.
//!
//! MODIFY_NIC_VPORT_CONTEXT checks everything before the first change: lists of more than 16
//! entries, unknown lists, an MTU above the port's and another permanent address are *bad
//! parameter*. It ignores the selection of inline modes and change events. The addresses and VLANs
//! in a list are not checked, and of a list longer than the input the entries that are there are
//! taken. A GID index of 256 or more is *bad index*, an entry with an Ethernet address other than
//! the port's *bad parameter*, unless the entry deletes. MODIFY_VPORT_STATE has no effect: the link
//! is up. Partition keys are the default partition alone. Contexts of InfiniBand ports are not
//! served (*bad operation*). The values are kept in `crate::vport`; the service that forwards the
//! group's frames learns the operator's address of the port alone, none of these lists.
//!
//! `super::dispatch` calls the handlers, in the dispatcher's turn of the port's group.

use causeway_wire::mlx5::command::{InputHeader, Status};
use causeway_wire::mlx5::vport::{
    LIST, LIST_ENTRY, ListType, MODIFY_NIC_CONTEXT, NicVportContext, QUERY_NIC_CONTEXT,
    QueryNicInput, ROCE_ADDRESS, RoceAddress, RoceAddressInput, VportStateOutput,
    emit_partition_table, list_entries, select,
};

use super::{Input, Outcome, Output, short};
use crate::function::Function;
use crate::limits::VPORT_ADDRESSES_MAX;
use crate::vport::Vport;

/// State of the port: up.
const UP: u8 = 1;

/// Executes QUERY_VPORT_STATE: the link is up.
pub(crate) fn query_state(_: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let state = VportStateOutput { admin: UP, state: UP };
    output.put(0, &state.to_bytes())
}

/// Executes QUERY_NIC_VPORT_CONTEXT.
pub(crate) fn query_nic(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let query = QueryNicInput::parse(input.bytes()).map_err(short)?;
    let vport = &f.objects.vport;
    let list = entries(vport, query.list_type)?;
    let context = NicVportContext {
        list_type: query.list_type,
        list_len: u16::try_from(list.len()).unwrap_or(0),
        ..vport.context
    };
    output.put(QUERY_NIC_CONTEXT, &context.to_bytes())?;
    let start = QUERY_NIC_CONTEXT.saturating_add(LIST);
    for (index, entry) in list.iter().enumerate() {
        output.put_truncated(start.saturating_add(index.saturating_mul(LIST_ENTRY)), entry);
    }
    Ok(())
}

/// Returns a list in the driver's format.
fn entries(vport: &Vport, list_type: u8) -> Result<Vec<[u8; LIST_ENTRY]>, Status> {
    let mac = |[a, b, c, d, e, f]: &[u8; 6]| [0, 0, *a, *b, *c, *d, *e, *f];
    Ok(match ListType::from_raw(list_type).ok_or(Status::BadParameter)? {
        ListType::Unicast => vport.unicast.iter().map(mac).collect(),
        ListType::Multicast => vport.multicast.iter().map(mac).collect(),
        ListType::Vlan => {
            let entry = |vlan: &u16| {
                let [high, low] = vlan.to_be_bytes();
                [0, 0, high, low, 0, 0, 0, 0]
            };
            vport.vlans.iter().map(entry).collect()
        }
    })
}

/// Executes MODIFY_NIC_VPORT_CONTEXT.
pub(crate) fn modify_nic(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let header = InputHeader::parse(input.bytes()).map_err(short)?;
    let bytes = input.tail(MODIFY_NIC_CONTEXT)?;
    let new = NicVportContext::parse(bytes).map_err(short)?;
    let selects = |field: u32| header.argument & field != 0;
    let vport = &mut f.objects.vport;
    // All checks stand before the first change.
    if selects(select::LIST) && usize::from(new.list_len) > VPORT_ADDRESSES_MAX {
        return Err(Status::BadParameter);
    }
    if selects(select::MTU) && new.mtu > vport.mtu_max() {
        return Err(Status::BadParameter);
    }
    if selects(select::PERMANENT_MAC) && new.permanent_mac != vport.context.permanent_mac {
        return Err(Status::BadParameter);
    }
    if selects(select::LIST) {
        set_list(vport, &new, bytes)?;
    }
    let own = &mut vport.context;
    if selects(select::MTU) {
        own.mtu = new.mtu;
    }
    if selects(select::ROCE) {
        own.has_roce = new.has_roce;
    }
    if selects(select::PROMISCUOUS) {
        own.is_promiscuous = new.is_promiscuous;
        own.is_promiscuous_unicast = new.is_promiscuous_unicast;
        own.is_promiscuous_multicast = new.is_promiscuous_multicast;
    }
    if selects(select::PORT_GUID) {
        own.port_guid = new.port_guid;
    }
    if selects(select::NODE_GUID) {
        own.node_guid = new.node_guid;
    }
    if selects(select::MULTICAST_LOOPBACK) {
        own.blocks_multicast_loopback = new.blocks_multicast_loopback;
    }
    if selects(select::UNICAST_LOOPBACK) {
        own.blocks_unicast_loopback = new.blocks_unicast_loopback;
    }
    Ok(())
}

/// Replaces a list of addresses.
fn set_list(vport: &mut Vport, new: &NicVportContext, bytes: &[u8]) -> Outcome {
    let mac = |[_, _, a, b, c, d, e, f]: [u8; LIST_ENTRY]| [a, b, c, d, e, f];
    match ListType::from_raw(new.list_type).ok_or(Status::BadParameter)? {
        ListType::Unicast => vport.unicast = list_entries(bytes).map(mac).collect(),
        ListType::Multicast => vport.multicast = list_entries(bytes).map(mac).collect(),
        ListType::Vlan => {
            let vlan =
                |[_, _, high, low, ..]: [u8; LIST_ENTRY]| u16::from_be_bytes([high, low]) & 0xfff;
            vport.vlans = list_entries(bytes).map(vlan).collect();
        }
    }
    Ok(())
}

/// Executes SET_ROCE_ADDRESS: sets or deletes an entry of the GID table.
pub(crate) fn set_roce(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let header = RoceAddressInput::parse(input.bytes()).map_err(short)?;
    let address = RoceAddress::parse(input.tail(ROCE_ADDRESS)?).map_err(short)?;
    let own = f.objects.vport.context.permanent_mac;
    if !address.is_deleted() && address.mac != own {
        return Err(Status::BadParameter);
    }
    if f.objects.vport.set_gid(header.index, address) { Ok(()) } else { Err(Status::BadIndex) }
}

/// Executes QUERY_ROCE_ADDRESS.
pub(crate) fn query_roce(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let header = RoceAddressInput::parse(input.bytes()).map_err(short)?;
    let index = u8::try_from(header.index).map_err(|_| Status::BadIndex)?;
    output.put(ROCE_ADDRESS, &f.objects.vport.gid(index).to_bytes())
}

/// Executes QUERY_HCA_VPORT_PKEY: the default partition alone.
pub(crate) fn query_pkey(_: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    emit_partition_table(output.0).map_err(|_| Status::BadOutputLength)
}
