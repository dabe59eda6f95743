//! The process: connects a daemon to etcd.
//!
//! Four threads: one waits at the daemon for changes of this host's addresses, one per session
//! waits at etcd for changes of the site ([`crate::watch`]), one of `main` waits for signals, and
//! the main thread ([`Process::run`]) does everything else. The main thread applies the changes to
//! the replica, writes the host's record and the claims of this host, renews the lease of the
//! record, and sends hosts, addresses and policies to the daemon ([`crate::report`]). Exchanges
//! with etcd and the daemon block it.
//!
//! | failure | effect |
//! |---|---|
//! | etcd away | nothing is removed; requests are repeated after 0.2 to 3 s, and a full list follows |
//! | watch dead without an end | found by the kernel's probes; if keys were written meanwhile, by a probe about 12 s later (deletions alone are not found) |
//! | etcd refuses a write | counted and alarmed; repeated after pauses of up to 60 s, and everything else goes on |
//! | revision compacted, watch ended | full list, a new lease, and the host's record anew |
//! | lease expired | a new lease, and the host's record anew |
//! | daemon away | asked again every 0.2 s, and nothing is written to etcd except the lease; the daemon then gets the whole state |
//! | this process restarts | starts with the snapshot: the daemon keeps links and addresses meanwhile |

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use causeway_cluster::limits::{LEASE_SECONDS, VALUE_BYTES_MAX};
use causeway_cluster::record::VERSION;
use causeway_cluster::sign::Signature;
use causeway_cluster::{Claimer, HostRecord, KeyEvent, RecordKey, Replica, SigningKey, key};
use causeway_model::{
    AddressKind, ClusterAddress, ClusterLocal, ClusterLocalQuery, ClusterStatus, ClusterTunnel,
    ClusterUpdate, Name,
};

use crate::client::{Etcd, EtcdError, RangeState, WatchMessage, WriteOutcome};
use crate::control::{self, ControlError};
use crate::limits::{
    CLOCK_STEP_NS, CONTROL_RETRY, ETCD_RETRY_MAX, ETCD_RETRY_MIN, EVICTED_SHOWN, KEEPALIVE,
    LOCAL_WAIT, MESSAGES_MAX, PROBE, PROBE_GRACE, REFUSED_RETRY_MAX, REFUSED_RETRY_MIN, REPORT,
    SNAPSHOT,
};
use crate::message::ProcessMessage;
use crate::report::SiteState;
use crate::snapshot;
use crate::watch::Watch;

/// The values of the process that do not change.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the site.
    pub site: Name,
    /// Name of this host.
    pub host: Name,
    /// Control socket of the daemon.
    pub control: PathBuf,
    /// Directory of the snapshot, and of the file `release` of an operator.
    pub state: PathBuf,
    /// Addresses and UDP ports at which other hosts reach this one, the preferred first.
    pub endpoints: Vec<SocketAddr>,
    /// This host's end of links.
    pub tunnel: ClusterTunnel,
}

/// The state that was sent to the daemon.
#[derive(Debug, Default)]
struct Sent {
    /// Number of the daemon.
    daemon: Option<u64>,
    generation: u64,
    state: SiteState,
    at: Option<Instant>,
}

/// A connection to etcd.
#[derive(Debug)]
struct Session {
    watch: Watch,
    begun: Instant,
    lease: u64,
    renewed: Instant,
    probed: Instant,
    /// Keys that exist, as far as the watch has delivered.
    keys: u64,
    /// The revision of the watch when a probe found changes that it had not delivered, and the time.
    missing: Option<(u64, Instant)>,
    /// The host's record in etcd, and when it was written.
    record: Option<(HostRecord, Instant)>,
}

/// The main thread's state.
#[derive(Debug)]
pub struct Process {
    settings: Settings,
    signing: SigningKey,
    replica: Replica,
    claimer: Claimer,
    etcd: Etcd,
    session: Option<Session>,
    sender: SyncSender<ProcessMessage>,
    receiver: Receiver<ProcessMessage>,
    local: Option<ClusterLocal>,
    /// Whether the last request for addresses failed.
    has_local_failed: bool,
    sent: Sent,
    /// Epoch of this host's record.
    epoch: u64,
    /// The time of day, and when it was read.
    clock: (u64, Instant),
    /// Repetition of a refused record of this host.
    host_retry: Retry,
    /// Bytes of this host's record, if it is too long for the directory.
    long_record: Option<usize>,
    /// Reason for which etcd refused the last write; empty if it did not.
    refused: String,
    writes_refused: u64,
    instance: u64,
    watches: u64,
    retry: Instant,
    pause: Duration,
    reason: String,
    confirmed: Instant,
    resync: Duration,
    resyncs: u64,
    saved: (u64, Instant),
    /// Whether the last write of the snapshot failed.
    has_save_failed: bool,
}

/// The time before which a refused write is not repeated.
#[derive(Debug)]
struct Retry {
    at: Instant,
    pause: Duration,
}

impl Retry {
    fn new() -> Self {
        Self { at: Instant::now(), pause: REFUSED_RETRY_MIN }
    }

    fn is_due(&self) -> bool {
        Instant::now() >= self.at
    }

    /// Notes a refusal: the next pause is twice as long.
    fn refused(&mut self) {
        self.at = Instant::now() + self.pause;
        self.pause = self.pause.saturating_mul(2).min(REFUSED_RETRY_MAX);
    }
}

/// Returns whether a site has changes that a watch at this revision, with this number of keys, has not
/// delivered. A key that was written has a newer revision; deletions leave fewer keys.
const fn is_behind(state: RangeState, revision: u64, keys: u64) -> bool {
    state.newest > revision || state.keys != keys
}

/// Returns the time of day, in ns since 1970.
fn wall() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX)
}

/// Waits at the daemon for changes of this host's addresses, until the main thread ends.
fn follow_local(control: PathBuf, private_key: PathBuf, to: SyncSender<ProcessMessage>) {
    let wait_ms = u64::try_from(LOCAL_WAIT.as_millis()).unwrap_or(0);
    let mut query = ClusterLocalQuery { private_key, wait_ms, ..ClusterLocalQuery::default() };
    loop {
        let answer = control::local(&control, &query);
        match &answer {
            Ok(local)
                if (query.version, query.daemon) == (Some(local.version), Some(local.daemon)) =>
            {
                continue;
            }
            Ok(local) => {
                (query.version, query.daemon) = (Some(local.version), Some(local.daemon));
            }
            Err(_) => {
                query.version = None;
                std::thread::sleep(CONTROL_RETRY);
            }
        }
        if to.send(ProcessMessage::Local(answer)).is_err() {
            return;
        }
    }
}

impl Process {
    /// Prepares the process, and reads the snapshot. A snapshot that cannot be read is logged, and
    /// left out.
    pub fn new(settings: Settings, signing: SigningKey, etcd: Etcd) -> Self {
        use std::hash::{BuildHasher as _, Hasher as _};
        let (site, host) = (settings.site.clone(), settings.host.clone());
        let mut replica = Replica::new(site, host, signing.public());
        let file = settings.state.join("snapshot.json");
        match snapshot::read(&file, &mut replica, wall()) {
            Ok(0) => {}
            Ok(count) => eprintln!("causeway-directory: snapshot read (records={count})"),
            Err(error) => eprintln!(
                "causeway-directory: cannot read the snapshot: the process starts without \
                 (file={} error={error})",
                file.display()
            ),
        }
        let (sender, receiver) = sync_channel(MESSAGES_MAX);
        let now = Instant::now();
        let epoch = replica.next_epoch(wall());
        Self {
            settings,
            signing,
            replica,
            claimer: Claimer::default(),
            etcd,
            session: None,
            sender,
            receiver,
            local: None,
            has_local_failed: false,
            sent: Sent::default(),
            epoch,
            clock: (wall(), now),
            host_retry: Retry::new(),
            long_record: None,
            refused: String::new(),
            writes_refused: 0,
            // The keys of a hasher are random.
            instance: std::hash::RandomState::new().build_hasher().finish(),
            watches: 0,
            retry: now,
            pause: ETCD_RETRY_MIN,
            reason: "not yet connected".into(),
            confirmed: now,
            resync: Duration::ZERO,
            resyncs: 0,
            saved: (0, now),
            has_save_failed: false,
        }
    }

    /// Returns a sender by which another thread stops the process.
    pub fn stopper(&self) -> SyncSender<ProcessMessage> {
        self.sender.clone()
    }

    /// Runs until a message asks for the end. Then the snapshot is written, and the lease revoked.
    /// Called once.
    pub fn run(&mut self) {
        let (control, key) =
            (self.settings.control.clone(), self.settings.tunnel.private_key.clone());
        let to = self.sender.clone();
        self.take_release();
        std::thread::spawn(move || follow_local(control, key, to));
        loop {
            let first = match self.receiver.recv_timeout(self.timeout()) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let more: Vec<ProcessMessage> = self.receiver.try_iter().take(MESSAGES_MAX).collect();
            for message in first.into_iter().chain(more) {
                match message {
                    ProcessMessage::Stop => return self.end(),
                    ProcessMessage::Local(local) => self.take_local(local),
                    ProcessMessage::Watch(number, message, growth) => {
                        self.take_watch(number, message, growth);
                    }
                }
            }
            self.follow_clock();
            self.follow_etcd();
            if self.replica.collect(wall()) {
                // The next round lists anew.
                self.session = None;
            }
            self.take_release();
            self.tell_daemon();
            self.save(false);
        }
    }

    /// Returns the time until the next timer.
    fn timeout(&self) -> Duration {
        let now = Instant::now();
        let mut next = now + Duration::from_secs(1);
        if self.session.is_none() {
            next = next.min(self.retry);
        }
        let mut timeout = next.saturating_duration_since(now);
        // Without a session, without the daemon, and for an evicted host, nothing is written when the
        // time comes.
        let is_connected = self.session.is_some() && self.local.is_some();
        let writes = is_connected && !self.replica.is_evicted();
        if let Some(at) = self.claimer.deadline().filter(|_| writes) {
            timeout = timeout.min(Duration::from_nanos(at.saturating_sub(wall())));
        }
        timeout.max(Duration::from_millis(5))
    }

    fn take_local(&mut self, local: Result<ClusterLocal, ControlError>) {
        match local {
            Ok(local) => {
                self.claimer.observe(&local.addresses, &self.replica, wall());
                self.local = Some(local);
                self.has_local_failed = false;
            }
            // Guests and links are as before: nothing of this host is withdrawn.
            Err(error) => {
                self.local = None;
                if !std::mem::replace(&mut self.has_local_failed, true) {
                    eprintln!("causeway-directory: {error}; it is asked again");
                }
                self.sent.daemon = None;
            }
        }
    }

    fn take_watch(&mut self, number: u64, message: WatchMessage, growth: i64) {
        let Some(session) = self.session.as_mut().filter(|known| known.watch.number == number)
        else {
            return;
        };
        match message {
            WatchMessage::Events(events, revision) => {
                session.keys = session.keys.saturating_add_signed(growth);
                self.replica.apply(&events, revision, wall());
                self.confirmed = Instant::now();
            }
            WatchMessage::Cancelled(reason) => self.lose(format!("the watch ended: {reason}")),
        }
    }

    /// Lists anew with a new epoch after the clock was set: records that were refused by the old time
    /// of day may be accepted now, and the own record by other hosts.
    fn follow_clock(&mut self) {
        let (then, at) = self.clock;
        let elapsed = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let now = wall();
        self.clock = (now, Instant::now());
        if now.abs_diff(then.saturating_add(elapsed)) > CLOCK_STEP_NS {
            eprintln!("causeway-directory: the clock was set: the site is read anew");
            self.epoch = self.replica.next_epoch(now);
            self.session = None;
        }
    }

    /// Notes that etcd does not answer. The next attempt follows after a pause.
    fn lose(&mut self, reason: String) {
        if self.reason != reason {
            eprintln!(
                "causeway-directory: etcd does not answer: links and addresses stay as they are \
                 (reason={reason:?})"
            );
        }
        self.reason = reason;
        self.session = None;
        self.etcd.next_endpoint();
        self.retry = Instant::now() + self.pause;
        self.pause = self.pause.saturating_mul(2).min(ETCD_RETRY_MAX);
    }

    /// Connects to etcd if there is no session, and does everything that is due in a session.
    fn follow_etcd(&mut self) {
        let result = if self.session.is_some() {
            self.serve()
        } else if Instant::now() >= self.retry {
            self.connect().and_then(|()| self.serve())
        } else {
            Ok(())
        };
        match (result, &self.session) {
            (Err(error), _) => self.lose(error.to_string()),
            // A session that ends at once does not shorten the pause before the next list.
            (Ok(()), Some(session)) if session.begun.elapsed() >= ETCD_RETRY_MAX => {
                self.pause = ETCD_RETRY_MIN;
                self.reason.clear();
            }
            _ => {}
        }
    }

    /// Notes the result of a write. A refusal is counted, and the session goes on without the write.
    fn note_write<T>(&mut self, result: Result<T, EtcdError>) -> Result<Option<T>, EtcdError> {
        match result {
            Err(error) if error.is_refusal() => {
                let reason = error.to_string();
                if self.refused != reason {
                    eprintln!(
                        "causeway-directory: etcd refuses a write of this host: other hosts do not \
                         learn the change; check the rights of the host in etcd (error={reason})"
                    );
                }
                self.refused = reason;
                self.writes_refused = self.writes_refused.saturating_add(1);
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// Reads the site, and begins to watch it.
    fn connect(&mut self) -> Result<(), EtcdError> {
        let prefix = key::prefix(&self.settings.site);
        let begun = Instant::now();
        let listing = self.etcd.list(&prefix)?;
        self.replica.list(&listing.items, listing.revision, wall());
        self.resync = begun.elapsed();
        self.resyncs = self.resyncs.saturating_add(1);
        self.confirmed = Instant::now();
        let lease = self.etcd.grant(LEASE_SECONDS)?;
        self.watches = self.watches.wrapping_add(1);
        let from = (prefix.as_str(), listing.revision.saturating_add(1));
        let watch = Watch::begin(&mut self.etcd, from, self.watches, self.sender.clone())?;
        let now = Instant::now();
        self.session = Some(Session {
            watch,
            begun: now,
            lease,
            renewed: now,
            probed: now,
            keys: listing.keys,
            missing: None,
            record: None,
        });
        eprintln!(
            "causeway-directory: etcd answers (site={} revision={} records={})",
            self.settings.site, listing.revision, listing.keys
        );
        Ok(())
    }

    /// Does everything that is due in a session.
    fn serve(&mut self) -> Result<(), EtcdError> {
        self.keep_lease()?;
        self.write_host()?;
        self.write_claims()?;
        self.probe()
    }

    fn keep_lease(&mut self) -> Result<(), EtcdError> {
        let Some(session) = &mut self.session else { return Ok(()) };
        if session.renewed.elapsed() >= KEEPALIVE {
            if !self.etcd.renew(session.lease)? {
                session.lease = self.etcd.grant(LEASE_SECONDS)?;
                session.record = None;
            }
            session.renewed = Instant::now();
        }
        Ok(())
    }

    /// Writes the host's record, if it changed, or if etcd has had none for 4 s ([`KEEPALIVE`]).
    fn write_host(&mut self) -> Result<(), EtcdError> {
        let (Some(session), Some(local)) = (&self.session, &self.local) else { return Ok(()) };
        let Settings { site, host, endpoints, .. } = &self.settings;
        let is_shared = |group: &&Name| self.replica.has_group(group);
        let record = HostRecord {
            v: VERSION,
            key: local.key.clone(),
            signing_key: self.signing.public(),
            endpoints: endpoints.clone(),
            epoch: self.epoch,
            groups: local.groups.iter().filter(is_shared).cloned().collect(),
            signature: Signature::none(),
        };
        let record = record.sign(site, host, &self.signing);
        let is_known = session.record.as_ref().is_some_and(|(known, at)| {
            *known == record && (self.replica.is_own_seen() || at.elapsed() < KEEPALIVE)
        });
        if is_known || self.replica.is_evicted() || !self.host_retry.is_due() {
            return Ok(());
        }
        let key = RecordKey::Host(host.clone()).path(site);
        let value = record.write();
        self.long_record = Some(value.len()).filter(|len| *len > VALUE_BYTES_MAX);
        if self.long_record.is_some() {
            return Ok(());
        }
        let result = self.etcd.put(&key, &value, Some(session.lease));
        let Some(revision) = self.note_write(result)? else {
            self.host_retry.refused();
            return Ok(());
        };
        self.refused.clear();
        let event = KeyEvent { key: key.into_bytes(), value: Some(value), revision };
        let followed = self.replica.revision();
        self.replica.apply(&[event], followed, wall());
        if self.replica.own_record() == Some(&record) {
            self.host_retry = Retry::new();
        } else {
            // Another process of this host, or an earlier clock, wrote a newer record.
            self.host_retry.refused();
            self.epoch = self.replica.next_epoch(wall());
        }
        if let Some(session) = &mut self.session {
            session.record = Some((record, Instant::now()));
        }
        Ok(())
    }

    /// Writes the claims of this host that are due.
    fn write_claims(&mut self) -> Result<(), EtcdError> {
        if self.local.is_none() {
            return Ok(());
        }
        for write in self.claimer.writes(&mut self.replica, &self.signing, wall()) {
            let result = self.etcd.write(&self.settings.site, &write);
            let event = match self.note_write(result)? {
                Some(WriteOutcome::Done(revision)) => {
                    let key = write.key.path(&self.settings.site).into_bytes();
                    self.refused.clear();
                    KeyEvent { key, value: write.value, revision }
                }
                Some(WriteOutcome::Failed(now)) => now,
                // The claimer repeats it after a pause.
                None => continue,
            };
            // The watch has earlier revisions yet to deliver; that of etcd is not followed here.
            let revision = self.replica.revision();
            self.replica.apply(&[event], revision, wall());
        }
        Ok(())
    }

    /// Compares the newest revision of the site and the number of its keys with those of the watch: a
    /// watch over a dead connection delivers nothing and does not end. After a difference the watch
    /// must deliver something within [`PROBE_GRACE`] (2 s).
    fn probe(&mut self) -> Result<(), EtcdError> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let revision = self.replica.revision();
        if session.missing.is_some_and(|(at, _)| at != revision) {
            session.missing = None;
        }
        if session.missing.is_some_and(|(_, since)| since.elapsed() >= PROBE_GRACE) {
            let text = "the watch delivers no changes".to_owned();
            self.lose(text);
            return Ok(());
        }
        if session.probed.elapsed() < PROBE {
            return Ok(());
        }
        session.probed = Instant::now();
        let state = self.etcd.state(&key::prefix(&self.settings.site))?;
        if is_behind(state, revision, session.keys) {
            session.missing.get_or_insert((revision, Instant::now()));
        } else {
            self.confirmed = Instant::now();
        }
        Ok(())
    }

    /// Follows held removals, if an operator confirmed them by the file `release`. A file from a time
    /// without held removals is removed, so that it does not confirm those of later.
    fn take_release(&mut self) {
        let is_confirmed = std::fs::remove_file(self.settings.state.join("release")).is_ok();
        if is_confirmed && self.replica.is_held() {
            eprintln!("causeway-directory: held removals are followed, as the operator confirmed");
            self.replica.release();
        }
    }

    /// Returns the reason of an alarm; empty without one.
    fn alarm(&self) -> String {
        let long = |len: usize| {
            format!(
                "the record of host {} has {len} bytes, and at most {VALUE_BYTES_MAX} are \
                 accepted: other hosts do not learn changes of its groups; remove groups from the \
                 host or from the site",
                self.settings.host
            )
        };
        let written = self.session.as_ref().and_then(|session| session.record.as_ref());
        let is_foreign = |(record, _): &&(HostRecord, Instant)| {
            self.replica.own_record().is_some_and(|known| known.epoch > record.epoch)
        };
        let copied = written.filter(is_foreign).map(|_| {
            format!(
                "another process writes the record of host {} with the keys of this host: stop one \
                 of them, or remove the state directory and the key of the copy, and give it \
                 another name",
                self.settings.host
            )
        });
        let refused = Some(&self.refused).filter(|reason| !reason.is_empty());
        let refused = refused.map(|reason| format!("etcd refuses writes of this host: {reason}"));
        let own = copied.or(self.long_record.map(long)).or(refused).or_else(|| self.lost_alarm());
        self.replica.alarm().or(own).unwrap_or_default()
    }

    /// Returns the text about an address that another host took over while its guest runs here.
    fn lost_alarm(&self) -> Option<String> {
        let at = self.claimer.lost().next()?;
        let host = &self.replica.claim(at)?.host;
        let ClusterAddress { kind, group, address } = at;
        Some(match kind {
            AddressKind::Nic => format!(
                "host {host} claims the NIC name {address} of group {group} with a newer epoch, and \
                 a NIC of this host has the name: processes may reach the wrong NIC; give one of \
                 the two another hostname"
            ),
            AddressKind::Mac | AddressKind::Cid | AddressKind::Gid => format!(
                "host {host} claims {kind} {address} of group {group} with a newer epoch, and a \
                 guest with this address runs here: other hosts reach the guest of {host}; stop \
                 one of them"
            ),
        })
    }

    fn status(&self) -> ClusterStatus {
        let mut counters: BTreeMap<String, u64> = self
            .replica
            .counters()
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect();
        counters.insert("resyncs_total".into(), self.resyncs);
        counters.insert("writes_refused_total".into(), self.writes_refused);
        ClusterStatus {
            connected: self.session.is_some(),
            reason: if self.session.is_some() { String::new() } else { self.reason.clone() },
            revision: self.replica.revision(),
            revision_age_seconds: self.confirmed.elapsed().as_secs_f64(),
            resync_seconds: self.resync.as_secs_f64(),
            generation: self.replica.generation(),
            evicted: self.replica.evicted().take(EVICTED_SHOWN).cloned().collect(),
            alarm: self.alarm(),
            counters,
        }
    }

    /// Sends changes and the state to the daemon. A daemon that does not answer gets everything
    /// when it answers again.
    fn tell_daemon(&mut self) {
        let Some(daemon) = self.local.as_ref().map(|local| local.daemon) else { return };
        let is_new = self.sent.daemon != Some(daemon);
        let is_changed = self.sent.generation != self.replica.generation();
        let is_due = self.sent.at.is_none_or(|at| at.elapsed() >= REPORT);
        // Before the first list and without a snapshot nothing is known: nothing is removed.
        let is_known = self.resyncs > 0 || self.replica.generation() > 0;
        if !(is_new && is_known || is_changed || is_due) {
            return;
        }
        if let Err(error) = self.send(daemon, is_new && is_known) {
            eprintln!("causeway-directory: cannot report: it is repeated (error={error})");
            self.sent.daemon = None;
            self.sent.at = Some(Instant::now());
        }
    }

    /// Sends the difference to what the daemon has, or the whole state.
    fn send(&mut self, daemon: u64, is_whole: bool) -> Result<(), ControlError> {
        let generation = self.replica.generation();
        let state = SiteState::of(&self.replica);
        if is_whole {
            self.sent.state = SiteState::default();
        }
        let status = self.status();
        let empty = ClusterUpdate {
            site: self.settings.site.clone(),
            host: self.settings.host.clone(),
            instance: self.instance,
            tunnel: self.settings.tunnel.clone(),
            begin: false,
            end: false,
            hosts: Vec::new(),
            removed_hosts: Vec::new(),
            addresses: Vec::new(),
            removed_addresses: Vec::new(),
            policies: Vec::new(),
            removed_policies: Vec::new(),
            has_policies: true,
            status,
        };
        let updates = state.updates(&self.sent.state, &empty, is_whole);
        for update in &updates {
            control::update(&self.settings.control, update)?;
        }
        let at = Some(Instant::now());
        // A daemon without a whole state gets one when the site is known.
        let daemon = (is_whole || self.sent.daemon == Some(daemon)).then_some(daemon);
        self.sent = Sent { daemon, generation, state, at };
        Ok(())
    }

    /// Writes the snapshot, if the state changed or the last write failed.
    fn save(&mut self, at_once: bool) {
        let (generation, at) = self.saved;
        let is_due = at_once || at.elapsed() >= SNAPSHOT;
        if generation == self.replica.generation() || !is_due {
            return;
        }
        self.saved.1 = Instant::now();
        let file = self.settings.state.join("snapshot.json");
        match snapshot::write(&file, &self.replica) {
            Ok(()) => {
                self.saved.0 = self.replica.generation();
                if std::mem::take(&mut self.has_save_failed) {
                    eprintln!("causeway-directory: the snapshot is written again");
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.has_save_failed, true) {
                    eprintln!(
                        "causeway-directory: cannot write the snapshot: a restart without etcd \
                         would know no hosts; it is tried again (file={} error={error})",
                        file.display()
                    );
                }
            }
        }
    }

    /// Ends the session: the host is unseen at once, and its claims stay.
    fn end(&mut self) {
        self.save(true);
        if let Some(session) = self.session.take()
            && let Err(error) = self.etcd.revoke(session.lease)
        {
            eprintln!(
                "causeway-directory: cannot revoke the lease: it expires by itself (error={error})"
            );
        }
    }
}

#[cfg(test)]
mod tests;
