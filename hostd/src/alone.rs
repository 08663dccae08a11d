//! A program that sees the mounts of one sandbox and of no other (`mounts.rs`).

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::mounts;
use crate::protocol::args::Args;
use sys::Error;

pub struct Alone {
    hide: PathBuf,
    keep: Option<PathBuf>,
}

impl Alone {
    /// Takes the words up to `--`; the program and its arguments follow.
    pub fn parse(words: &mut impl Iterator<Item = OsString>) -> Result<Alone, Error> {
        let mut args = Args::parse(words.take_while(|word| word != "--"))?;
        let alone = Alone { hide: args.path("hide")?, keep: args.optional_path("keep")? };
        args.finish()?;
        Ok(alone)
    }

    /// For the calling thread and what it starts: a mount namespace without the mounts below `hide`, but with those below `keep`.
    pub fn enter(&self) -> Result<(), Error> {
        let kept = self.keep.as_ref().map(|path| sys::clone_tree_with_mounts(path)).transpose()?;
        mounts::enter_without(&self.hide)?;
        match (&kept, &self.keep) {
            (Some(tree), Some(path)) => sys::attach_tree(tree, path),
            _ => Ok(()),
        }
    }
}

/// Becomes the program.
pub fn command(mut words: impl Iterator<Item = OsString>) -> Result<(), Error> {
    Alone::parse(&mut words)?.enter()?;
    let program = words.next().ok_or_else(|| Error::new("a program is needed after --"))?;
    Err(Error::io("start", program.to_string_lossy(), Command::new(&program).args(words).exec()))
}
