//! Scripted frontends: the message order of each VMM against the server, with traffic at the end.
//!
//! A file of `scripts/` has the messages of one frontend, one a line, with the expected answers
//! ([`script`] has the language); the first lines state the source of the order. The orders are
//! facts about the frontends' behaviour, from the specification, from traces of real programs
//! (`qemu -trace vhost_user_write`) and from their public documentation and sources. [`player`]
//! sends them to a [`causeway_attach::Server`] with the model of a net or vsock port, checks the
//! answers, and moves a frame through each pair of queues that runs. No guest kernel is involved.

mod player;
mod script;

use player::play;

/// Makes each script a test.
macro_rules! frontends {
    ($($name:ident => $file:literal,)*) => {
        $(#[test]
        fn $name() {
            play($file, include_str!(concat!("scripts/", $file)));
        })*
    };
}

frontends! {
    matrix_qemu_7_net => "qemu-7.2-net.txt",
    matrix_qemu_7_net_multiqueue => "qemu-7.2-net-multiqueue.txt",
    matrix_qemu_7_vsock => "qemu-7.2-vsock.txt",
    matrix_qemu_11_net => "qemu-11-net.txt",
    matrix_qemu_11_vsock => "qemu-11-vsock.txt",
    matrix_cloud_hypervisor_net => "cloud-hypervisor-net.txt",
    matrix_cloud_hypervisor_net_multiqueue => "cloud-hypervisor-net-multiqueue.txt",
    matrix_crosvm_net => "crosvm-net.txt",
    matrix_crosvm_vsock => "crosvm-vsock.txt",
    matrix_libkrun_net => "libkrun-net.txt",
    matrix_libkrun_vsock => "libkrun-vsock.txt",
    matrix_openvmm_net => "openvmm-net.txt",
    matrix_openvmm_vsock => "openvmm-vsock.txt",
    matrix_dpdk_net => "dpdk-net.txt",
    matrix_dpdk_net_multiqueue => "dpdk-net-multiqueue.txt",
}

#[test]
#[should_panic(expected = "line 3: GET_QUEUE_NUM")]
fn matrix_wrong_answer_fails_its_line() {
    play("wrong", "device net 1\nSET_OWNER\nGET_QUEUE_NUM = 7\n");
}

#[test]
#[should_panic(expected = "no queue pair runs")]
fn matrix_script_without_running_queues_fails() {
    play("idle", "device net 1\nSET_OWNER\ntraffic\n");
}
