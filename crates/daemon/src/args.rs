//! The command line of causewayd, with its help text, manual page and completions.
//!
//! [`Args`] only describes and parses: options that exclude each other (`mode`, `--state` and
//! `--ephemeral`) are refused by clap, and no file is opened here. Options select the files, the
//! mode of the run and exceptions for it (`--keep`, `--no-sandbox`); all other settings are keys of
//! the configuration file ([`crate::config`]). `CAUSEWAY_CONFIG` stands for `--config`; no other
//! option can be given by a variable of the environment.
//!
//! `main` parses, in the main thread, and [`crate::run`] executes; it also calls [`Args::man_page`]
//! and [`Args::completions`] and prints the result. The tool `causeway` has its own command line,
//! in `cli::args`.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{CommandFactory as _, Parser};

use crate::config::CONFIG_DEFAULT;

const EXAMPLES: &str = "\
Examples:
  causewayd                                     serve /etc/causeway/causeway.toml
  causewayd --config ./lab.toml                 serve another file
  causewayd --config ./lab.toml --check-config  report its problems, line by line
  causewayd --print-config                      print it with every default filled in

The configuration file is the operator's word: its objects are added first, and a start that
cannot add them fails. Objects that were added while causewayd ran (causeway port add, link add,
apply and so on, without --ephemeral) are kept in the state file and added afterwards; if both
files have an object, the configuration file decides. An object of the configuration file that
was deleted while causewayd ran returns at the next start. `causeway config diff` compares.

Signals: SIGTERM and SIGINT stop the daemon and remove its sockets, except those of
held ports whose guests are connected: causeway-holder keeps these guests for the next
causewayd (`causeway shutdown --release` disconnects them). SIGHUP makes links read their
keys and certificates again; renewed certificates are used by new connections without it.
Use causeway(1), for example `causeway apply`, to change the configuration at run time.

Exit status: 0 stopped or checked, 1 error, 2 wrong usage.";

/// Carries Ethernet frames and sockets between the virtual machines of this host.
#[derive(Debug, Parser)]
#[command(name = "causewayd", version, after_help = EXAMPLES)]
pub struct Args {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = CONFIG_DEFAULT, env = "CAUSEWAY_CONFIG")]
    pub config: PathBuf,
    /// The state file, instead of the key state_file: objects that are added while causewayd runs
    /// are kept there, and added again at the next start
    #[arg(long, value_name = "FILE", conflicts_with = "ephemeral")]
    pub state: Option<PathBuf>,
    /// Neither read nor write the state file: only the configuration file outlasts the process
    #[arg(long)]
    pub ephemeral: bool,
    /// At a stop, leave all held ports to the next causewayd; by default only those with a
    /// connected guest
    #[arg(long)]
    pub keep: bool,
    /// Serve without the sandbox (system call filter, Landlock, no core dumps): for debuggers
    #[arg(long)]
    pub no_sandbox: bool,
    /// Check the configuration and exit
    #[arg(long, group = "mode")]
    pub check_config: bool,
    /// Print the configuration with every default filled in, and exit
    #[arg(long, group = "mode")]
    pub print_config: bool,
    /// Print a manual page (roff) and exit
    #[arg(long, group = "mode", value_name = "PAGE", num_args = 0..=1, require_equals = true,
          default_missing_value = "causewayd")]
    pub man: Option<ManualPage>,
    /// Print the completions of a shell and exit
    #[arg(long, group = "mode", value_name = "SHELL")]
    pub completion: Option<clap_complete::Shell>,
}

/// A manual page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ManualPage {
    /// causewayd(8).
    Causewayd,
    /// causeway.toml(5), with the kinds of ports of this daemon.
    #[value(name = "causeway.toml")]
    Configuration,
}

impl Args {
    /// Returns the manual page in roff, generated from this definition.
    ///
    /// # Errors
    /// Never fails in practice: the page is written to memory.
    pub fn man_page() -> std::io::Result<Vec<u8>> {
        let mut page = Vec::new();
        let man = clap_mangen::Man::new(Self::command()).section("8");
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        // Kept verbatim, not filled into paragraphs.
        let examples = EXAMPLES.replace('\\', "\\e").replace('-', "\\-");
        write!(page, ".SH EXAMPLES\n.nf\n{examples}\n.fi\n")?;
        let others = ".BR causeway (1),\n.BR causeway.toml (5),\n.BR causeway\\-holder (8)";
        write!(page, ".SH \"SEE ALSO\"\n{others}\n")?;
        Ok(page)
    }

    /// Returns the completions of `shell`, generated from this definition.
    pub fn completions(shell: clap_complete::Shell) -> Vec<u8> {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Self::command(), "causewayd", &mut script);
        script
    }
}
