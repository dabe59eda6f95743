//! `causeway doctor`: prints the findings of [`crate::doctor`], failures first.
//!
//! JSON output is `{"findings": […], "failed": N, "warnings": N}`. The command fails with exit
//! status 1 if a check failed; the findings are printed before. Warnings and skipped checks are no
//! failure. A daemon that does not answer is a finding, not an error of the command. The verb
//! changes nothing.
//!
//! `commands::run` is the caller; a check that runs a program blocks for at most 5 s.

use serde_json::json;

use super::{CommandContext, print};
use crate::args::{DoctorArgs, Format};
use crate::doctor::{Finding, Severity, examine};
use crate::error::{Error, Result};

/// Runs `causeway doctor` and prints the result.
pub fn run(cx: &CommandContext, args: &DoctorArgs) -> Result<()> {
    let mut findings = examine(&cx.client, args.user.as_deref());
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let (failed, warnings) = (count(Severity::Fail), count(Severity::Warn));
    match cx.format {
        Format::Table => print(&text(&findings, failed, warnings))?,
        Format::Json => {
            let value = json!({ "findings": findings, "failed": failed, "warnings": warnings });
            print(&format!("{value:#}\n"))?;
        }
    }
    match failed {
        0 => Ok(()),
        1 => Err(Error::Unhealthy("1 check failed".into())),
        number => Err(Error::Unhealthy(format!("{number} checks failed"))),
    }
}

/// Returns a line for each finding, its remedy below it, and the sums.
fn text(findings: &[Finding], failed: usize, warnings: usize) -> String {
    let mut out = String::new();
    for Finding { check, severity, text, remedy, .. } in findings {
        out.push_str(&format!("{:<7}  {check:<10}  {text}\n", severity.name()));
        for line in remedy.iter().flat_map(|remedy| remedy.lines()) {
            out.push_str(&format!("{:<7}  {:<10}  -> {line}\n", "", ""));
        }
    }
    let (all, plural) = (findings.len(), if warnings == 1 { "" } else { "s" });
    out.push_str(&format!("\n{all} checks, {failed} failed, {warnings} warning{plural}\n"));
    out
}
