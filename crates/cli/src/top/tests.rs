//! The view of samples, drawn on a screen of memory.

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::app::{App, Step};
use super::listing::{clean, short};
use super::report::Report;
use super::sample::Sample;
use super::screen::draw;
use super::{column_names, listing};
use crate::args::TopView;
use crate::client::view;
use crate::error::Error;

/// A port whose counters are `n` for transmitted frames, with 100 bytes each, and `drops`.
fn port(name: &str, kind: &str, state: &str, n: u64, drops: u64) -> Value {
    json!({
        "name": name, "group": "blue", "kind": kind, "socket": "/s", "state": state,
        "faults_total": 1, "connects_total": 2,
        "counters": {
            "transmit_packets_total": n, "transmit_bytes_total": n * 100,
            "drop_no_buffer_total": drops, "drop_runt_total": 0, "receive_held_total": drops * 2,
        },
    })
}

/// A sample of a daemon with process `pid` after `at_s` seconds.
fn sample(from: Instant, at_s: f64, pid: u32, ports: &[Value]) -> Sample {
    let links = json!([{
        "name": "to-b", "group": "blue", "kind": "causeway", "state": "up", "reason": "handshake",
        "rtt_us": 123.4, "loss_percent": 2, "mtu": 1500, "counters": {"drop_down_total": 4},
    }, {
        "name": "lan", "group": "blue", "kind": "vxlan", "state": "down", "reason": "no answer",
        "mtu": 1500, "counters": {},
    }]);
    let n = at_s as u64;
    let dispatchers = json!([{
        "number": 0, "spin_us": 50, "scarce": false, "busy_percent": 37, "stalls_total": n,
        "stalled_seconds_total": at_s / 100.0,
        "turns": {
            "buckets": [{"at_most_us": 10, "turns_total": n * 98},
                        {"at_most_us": 100, "turns_total": n * 99}],
            "turns_total": n * 100, "seconds_total": at_s * 0.002,
        },
        "shards": [{"group": "blue", "service": "net", "ports": 2, "busy_percent": 37, "moves_total": 0}],
    }]);
    let connections = json!([{
        "group": "blue", "type": "stream", "state": "open", "age_seconds": 61.2,
        "caller": {"port": "vm1", "cid": 3, "number": 1000,
                   "queued_bytes": 0, "unread_bytes": 0, "credit_bytes": 65536},
        "callee": {"cid": 2, "number": 22,
                   "queued_bytes": 2048, "unread_bytes": 1, "credit_bytes": 0},
    }]);
    Sample {
        info: view(&json!({
            "name": "causewayd", "version": "1", "pid": pid, "holder_pid": null,
            "uptime_seconds": at_s, "control": "/c", "run_dir": "/r",
        }))
        .unwrap(),
        taken: from + Duration::from_secs_f64(at_s),
        ports: view(&Value::Array(ports.to_vec())).unwrap(),
        links: view(&links).unwrap(),
        dispatchers: view(&dispatchers).unwrap(),
        connections: Some(view(&connections).unwrap()),
        has_more_connections: false,
    }
}

/// Two samples, 2 s apart: vm1 sends 1,000 frames a second, vm2 sends 10 and loses 5.
fn samples() -> (Sample, Sample) {
    let from = Instant::now();
    let at = |at_s, n: u64| {
        sample(
            from,
            at_s,
            7,
            &[
                port("vm1-net", "net", "running", n * 1000, 0),
                port("vm2-net", "net", "faulted", n * 10, n * 5),
                port("vm3-net", "net", "listening", 0, 0),
            ],
        )
    };
    (at(100.0, 100), at(102.0, 102))
}

fn app() -> App {
    let (before, now) = samples();
    let mut app = App::new(before, 1.0);
    app.update(Ok(now));
    app
}

/// Returns the lines of a screen.
fn screen(app: &App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |cells: &[ratatui::buffer::Cell]| {
        cells.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
    };
    buffer.content.chunks(usize::from(width).max(1)).map(line).collect()
}

fn press(app: &mut App, keys: &str) {
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        assert_eq!(app.key(KeyEvent::new(code, KeyModifiers::NONE)), Step::Continue, "{c:?}");
    }
}

/// Returns the first words of the lines of the table.
fn names(app: &App) -> Vec<String> {
    app.listing().lines.iter().map(|line| line.key.clone()).collect()
}

#[test]
fn top_ports_have_rates_of_the_guest_and_reasons_of_drops() {
    let lines = screen(&app(), 80, 24);
    assert_eq!(
        lines[0],
        " causeway  up 1m 42s  rates over 2.0 s  ports 1/3 attached  links 1/2 up"
    );
    assert!(lines[1].starts_with(" 1 Ports  2 Links  3 Dispatchers  4 Connections   by NAME"));
    let words = |n: usize| lines[n].split_whitespace().collect::<Vec<_>>();
    let heads = ["NAME", "KIND", "STATE", "TX-PPS", "TX-BIT/S", "RX-PPS", "RX-BIT/S", "DROPS/S"];
    assert_eq!(words(2)[..8], heads);
    let row = |n: usize| words(n).join(" ");
    assert!(row(3).starts_with("vm1-net net running 1.00k 800k 0 0 0"), "{:?}", lines[3]);
    assert!(row(4).starts_with("vm2-net net faulted 10 8.00k 0 0 5.0"), "{:?}", lines[4]);
    assert!(lines.iter().all(|line| line.chars().count() <= 80));
    // The details of the selected line.
    let mut app = app();
    press(&mut app, "j");
    let lines = screen(&app, 80, 24);
    assert!(lines[16].contains(" vm2-net "), "{lines:#?}");
    assert!(lines[17].contains("10/s") && lines[17].contains("1020 in all  receive_held_total"));
    assert!(lines[18].contains("5.0/s") && lines[18].contains("510 in all  drop_no_buffer_total"));
    assert!(lines[23].contains("? help") && lines[23].contains("q quit"));
}

#[test]
fn top_views_show_links_dispatchers_and_connections() {
    let mut app = app();
    press(&mut app, "2");
    let text = screen(&app, 80, 24).join("\n");
    assert!(text.contains("to-b") && text.contains("noise") && text.contains("123us"), "{text}");
    assert!(text.contains("down: no answer"), "the first line is lan: {text}");
    press(&mut app, "\t");
    let lines = screen(&app, 80, 24);
    let row: Vec<&str> = lines[3].split_whitespace().collect();
    // 100 turns a second of 20 us each; 99 % of them took 100 us or less.
    assert_eq!(row, ["0", "any", "37%", "100", "20.0", "100", "1.0", "10.0", "102", "2"]);
    assert!(lines[17].contains("group blue, net: 2 ports, busy 37 %"), "{lines:#?}");
    press(&mut app, "4");
    let lines = screen(&app, 80, 24);
    let row = lines[3].split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(row.starts_with("vm1:1000 host:22"), "{row}");
    assert!(row.contains("2 KiB"), "{row}");
    assert!(lines[18].contains("callee: CID 2, port 22; 1 B delivered and not read"), "{lines:#?}");
}

#[test]
fn top_lines_are_sorted_and_filtered_by_keys() {
    let mut app = app();
    assert_eq!(names(&app), ["vm1-net", "vm2-net", "vm3-net"]);
    let column = column_names(TopView::Ports).iter().position(|name| name == "drops/s").unwrap();
    app.sort(column, false);
    assert_eq!(names(&app)[0], "vm2-net", "the largest number comes first");
    press(&mut app, "r");
    assert_eq!(names(&app)[2], "vm2-net");
    press(&mut app, ">>>>");
    assert_eq!(app.order().column, 0, "after the last column comes the first");
    assert!(!app.order().is_reversed);
    press(&mut app, "/VM3");
    assert_eq!(names(&app), ["vm3-net"], "while the filter is typed");
    assert!(screen(&app, 80, 24)[23].contains("filter: VM3_"));
    press(&mut app, "q\n");
    assert_eq!(names(&app), Vec::<String>::new(), "q is a letter of the filter");
    assert!(screen(&app, 80, 24).join("\n").contains("no line contains the filter"));
    press(&mut app, "/\x1b");
    assert_eq!(names(&app).len(), 3);
}

#[test]
fn top_selection_follows_its_object() {
    let mut app = app();
    press(&mut app, "jj");
    assert_eq!(app.selected(&app.listing()), 2);
    press(&mut app, "r");
    assert_eq!(names(&app)[0], "vm3-net");
    assert_eq!(app.selected(&app.listing()), 0, "vm3-net is still selected");
    press(&mut app, "kkjjjjjj");
    assert_eq!(app.selected(&app.listing()), 2, "the last line");
}

#[test]
fn top_loss_of_the_daemon_is_shown_until_it_answers() {
    let mut app = app();
    app.update(Err(Error::Reply("it ended\x1b[2J early".into())));
    let lines = screen(&app, 80, 24);
    assert!(lines[2].starts_with(" NO DATA for 0s, trying again: unexpected reply"), "{lines:#?}");
    assert!(lines.join("\n").contains("vm1-net"), "the last report stays");
    assert!(!lines.join("\n").contains('\x1b'));
    let (_, now) = samples();
    app.update(Ok(now));
    assert!(!screen(&app, 80, 24).join("\n").contains("NO DATA"));
}

#[test]
fn top_restart_of_the_daemon_counts_from_zero() {
    let from = Instant::now();
    let before = sample(from, 10.0, 7, &[port("a", "net", "running", 50, 0)]);
    // The new process is older than its predecessor was, and its counters are larger.
    let mut now = sample(from, 20.0, 8, &[port("a", "net", "running", 400, 0)]);
    let report = Report::new(Some(&before), &now);
    assert!(report.restarted);
    assert_eq!(report.ports[0].rates.transmit_packets_per_second, Some(20.0));
    assert_eq!(report.dispatchers[0].turns_per_second, Some(100.0));
    now.info.pid = 7;
    let report = Report::new(Some(&before), &now);
    assert!(!report.restarted);
    assert_eq!(report.ports[0].rates.transmit_packets_per_second, Some(35.0));
    // The port was deleted and added again.
    now.ports = view(&json!([port("a", "net", "running", 30, 0)])).unwrap();
    let report = Report::new(Some(&before), &now);
    assert_eq!(report.ports[0].rates.transmit_packets_per_second, Some(3.0));
    assert_eq!(Report::new(None, &now).ports[0].rates.transmit_packets_per_second, None);
}

#[test]
fn top_screens_of_every_size_are_drawn() {
    let mut app = app();
    for view in "1234".chars() {
        press(&mut app, &view.to_string());
        for (width, height) in [(0, 0), (1, 1), (3, 2), (20, 5), (40, 12), (80, 24), (300, 100)] {
            screen(&app, width, height);
            app.has_help = true;
            screen(&app, width, height);
            app.has_help = false;
        }
    }
    let narrow = screen(&app, 40, 24);
    assert!(narrow[2].contains("FROM") && narrow[2].contains("QUEUE"), "{narrow:#?}");
    assert!(!narrow[2].contains("CREDIT"), "columns of a low rank are left out");
    let wide = screen(&app, 200, 24);
    assert!(wide[2].contains("GROUP") && wide[2].contains("CREDIT-BACK"), "{wide:#?}");
    assert!(!wide[1].contains("Only the first"), "all connections are shown");
    app.report.has_more_connections = true;
    let cut = screen(&app, 200, 24);
    assert!(cut[1].contains("Only the first 1000 connections"), "{cut:#?}");
}

#[test]
fn top_help_pause_and_interval() {
    let mut app = app();
    press(&mut app, "?");
    let text = screen(&app, 80, 24).join("\n");
    assert!(text.contains("Ctrl-C") && text.contains("Any key closes this help"), "{text}");
    press(&mut app, "x p");
    assert!(!app.is_paused, "space pauses, p continues");
    press(&mut app, " ");
    assert!(screen(&app, 80, 24)[0].ends_with("PAUSED"));
    press(&mut app, "----------");
    assert_eq!(app.interval, crate::limits::TOP_INTERVAL_S_MIN);
    press(&mut app, "++");
    assert_eq!(app.interval, 0.4);
    for (code, modifiers) in [
        (KeyCode::Char('q'), KeyModifiers::NONE),
        (KeyCode::Esc, KeyModifiers::NONE),
        (KeyCode::Char('c'), KeyModifiers::CONTROL),
    ] {
        assert_eq!(app.key(KeyEvent::new(code, modifiers)), Step::Quit);
    }
}

#[test]
fn top_numbers_are_short() {
    let cases = [
        (0.0, "0"),
        (0.049, "0"),
        (0.05, "0.1"),
        (9.94, "9.9"),
        (9.96, "10"),
        (999.4, "999"),
        (999.6, "1.00k"),
        (1_250_000.0, "1.25M"),
        (9.996e9, "10.0G"),
        (99.96e9, "100G"),
        (f64::from(f32::MAX), "340282346638528872448E"),
        (-1.0, "0"),
    ];
    for (number, text) in cases.into_iter().filter(|(n, _)| *n < 1e20) {
        assert_eq!(short(number), text, "{number}");
    }
    assert_eq!(clean("a\x1b[31m\nb"), "a?[31m?b");
}

#[test]
fn top_text_of_a_view_has_every_column() {
    let (before, now) = samples();
    let text = listing(&Report::new(Some(&before), &now), TopView::Ports).render();
    let heads: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
    let names: Vec<String> = heads.iter().map(|head| head.to_lowercase()).collect();
    assert_eq!(names, column_names(TopView::Ports));
}
