//! The life of the function in the second guest: the driver leaves and returns, and so does the
//! guest. After each act, queue pairs must work again.
//!
//! `causeway-matrix` and a test call these functions; each act is a step that fails if the driver
//! does not set the function up again, and a step of its own with `ibv_rc_pingpong` follows. The
//! reboot removes the kernel's messages of the second guest, so that a step before it checks them;
//! the caller's step "kernel messages" reads those after it. The first guest stays as it is. A step
//! that fails does not undo its act, so that later steps may fail too. Acts block the thread of the
//! test, at most for the limits of [`RdmaGuest`](crate::rdma::RdmaGuest).

use crate::error::Result;
use crate::rdma::Pair;
use crate::rdma::steps::Steps;

/// Removes the driver and binds it again.
pub fn rebind(steps: &mut Steps) {
    act(steps, "driver rebind", |pair| pair.guests[1].rebind());
}

/// Reloads the driver by devlink, removes the function from the bus and finds it again, checks the
/// kernel's messages so far, and reboots the guest.
pub fn leave_and_return(steps: &mut Steps) {
    act(steps, "devlink dev reload", |pair| pair.guests[1].reload());
    act(steps, "PCI remove and rescan", |pair| pair.guests[1].remove_and_rescan());
    steps.step("kernel messages before the reboot", |pair| pair.guests[1].check_kernel());
    act(steps, "guest reboot", |pair| pair.guests[1].reboot());
}

/// Runs an act as a step, and checks that queue pairs work afterwards.
fn act(steps: &mut Steps, name: &str, act: impl FnOnce(&mut Pair) -> Result<()>) {
    steps.step(name, act);
    works(steps);
}

fn works(steps: &mut Steps) {
    steps.program("ibv_rc_pingpong", "-n 20 -e -c");
}
