//! `causeway completion` and `causeway man`: both made from the grammar itself.

use std::path::Path;

use clap::CommandFactory as _;

use super::{print, print_bytes};
use crate::args::Cli;
use crate::error::{Error, Result};

pub fn completion(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "causeway", &mut script);
    print_bytes(&script)
}

pub fn man(dir: Option<&Path>) -> Result<()> {
    let failed = |what: String| move |error| Error::Output { what, error };
    let Some(dir) = dir else {
        let mut page = Vec::new();
        let man = clap_mangen::Man::new(Cli::command());
        man.render(&mut page).map_err(failed("manual page".into()))?;
        return print_bytes(&page);
    };
    let what = format!("manual pages in {}", dir.display());
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), dir))
        .map_err(failed(what.clone()))?;
    print(&format!("{what}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_consistent_and_every_command_has_an_example() {
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
