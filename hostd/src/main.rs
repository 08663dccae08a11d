//! `atoll-hostd` works for the server on its host: it is small, so that it forks fast, and a sandbox can block only one of its
//! threads. It uses no shell and no configuration.
//!
//!     atoll-hostd serve --socket PATH    is resident
//!     atoll-hostd perform REQUEST        does what one request says (`protocol/request.rs`), a line of JSON, and ends
//!     atoll-hostd version                prints its greeting
//!
//! A failure of `perform` exits 1, leaves no mount behind, and prints one line of JSON with a code and a message that names the object.

#![warn(clippy::undocumented_unsafe_blocks)]

mod commands;
mod connect;
mod criu_image;
mod dump_check;
mod fork_generation;
mod inode_numbers;
mod layer;
mod limits;
mod mounts;
mod network;
mod open_files;
mod overlay;
mod pages;
mod process;
mod protocol;
mod relay;
mod remove;
mod reserve;
mod run_folder;
mod serve;
mod shown_files;
mod step_mounts;
mod subvolume;
mod volume;

use protocol::answer::{failure, greeting, line};
use protocol::fields::refused;
use protocol::request::Request;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::exit;
use sys::Error;

fn main() {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let told = match words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>().as_slice() {
        [b"serve", b"--socket", _] => {
            if let Err(error) = serve::serve(Path::new(&words[2])) {
                eprintln!("atoll-hostd: {error}");
                exit(1);
            }
            Ok(String::new())
        }
        [b"perform", request] => perform(request),
        [b"version"] => Ok(line(&greeting())),
        _ => Err(refused("usage: atoll-hostd serve --socket PATH | perform REQUEST | version")),
    };
    match told {
        Ok(told) => print!("{told}"),
        Err(error) => {
            eprint!("{}", failure(&error));
            exit(1);
        }
    }
}

fn perform(request: &[u8]) -> Result<String, Error> {
    match Request::alone(request)? {
        Request::StartProgram(program) => program.replace_this(),
        Request::Brief(brief) => commands::perform_brief(brief),
        Request::Long(long) => commands::perform_long(long),
        Request::Resident(_) => Err(refused("a resident atoll-hostd alone does this")),
    }
}
