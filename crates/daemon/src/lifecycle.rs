//! The lifecycle of the daemon: claim the control socket, configure the fabric, serve, and close.
//!
//! [`crate::run`] calls [`Daemon::claim`] before the dispatchers start, and [`Daemon::serve`] on
//! the thread `lifecycle` beside them. `serve` fills the fabric, starts the servers of the VNET
//! language, of metrics and of the control socket and the watchdog thread, waits for a signal,
//! stops the servers and closes links and ports. A stop by `causeway shutdown` arrives as SIGTERM
//! ([`crate::stop`]).
//!
//! At the end the module decides whether frontends of held ports stay connected: then it closes
//! links and all ports but those that are held or resumed by their processes, the process exits at
//! once and leaves the rings of held ports as they are, and `serve` does not return. If the filling
//! or the start of the VNET server fails, ports are held and an earlier daemon left a holder, the
//! process exits in the same way with status 1. If the server of metrics, the control server, the
//! watchdog thread or the confirmation to the holder fails after that, `serve` returns the error
//! without closing the links, so that peers are not notified.
//!
//! SIGHUP makes links read keys and certificates again, and retry at once those that could not be
//! opened; during the start it takes effect when the filling is done. The settings are those that
//! [`crate::run`] has read; later changes come through [`crate::api`] and [`crate::vnet`]. A second
//! SIGTERM or SIGINT ends the process with status 1. No time limit bounds the filling of the
//! fabric, but a signal ends it before the next port or link, or object of the state file.
//! `causeway-holder` uses [`raise_descriptor_limit`] and [`StartError`] too.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};
use signal_hook::iterator::Signals;

use causeway_http::HttpServer;
use causeway_model::{Name, SectionDefinition, ServiceRequest};

use crate::accounts::group_id;
use crate::api::{self, ApiContext};
use crate::config::{Config, DaemonConfig};
use crate::fabric::{
    FabricControl, SocketOwner, apply, ask_service, close_all, close_all_but_held, has_held_guests,
};
use crate::held_ports::{HeldPortsFabric, HolderStarter};
use crate::http::server::{ControlServer, RequestHandler};
use crate::instance::{ControlSocket, make_dir};
use crate::kept::{Kept, store};
use crate::limits::{CONFIG_BYTES_MAX, STOP_REPLY_GRACE};
use crate::logger;
use crate::metrics::Metrics;
use crate::metrics::listener;
use crate::peer::ControlAccess;
use crate::refusals::ControlRefusals;
use crate::service_manager::{ServiceManager, watchdog_period};
use crate::services::Registered;
use crate::stop::{StopRequest, terminate};
use crate::vnet;
use crate::vnet::password::Password;
use crate::vnet::server::SessionTimeouts;
use crate::vnet::session::SessionContext;
use causeway_model::draft::host::resolve;
use causeway_model::draft::mac::warn_without_identity;
use causeway_model::settings::{ControlSettings, HoldPolicy, MetricsSettings};

/// The reason why the daemon cannot start, as a sentence for the operator.
pub type StartError = Box<dyn std::error::Error + Send + Sync>;

/// Permissions of ports' sockets where `socket_group` is given and `socket_mode` is not.
const SOCKET_MODE_OF_GROUP: u32 = 0o660;

/// The resources that are claimed before the fabric runs.
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    registered: Registered,
    control: ControlSocket,
    /// The user and group that may use the control socket.
    access: ControlAccess,
    /// Group of the sockets of ports.
    socket_group: Option<u32>,
    signals: Signals,
    /// Set by the first signal that stops the daemon; ends the filling of the fabric.
    stopping: Arc<AtomicBool>,
    /// Time of the start, for the uptime.
    started: Instant,
    refusals: Arc<ControlRefusals>,
    /// A stop that a client requested.
    stop: Arc<StopRequest>,
    options: StartOptions,
}

/// Values of the command line.
#[derive(Debug, Clone)]
pub struct StartOptions {
    /// The configuration file.
    pub config_file: PathBuf,
    /// The state file is neither read nor written.
    pub is_ephemeral: bool,
}

/// The text of a file of VNET commands.
struct VnetFile<'a> {
    /// Group of the commands.
    group: &'a Name,
    /// Path, for messages.
    shown: String,
    text: Vec<u8>,
}

impl Daemon {
    /// Claims the resources that another process could hold: the control socket, its lock and the
    /// signals. Nothing is served yet.
    ///
    /// Must be called before other threads that create files start: it changes the umask for a
    /// moment.
    ///
    /// # Errors
    /// Another daemon runs, an account of the configuration does not exist, or a system call fails.
    pub fn claim(
        config: Config,
        registered: Registered,
        options: StartOptions,
    ) -> Result<Self, StartError> {
        let daemon = &config.daemon;
        let number = |key: &str, name: &Option<String>| -> Result<Option<u32>, StartError> {
            let found = name.as_deref().map(group_id).transpose();
            found.map_err(|e| format!("[daemon]: key {key:?}: {e}").into())
        };
        let control_group = number("control_group", &daemon.control_group)?;
        let socket_group = number("socket_group", &daemon.socket_group)?;
        warn_without_identity();
        raise_descriptor_limit();
        let control = ControlSocket::claim(&daemon.control, daemon.control_mode, control_group)?;
        let uid = rustix::process::geteuid().as_raw();
        let (signals, stopping) = catch_signals()?;
        Ok(Self {
            access: ControlAccess { uid, group: control_group },
            socket_group,
            signals,
            stopping,
            started: Instant::now(),
            control,
            config,
            registered,
            refusals: Arc::default(),
            stop: Arc::new(StopRequest::new(terminate)),
            options,
        })
    }

    /// Configures the fabric and serves the control socket until a signal stops the daemon, then
    /// closes the ports. The dispatchers must be running in other threads.
    ///
    /// If guests of held ports are connected (or always, with `keep`), the process exits here
    /// without closing those ports, and the holder keeps the frontends for the next process. A
    /// client of the control socket can request their release instead.
    ///
    /// # Errors
    /// The configuration is refused by a service, or the holder or a server cannot be started.
    pub fn serve(
        mut self,
        fabric: Arc<dyn FabricControl>,
        keep: bool,
        starter: HolderStarter,
    ) -> Result<(), StartError> {
        let manager = Arc::new(ServiceManager::of_process());
        let hold = self.config.daemon.hold;
        let held_ports = self.hold_ports(fabric, starter)?;
        let fabric = self.own_sockets(held_ports.clone());
        let kept = self.open_kept(fabric.clone());
        let filled = self.fill(&kept).and_then(|()| self.start_vnet(kept.clone()));
        let mut vnet = match filled {
            Ok(vnet) => vnet,
            Err(error) if held_ports.found_holder() && hold != HoldPolicy::None => {
                self.fail_with_held_ports(&*fabric, &error);
            }
            Err(error) => {
                close_all(&*fabric, self.registered.sections);
                held_ports.release_all();
                return Err(error);
            }
        };
        held_ports.confirm_ports()?;
        let about = Arc::new(self.api_context(kept.clone()));
        let mut metrics = self.start_metrics(fabric.clone(), about.metrics.clone())?;
        let mut server = self.start_server(kept.clone(), about)?;
        start_watchdog(&fabric, &manager)?;
        self.report_ready(&manager);
        wait(&mut self.signals, &*fabric, self.registered.sections);
        manager.send("STOPPING=1");
        server.stop();
        if self.stop.is_asked() {
            thread::sleep(STOP_REPLY_GRACE);
        }
        if let Some(vnet) = &mut vnet {
            vnet.stop();
        }
        if let Some(metrics) = &mut metrics {
            metrics.stop();
        }
        let may_keep = hold != HoldPolicy::None && !self.stop.releases();
        let keeps = may_keep && (keep || has_held_guests(&*fabric));
        kept.close(&|port| keeps && fabric.is_held(port));
        if keeps {
            self.exit_with_held_ports(&*fabric);
        }
        close_all(&*fabric, self.registered.sections);
        held_ports.release_all();
        Ok(())
    }

    /// Wraps the fabric for held ports, and connects to a running holder.
    fn hold_ports(
        &self,
        fabric: Arc<dyn FabricControl>,
        starter: HolderStarter,
    ) -> Result<Arc<HeldPortsFabric>, StartError> {
        let DaemonConfig { hold, run_dir, .. } = &self.config.daemon;
        let held_ports = HeldPortsFabric::new(fabric, *hold, run_dir, starter)?;
        if *hold == HoldPolicy::None {
            held_ports.release_all();
        }
        Ok(Arc::new(held_ports))
    }

    /// Wraps the fabric for the owners and permissions of sockets.
    fn own_sockets(&self, inner: Arc<dyn FabricControl>) -> Arc<dyn FabricControl> {
        // connect(2) on a socket requires write permission, which a usual umask gives to the owner
        // only.
        let mode_of_group = self.socket_group.map(|_| SOCKET_MODE_OF_GROUP);
        Arc::new(SocketOwner {
            inner,
            mode: self.config.daemon.socket_mode.or(mode_of_group),
            group: self.socket_group,
        })
    }

    /// Wraps the fabric for the state file, and reads the file.
    fn open_kept(&self, inner: Arc<dyn FabricControl>) -> Arc<Kept> {
        let Registered { kinds, sections, .. } = self.registered;
        let StartOptions { config_file, is_ephemeral } = self.options.clone();
        Arc::new(Kept::open(inner, &self.config, config_file, (kinds, sections), is_ephemeral))
    }

    /// Ends a process whose start failed, and leaves held ports to the holder.
    fn fail_with_held_ports(self, fabric: &dyn FabricControl, error: &StartError) -> ! {
        close_all_but_held(fabric, self.registered.sections);
        fabric.leave_ports();
        eprintln!("causewayd: {error}");
        eprintln!(
            "causewayd: guests of held ports stay connected to causeway-holder (pid {}) until \
             causewayd starts",
            fabric.holder().unwrap_or_default()
        );
        // As at a stop: only the end of the process leaves rings as they are.
        drop(self.control);
        std::process::exit(1);
    }

    /// Ends a stopped process, and leaves held ports to the holder.
    fn exit_with_held_ports(self, fabric: &dyn FabricControl) -> ! {
        close_all_but_held(fabric, self.registered.sections);
        // A turn that the exit cut in half could lose the frames that it had taken.
        fabric.leave_ports();
        log::info!(
            "guests of held ports stay connected until the next causewayd; causeway shutdown \
             --release disconnects them"
        );
        // Only the end of the process leaves rings as they are: closing a port resets them.
        drop(self.control);
        logger::flush();
        std::process::exit(0);
    }

    /// Reports the end of the start in the log and to the service manager.
    fn report_ready(&self, manager: &ServiceManager) {
        let (ports, control) = (self.config.ports.len(), self.config.daemon.control.display());
        log::info!(version = env!("CARGO_PKG_VERSION"), ports, control:% = control; "ready");
        manager.send(&format!("READY=1\nSTATUS=serving {ports} configured ports"));
    }

    /// Adds the objects of the configuration, of its VNET file and of the state file to the fabric.
    fn fill(&self, kept: &Arc<Kept>) -> Result<(), StartError> {
        let stops = || self.stopping.load(Ordering::Relaxed);
        let fabric = &kept.of_file();
        let file = self.read_vnet_file()?;
        let later = file.as_ref().map(|file| self.policies_of(file)).unwrap_or_default();
        apply(fabric, &self.config, later, &|| kept.restore_before_ports(), &stops)?;
        if let Some(VnetFile { group, shown, text }) = file.filter(|_| !stops()) {
            let script = vnet::file::check(fabric, group, resolve, &shown, &text)?;
            let changes = script.execute(fabric)?;
            log::info!(file = shown.as_str(), changes; "VNET file executed");
        }
        kept.restore_rest(&stops);
        // A start that was stopped has not seen all objects, and must not write the others away.
        if !stops() {
            kept.begin()?;
        }
        Ok(())
    }

    /// Reads the VNET file, if the configuration has one.
    fn read_vnet_file(&self) -> Result<Option<VnetFile<'_>>, StartError> {
        let ControlSettings { vnet_file: Some(path), vnet_group: Some(group), .. } =
            &self.config.control
        else {
            return Ok(None);
        };
        let shown = path.display().to_string();
        let text = read_bounded(path).map_err(|error| format!("{shown}: {error}"))?;
        Ok(Some(VnetFile { group, shown, text }))
    }

    /// Returns the requests that put the policies of a VNET file in force; none of a wrong file,
    /// which ends the start later.
    fn policies_of(&self, file: &VnetFile<'_>) -> Vec<ServiceRequest> {
        vnet::file::policies(&self.config, (file.group, resolve), &file.shown, &file.text)
    }

    /// Starts the server of the VNET language, if the configuration has one.
    fn start_vnet(
        &self,
        fabric: Arc<dyn FabricControl>,
    ) -> Result<Option<vnet::server::VnetServer>, StartError> {
        let ControlSettings {
            vnet_listen: Some(listen),
            vnet_password_file: Some(file),
            vnet_group: Some(group),
            ..
        } = &self.config.control
        else {
            return Ok(None);
        };
        let wrong = |text: String| format!("[control]: key \"vnet_password_file\": {text}");
        let password = Password::load(file).map_err(wrong)?;
        let mut context =
            SessionContext::new(fabric, group.clone(), password, resolve, self.refusals.clone());
        context.register = Some(vnet::registration::register);
        let server = vnet::server::VnetServer::start(*listen, context, SessionTimeouts::default());
        let server = server.map_err(|error| format!("[control]: vnet_listen {listen}: {error}"))?;
        log::info!(listen:% = listen, group:% = group; "VNET control listens");
        Ok(Some(server))
    }

    /// Returns the properties of the daemon that the API and the metrics need.
    fn api_context(&self, kept: Arc<Kept>) -> ApiContext {
        ApiContext {
            started: self.started,
            kinds: self.registered.kinds,
            sections: self.registered.sections,
            nouns: self.registered.nouns,
            run_dir: self.config.daemon.run_dir.clone(),
            control: self.config.daemon.control.clone(),
            key_file: self.config.daemon.key_file.clone(),
            resolve,
            refusals: self.refusals.clone(),
            stop: self.stop.clone(),
            kept: Some(kept),
            metrics: Arc::new(Metrics::new(
                (self.started, self.refusals.clone()),
                self.registered.helps.clone(),
                self.registered.metrics,
            )),
        }
    }

    /// Starts the server of metrics, if the configuration has one.
    fn start_metrics(
        &self,
        fabric: Arc<dyn FabricControl>,
        metrics: Arc<Metrics>,
    ) -> Result<Option<HttpServer>, StartError> {
        let MetricsSettings { listen: Some(listen) } = self.config.metrics else { return Ok(None) };
        let source = move |accept: &str| metrics.reply(&*fabric, accept);
        let server = listener::start(listen, Arc::new(source));
        let server = server.map_err(|error| format!("[metrics]: listen {listen}: {error}"))?;
        log::info!(listen:% = server.address()?; "metrics are served");
        Ok(Some(server))
    }

    /// Starts the server of the control socket.
    fn start_server(
        &self,
        kept: Arc<Kept>,
        about: Arc<ApiContext>,
    ) -> Result<ControlServer, StartError> {
        let handler: Arc<RequestHandler> =
            Arc::new(move |peer, request| api::answer(&*kept, &about, peer, request));
        Ok(ControlServer::start(
            self.control.listener()?,
            self.access,
            handler,
            self.refusals.clone(),
        )?)
    }
}

/// Creates the directories of the sockets. Must be called before the sandbox is entered, which
/// opens existing directories only.
///
/// # Errors
/// A directory cannot be created, or another user could replace its entries.
pub fn make_dirs(config: &Config) -> Result<(), StartError> {
    let daemon = &config.daemon;
    let dirs = [Some(&*daemon.run_dir), daemon.control.parent()];
    dirs.into_iter().flatten().try_for_each(make_dir)?;
    // Without it the daemon serves, and reports that changes are not kept.
    let _ = store::make_dir(&daemon.state_file);
    Ok(())
}

/// Reads a file of at most [`CONFIG_BYTES_MAX`] bytes.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > CONFIG_BYTES_MAX {
        let text = format!("expected at most {CONFIG_BYTES_MAX} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, text));
    }
    Ok(text)
}

/// Raises the soft limit on open descriptors to the hard limit: each port needs several for each of
/// its queues, and many systems start programs with a soft limit of 1024.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        log::warn!(
            error:% = error;
            "cannot raise the limit on open descriptors: many ports may not fit"
        );
    }
}

/// Catches the signals that stop the daemon. A second signal ends a stop that hangs.
fn catch_signals() -> std::io::Result<(Signals, Arc<AtomicBool>)> {
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // Order matters: the first signal must find the flag unset and then set it.
        register_conditional_shutdown(signal, 1, stopping.clone())?;
        register(signal, stopping.clone())?;
    }
    Ok((Signals::new([SIGTERM, SIGINT, SIGHUP])?, stopping))
}

/// Waits for SIGTERM or SIGINT; at SIGHUP the objects of `sections` read keys and certificates again.
fn wait(signals: &mut Signals, fabric: &dyn FabricControl, sections: &[SectionDefinition]) {
    for signal in signals.forever() {
        if signal == SIGHUP {
            log::info!(
                "SIGHUP: keys and certificates are read again; use causeway apply to change the \
                 configuration"
            );
            for section in sections {
                let Some(reload) = section.requests.reload else { continue };
                if let Err(error) = reload(&|request| ask_service(fabric, request)) {
                    log::warn!(
                        section = section.name, error:% = error;
                        "keys and certificates were not read again: the previous ones stay in use"
                    );
                }
            }
            continue;
        }
        log::info!(signal; "stopping");
        return;
    }
}

/// Starts a thread that sends systemd's watchdog notification for as long as every dispatcher
/// answers; none if systemd does not watch this process. The thread ends with the process.
fn start_watchdog(
    fabric: &Arc<dyn FabricControl>,
    notify: &Arc<ServiceManager>,
) -> std::io::Result<()> {
    let Some(period) = watchdog_period() else { return Ok(()) };
    let (fabric, notify) = (fabric.clone(), notify.clone());
    let notify_alive = move || {
        loop {
            if fabric.call(causeway_model::Command::DispatcherList).is_ok() {
                notify.send("WATCHDOG=1");
            }
            thread::sleep(period);
        }
    };
    thread::Builder::new().name("watchdog".into()).spawn(notify_alive).map(drop)
}
