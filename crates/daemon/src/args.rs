//! The command line of causewayd.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{CommandFactory as _, Parser};

use crate::config::CONFIG_DEFAULT;

const EXAMPLES: &str = "\
Examples:
  causewayd                                     serve /etc/causeway/causeway.toml
  causewayd --config ./lab.toml                 serve another file
  causewayd --config ./lab.toml --check-config  say what is wrong with it, line by line
  causewayd --print-config                      show it with every default filled in

Signals: SIGTERM and SIGINT stop the daemon and remove its sockets, except those of
held ports whose guests are connected: causeway-holder keeps these guests for the next
causewayd (`causeway shutdown --release` disconnects them). SIGHUP has keys and
certificates of links read again (renewed certificates are used by the next connection
without it); what is served is changed while it runs by
causeway(1), `causeway apply` too.

Exit status: 0 stopped or checked, 1 error, 2 wrong usage.";

/// Carries Ethernet frames and sockets between the virtual machines of this host.
#[derive(Debug, Parser)]
#[command(name = "causewayd", version, after_help = EXAMPLES)]
pub struct Args {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = CONFIG_DEFAULT, env = "CAUSEWAY_CONFIG")]
    pub config: PathBuf,
    /// When stopped, leave held ports to the next causewayd even if no guest is connected to them;
    /// without it, only where one is
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
    /// Print the manual page (roff) and exit
    #[arg(long, group = "mode")]
    pub man: bool,
    /// Print the completions of a shell and exit
    #[arg(long, group = "mode", value_name = "SHELL")]
    pub completion: Option<clap_complete::Shell>,
}

impl Args {
    /// The manual page, made from this definition.
    pub fn man_page() -> std::io::Result<Vec<u8>> {
        let mut page = Vec::new();
        let man = clap_mangen::Man::new(Self::command()).section("8");
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        // The examples as they are, not filled into paragraphs.
        let examples = EXAMPLES.replace('\\', "\\e").replace('-', "\\-");
        write!(page, ".SH EXAMPLES\n.nf\n{examples}\n.fi\n")?;
        write!(page, ".SH \"SEE ALSO\"\n.BR causeway (1)\n")?;
        Ok(page)
    }

    /// The completions of `shell`, made from this definition.
    pub fn completions(shell: clap_complete::Shell) -> Vec<u8> {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Self::command(), "causewayd", &mut script);
        script
    }
}
