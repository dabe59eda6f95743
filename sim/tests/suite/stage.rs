//! The stage is idle unless a test calls it.

use causeway_attach::native::{NetOptions, VsockOptions};
use causeway_fabric::PollConfig;
use causeway_model::{Name, PollPolicy};
use causeway_sim::stage::{Stage, net_spec, plain_net, vsock_spec};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

const PACING: PollConfig =
    PollConfig { policy: PollPolicy::GuestDriven, upper: 1, lower: 1, period_ns: 1, spin_ns: 0 };

fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

#[test]
fn a_frame_arrives_once_its_doorbell_is_rung() {
    let stage =
        Stage::new(name("red"), Box::new(causeway_ethernet::Ethernet::new()), PACING).unwrap();
    let mut ports: Vec<_> = (1..=2_u8)
        .map(|n| {
            let port = name(&format!("n{n}"));
            stage.add(net_spec(stage.group(), &port, plain_net(mac(n), 1500))).unwrap();
            stage.net(&port, NetOptions::default(), 0).unwrap()
        })
        .collect();
    assert!(!stage.step(16).unwrap());
    let frame = [&mac(2)[..], &mac(1)[..], &[0x88, 0xb5, 7, 7]].concat();
    assert!(ports[0].send(&frame).unwrap());
    stage.step(16).unwrap();
    let mut got = Vec::new();
    assert!(ports[1].receive(0, &mut got).unwrap().is_none(), "the doorbell was kept back");
    let (_, lane) = ports[0].frontend().driver_queue(1).unwrap();
    assert!(lane.ring_due());
    lane.ring();
    stage.step_elsewhere(16).unwrap();
    assert!(ports[1].receive(0, &mut got).unwrap().is_some());
    assert_eq!(got, frame);
}

#[test]
fn a_set_up_may_be_cut_short_at_each_answer_and_begun_again() {
    let stage = Stage::new(name("red"), Box::new(causeway_socket::Socket::new()), PACING).unwrap();
    let port = name("v3");
    stage.add(vsock_spec(stage.group(), &port, 3)).unwrap();
    let mut cuts = 0;
    loop {
        stage.patience(Some(cuts));
        match stage.vsock(&port, VsockOptions::default(), 0) {
            Ok(attached) => {
                assert_eq!(attached.cid(), 3);
                break;
            }
            Err(_) => {
                stage.step(4).unwrap();
                cuts += 1;
            }
        }
    }
    assert!(cuts > 10, "a set-up has more answers than {cuts}");
}
