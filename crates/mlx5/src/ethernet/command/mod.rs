//! Commands of the Ethernet side, by object.
//!
//! `crate::command::dispatch` has the opcode of each handler and calls it in the dispatcher's turn
//! of the port's group. The rules of `crate::command` apply: a refused command changes nothing, and
//! no handler waits. The number of objects of each kind is bounded by `ethernet::limits`; a command
//! beyond a number fails with the status *limit exceeded*. Frames are not handled here:
//! `ethernet::transmit` and `ethernet::receive` use the objects.

mod counter;
mod flow;
mod interface;
mod queue;

pub(crate) use counter::{
    allocate_flow_counter, deallocate_flow_counter, query_queue_counter, query_vport_counter,
};
pub(crate) use flow::{
    create_group, create_table, delete_entry, destroy_group, destroy_table, modify_table,
    set_entry, set_root,
};
pub(crate) use interface::{
    create_queue_table, create_tir, create_tis, destroy_queue_table, destroy_tir, destroy_tis,
    modify_queue_table, modify_tir, modify_tis, query_queue_table, query_tir, query_tis,
};
pub(crate) use queue::{
    create_receive_queue, create_send_queue, destroy_receive_queue, destroy_send_queue,
    modify_receive_queue, modify_send_queue, query_receive_queue, query_send_queue,
};
