//! `atoll-hostd` works for the server on its host: it is small, so that it forks fast, and a sandbox can block only one of its
//! threads. `serve` is resident; each other command does one thing and ends. It uses no shell and no configuration. A failure
//! prints one line that names the path, exits 1 and leaves no mount behind.
//!
//!     atoll-hostd serve   --socket PATH
//!     atoll-hostd overlay --target DIR --upper DIR --work DIR --range START:COUNT --lower START:DIR [--lower START:DIR …] [--hide DIR]
//!     atoll-hostd alone   --hide DIR [--keep DIR] -- PROGRAM [ARGUMENT …]
//!     atoll-hostd within  [--group DIR …] -- PROGRAM [ARGUMENT …]
//!     atoll-hostd tmpfs   --target DIR --size BYTES --inodes COUNT --owner ID
//!     atoll-hostd volume  --source DIR --target DIR --range START:COUNT --read-only yes|no
//!     atoll-hostd adopt-index --work DIR
//!     atoll-hostd run-folder  --dir DIR
//!     atoll-hostd source  --dir DIR
//!     atoll-hostd number  --dir DIR --from NUMBER
//!     atoll-hostd forget-origins --dir DIR
//!     atoll-hostd forget-sizes   --from FILE --to FILE --file PATH [--file PATH …]
//!     atoll-hostd exchange --one PATH --other PATH
//!     atoll-hostd subvolume-create   --path DIR
//!     atoll-hostd subvolume-snapshot --from DIR --path DIR --writable yes|no
//!     atoll-hostd subvolume-limit    --path DIR --bytes NUMBER
//!     atoll-hostd subvolume-delete   --path DIR
//!     atoll-hostd network --pid PID --start TICK --link NAME --address IP --mac MAC --gateway IP --gateway-mac MAC [--held IP [--close yes]]
//!     atoll-hostd link-delete --link NAME
//!     atoll-hostd freeze  --group DIR [--group DIR …]
//!     atoll-hostd fork-generation --pid PID --start TICK --owner ID --value DIGITS
//!     atoll-hostd hold    --first PID --hooks DIR --group DIR [--group DIR …]
//!     atoll-hostd await-unconnected --pid NUMBER
//!     atoll-hostd check-dump --images DIR --beside DIR --posix-locks kept|lost --semaphores kept|lost --group DIR [--group DIR …]
//!     atoll-hostd empty-robust-lists --group DIR [--group DIR …]
//!     atoll-hostd await-dumps --runc-root DIR --timeout-ms NUMBER
//!     atoll-hostd end-tools --path PATH [--path PATH …]
//!     atoll-hostd end-criu --lazy-pages end|leave --dir DIR [--dir DIR …]
//!     atoll-hostd share-pages --like DIR --dir DIR
//!     atoll-hostd unpack-layer --blob FILE --bytes-max N --files-max N --depth-max N [--target DIR [--lower DIR …]] [--plain yes]
//!     atoll-hostd reserve --pool DIR --file FILE --ahead BYTES --chunk BYTES --leave BYTES
//!     atoll-hostd remove  --dir DIR [--dir DIR …]
//!     atoll-hostd version

#![warn(clippy::undocumented_unsafe_blocks)]

mod alone;
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
mod shown_files;
mod subvolume;
mod volume;
mod within;

use process::{freeze, hold, launch, robust_lists, strays, unconnected};
use protocol::args::Args;
use sys::channel::Channel;
use sys::Error;

fn main() {
    if let Err(error) = run() {
        eprintln!("atoll-hostd: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Error> {
    let mut given = std::env::args_os().skip(1);
    let command = given.next().and_then(|word| word.into_string().ok()).unwrap_or_default();
    if command == "alone" {
        return alone::command(given);
    }
    if command == "within" {
        return within::command(given);
    }
    let mut args = Args::parse(given)?;
    if let Some(done) = commands::run(&command, &mut args) {
        return done;
    }
    match command.as_str() {
        "serve" => {
            let channel = Channel::take();
            relay::serve(&args.only_path("socket")?)?;
            launch::serve(env!("CARGO_PKG_VERSION"), channel)
        }
        "unpack-layer" => layer::command(args),
        "share-pages" => pages::command(args),
        "reserve" => reserve::command(args),
        "freeze" => freeze::command(args),
        "hold" => hold::command(args),
        "await-unconnected" => unconnected::command(args),
        "check-dump" => dump_check::command(args),
        "empty-robust-lists" => robust_lists::command(args),
        "await-dumps" => strays::await_dumps(args),
        "end-tools" => strays::end_tools(args),
        "end-criu" => strays::end_criu(args),
        "version" => {
            println!("{}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        _ => Err(Error::new(format!(
            "there is no command {command:?}: this program may be older than the server, run npm run setup"
        ))),
    }
}
