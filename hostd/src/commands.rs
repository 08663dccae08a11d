//! Carries out each request. The answer is the text that a program would write to standard output.

use crate::protocol::request::{Brief, Long};
use crate::{
    dump_check, fork_generation, inode_numbers, layer, limits, network, open_files, overlay, pages, process, remove,
    reserve, run_folder, shown_files, step_mounts, subvolume, volume,
};
use process::{freeze, hold, robust_lists, strays, unconnected};
use std::path::Path;
use sys::Error;

pub fn perform_brief(request: Brief) -> Result<String, Error> {
    match request {
        Brief::AdoptIndex { work } => overlay::index::adopt(&work),
        Brief::CreateSubvolume { path } => subvolume::create(&path),
        Brief::AttachFolder(attach) => return step_mounts::attach_folder(&attach),
        Brief::AttachSecret(attach) => return step_mounts::attach_secret(&attach),
        Brief::AttachTmpfs(attach) => return step_mounts::attach_tmpfs(&attach),
        Brief::DeleteLink { link } => network::delete(&link),
        Brief::DeleteSubvolume { path } => subvolume::delete(&path),
        Brief::DetachMount(detach) => step_mounts::detach(&detach),
        Brief::ExchangePaths { one, other } => sys::exchange(&one, &other),
        Brief::ForgetOrigins { dir } => overlay::origins::forget(&dir),
        Brief::ForgetSizes { from, to, files } => open_files::forget_sizes(&from, &to, &files),
        Brief::JoinNetwork(join) => network::join(&join),
        Brief::LimitSubvolume { path, bytes } => subvolume::limit(&path, bytes),
        Brief::MakeRunFolder { dir } => run_folder::make_own(&dir),
        Brief::MakeSource { dir } => run_folder::make_source(&dir),
        Brief::MountOverlay(mount) => overlay::mount(&mount),
        Brief::MountTmpfs { target, bytes, inodes, owner } => mount_tmpfs(&target, bytes, inodes, owner),
        Brief::MountVolume { source, target, start, count, read_only } => {
            volume::mount(&source, &target, (start, count), read_only)
        }
        Brief::RaiseInodeNumbers { dir, from } => inode_numbers::raise(&dir, from),
        Brief::RemoveFolders { dirs } => remove::remove_folders(&dirs),
        Brief::ReplaceFiles { process, source, files, groups } => {
            let all = shown_files::replace(process, &source, &files, &groups)?;
            return Ok(if all { "replaced\n" } else { "held\n" }.into());
        }
        Brief::SealMount { process, mount } => step_mounts::seal(process, mount),
        Brief::ShowLimits(show) => limits::show(&show),
        Brief::SnapshotSubvolume { from, path, writable } => subvolume::snapshot(&from, &path, writable),
        Brief::WriteForkGeneration(write) => fork_generation::write(&write),
    }
    .map(|()| String::new())
}

pub fn perform_long(request: Long) -> Result<String, Error> {
    let done = match request {
        Long::AwaitDumps { runc_root, timeout_ms } => return strays::await_dumps(&runc_root, timeout_ms),
        Long::AwaitUnconnected { pid } => unconnected::await_unconnected(pid),
        Long::CheckDump(check) => dump_check::check(&check),
        Long::EmptyRobustLists { groups } => robust_lists::empty(&groups),
        Long::EndCriu { dirs, lazy_pages } => strays::end_criu(&dirs, lazy_pages),
        Long::EndTools { paths } => return strays::end_tools(&paths),
        Long::Freeze { groups } => return freeze::freeze(&groups),
        Long::HoldBack { first, hooks, groups } => hold::hold_back(first, &hooks, &groups),
        Long::ReserveSpace(reserve) => return reserve::reserve(reserve),
        Long::SharePages { like, dir } => return pages::share_pages(&like, &dir),
        Long::UnpackLayer(unpack) => return layer::unpack_layer(unpack),
    };
    done.map(|()| String::new())
}

fn mount_tmpfs(target: &Path, bytes: u64, inodes: u64, owner: u32) -> Result<(), Error> {
    // A sandbox can write to the folder for a moment: the host must follow no symbolic link in it.
    let flags = sys::MS_NOSUID | sys::MS_NODEV | sys::MS_NOEXEC | sys::MS_NOSYMFOLLOW;
    let data = format!("size={bytes},nr_inodes={inodes},mode=0700,uid={owner},gid={owner}");
    sys::mount_at("tmpfs", target, flags, &data)?;
    // Memory saved with a shared mount needs one at the restore. Nothing is ever mounted in it.
    sys::make_shared(target)
}
