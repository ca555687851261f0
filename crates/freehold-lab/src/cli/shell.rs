//! The arguments of `freehold completions` and `freehold man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: Shell,
}

const COMPLETIONS_HELP: &str = "\
Examples:
  freehold completions bash > ~/.local/share/bash-completion/completions/freehold
  freehold completions fish > ~/.config/fish/completions/freehold.fish
  freehold completions zsh > ~/.zfunc/_freehold      with ~/.zfunc in fpath";

#[derive(Debug, Args)]
#[command(after_help = MAN_HELP)]
pub(crate) struct ManArgs {
    /// Write the pages of freehold and of each command into this folder. Default: print that of
    /// freehold.
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

const MAN_HELP: &str = "\
Examples:
  freehold man | man -l -
  freehold man --output ~/.local/share/man/man1";
