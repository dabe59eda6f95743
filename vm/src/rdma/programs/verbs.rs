//! Programs of rdma-core and perftest, by each transport service and operation.
//!
//! The matrix and a test call [`all`] with two guests: each program is a step, most of them with
//! the server in the first guest and the client in the second, with a time limit of 40 s. Most
//! pingpong programs compare content (`-c`; not `ibv_xsrq_pingpong`), and so does `rping`; the
//! other programs count messages only. A program that exits with an error fails its step. Faults
//! that the kernels report fail no step here: the caller's step "kernel messages" finds those since
//! the last boot of each guest.

use crate::error::{Error, Result};
use crate::rdma::steps::{LIMIT, Steps};
use crate::rdma::{DEVICE, Pair};

/// Runs the programs that each change of the adapter must pass.
pub fn all(steps: &mut Steps) {
    steps.step("ibv_devinfo", device_info);
    steps.step("ibv_devinfo -v", capabilities);
    steps.step("ping", ping);
    steps.managed("rping -s -a SERVER -C 5 -S 4096 -V", "rping -c -a SERVER -C 5 -S 4096 -V");
    steps.managed("ucmatose -C 5", "ucmatose -C 5 -s SERVER");
    steps.managed("udaddy -C 5", "udaddy -C 5 -s SERVER");
    steps.managed("ib_write_bw -R -n 20 -F", "ib_write_bw -R -n 20 -F SERVER");
    steps.program("ibv_rc_pingpong", "-n 100 -s 65536 -c");
    steps.program("ibv_rc_pingpong", "-n 100 -e -c");
    steps.program("ibv_uc_pingpong", "-n 50 -c");
    steps.program("ibv_ud_pingpong", "-n 50 -s 1000 -c");
    steps.program("ibv_srq_pingpong", "-n 50 -q 4 -c");
    steps.program("ibv_xsrq_pingpong", "-n 50 -s 4096");
    steps.program("ibv_xsrq_pingpong", "-n 50 -e");
    steps.program("ib_send_bw", "-c XRC -n 50 -s 4096 -F");
    steps.program("ib_write_bw", "-c XRC -n 20 -s 65536 -F");
    steps.program("ib_atomic_lat", "-c XRC -n 30 -F");
    steps.program("ib_write_lat", "-n 50 -s 64 -F");
    steps.program("ib_send_lat", "-n 30 -s 64 -e -F");
    steps.program("ib_send_lat", "-n 30 -s 64 -c UD -F");
    steps.program("ib_send_bw", "-n 50 -s 4096 -F");
    steps.program("ib_send_bw", "-n 20 -s 1024 -r 64 --use-srq -F");
    steps.program("ib_read_bw", "-n 20 -s 65536 -F");
    steps.program("ib_write_bw", "-n 20 -s 65536 -b -F");
    steps.program("ib_atomic_lat", "-n 30 -F");
}

fn device_info(pair: &mut Pair) -> Result<()> {
    for guest in &pair.guests {
        let info = guest.run(&["ibv_devinfo", "-d", DEVICE], LIMIT)?;
        for want in ["PORT_ACTIVE", "link_layer:\t\tEthernet", "hca_id:\tmlx5_0"] {
            if !info.contains(want) {
                return Err(Error::Traffic { what: format!("{want} not in {info}") });
            }
        }
    }
    Ok(())
}

fn capabilities(pair: &mut Pair) -> Result<()> {
    let info = pair.guests[0].run(&["ibv_devinfo", "-v", "-d", DEVICE], LIMIT)?;
    let info = info.split_whitespace().collect::<Vec<_>>().join(" ");
    for want in ["max_mcast_grp: 64", "max_mcast_qp_attach: 16", "max_mw: 0", " XRC "] {
        if !info.contains(want) {
            return Err(Error::Traffic { what: format!("{want} not in {info}") });
        }
    }
    match info.contains("MEM_WINDOW") {
        true => Err(Error::Traffic { what: format!("memory windows are offered: {info}") }),
        false => Ok(()),
    }
}

fn ping(pair: &mut Pair) -> Result<()> {
    let [a, b] = &pair.guests;
    a.run(&["ping", "-c", "3", "-i", "0.2", "-w", "10", "-s", "1400", &b.ip()], LIMIT)?;
    b.run(&["ping", "-c", "3", "-i", "0.2", "-w", "10", &a.ip()], LIMIT).map(|_| ())
}
