//! Arguments of `causeway web`: the address, the names of the server, and the interval.
//!
//! An address that is not of the loopback interface is refused without `--allow-remote`, by
//! `commands::web`, which uses the values; so are more names than the server has room for. An
//! interval outside of its range is refused here. Both are exit status 2.

use std::net::SocketAddr;

use causeway_web::limits::{INTERVAL_S_DEFAULT, INTERVAL_S_MAX};
use clap::Args;

/// Examples of the help text.
pub const EXAMPLES: &str = "\
The page shows groups, ports, links, hosts and the traffic between them, rates, drops by reason,
dispatchers, and problems with their remedies. Nothing can be changed. The daemon is asked at the
interval while a browser shows the page, and not without one.

Every user of this host can read a page on the loopback interface. The page has no password and no
encryption: from elsewhere, forward its port by ssh instead of --allow-remote.

The process serves until SIGINT or SIGTERM, and restricts itself (Landlock, no capability beyond
access to sockets of other users).

Examples:
  causeway web                                        then open http://127.0.0.1:8480/
  causeway web --listen 127.0.0.1:9000 --interval 5
  ssh -L 8480:127.0.0.1:8480 root@host causeway web   from another machine
  causeway web --listen 10.0.0.7:8480 --allow-remote --host-name node-a.example";

/// `causeway web`.
#[derive(Debug, Args)]
pub struct WebArgs {
    /// Address and port at which browsers connect
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8480")]
    pub listen: SocketAddr,
    /// Permit an address that other hosts reach: every host there can read the page
    #[arg(long)]
    pub allow_remote: bool,
    /// A further name by which browsers address the server, besides IP addresses and localhost
    #[arg(long, value_name = "NAME")]
    pub host_name: Vec<String>,
    /// Interval at which the daemon is asked, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = INTERVAL_S_DEFAULT,
          value_parser = clap::value_parser!(u64).range(1..=INTERVAL_S_MAX))]
    pub interval: u64,
    /// Do not restrict the process
    #[arg(long)]
    pub no_sandbox: bool,
}
