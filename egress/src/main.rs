//! `atoll-egress`: the egress proxy of a host (docs/internals/egress.md). The server starts it as a user of its own without capabilities; it needs
//! none, and does not look at who it is.

use atoll_egress::{authority, control, process, zeroing::Zeroing};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Zeroing = Zeroing;

const USAGE: &str = "usage: atoll-egress [authority]";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let done = match (arguments.next(), arguments.next()) {
        (None, _) => serve(),
        (Some(command), None) if command == "authority" => authority::print_new().map_err(|fault| fault.to_string()),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("atoll-egress: {message}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), String> {
    process::prepare().map_err(|fault| fault.to_string())?;
    let run = || -> io::Result<()> {
        // Descriptors of their own: what the library buffers of standard input and output is not zeroed.
        let input = File::from(io::stdin().as_fd().try_clone_to_owned()? as OwnedFd);
        let output = File::from(io::stdout().as_fd().try_clone_to_owned()? as OwnedFd);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(process::workers())
            .enable_all()
            .thread_stack_size(process::STACK_BYTES)
            .build()?;
        let served = runtime.block_on(control::serve(input, output));
        // Connections end with the process; none is waited for.
        runtime.shutdown_background();
        served
    };
    run().map_err(|fault| fault.to_string())
}
