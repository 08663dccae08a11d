//! `atoll-mount`: makes the mounts of one sandbox on the host. Every argument is taken as it is; there is no shell and no
//! configuration. A failure prints one line that names the path, exits 1 and leaves no mount behind.
//!
//!     atoll-mount overlay --target DIR --upper DIR --work DIR --range START:COUNT --lower START:DIR [--lower START:DIR …]
//!     atoll-mount tmpfs   --target DIR --size BYTES --inodes COUNT --owner ID
//!     atoll-mount number  --dir DIR --from NUMBER
//!     atoll-mount launch
//!     atoll-mount version

mod args;
mod launch;
mod number;
mod overlay;
mod sys;

use args::Args;
use sys::Error;

fn main() {
    if let Err(error) = run() {
        eprintln!("atoll-mount: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Error> {
    let mut given = std::env::args_os().skip(1);
    let command = given.next().and_then(|word| word.into_string().ok()).unwrap_or_default();
    let mut args = Args::parse(given)?;
    match command.as_str() {
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
            // The folder is writable from inside a sandbox: no symbolic link in it may lead the host anywhere.
            let flags = sys::MS_NOSUID | sys::MS_NODEV | sys::MS_NOEXEC | sys::MS_NOSYMFOLLOW;
            let data = format!("size={size},nr_inodes={inodes},mode=0700,uid={owner},gid={owner}");
            sys::mount_at("tmpfs", &target, flags, &data)
        }
        "number" => {
            let dir = args.path("dir")?;
            let from: u64 = args.number("from")?;
            args.finish()?;
            number::count_up(&dir, from)
        }
        "launch" => {
            args.finish()?;
            launch::serve()
        }
        "version" => {
            println!("{}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        _ => Err(Error::new("usage: atoll-mount overlay|tmpfs|number|launch|version --name value …")),
    }
}
