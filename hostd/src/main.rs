//! `atoll-hostd` works for the server on its host: it is small, so that it forks fast, and a sandbox can block only one of its
//! threads. `serve` is resident; each other command does one thing and ends. It uses no shell and no configuration. A failure
//! prints one line that names the path, exits 1 and leaves no mount behind.
//!
//!     atoll-hostd serve   --socket PATH
//!     atoll-hostd overlay --target DIR --upper DIR --work DIR --range START:COUNT --lower START:DIR [--lower START:DIR …]
//!     atoll-hostd tmpfs   --target DIR --size BYTES --inodes COUNT --owner ID
//!     atoll-hostd adopt-index --work DIR
//!     atoll-hostd run-folder  --dir DIR
//!     atoll-hostd source  --dir DIR
//!     atoll-hostd number  --dir DIR --from NUMBER
//!     atoll-hostd forget-origins --dir DIR
//!     atoll-hostd exchange --one PATH --other PATH
//!     atoll-hostd network --pid PID --start TICK [--close ADDRESS]
//!     atoll-hostd freeze  --group DIR [--group DIR …]
//!     atoll-hostd await-unconnected --pid NUMBER
//!     atoll-hostd await-dumps --runc-root DIR --timeout-ms NUMBER
//!     atoll-hostd end-tools --path PATH [--path PATH …]
//!     atoll-hostd end-criu --lazy-pages end|leave --dir DIR [--dir DIR …]
//!     atoll-hostd remove  --dir DIR [--dir DIR …]
//!     atoll-hostd version

mod inode_numbers;
mod network;
mod overlay;
mod process;
mod protocol;
mod relay;
mod remove;
mod run_folder;
mod sys;

use process::{freeze, launch, strays, unconnected};
use protocol::args::Args;
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
    let mut args = Args::parse(given)?;
    match command.as_str() {
        "serve" => {
            relay::serve(&args.only_path("socket")?)?;
            launch::serve(env!("CARGO_PKG_VERSION"))
        }
        "overlay" => {
            let request = overlay::Request::from_args(&mut args)?;
            args.finish()?;
            overlay::mount(&request)
        }
        "tmpfs" => {
            let target = args.path("target")?;
            let size: u64 = args.number("size")?;
            let inodes: u64 = args.number("inodes")?;
            let owner: u32 = args.number("owner")?;
            args.finish()?;
            // A sandbox can write to the folder for a moment: the host must follow no symbolic link in it.
            let flags = sys::MS_NOSUID | sys::MS_NODEV | sys::MS_NOEXEC | sys::MS_NOSYMFOLLOW;
            let data = format!("size={size},nr_inodes={inodes},mode=0700,uid={owner},gid={owner}");
            sys::mount_at("tmpfs", &target, flags, &data)?;
            // Memory saved with a shared mount needs one at the restore. Nothing is ever mounted in it.
            sys::make_shared(&target)
        }
        "adopt-index" => overlay::index::adopt(&args.only_path("work")?),
        "run-folder" => run_folder::make_own(&args.only_path("dir")?),
        "source" => run_folder::make_source(&args.only_path("dir")?),
        "number" => {
            let dir = args.path("dir")?;
            let from: u64 = args.number("from")?;
            args.finish()?;
            inode_numbers::count_up(&dir, from)
        }
        "forget-origins" => overlay::origins::forget(&args.only_path("dir")?),
        "exchange" => {
            let one = args.path("one")?;
            let other = args.path("other")?;
            args.finish()?;
            sys::exchange(&one, &other)
        }
        "network" => {
            let request = network::Request::from_args(&mut args)?;
            args.finish()?;
            network::configure(&request)
        }
        "freeze" => freeze::command(args),
        "await-unconnected" => unconnected::command(args),
        "await-dumps" => strays::await_dumps(args),
        "end-tools" => strays::end_tools(args),
        "end-criu" => strays::end_criu(args),
        "remove" => remove::command(args),
        "version" => {
            println!("{}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        _ => Err(Error::new(format!(
            "there is no command {command:?}: this program may be older than the server, run npm run setup"
        ))),
    }
}
