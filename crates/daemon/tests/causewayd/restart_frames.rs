//! Stops causewayd while two guests of held ports exchange frames: no frame is lost, whichever
//! frontend the holder brings back first. One port has no frontend at all.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::Dir;
use crate::common::daemon_process::{DaemonProcess, config};
use causeway_attach::native::{NetOptions, NetPort};

const CAUSEWAYD: &str = env!("CARGO_BIN_EXE_causewayd");
/// Time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(20);
const STOPS: u32 = 16;
/// Answers between two stops.
const ANSWERS: u64 = 50;
/// EtherType "local experimental" (IEEE 802).
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

fn mac(n: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 2, n]
}

fn port(n: u8) -> String {
    format!(
        "[[port]]\nname = \"net-{n}\"\ngroup = \"blue\"\nkind = \"net\"\nmac = \"52:54:00:00:02:0{n}\"\n"
    )
}

fn attach(dir: &Dir, n: u8) -> NetPort {
    NetPort::attach(&dir.file(&format!("net-{n}.sock")), NetOptions::default()).unwrap()
}

fn frame(to: u8, from: u8, number: u64) -> Vec<u8> {
    let mut frame = [&mac(to)[..], &mac(from), &ETHER_TYPE, &number.to_be_bytes()].concat();
    frame.resize(60, 0);
    frame
}

/// Waits for the next frame of the test; `None` at its end.
fn receive(port: &mut NetPort, is_over: &AtomicBool) -> Option<Vec<u8>> {
    let (mut frame, since) = (Vec::new(), Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        if port.receive(0, &mut frame).unwrap().is_none() {
            port.wait(Some(Duration::from_millis(20))).unwrap();
        } else if frame[12..14] == ETHER_TYPE {
            return Some(frame);
        }
        assert!(since.elapsed() < PATIENCE, "a frame or its answer is lost");
    }
    None
}

/// Answers each frame of net-1.
fn answer(mut port: NetPort, is_over: &AtomicBool) {
    while let Some(asked) = receive(&mut port, is_over) {
        let number = u64::from_be_bytes(asked[14..22].try_into().unwrap());
        assert!(port.send(&frame(1, 2, number)).unwrap());
    }
}

/// Sends one frame after the answer to the last, and counts the answers.
fn ask(mut port: NetPort, answers: &AtomicU64, is_over: &AtomicBool) {
    for number in 0.. {
        assert!(port.send(&frame(2, 1, number)).unwrap());
        let Some(answer) = receive(&mut port, is_over) else { return };
        assert_eq!(answer, frame(1, 2, number));
        answers.store(number + 1, Ordering::Relaxed);
    }
}

#[test]
fn restart_clean_stops_lose_no_frame_between_held_ports() {
    let dir = Dir::new();
    let file = config(&dir, "all", &[1, 2, 3].map(port).concat());
    let mut life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let (one, two) = (attach(&dir, 1), attach(&dir, 2));
    let (answers, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let asks = scope.spawn(|| ask(one, &answers, &is_over));
        let replies = scope.spawn(|| answer(two, &is_over));
        let goes_on = || {
            let goal = answers.load(Ordering::Relaxed) + ANSWERS;
            while answers.load(Ordering::Relaxed) < goal {
                assert!(!asks.is_finished() && !replies.is_finished());
                thread::sleep(Duration::from_millis(1));
            }
        };
        goes_on();
        for _ in 0..STOPS {
            life.stop();
            life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
            goes_on();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    life.release(&dir);
}
