//! Stores saved memory once: pages that a folder of CRIU's images has in common with an earlier one of the same sandbox.
//!
//! Each file of pages is built anew from extents of the earlier files (ioctl_ficlonerange(2)) and from pages of its own. After a comparison
//! byte by byte the new file takes the place of the old one. A deduplication in place would free no space: btrfs frees an extent when no
//! byte of it is used any more, and a dump is written in large extents.

mod runs;

use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::io::AsRawFd;
use std::path::{Path, PathBuf};

use runs::{Run, Runs};
use sys::folder::Folder;
use sys::{Error, O_TMPFILE};

/// The page size of CRIU's images, and the unit in which extents are shared.
const PAGE_BYTES: usize = 4096;
const BUFFER_BYTES: usize = 256 * PAGE_BYTES;
/// `_IOW(0x94, 13, struct file_clone_range)`.
const CLONE_RANGE: u64 = 0x4020_940d;

/// `struct file_clone_range` of `linux/fs.h`.
#[repr(C)]
struct CloneRange {
    fd: i64,
    from: u64,
    bytes: u64,
    at: u64,
}

/// Answers how many bytes are shared. Everything else on the host comes first.
pub fn share_pages(like: &Path, dir: &Path) -> Result<String, Error> {
    sys::yield_to_others();
    let earlier = Earlier::read(like)?;
    let mut shared = 0;
    for path in page_files(dir)? {
        shared += share(&path, &earlier)?;
    }
    Ok(format!("{shared}\n"))
}

fn page_files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let is_pages = |name: &str| name.starts_with("pages-") && name.ends_with(".img");
    let names =
        entries.map_err(|error| Error::io("read", dir.display(), error))?.into_iter().map(|entry| entry.file_name());
    let mut paths: Vec<PathBuf> =
        names.filter(|name| name.to_str().map_or(false, is_pages)).map(|name| dir.join(name)).collect();
    paths.sort();
    Ok(paths)
}

/// The pages of all files of an earlier folder, in a row.
struct Earlier {
    /// Each file with the number of its first page.
    files: Vec<(usize, File)>,
    runs: Runs,
    hashing: RandomState,
}

impl Earlier {
    fn read(dir: &Path) -> Result<Earlier, Error> {
        let hashing = RandomState::new();
        let mut files = Vec::new();
        let mut hashes = Vec::new();
        for path in page_files(dir)? {
            let file = File::open(&path).map_err(|error| Error::io("open", path.display(), error))?;
            let first = hashes.len();
            hashes_of(&file, &hashing, &mut hashes).map_err(|error| Error::io("read", path.display(), error))?;
            files.push((first, file));
        }
        Ok(Earlier { files, runs: Runs::of(hashes), hashing })
    }

    /// Gives `file` the extents of a run, which may lie in more than one file.
    fn clone_into(&self, file: &File, run: &Run) -> io::Result<()> {
        let mut done = 0;
        while done < run.pages {
            let page = run.from + done;
            let index = self.files.partition_point(|(first, _)| *first <= page) - 1;
            let (first, source) = &self.files[index];
            let end = self.files.get(index + 1).map_or(usize::MAX, |(next, _)| *next);
            let pages = (run.pages - done).min(end - page);
            let mut range = CloneRange {
                fd: source.as_raw_fd().into(),
                from: bytes(page - first),
                bytes: bytes(pages),
                at: bytes(run.at + done),
            };
            sys::try_control(file, CLONE_RANGE, &mut range)?;
            done += pages;
        }
        Ok(())
    }
}

/// Returns how many bytes the file at `path` has in common with earlier ones now.
fn share(path: &Path, earlier: &Earlier) -> Result<u64, Error> {
    share_file(path, earlier).map_err(|error| Error::io("share the pages of", path.display(), error))
}

fn share_file(path: &Path, earlier: &Earlier) -> io::Result<u64> {
    let old = File::open(path)?;
    let metadata = old.metadata()?;
    // A file with other names would keep its extents under them.
    if metadata.nlink() != 1 || metadata.len() % PAGE_BYTES as u64 != 0 {
        return Ok(0);
    }
    let mut hashes = Vec::new();
    hashes_of(&old, &earlier.hashing, &mut hashes)?;
    let runs = earlier.runs.within(&hashes);
    if runs.is_empty() {
        return Ok(0);
    }
    let (folder, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    let new = OpenOptions::new().read(true).write(true).custom_flags(O_TMPFILE).mode(0o600).open(folder)?;
    new.set_permissions(metadata.permissions())?;
    new.set_len(metadata.len())?;
    let mut own_from = 0;
    for run in &runs {
        copy(&old, &new, own_from..run.at)?;
        earlier.clone_into(&new, run)?;
        own_from = run.at + run.pages;
    }
    copy(&old, &new, own_from..hashes.len())?;
    // Two different pages can have the same hash.
    if !is_same(&old, &new, metadata.len())? {
        return Ok(0);
    }
    new.sync_all()?;
    replace(folder, name, &new)?;
    Ok(runs.iter().map(|run| bytes(run.pages)).sum())
}

/// Replaces `folder/name` by `new`; at no moment the name is missing.
fn replace(folder: &Path, name: &OsStr, new: &File) -> io::Result<()> {
    let mut draft = name.to_owned();
    draft.push(".new");
    Folder::open(folder)?.link(new, &draft)?;
    fs::rename(folder.join(&draft), folder.join(name))
}

fn copy(from: &File, to: &File, pages: std::ops::Range<usize>) -> io::Result<()> {
    let end = bytes(pages.end);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut at = bytes(pages.start);
    while at < end {
        let chunk = &mut buffer[..BUFFER_BYTES.min((end - at) as usize)];
        from.read_exact_at(chunk, at)?;
        to.write_all_at(chunk, at)?;
        at += chunk.len() as u64;
    }
    Ok(())
}

/// Reads both files, so that the new one is in the page cache as the old one was.
fn is_same(one: &File, other: &File, length: u64) -> io::Result<bool> {
    let (mut of_one, mut of_other) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    let mut at = 0;
    while at < length {
        let count = BUFFER_BYTES.min((length - at) as usize);
        one.read_exact_at(&mut of_one[..count], at)?;
        other.read_exact_at(&mut of_other[..count], at)?;
        if of_one[..count] != of_other[..count] {
            return Ok(false);
        }
        at += count as u64;
    }
    Ok(true)
}

/// Adds the hash of each whole page.
fn hashes_of(file: &File, hashing: &RandomState, hashes: &mut Vec<u64>) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut left = file.metadata()?.len() as usize / PAGE_BYTES * PAGE_BYTES;
    let mut at = 0;
    while left > 0 {
        let count = BUFFER_BYTES.min(left);
        file.read_exact_at(&mut buffer[..count], at)?;
        hashes.extend(buffer[..count].chunks(PAGE_BYTES).map(|page| {
            let mut hasher = hashing.build_hasher();
            hasher.write(page);
            hasher.finish()
        }));
        at += count as u64;
        left -= count;
    }
    Ok(())
}

fn bytes(pages: usize) -> u64 {
    (pages * PAGE_BYTES) as u64
}
