//! Certificates and keys that are renewed while causewayd runs in its sandbox.
//!
//! The files are in directories that the sandbox permits only because of the configuration. They
//! are replaced in each way that tools use: written in place, by rename, by links to other files
//! (certbot), and by a link to another directory (releases, projected volumes).

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::common::{Dir, send};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

const LIMIT: Duration = Duration::from_secs(30);
const FILES: [&str; 3] = ["cert.pem", "key.pem", "ca.pem"];

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Returns the three files of a host, with a certificate that expires in the given year.
fn issue(name: &str, by: &Authority, year: i32) -> [String; 3] {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, by).unwrap();
    [certificate.pem(), key.serialize_pem(), by.pem()]
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// Replaces a symbolic link in one step.
fn relink(target: &str, link: &Path) {
    let next = link.with_extension("next");
    symlink(target, &next).unwrap();
    std::fs::rename(&next, link).unwrap();
}

/// Method by which the files of a link are renewed.
#[derive(Debug, Clone, Copy)]
enum RenewalMethod {
    InPlace,
    Rename,
    /// `live/cert.pem -> ../archive/cert1.pem`.
    Links,
    /// `current -> releases/1`.
    Directory,
}

const RENEWAL_METHODS: [(&str, RenewalMethod); 4] = [
    ("in-place", RenewalMethod::InPlace),
    ("rename", RenewalMethod::Rename),
    ("links", RenewalMethod::Links),
    ("directory", RenewalMethod::Directory),
];

impl RenewalMethod {
    /// Returns the configured path of a file.
    fn dir(self, root: &Path) -> PathBuf {
        root.join(match self {
            Self::InPlace => "in-place",
            Self::Rename => "rename",
            Self::Links => "certbot/live",
            Self::Directory => "secrets/current",
        })
    }

    fn renew(self, root: &Path, round: u32, texts: &[String; 3]) {
        let dir = self.dir(root);
        let all = || FILES.iter().zip(texts);
        match self {
            Self::InPlace | Self::Rename => {
                std::fs::create_dir_all(&dir).unwrap();
                for (file, text) in all() {
                    if matches!(self, Self::InPlace) {
                        write(&dir.join(file), text);
                    } else {
                        write(&dir.join("next"), text);
                        std::fs::rename(dir.join("next"), dir.join(file)).unwrap();
                    }
                }
            }
            Self::Links => {
                let archive = root.join("certbot/archive");
                std::fs::create_dir_all(&dir).unwrap();
                std::fs::create_dir_all(&archive).unwrap();
                for (file, text) in all() {
                    write(&archive.join(format!("{round}-{file}")), text);
                    relink(&format!("../archive/{round}-{file}"), &dir.join(file));
                }
            }
            Self::Directory => {
                let release = root.join(format!("secrets/releases/{round}"));
                std::fs::create_dir_all(&release).unwrap();
                all().for_each(|(file, text)| write(&release.join(file), text));
                relink(&format!("releases/{round}"), &dir);
            }
        }
    }
}

/// causewayd with its default sandbox, and a directory for temporary files that permits no other.
struct Daemon {
    child: Child,
    dir: Dir,
}

impl Daemon {
    fn start(dir: Dir, links: &str) -> Self {
        let run = dir.0.display();
        let text = format!(
            "[daemon]\ncontrol = \"{run}/control.sock\"\nkey_file = \"{run}/key\"\n\
             hold = \"none\"\n[[group]]\nname = \"blue\"\n{links}"
        );
        std::fs::write(dir.file("causeway.toml"), text).unwrap();
        let log = std::fs::File::options().append(true).create(true).open(dir.file("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_causewayd"))
            .arg("--config")
            .arg(dir.file("causeway.toml"))
            .env("TMPDIR", dir.file("tmp"))
            .stderr(log)
            .spawn()
            .unwrap();
        let mut daemon = Self { child, dir };
        let socket = daemon.dir.file("control.sock");
        daemon.wait("ready", |daemon| {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
                && send(&socket, "GET", "/v1/info", "").1["pid"] == daemon.child.id()
        });
        daemon
    }

    /// Waits for a condition, and checks that the daemon is alive.
    fn wait(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + LIMIT;
        while !is_so(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{what}: ended with {ended:?}\n{}", self.log());
            assert!(Instant::now() < until, "{what}: not so\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn link(&self, name: &str) -> serde_json::Value {
        let (_, links) = send(&self.dir.file("control.sock"), "GET", "/v1/links", "");
        let links = links.as_array().unwrap();
        links.iter().find(|link| link["name"] == name).unwrap().clone()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.file("log")).unwrap()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the configuration of the TLS links of one side.
fn links(listens: bool, peer: &str, dir: impl Fn(RenewalMethod) -> PathBuf) -> String {
    let line = |(number, (name, way)): (usize, &(&str, RenewalMethod))| {
        let at = 23_200 + number;
        let place = match listens {
            true => format!("remote = \"127.0.0.1\"\nlisten = \"127.0.0.43:{at}\"\n"),
            false => format!("remote = \"127.0.0.43:{at}\"\n"),
        };
        let [certificate, key, authorities] = FILES.map(|file| dir(*way).join(file));
        format!(
            "[[link]]\nname = \"{name}\"\ngroup = \"blue\"\nkind = \"tls\"\npeer_name = \"{peer}\"\n\
             {place}certificate = {certificate:?}\nprivate_key = {key:?}\n\
             authorities = {authorities:?}\n"
        )
    };
    RENEWAL_METHODS.iter().enumerate().map(line).collect()
}

/// Returns the expiry of certificates of a year, in seconds since 1970.
fn expiry(year: i32) -> i64 {
    rcgen::date_time_ymd(year, 1, 1).unix_timestamp()
}

#[test]
fn sandbox_reads_renewed_certificates_and_keys() {
    let (files, of_peer) = (Dir::new(), Dir::new());
    let peer_files = |_| RenewalMethod::InPlace.dir(&of_peer.0);
    let mut ca = authority();
    let renew = |round: u32, year: i32, ca: &Authority| {
        for (_, way) in RENEWAL_METHODS {
            way.renew(&files.0, round, &issue("a.example", ca, year));
        }
        RenewalMethod::InPlace.renew(&of_peer.0, round, &issue("b.example", ca, year));
        // Each in a directory of its own: the parent would permit the others too.
        std::fs::create_dir_all(files.file("keys")).unwrap();
        let key = STANDARD.encode([u8::try_from(round).unwrap(); 32]);
        write(&files.file("keys/next"), &key);
        std::fs::rename(files.file("keys/next"), files.file("keys/tunnel.key")).unwrap();
    };
    renew(1, 2091, &ca);
    let tunnel = format!(
        "[[link]]\nname = \"tunnel\"\ngroup = \"blue\"\nremote = \"127.0.0.44:23210\"\n\
         local = \"127.0.0.43:23210\"\nkey = \"{}\"\nprivate_key = {:?}\n",
        STANDARD.encode([9; 32]),
        files.file("keys/tunnel.key"),
    );
    let own = links(true, "b.example", |way| way.dir(&files.0)) + &tunnel;
    let mut daemon = Daemon::start(Dir::new(), &own);
    let start_peer = || Daemon::start(Dir::new(), &links(false, "a.example", peer_files));
    let mut peer = start_peer();
    let all_up = |daemon: &mut Daemon, year: i32| {
        for (name, _) in RENEWAL_METHODS {
            daemon.wait(&format!("{name}: up with the certificate of {year}"), |daemon| {
                let link = daemon.link(name);
                link["state"] == "up" && link["certificate_expires"] == expiry(year)
            });
        }
    };
    all_up(&mut daemon, 2091);

    // On SIGHUP, while connections are up.
    for (round, year) in [(2, 2092), (3, 2093)] {
        renew(round, year, &ca);
        daemon.signal(rustix::process::Signal::HUP);
        all_up(&mut daemon, year);
        let opened = "its private key changed: the link is reopened";
        daemon.wait("the key", |daemon| {
            let is_opened = |line: &&str| line.contains("link opened") && line.contains("tunnel");
            let log = daemon.log();
            let opened = (log.matches(opened).count(), log.lines().filter(is_opened).count());
            opened == (round as usize - 1, round as usize - 1)
        });
    }
    // By the next handshake, without a signal: all files of another authority.
    for (round, year) in [(4, 2094), (5, 2095)] {
        drop(peer);
        ca = authority();
        renew(round, year, &ca);
        peer = start_peer();
        all_up(&mut daemon, year);
    }
    let log = daemon.log();
    assert!(!log.contains("cannot be read again"), "{log}");
    daemon.signal(rustix::process::Signal::TERM);
    let code = daemon.child.wait().unwrap().code();
    assert_eq!(code, Some(0), "{log}");
}
