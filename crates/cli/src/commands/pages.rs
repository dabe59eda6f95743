//! `causeway completion` and `causeway man`: shell completions and manual pages, generated from the
//! command-line definition.
//!
//! `completion` prints a script for a shell. `man` prints the page of `causeway`, or, with a
//! directory, creates the directory if it is missing and writes a page for the command and for each
//! subcommand, overwriting files of the same names. Other files stay; a failure leaves the pages
//! written so far. Pages are roff of section 1.
//!
//! Neither needs the daemon; with `--control` or `CAUSEWAY_CONTROL`, pages and completions include
//! the kinds of ports of that daemon if it answers (`load_kinds` in `main`). Nothing is installed.
//! `commands::run` is the caller; packaging scripts use both.

use std::io::Write as _;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use super::{print, print_bytes};
use crate::args::Cli;
use crate::error::{Error, Result};

/// Prints the completions of a shell.
pub fn completion(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "causeway", &mut script);
    print_bytes(&script)
}

/// Writes all manual pages into a directory, or prints the page of `causeway` without a directory.
pub fn man(dir: Option<&Path>) -> Result<()> {
    let failed = |what: String| move |error| Error::Output { what, error };
    let mut command = Cli::command();
    command.build();
    let Some(dir) = dir else {
        let page = page(&Man::new(command.clone()), &command);
        return print_bytes(&page.map_err(failed("manual page".into()))?);
    };
    let what = format!("manual pages in {}", dir.display());
    std::fs::create_dir_all(dir)
        .and_then(|()| write_pages(&command, dir))
        .map_err(failed(what.clone()))?;
    print(&format!("{what}\n"))
}

/// Writes a page for the command and for each subcommand, for example `causeway-port-add.1`.
fn write_pages(command: &Command, dir: &Path) -> std::io::Result<()> {
    for below in command.get_subcommands() {
        write_pages(below, dir)?;
    }
    let man = Man::new(command.clone());
    std::fs::write(dir.join(man.get_filename()), page(&man, command)?)
}

/// Returns a page in roff.
fn page(man: &Man, command: &Command) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(text) = command.get_after_help() {
        // Kept verbatim, not filled into paragraphs.
        let text = text.to_string().replace('\\', "\\e").replace('-', "\\-");
        write!(page, ".SH EXAMPLES\n.nf\n{text}\n.fi\n")?;
    }
    write!(page, ".SH \"SEE ALSO\"\n.BR causeway (1),\n.BR causewayd (8)\n")?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_definition_is_consistent_and_every_command_has_an_example() {
        fn check(command: &clap::Command) {
            let subcommands: Vec<_> = command.get_subcommands().collect();
            if subcommands.is_empty() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example"), "{} has no example", command.get_name());
            }
            subcommands.into_iter().for_each(check);
        }
        let command = Cli::command();
        command.clone().debug_assert();
        check(&command);
    }
}
