//! The commands that `serve` does itself, in a thread, where the server asks for this program: a process would cost more than their
//! system calls. What they change of their thread's namespaces ends with it. They print nothing, and cannot be killed, so each has an
//! end of its own.

use std::path::PathBuf;

use crate::protocol::args::{split_start, Args};
use crate::{
    fork_generation, inode_numbers, limits, network, open_files, overlay, remove, run_folder, shown_files, subvolume,
    volume,
};
use sys::Error;

/// `None` for any other command.
pub fn run(command: &str, args: &mut Args) -> Option<Result<(), Error>> {
    let command = match command {
        "remove" => remove::command,
        "overlay" => mount_overlay,
        "tmpfs" => mount_tmpfs,
        "volume" => mount_volume,
        "replace-files" => replace_files,
        "adopt-index" => |args: &mut Args| overlay::index::adopt(&only_path(args, "work")?),
        "run-folder" => |args: &mut Args| run_folder::make_own(&only_path(args, "dir")?),
        "source" => |args: &mut Args| run_folder::make_source(&only_path(args, "dir")?),
        "limits" => show_limits,
        "fork-generation" => write_generation,
        "number" => number,
        "forget-origins" => |args: &mut Args| overlay::origins::forget(&only_path(args, "dir")?),
        "forget-sizes" => forget_sizes,
        "exchange" => exchange,
        "network" => join_network,
        "link-delete" => delete_link,
        "subvolume-create" => |args: &mut Args| subvolume::create(&only_path(args, "path")?),
        "subvolume-snapshot" => snapshot,
        "subvolume-limit" => limit,
        "subvolume-delete" => |args: &mut Args| subvolume::delete(&only_path(args, "path")?),
        _ => return None,
    };
    let command: fn(&mut Args) -> Result<(), Error> = command;
    Some(command(args))
}

fn only_path(args: &mut Args, name: &str) -> Result<PathBuf, Error> {
    let path = args.path(name)?;
    args.finish()?;
    Ok(path)
}

fn mount_overlay(args: &mut Args) -> Result<(), Error> {
    let request = overlay::Request::from_args(args)?;
    args.finish()?;
    overlay::mount(&request)
}

fn mount_tmpfs(args: &mut Args) -> Result<(), Error> {
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

fn mount_volume(args: &mut Args) -> Result<(), Error> {
    let source = args.path("source")?;
    let target = args.path("target")?;
    let range = args.text("range")?;
    let read_only = yes_or_no(args, "read-only")?;
    args.finish()?;
    let (start, count) = split_start(&range)?;
    let count = count.parse().map_err(|_| Error::new(format!("--range {range} is not START:COUNT")))?;
    volume::mount(&source, &target, (start, count), read_only)
}

fn replace_files(args: &mut Args) -> Result<(), Error> {
    let pid: u32 = args.number("pid")?;
    let start: u64 = args.number("start")?;
    let source = args.path("source")?;
    let files = args.paths("file")?;
    let groups = args.paths("group")?;
    args.finish()?;
    if !shown_files::replace(pid, start, &source, &files, &groups)? {
        println!("held");
    }
    Ok(())
}

fn number(args: &mut Args) -> Result<(), Error> {
    let dir = args.path("dir")?;
    let from: u64 = args.number("from")?;
    args.finish()?;
    inode_numbers::count_up(&dir, from)
}

fn forget_sizes(args: &mut Args) -> Result<(), Error> {
    let from = args.path("from")?;
    let to = args.path("to")?;
    let files = args.paths("file")?;
    args.finish()?;
    open_files::forget_sizes(&from, &to, &files)
}

fn exchange(args: &mut Args) -> Result<(), Error> {
    let one = args.path("one")?;
    let other = args.path("other")?;
    args.finish()?;
    sys::exchange(&one, &other)
}

fn join_network(args: &mut Args) -> Result<(), Error> {
    let request = network::Request::from_args(args)?;
    args.finish()?;
    network::join(&request)
}

fn show_limits(args: &mut Args) -> Result<(), Error> {
    let request = limits::Request::from_args(args)?;
    args.finish()?;
    limits::show(&request)
}

fn write_generation(args: &mut Args) -> Result<(), Error> {
    let request = fork_generation::Request::from_args(args)?;
    args.finish()?;
    fork_generation::write(&request)
}

fn delete_link(args: &mut Args) -> Result<(), Error> {
    let link = args.text("link")?;
    args.finish()?;
    network::delete(&link)
}

fn snapshot(args: &mut Args) -> Result<(), Error> {
    let from = args.path("from")?;
    let path = args.path("path")?;
    let writable = yes_or_no(args, "writable")?;
    args.finish()?;
    subvolume::snapshot(&from, &path, writable)
}

fn yes_or_no(args: &mut Args, name: &str) -> Result<bool, Error> {
    let value = args.text(name)?;
    match value.as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(Error::new(format!("--{name} {value} is neither yes nor no"))),
    }
}

fn limit(args: &mut Args) -> Result<(), Error> {
    let path = args.path("path")?;
    let bytes: u64 = args.number("bytes")?;
    args.finish()?;
    subvolume::limit(&path, bytes)
}
