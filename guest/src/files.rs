//! Files of the sandbox, in streams: memory stays constant whatever their size.

pub mod access;
mod archive_frames;
mod content;
pub mod mode;
pub mod moving;
pub mod pack;
pub mod protected;
pub mod remove;
pub mod unpack;
pub mod uploads;
pub mod watch;

pub use content::read;

use crate::files::content::Content;
use crate::files::uploads::{random_hex, Temporary, Uploads};
use crate::protocol::bytes::{self, printable};
use crate::protocol::fault::{Fault, Outcome};
use crate::protocol::frame::{self, kind, Entries};
use crate::users::{self, User};
use json::{object, Value};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const CHUNK_BYTES: usize = 128 * 1024;
const ENTRIES_MAX: usize = 100_000;
/// The client accepts no longer list either.
const LIST_BYTES_MAX: usize = 32 << 20;
const NAME_BYTES_MAX: usize = 255;
const TEMPORARY_SUFFIX: &[u8] = b".atoll-";
const LINKS_MAX: usize = 40;
const ETXTBSY: i32 = 26;
/// Sizes of sparse files and odd times can exceed the integers of the wire.
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// The stat of a directory, or of a file that can be read.
pub fn stat(path: &Path) -> Outcome<Value> {
    let metadata = access::metadata(path).map_err(|error| about(error, path))?;
    let size = if metadata.is_dir() { metadata.len() } else { Content::open(path)?.size() };
    Ok(object([("ok", true.into()), ("stat", stat_value(path, &metadata, size))]))
}

/// The entry itself: of a link, the link. Its size is that which the file system tells.
pub fn inspect(path: &Path) -> Outcome<Value> {
    let opened = access::open(path, sys::O_PATH | sys::O_NOFOLLOW).map_err(|error| match error.raw_os_error() {
        // There is nothing below a file.
        Some(sys::ENOTDIR) => Fault::not_found(format!("{}: a part of the path is no folder", printable(path))),
        _ => about(error, path),
    })?;
    let metadata = opened.metadata().map_err(|error| about(error, path))?;
    let of = metadata.file_type();
    let kinds = [("file", of.is_file()), ("directory", of.is_dir()), ("symlink", of.is_symlink())];
    let kind = kinds.iter().find(|(_, is_it)| *is_it).map_or("other", |(kind, _)| *kind);
    let name = path.file_name().unwrap_or(path.as_os_str());
    let mut fields = bytes::fields("path", "pathBase64", path);
    fields.extend([
        ("name", Value::Text(printable(name))),
        ("type", kind.into()),
        ("size", metadata.len().min(INTEGER_MAX).into()),
        ("mode", u64::from(metadata.mode() & 0o7777).into()),
        ("uid", u64::from(metadata.uid()).into()),
        ("gid", u64::from(metadata.gid()).into()),
        ("modifiedSeconds", seconds_of(&metadata)),
    ]);
    if let Some(user) = users::name_of(metadata.uid()) {
        fields.push(("user", Value::Text(user)));
    }
    if kind == "symlink" {
        let target = fs::read_link(path).map_err(|error| about(error, path))?;
        fields.push(("target", Value::Text(printable(target))));
    }
    Ok(object([("ok", true.into()), ("entry", object(fields))]))
}

pub fn mkdir(path: &Path, owner: Option<&User>) -> Outcome<()> {
    make_folders(path, owner.map(|user| (user.uid, user.gid)))
}

pub fn list(path: &Path, writer: &mut impl Write) -> Outcome<()> {
    let opened = access::open(path, sys::O_DIRECTORY).map_err(|error| about(error, path))?;
    let folder = fs::read_dir(access::name_of(&opened)).map_err(|error| about(error, path))?;
    frame::write_line(writer, &object([("ok", true.into())]))?;
    let mut entries = Entries::new(writer);
    for (count, entry) in folder.enumerate() {
        let entry = entry.map_err(|error| about(error, path))?;
        if count >= ENTRIES_MAX {
            return Err(Fault::too_large(format!("{}: more than {} entries", printable(path), ENTRIES_MAX)));
        }
        // A link is shown as its target, a dangling one as itself; entries that vanished meanwhile are left out.
        let name = path.join(entry.file_name());
        let metadata = match access::metadata(&name).or_else(|_| entry.metadata()) {
            Ok(metadata) => metadata,
            Err(_) => continue,
        };
        let mut value = stat_value(&name, &metadata, metadata.len());
        if let Value::Object(fields) = &mut value {
            fields.insert("name".to_string(), Value::Text(printable(entry.file_name())));
        }
        entries.push(&value)?;
        if entries.bytes() > LIST_BYTES_MAX {
            let message = format!("{}: names and paths of more than {} bytes", printable(path), LIST_BYTES_MAX);
            return Err(Fault::too_large(message));
        }
    }
    Ok(entries.end()?)
}

pub struct Upload<'a> {
    pub path: &'a Path,
    /// The token of the paused upload to resume.
    pub resume: Option<&'a str>,
    pub bytes_max: Option<u64>,
    pub mode: u32,
    pub owner: Option<User>,
}

pub enum Written {
    Whole(u64),
    /// The bytes so far, and the token that resumes the upload.
    Paused(u64, String),
    /// The client broke off.
    Broken,
}

/// Writes the bytes that follow as frames, behind those of the paused upload to resume.
pub fn write(upload: &Upload, uploads: &Uploads, reader: &mut impl Read, writer: &mut impl Write) -> Outcome<Written> {
    let target = follow_links(upload.path)?;
    let existing = match fs::symlink_metadata(&target) {
        Ok(metadata) => {
            regular(&target, &metadata)?;
            if upload.owner.as_ref().map_or(false, |user| user.uid != 0) {
                may_write(&target)?;
            }
            Some(metadata)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(about(error, &target)),
    };
    let name = target.file_name().ok_or_else(|| Fault::invalid("path: must name a file"))?;
    let mut temporary = match upload.resume {
        Some(token) => uploads.resume(token, &target)?,
        None => {
            let folder = target.parent().unwrap_or_else(|| Path::new("/"));
            make_folders(folder, upload.owner.as_ref().map(|user| (user.uid, user.gid)))?;
            create_temporary(folder, name.as_bytes(), &target)?
        }
    };
    frame::write_line(writer, &object([("ok", true.into()), ("bytes", temporary.bytes.into())]))?;

    let mut payload = Vec::new();
    loop {
        match frame::read_frame(reader, &mut payload)? {
            Some(kind::DATA) => {
                let bytes = temporary.bytes + payload.len() as u64;
                if upload.bytes_max.map_or(false, |max| bytes > max) {
                    return Err(Fault::too_large(format!(
                        "{}: more than the {} bytes allowed",
                        printable(&target),
                        upload.bytes_max.unwrap_or(0)
                    )));
                }
                temporary.file.write_all(&payload).map_err(|error| about(error, &target))?;
                temporary.bytes = bytes;
            }
            Some(kind::PAUSE) => return Ok(Written::Paused(temporary.bytes, uploads.pause(temporary)?)),
            Some(kind::END) => break,
            Some(_) => return Err(Fault::invalid("unknown frame type")),
            None => return Ok(Written::Broken),
        }
    }
    finish(&mut temporary, existing, upload).map_err(|error| about(error, &target))?;
    Ok(Written::Whole(temporary.bytes))
}

fn finish(temporary: &mut Temporary, existing: Option<Metadata>, upload: &Upload) -> std::io::Result<()> {
    let owner = match &existing {
        Some(metadata) => Some((metadata.uid(), metadata.gid())),
        None => upload.owner.as_ref().map(|user| (user.uid, user.gid)),
    };
    if let Some((uid, gid)) = owner {
        let now = temporary.file.metadata()?;
        if (now.uid(), now.gid()) != (uid, gid) {
            match sys::fchown(&temporary.file, uid, gid) {
                // A user who may write another's file cannot give it back to its owner, but to its group as a member.
                Err(error) if existing.is_some() && error.raw_os_error() == Some(sys::EPERM) => {
                    let _ = sys::fchown(&temporary.file, now.uid(), gid);
                }
                result => result?,
            }
        }
    }
    let mode = match &existing {
        Some(old) => access::kept_mode(&temporary.file, old)?,
        None => upload.mode,
    };
    // After the owner: a change of the owner clears set-user-id bits.
    temporary.file.set_permissions(Permissions::from_mode(mode))?;
    // The disk may commit the new name before the data: without this a loss of power could leave neither the old file nor the new one.
    if existing.map_or(false, |old| old.len() > 0) {
        temporary.file.sync_data()?;
    }
    fs::rename(&temporary.path, &temporary.target)?;
    temporary.kept = true;
    Ok(())
}

/// A rename replaces the file, and asks only for the rights to its folder.
fn may_write(target: &Path) -> Outcome<()> {
    let flags = sys::O_NOFOLLOW | sys::O_NONBLOCK | sys::O_NOCTTY;
    match OpenOptions::new().write(true).custom_flags(flags).open(target) {
        // ETXTBSY: the program runs. The kernel answers so only after it has found the right to write.
        Err(error) if error.raw_os_error() == Some(ETXTBSY) => Ok(()),
        result => result.map(|_| ()).map_err(|error| about(error, target)),
    }
}

fn create_temporary(folder: &Path, name: &[u8], target: &Path) -> Outcome<Temporary> {
    let suffix = format!(".atoll-{}", random_hex(8)?);
    let path = folder.join(temporary_name(name, &suffix));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let file = file.map_err(|error| about(error, folder))?;
    Ok(Temporary { file, path, target: target.to_path_buf(), bytes: 0, kept: false })
}

/// `.<name><suffix>`, the name cut where the whole would be too long for a file system.
fn temporary_name(name: &[u8], suffix: &str) -> OsString {
    let mut bytes = vec![b'.'];
    bytes.extend_from_slice(&name[..name.len().min(NAME_BYTES_MAX - 1 - suffix.len())]);
    bytes.extend_from_slice(suffix.as_bytes());
    OsString::from_vec(bytes)
}

/// Whether `create_temporary` may have made it.
fn is_temporary_name(name: &std::ffi::OsStr) -> bool {
    let bytes = name.as_bytes();
    let at = bytes.len().saturating_sub(TEMPORARY_SUFFIX.len() + 16);
    let (start, suffix) = bytes.split_at(at);
    start.first() == Some(&b'.')
        && suffix.starts_with(TEMPORARY_SUFFIX)
        && suffix[TEMPORARY_SUFFIX.len()..].iter().all(u8::is_ascii_hexdigit)
}

/// The target of a write through symbolic links at the end of a path, whether the target exists or not.
pub fn follow_links(path: &Path) -> Outcome<PathBuf> {
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(Fault::invalid("path: must name a file"));
    }
    let mut target = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&target) {
            Ok(next) => target = target.parent().unwrap_or_else(|| Path::new("/")).join(next),
            Err(_) => return Ok(target),
        }
    }
    Err(Fault::invalid(format!("{}: too many symbolic links", printable(path))))
}

fn make_folders(path: &Path, owner: Option<(u32, u32)>) -> Outcome<()> {
    let mut missing = Vec::new();
    for folder in path.ancestors() {
        match access::metadata(folder) {
            Ok(metadata) if metadata.is_dir() => break,
            Ok(_) => return Err(Fault::invalid(format!("{}: is not a directory", printable(folder)))),
            Err(error) if error.kind() == ErrorKind::NotFound => missing.push(folder),
            Err(error) => return Err(about(error, folder)),
        }
    }
    for folder in missing.into_iter().rev() {
        match DirBuilder::new().mode(0o755).create(folder) {
            Ok(()) => {}
            // Somebody else was faster, or it is `..` of a folder made just now.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => continue,
            Err(error) => return Err(about(error, folder)),
        }
        if let Some((uid, gid)) = owner {
            let opened = OpenOptions::new().read(true).custom_flags(sys::O_DIRECTORY | sys::O_NOFOLLOW).open(folder);
            opened.and_then(|file| sys::fchown(&file, uid, gid)).map_err(|error| about(error, folder))?;
        }
    }
    Ok(())
}

fn regular(path: &Path, metadata: &Metadata) -> Outcome<()> {
    if metadata.is_dir() {
        return Err(Fault::invalid(format!("{}: is a directory", printable(path))));
    }
    if !metadata.is_file() {
        return Err(Fault::invalid(format!("{}: is not a regular file", printable(path))));
    }
    Ok(())
}

fn stat_value(path: &Path, metadata: &Metadata, size: u64) -> Value {
    let mut fields = bytes::fields("path", "pathBase64", path);
    fields.extend([
        ("isDir", metadata.is_dir().into()),
        ("size", size.min(INTEGER_MAX).into()),
        ("mode", u64::from(metadata.mode() & 0o7777).into()),
        ("modifiedSeconds", seconds_of(metadata)),
    ]);
    object(fields)
}

fn seconds_of(metadata: &Metadata) -> Value {
    Value::Number(metadata.mtime().clamp(-(INTEGER_MAX as i64), INTEGER_MAX as i64) as f64)
}

pub fn about(error: std::io::Error, path: &Path) -> Fault {
    Fault::of(error, &printable(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_fit_a_file_system() {
        assert_eq!(temporary_name(b"a.txt", ".atoll-1"), ".a.txt.atoll-1");
        let long = temporary_name(&[b'x'; 255], ".atoll-0123456789abcdef");
        assert_eq!(long.len(), NAME_BYTES_MAX);
        assert!(long.as_bytes().ends_with(b".atoll-0123456789abcdef") && is_temporary_name(&long));
        for name in ["x.atoll-0123456789abcdef", ".x.atoll-0123456789abcdeg", ".atoll-0", "", "."] {
            assert!(!is_temporary_name(OsString::from(name).as_os_str()), "{}", name);
        }
    }

    #[test]
    fn a_path_that_ends_in_a_slash_names_no_file() {
        assert!(follow_links(Path::new("/tmp/")).is_err());
        assert_eq!(follow_links(Path::new("/nonexistent/file")).unwrap(), Path::new("/nonexistent/file"));
    }

    #[test]
    fn a_listing_is_refused_beyond_its_bytes_not_cut_off_by_the_client() {
        let top = std::env::temp_dir().join(format!("atoll-guest-list-{}", random_hex(8).unwrap()));
        // Each control character takes six bytes of JSON, so that an entry has some 20 KB.
        let folder = (0..14).fold(top.clone(), |path, _| path.join("\u{1}".repeat(250)));
        fs::create_dir_all(&folder).unwrap();
        for number in 0..1700 {
            fs::write(folder.join(number.to_string()), "").unwrap();
        }
        let mut answer = Vec::new();
        let fault = list(&folder, &mut answer).unwrap_err();
        assert_eq!(fault.code, "too_large");
        assert!(answer.len() < LIST_BYTES_MAX && answer.len() > LIST_BYTES_MAX / 2);
        fs::remove_dir_all(&top).unwrap();
    }
}
