//! Command line of `causeway extcap`, as Wireshark calls it.
//!
//! Exactly one of the four modes must be given, each but the list of interfaces needs an interface,
//! and a capture a FIFO; otherwise the exit status is 2. Names of interfaces are read by
//! `commands::extcap`, which uses the values; the version of Wireshark is ignored.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::CaptureConditions;

/// Text behind the options in the help of the command.
pub const EXAMPLES: &str = "\
The packages install a program in Wireshark's folder of extcap programs that calls this command, so
that the ports and links of this host appear in the list of Wireshark, tshark and dumpcap. The user
needs access to the daemon's control socket (control_group in causewayd's configuration).

Examples:
  tshark -D
  tshark -i causeway-port-vm1-net -c 10
  causeway extcap --extcap-interfaces
  causeway extcap --extcap-dlts --extcap-interface causeway-port-vm1-net
  causeway extcap --extcap-config --extcap-interface causeway-link-to-b
  causeway extcap --capture --extcap-interface causeway-port-vm1-vsock --fifo packets.pcapng";

/// `causeway extcap`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("mode").required(true).args(
    ["extcap_interfaces", "extcap_dlts", "extcap_config", "capture"]))]
pub struct ExtcapArgs {
    /// Print the interfaces: ports and links
    #[arg(long)]
    pub extcap_interfaces: bool,
    /// Print the link type of an interface
    #[arg(long, requires = "extcap_interface")]
    pub extcap_dlts: bool,
    /// Print the options of an interface
    #[arg(long, requires = "extcap_interface")]
    pub extcap_config: bool,
    /// Capture at an interface
    #[arg(long, requires = "extcap_interface", requires = "fifo")]
    pub capture: bool,
    /// The interface: causeway-port-NAME or causeway-link-NAME
    #[arg(long, value_name = "INTERFACE")]
    pub extcap_interface: Option<String>,
    /// The pipe or file to which packets are written
    #[arg(long, value_name = "FILE")]
    pub fifo: Option<PathBuf>,
    /// Version of Wireshark
    #[arg(long, value_name = "VERSION")]
    pub extcap_version: Option<String>,
    /// Capture filter of Wireshark; it must be empty, the options have the filters
    #[arg(long, value_name = "FILTER")]
    pub extcap_capture_filter: Option<String>,
    /// Frames and packets to capture.
    #[command(flatten)]
    pub conditions: CaptureConditions,
}
