//! Checks whether a firewall of this host drops the datagrams of links: a heuristic.
//!
//! A chain at the input hook with the policy `drop` blocks a port unless a rule accepts the port.
//! The check looks for the number of the port in the rules of `nft`, or of `iptables` if `nft` has
//! none, and understands neither named sets nor jumps: a number, a range or a set within a rule is
//! found. A port that any accepting rule names counts as accepted, also by a rule of another chain
//! or protocol. It needs root: for other users, the check is skipped. [`super::examine`] calls
//! [`links`]; `nft` and `iptables` run for at most 5 s each, and a program that is missing or fails
//! counts as one without rules.

use super::Finding;
use crate::program::output;
use crate::view::LinkView;

/// Checks the local ports of links.
pub fn links(links: &[LinkView]) -> Vec<Finding> {
    let local = |link: &LinkView| {
        let local = link.spec.text("local")?;
        Some((link.spec.text("name")?.to_owned(), local.rsplit_once(':')?.1.parse::<u16>().ok()?))
    };
    let ports: Vec<(String, u16)> = links.iter().filter_map(local).collect();
    if ports.is_empty() {
        return Vec::new();
    }
    if !rustix::process::geteuid().is_root() {
        return vec![Finding::skipped("firewall", "its rules are readable for root alone")];
    }
    let nft = output("nft", &["list", "ruleset"]);
    let rules = nft.filter(|text| !text.trim().is_empty()).or_else(|| output("iptables", &["-S"]));
    let Some(rules) = rules else {
        return vec![Finding::ok("firewall", "no rules were found (nft, iptables)")];
    };
    let blocked = ports.iter().filter(|(_, port)| is_blocked(&rules, *port));
    let findings: Vec<Finding> = blocked
        .map(|(name, port)| {
            let text = format!("link {name}: the firewall drops input, and no rule accepts {port}");
            let remedy = format!(
                "accept the peer's datagrams, for example: nft insert rule inet filter input udp \
                 dport {port} accept"
            );
            Finding::warn("firewall", text, remedy)
        })
        .collect();
    if findings.is_empty() {
        return vec![Finding::ok("firewall", "no rule was found that drops input of links")];
    }
    findings
}

/// Returns whether rules drop input by default and accept no such port.
fn is_blocked(rules: &str, port: u16) -> bool {
    let drops_nft = rules.lines().any(|line| {
        line.contains("hook input")
            && (line.contains("policy drop") || line.contains("policy reject"))
    });
    let drops_iptables = rules.lines().any(|line| line.trim() == "-P INPUT DROP");
    if !drops_nft && !drops_iptables {
        return false;
    }
    let names = |line: &str| {
        line.split(|c: char| !c.is_ascii_digit() && c != '-' && c != ':')
            .any(|word| covers(word, port))
    };
    !rules.lines().any(|line| {
        let accepts = line.contains("accept") || line.contains("-j ACCEPT");
        accepts && line.contains("dport") && names(line)
    })
}

/// Returns whether a word is the port, or a range (`9000-9010`, `9000:9010`) with the port.
fn covers(word: &str, port: u16) -> bool {
    let number = |text: &str| text.parse::<u16>().ok();
    if number(word) == Some(port) {
        return true;
    }
    let range = word.split_once(['-', ':']);
    let range = range.and_then(|(first, last)| Some((number(first)?, number(last)?)));
    range.is_some_and(|(first, last)| (first..=last).contains(&port))
}

#[cfg(test)]
mod tests {
    use super::is_blocked;

    #[test]
    fn doctor_finds_ports_that_no_rule_accepts() {
        let nft = "table inet filter {\n chain input {\n\
                   type filter hook input priority filter; policy drop;\n\
                   tcp dport 22 accept\n udp dport { 53, 9000-9010 } accept\n }\n}\n";
        assert_eq!(
            [22, 53, 9005, 9011, 2].map(|port| is_blocked(nft, port)),
            [false, false, false, true, true]
        );
        assert!(!is_blocked(&nft.replace("policy drop", "policy accept"), 9011));
        let iptables = "-P INPUT DROP\n-A INPUT -p udp -m udp --dport 9000 -j ACCEPT\n";
        assert_eq!([9000, 9001].map(|port| is_blocked(iptables, port)), [false, true]);
        assert!(!is_blocked("", 9000));
    }
}
