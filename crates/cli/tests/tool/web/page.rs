//! The page in Chromium: what it shows, how it is used, and that nothing overlaps.

use serde_json::{Value, json};

use super::chromium::Chromium;
use super::world::{Flow, Host, Traffic, Web, connect, free_datagram_addresses};
use crate::common::send;

/// Two groups of eight ports and their guests, two peers of which one does not answer, a port whose
/// guest was cut off, and ports without a guest.
struct TwoGroups {
    here: Host,
    _hosts: [Host; 1],
    _traffic: [Traffic; 2],
    _sockets: Vec<causeway_attach::native::Sockets>,
}

impl TwoGroups {
    fn start() -> Self {
        let (here, far) = (Host::start(), Host::start());
        let [ours, theirs, unused] = free_datagram_addresses();
        here.run("group add blue");
        here.run("group add storage");
        far.run("group add blue");
        (1..=4).for_each(|number| here.add_vm(number, "blue"));
        (5..=8).for_each(|number| here.add_vm(number, "storage"));
        far.add_vm(9, "blue");
        let ends = |local, remote| {
            format!("--kind causeway-plain --vni 7 --local {local} --remote {remote}")
        };
        here.run(&format!("link add to-b --group blue --peer host-b {}", ends(ours, theirs)));
        far.run(&format!("link add to-a --group blue --peer host-a {}", ends(theirs, ours)));
        let ends = format!("--kind causeway-plain --local {unused} --remote 127.0.0.2:9");
        here.run(&format!("link add to-c --group storage --peer host-c {ends}"));
        let flow = |from, to, frames, bytes| Flow { from, to, frames, bytes };
        let flows = vec![
            flow(1, 2, 60, 1400),
            flow(2, 1, 6, 200),
            flow(1, 3, 8, 900),
            flow(3, 2, 2, 400),
            flow(2, 9, 12, 1400),
            flow(5, 6, 100, 1400),
            flow(6, 5, 20, 1400),
            flow(7, 5, 4, 600),
        ];
        let guests = [1, 2, 3, 5, 6, 7].map(|number| here.net(number)).into();
        let near = Traffic::start(guests, flows);
        let far_guests = vec![far.net(9)];
        let back = Traffic::start(far_guests, vec![flow(9, 2, 4, 800), flow(9, 1, 1, 300)]);
        let mut sockets: Vec<_> = connect(here.vsock(1), here.vsock(2), 4, 3).into();
        sockets.extend(connect(here.vsock(5), here.vsock(7), 9, 12));
        drop(here.vsock(4));
        Self { here, _hosts: [far], _traffic: [near, back], _sockets: sockets }
    }
}

/// Pairs of boxes of the graph that overlap, and boxes outside of the graph.
const MISPLACED: &str = r##"(() => {
    const all = [...document.querySelectorAll("#graph .box .box-back")].map((back) =>
        [back.parentNode.getAttribute("aria-label"), back.getBoundingClientRect()]);
    const outer = document.querySelector("#graph svg").getBoundingClientRect();
    const found = all.filter(([, r]) => r.left < outer.left || r.right > outer.right || r.bottom > outer.bottom + 1).map(([name]) => name);
    all.forEach(([a, r], at) => all.slice(at + 1).forEach(([b, s]) => {
        if (r.left < s.right && s.left < r.right && r.top < s.bottom && s.top < r.bottom) found.push(`${a} / ${b}`);
    }));
    for (const label of document.querySelectorAll("#graph .box text")) {
        const r = label.getBoundingClientRect(), s = label.parentNode.querySelector(".box-back").getBoundingClientRect();
        if (r.width && (r.right > s.right + 1 || r.left < s.left - 1)) found.push(`text ${label.textContent}`);
    }
    return found;
})()"##;

const IS_TOO_WIDE: &str = "document.documentElement.scrollWidth > innerWidth";

#[test]
fn page_shows_groups_ports_links_hosts_traffic_and_problems() {
    let Some(mut browser) = Chromium::start() else { return };
    let world = TwoGroups::start();
    let web = Web::start(&world.here.control, "--interval 1");
    browser.prefer("light");
    browser.resize(1280, 800, 1);
    browser.open(&format!("http://{}/", web.address));
    browser.wait("document.querySelectorAll('#graph .box.port').length === 16");
    browser.wait("document.querySelectorAll('.edge.ethernet:not(.idle)').length >= 6");
    let count = |browser: &mut Chromium, selector: &str| {
        browser.value(&format!("document.querySelectorAll({}).length", json!(selector)))
    };
    for (selector, number) in [
        ("#graph .card", 2),
        ("#graph .box.port.running", 10),
        ("#graph .box.link", 2),
        ("#graph .box.host.up", 1),
        ("#graph .box.host.down", 1),
        ("#graph .wire", 2),
        ("#graph .edge.vsock", 2),
        ("#table tbody tr", 16),
    ] {
        assert_eq!(count(&mut browser, selector), number, "{selector}");
    }
    browser.wait("document.getElementById('tiles').innerText.includes('15')");
    let text = browser.value("document.body.innerText");
    let text = text.as_str().unwrap();
    for part in ["link to-c is down", "its guest was cut off", "reboot the guest", "live"] {
        assert!(text.contains(part), "{part} not in\n{text}");
    }
    // The picture has a course of the rates.
    if std::env::var_os("CAUSEWAY_SCREENSHOTS").is_some() {
        std::thread::sleep(std::time::Duration::from_secs(30));
    }
    for (name, scheme, width, height) in [
        ("light.png", "light", 1280, 800),
        ("dark.png", "dark", 1280, 800),
        ("wide.png", "light", 1920, 1080),
        ("phone.png", "light", 390, 1400),
    ] {
        browser.prefer(scheme);
        browser.resize(width, height, 1);
        browser.wait(
            "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(true), 50)))",
        );
        assert_eq!(browser.value(MISPLACED), json!([]), "{name}");
        assert_eq!(browser.value(IS_TOO_WIDE), false, "{name}");
        browser.picture(name);
    }
    browser.resize(1280, 800, 1);
    browser.value("document.querySelector('[aria-label^=\"port vm2-net\"]').dispatchEvent(new MouseEvent('click'))");
    let detail = browser.value("document.getElementById('detail').innerText");
    for part in
        ["52:54:00:00:00:02", "Traffic with", "vm1-net", "to-b", "causeway port show vm2-net"]
    {
        assert!(detail.as_str().unwrap().contains(part), "{part} not in {detail}");
    }
    browser.picture("detail.png");
    let own = format!("http://{}/", web.address);
    let requests = browser.requests();
    assert!(requests.len() > 8, "{requests:?}");
    assert!(requests.iter().all(|address| address.starts_with(&own)), "{requests:?}");
    assert_eq!(browser.problems(), Vec::<String>::new());
}

#[test]
fn page_shows_mx_nics_of_other_hosts() {
    let Some(mut browser) = Chromium::start() else { return };
    let hosts = [Host::start(), Host::start()];
    let [a, b] = free_datagram_addresses();
    let mac = |number: u8| format!("02:00:00:00:00:0{number}");
    for (host, number, ours, other, theirs) in [(&hosts[0], 1, a, 2, b), (&hosts[1], 2, b, 1, a)] {
        host.run("group add mpi");
        let port = json!({
            "name": "mx0", "group": "mpi", "kind": "mx", "mac": mac(number),
            "hostname": format!("node-{number}:mx0"), "peers": [{"mac": mac(other)}],
            "udp": {"listen": ours, "peers": [theirs]},
        });
        let (status, reply) = send(&host.control, "POST", "/v1/ports", &port.to_string());
        assert_eq!(status, 201, "{reply}");
    }
    let web = Web::start(&hosts[0].control, "--interval 1");
    browser.resize(1280, 800, 1);
    browser.open(&format!("http://{}/", web.address));
    browser.wait("document.querySelectorAll('#graph .box.host').length === 1");
    // The daemon asks the NIC for its name.
    let label = "document.querySelector('#graph .box.host').getAttribute('aria-label')";
    browser.wait(&format!("{label} === 'host node-2: MX NICs'"));
    assert_eq!(browser.value("document.querySelectorAll('#graph .edge.mx').length"), 1);
    browser
        .value("document.querySelector('#graph .box.link').dispatchEvent(new MouseEvent('click'))");
    let detail = browser.value("document.getElementById('detail').innerText");
    assert!(detail.as_str().unwrap().contains("node-2:mx0"), "{detail}");
    assert_eq!(browser.value(MISPLACED), json!([]));
    browser.picture("nics.png");
    assert_eq!(browser.problems(), Vec::<String>::new());
}

/// Returns a report of the directory: a host with addresses, an unseen host, and an evicted one.
fn report(key: &std::path::Path, local: std::net::SocketAddr) -> Value {
    let member = |id: &str, first: char, groups: Value, seen: bool| {
        let key = format!("{first}{}=", "A".repeat(42));
        json!({
            "id": id, "key": key, "endpoints": ["192.0.2.2:9"], "groups": groups, "seen": seen,
            "epoch": 1,
        })
    };
    let blue = json!([{"name": "blue", "vni": 7}]);
    let address = |last: u8| {
        let address = format!("52:54:00:00:01:{last:02x}");
        json!({"kind": "mac", "group": "blue", "address": address, "host": "h2", "epoch": 1})
    };
    json!({
        "site": "lab", "host": "h1", "instance": 1, "begin": true, "end": true,
        "tunnel": {"local": local, "private_key": key, "idle": 0},
        "hosts": [member("h2", 'B', blue, true), member("h3", 'C', json!([]), false)],
        "addresses": [address(1), address(2), address(3)],
        "status": {"connected": true, "evicted": ["h4"], "alarm": "an event needs an operator"},
    })
}

#[test]
fn page_shows_the_hosts_of_a_cluster() {
    let Some(mut browser) = Chromium::start() else { return };
    let host = Host::start();
    host.run("group add blue");
    host.add_vm(1, "blue");
    let key = host.dir.join("key");
    host.run(&format!("key generate --out {}", key.display()));
    let [local] = free_datagram_addresses();
    let update = report(&key, local);
    // The daemon reads its groups for a request of the process.
    let local = json!({ "private_key": key }).to_string();
    let (status, reply) = send(&host.control, "POST", "/v1/cluster/local", &local);
    assert_eq!(status, 200, "{reply}");
    let (status, reply) = send(&host.control, "POST", "/v1/cluster/remote", &update.to_string());
    assert_eq!(status, 200, "{reply}");
    let web = Web::start(&host.control, "--interval 1");
    browser.resize(1280, 800, 1);
    browser.open(&format!("http://{}/", web.address));
    browser.wait("document.querySelectorAll('#graph .box.host').length === 3");
    let labels = "[...document.querySelectorAll('#graph .box.host')].map((box) => box.getAttribute('aria-label'))";
    // The link is never dormant, and down, because nothing answers.
    let expected =
        json!(["host h2: link down · 3 addr.", "host h3: unseen · 0 addr.", "host h4: evicted"]);
    assert_eq!(browser.value(labels), expected);
    assert_eq!(browser.value("document.querySelectorAll('#graph .wire.down').length"), 1);
    let health = browser.value("document.getElementById('health').innerText");
    assert!(health.to_string().contains("an event needs an operator"), "{health}");
    browser.value("document.getElementById('tab-hosts').click()");
    let rows = "[...document.querySelectorAll('#table tbody tr')].map((row) => row.innerText.split('\\t').map((cell) => cell.trim()).slice(0, 4).join(' '))";
    assert_eq!(browser.value(rows), json!(["h2 seen 1 3", "h3 unseen 0 0", "h4 evicted 0 0"]));
    browser
        .value("document.querySelector('#graph .box.host').dispatchEvent(new MouseEvent('click'))");
    let detail = browser.value("document.getElementById('detail').innerText").to_string();
    for part in ["192.0.2.2", "causeway cluster hosts", "lab"] {
        assert!(detail.contains(part), "{part} not in {detail}");
    }
    for (width, height) in [(1280, 800), (390, 1400)] {
        browser.resize(width, height, 1);
        browser.wait(
            "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(true), 50)))",
        );
        assert_eq!(browser.value(MISPLACED), json!([]));
        assert_eq!(browser.value(IS_TOO_WIDE), false);
    }
    browser.picture("cluster.png");
    let state = browser.value("fetch('/api/state').then((reply) => reply.text())").to_string();
    assert!(!state.contains(&"A".repeat(42)), "keys of hosts are not shown");
    assert_eq!(browser.problems(), Vec::<String>::new());
}

#[test]
fn page_is_used_by_keyboard() {
    let Some(mut browser) = Chromium::start() else { return };
    let host = Host::start();
    host.run("group add blue");
    (1..=2).for_each(|number| host.add_vm(number, "blue"));
    let web = Web::start(&host.control, "--interval 1");
    browser.resize(1280, 800, 1);
    browser.open(&format!("http://{}/", web.address));
    browser.wait("document.querySelectorAll('#graph .box.port').length === 4");
    let focus = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.id";
    let press_until = |browser: &mut Chromium, key: &str, wanted: &str| {
        for _ in 0..40 {
            browser.press(key);
            if browser.value(focus).as_str().is_some_and(|label| label.starts_with(wanted)) {
                return;
            }
        }
        panic!("{key} does not lead to {wanted}");
    };
    press_until(&mut browser, "Tab", "port vm2-net");
    browser.press("Enter");
    browser.wait("document.querySelector('#detail h2')?.innerText === 'vm2-net'");
    assert_eq!(browser.value("document.querySelector('tr.selected th').innerText"), "vm2-net");
    assert!(
        browser
            .value("document.getElementById('detail').innerText")
            .to_string()
            .contains("52:54:00:00:00:02")
    );
    // The focus stays where it was while states come in.
    let sequence =
        "fetch('/api/state').then((reply) => reply.json()).then((state) => state.sequence)";
    let now = browser.value(sequence).as_u64().unwrap();
    browser.wait(&format!("{sequence}.then((next) => next > {now} + 1)"));
    assert!(browser.value(focus).as_str().unwrap().starts_with("port vm2-net"));
    browser.press("Escape");
    browser.wait("document.getElementById('detail').hidden");
    press_until(&mut browser, "Tab", "tab-ports");
    browser.press("ArrowRight");
    browser.wait("document.activeElement.id === 'tab-links'");
    assert!(
        browser
            .value("document.getElementById('table').innerText")
            .to_string()
            .contains("No links")
    );
    assert_eq!(browser.problems(), Vec::<String>::new());
}

#[test]
fn page_folds_a_group_of_many_ports() {
    let Some(mut browser) = Chromium::start() else { return };
    let host = Host::start();
    host.run("group add many");
    for number in 1..=100 {
        host.add_vm(number, "many");
    }
    let guests = vec![host.net(42), host.net(77)];
    let _traffic = Traffic::start(guests, vec![Flow { from: 42, to: 77, frames: 5, bytes: 1000 }]);
    let web = Web::start(&host.control, "--interval 1");
    browser.resize(1280, 800, 1);
    browser.open(&format!("http://{}/", web.address));
    browser.wait("document.querySelectorAll('.edge.ethernet:not(.idle)').length === 1");
    let shown = |browser: &mut Chromium| {
        browser.value("document.querySelectorAll('#graph .box.port').length")
    };
    assert_eq!(shown(&mut browser), 12);
    let names = browser.value("document.querySelector('#graph').textContent");
    for busy in ["vm42-net", "vm77-net", "show 188 more ports"] {
        assert!(names.as_str().unwrap().contains(busy), "{busy} not in {names}");
    }
    assert_eq!(browser.value("document.querySelectorAll('#table tbody tr').length"), 200);
    browser.picture("folded.png");
    browser.value("document.querySelector('.box.more').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))");
    assert_eq!(shown(&mut browser), 200);
    assert_eq!(browser.value(MISPLACED), json!([]));
    browser.value("document.querySelector('.box.fold').dispatchEvent(new MouseEvent('click'))");
    assert_eq!(shown(&mut browser), 12);
    browser.value("const filter = document.getElementById('filter'); filter.value = 'vm42'; filter.dispatchEvent(new Event('input'))");
    assert_eq!(browser.value("document.querySelectorAll('#table tbody tr').length"), 2);
    browser.value("document.querySelector('thead th:nth-child(4) button').click()");
    let first = browser.value("document.querySelector('#table tbody th').innerText");
    assert_eq!(first, "vm42-net", "sorted by the bytes sent");
    assert_eq!(browser.problems(), Vec::<String>::new());
}

#[test]
fn page_names_a_daemon_that_is_gone_and_shows_it_when_it_is_back() {
    let Some(mut browser) = Chromium::start() else { return };
    let host = Host::start();
    host.run("group add blue");
    host.add_vm(1, "blue");
    let mut web = Web::start(&host.control, "--interval 1");
    browser.open(&format!("http://{}/", web.address));
    browser.wait("document.querySelectorAll('#graph .box.port').length === 2");
    let banner = |browser: &mut Chromium| -> Value {
        browser.value("document.getElementById('banner').innerText")
    };
    let aside = host.dir.join("aside");
    std::fs::rename(&host.control, &aside).unwrap();
    browser.wait("!document.getElementById('banner').hidden");
    assert!(banner(&mut browser).to_string().contains("systemctl start causewayd"));
    assert_eq!(browser.value("document.querySelectorAll('#graph .box.port').length"), 2);
    assert_eq!(browser.value("document.getElementById('live').innerText"), "no answer");
    browser.resize(1280, 800, 1);
    browser.picture("gone.png");
    std::fs::rename(&aside, &host.control).unwrap();
    browser.wait("document.getElementById('banner').hidden");
    browser.wait("document.getElementById('live').innerText === 'live'");
    web.stop();
    browser.wait(
        "document.getElementById('banner').innerText.includes('causeway web does not answer')",
    );
}
