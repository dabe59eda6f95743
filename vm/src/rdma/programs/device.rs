//! The life of the function in the second guest: the driver leaves and returns, and so does the
//! guest. After each act, queue pairs must work again.
//!
//! `causeway-matrix` and a test call these functions; each act is a step that fails if the driver
//! does not set the function up again, and a step of its own with `ibv_rc_pingpong` follows. The
//! reboot also removes the kernel's messages of the second guest, which the caller's step "kernel
//! messages" reads. The first guest stays as it is. A step that fails does not undo its act, so
//! that later steps may fail too. Acts block the thread of the test, at most for the limits of
//! [`RdmaGuest`](crate::rdma::RdmaGuest).

use crate::error::Result;
use crate::rdma::Pair;
use crate::rdma::steps::Steps;

/// An act on a pair of guests.
type Act = fn(&mut Pair) -> Result<()>;

/// Removes the driver and binds it again.
pub fn rebind(steps: &mut Steps) {
    steps.step("driver rebind", |pair| pair.guests[1].rebind());
    works(steps);
}

/// Reloads the driver by devlink, removes the function from the bus and finds it again, and reboots
/// the guest.
pub fn leave_and_return(steps: &mut Steps) {
    let acts: [(&str, Act); 3] = [
        ("devlink dev reload", |pair| pair.guests[1].reload()),
        ("PCI remove and rescan", |pair| pair.guests[1].remove_and_rescan()),
        ("guest reboot", |pair| pair.guests[1].reboot()),
    ];
    for (name, act) in acts {
        steps.step(name, act);
        works(steps);
    }
}

fn works(steps: &mut Steps) {
    steps.program("ibv_rc_pingpong", "-n 20 -e -c");
}
