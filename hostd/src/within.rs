//! A program in a control group, whose limits hold for all that it starts.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::protocol::args::Args;
use sys::Error;

/// Becomes the program that follows `--`.
pub fn command(mut words: impl Iterator<Item = OsString>) -> Result<(), Error> {
    let mut args = Args::parse(words.by_ref().take_while(|word| word != "--"))?;
    let groups = args.optional_paths("group")?;
    args.finish()?;
    for group in groups {
        let members = group.join("cgroup.procs");
        // Number 0 is the process that writes it.
        fs::write(&members, "0").map_err(|error| Error::io("write", members.display(), error))?;
    }
    let program = words.next().ok_or_else(|| Error::new("a program is needed after --"))?;
    Err(Error::io("start", program.to_string_lossy(), Command::new(&program).args(words).exec()))
}
