//! Arguments of `causeway capture`: the port or link, the file, the filter and the end of the
//! capture.
//!
//! Conditions of the filter must all match; each can be given once, and there is no expression
//! language. EtherTypes and protocols have names ([`ethertype`], [`protocol`]) or numbers. The
//! filter is executed by the daemon. An unknown name and a value out of range are refused with exit
//! status 2. `commands::capture` uses the arguments, and `commands::extcap` the conditions, in the
//! main thread.

use std::net::IpAddr;
use std::path::PathBuf;

use causeway_model::{Mac, Name};
use clap::Args;

use crate::limits::SECONDS_MAX;

/// `causeway capture`
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// Capture at this port
    #[arg(required_unless_present = "link", conflicts_with = "link")]
    pub port_name: Option<Name>,
    /// Capture at this link instead
    #[arg(long, value_name = "NAME")]
    pub link: Option<Name>,
    /// The pcapng file, or - for standard output
    #[arg(long, short, value_name = "FILE")]
    pub write: PathBuf,
    /// Frames and packets to capture.
    #[command(flatten)]
    pub conditions: CaptureConditions,
    /// Stop after this many frames
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Stop after this many seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    pub seconds: Option<u64>,
}

/// Conditions on captured frames and packets.
#[derive(Debug, Args)]
pub struct CaptureConditions {
    /// Only frames from or to this Ethernet address
    #[arg(long, value_name = "MAC")]
    pub mac: Option<Mac>,
    /// Only frames of this EtherType: a number such as 0x0806, or arp, ipv4, ipv6
    #[arg(long, value_name = "TYPE", value_parser = ethertype)]
    pub ethertype: Option<u16>,
    /// Only frames from or to this IP address
    #[arg(long, value_name = "ADDRESS")]
    pub host: Option<IpAddr>,
    /// Only frames of this IP protocol: a number, or icmp, tcp, udp, icmpv6
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol)]
    pub protocol: Option<u8>,
    /// Only frames from or to this TCP or UDP port, or socket packets from or to this port number
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Bytes to keep of each frame [default: all]
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    pub snap: u32,
}

/// Reads an EtherType: a decimal number, a hexadecimal number after `0x`, or a name.
fn ethertype(text: &str) -> Result<u16, String> {
    let number = || match text.strip_prefix("0x") {
        Some(hex) => u16::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    match text {
        "arp" => Ok(0x0806),
        "ipv4" => Ok(0x0800),
        "ipv6" => Ok(0x86dd),
        _ => number().ok_or_else(|| "expected 0 to 0xffff, arp, ipv4 or ipv6".into()),
    }
}

/// Reads an IP protocol: a decimal number or a name.
fn protocol(text: &str) -> Result<u8, String> {
    match text {
        "icmp" => Ok(1),
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmpv6" => Ok(58),
        _ => text.parse().map_err(|_| "expected 0 to 255, icmp, tcp, udp or icmpv6".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_types_and_protocols_have_names() {
        assert_eq!(
            (ethertype("arp"), ethertype("0x88b5"), ethertype("2048")),
            (Ok(0x806), Ok(0x88b5), Ok(0x800))
        );
        assert_eq!((protocol("tcp"), protocol("47")), (Ok(6), Ok(47)));
        assert!(ethertype("0x10000").is_err() && protocol("256").is_err() && protocol("").is_err());
    }
}
