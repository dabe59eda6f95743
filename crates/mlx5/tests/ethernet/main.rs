//! Two Ethernet drivers against their functions: frames from send queues to receive queues.

#[allow(dead_code, reason = "shared with the tests of queue pairs")]
#[path = "../function/driver.rs"]
mod driver;

mod commands;
mod hostile;
mod interface;
mod limits;
mod rate;
mod receive;
mod segmentation;
