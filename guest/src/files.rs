//! Files of the sandbox, in streams: memory stays constant whatever their size.

pub mod protected;
pub mod remove;
pub mod uploads;

use crate::files::uploads::{random_hex, Temporary, Uploads};
use crate::protocol::fault::{Fault, Outcome};
use crate::protocol::frame::{self, kind, Entries};
use crate::protocol::json::{object, Value};
use crate::sys;
use crate::users::User;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const CHUNK_BYTES: usize = 128 * 1024;
/// Files of `/proc` say that they are empty: of those as much as this is read to find their size.
const SIZELESS_BYTES_MAX: u64 = 1 << 20;
const ENTRIES_MAX: usize = 100_000;
/// The client takes no more either.
const LIST_BYTES_MAX: usize = 32 << 20;
const NAME_BYTES_MAX: usize = 255;
const LINKS_MAX: usize = 40;
/// Sizes of sparse files and odd times can exceed the integers of the wire.
const INTEGER_MAX: u64 = (1 << 53) - 1;

pub fn stat(path: &Path) -> Outcome<Value> {
    let metadata = fs::metadata(path).map_err(|error| about(error, path))?;
    Ok(object([("ok", true.into()), ("stat", stat_value(path, &metadata, metadata.len()))]))
}

pub fn mkdir(path: &Path, owner: Option<&User>) -> Outcome<()> {
    make_folders(path, owner)
}

pub fn list(path: &Path, writer: &mut impl Write) -> Outcome<()> {
    let folder = fs::read_dir(path).map_err(|error| about(error, path))?;
    frame::write_line(writer, &object([("ok", true.into())]))?;
    let mut entries = Entries::new(writer);
    for (count, entry) in folder.enumerate() {
        let entry = entry.map_err(|error| about(error, path))?;
        if count >= ENTRIES_MAX {
            return Err(Fault::too_large(format!("{}: more than {} entries", path.display(), ENTRIES_MAX)));
        }
        // A link is shown as its target, a dangling one as itself; entries that vanished meanwhile are left out.
        let metadata = match fs::metadata(entry.path()).or_else(|_| entry.metadata()) {
            Ok(metadata) => metadata,
            Err(_) => continue,
        };
        let mut value = stat_value(&entry.path(), &metadata, metadata.len());
        if let Value::Object(fields) = &mut value {
            fields.insert("name".to_string(), Value::Text(entry.file_name().to_string_lossy().into_owned()));
        }
        entries.push(&value)?;
        if entries.bytes() > LIST_BYTES_MAX {
            let message = format!("{}: names and paths of more than {} bytes", path.display(), LIST_BYTES_MAX);
            return Err(Fault::too_large(message));
        }
    }
    Ok(entries.end()?)
}

/// Sends the stat, then the bytes from `start` to `end` (inclusive) as far as the file reaches.
pub fn read(path: &Path, start: Option<u64>, end: Option<u64>, writer: &mut impl Write) -> Outcome<()> {
    regular(path, &fs::metadata(path).map_err(|error| about(error, path))?)?;
    let options = OpenOptions::new().read(true).custom_flags(sys::O_NONBLOCK | sys::O_NOCTTY).open(path);
    let mut file = options.map_err(|error| about(error, path))?;
    let metadata = file.metadata().map_err(|error| about(error, path))?;
    regular(path, &metadata)?;
    if metadata.len() > INTEGER_MAX {
        return Err(Fault::too_large(format!("{}: is too large to be read", path.display())));
    }

    let mut sizeless = Vec::new();
    if metadata.len() == 0 {
        (&mut file).take(SIZELESS_BYTES_MAX).read_to_end(&mut sizeless).map_err(|error| about(error, path))?;
    }
    let size = metadata.len().max(sizeless.len() as u64);
    let start = start.unwrap_or(0).min(size);
    let length = end.map_or(size, |end| end.saturating_add(1).min(size)).saturating_sub(start);
    let answer = [
        ("ok", true.into()),
        ("stat", stat_value(path, &metadata, size)),
        ("length", length.into()),
        ("version", Value::Text(version(&metadata, size))),
    ];
    frame::write_line(writer, &object(answer))?;

    if metadata.len() == 0 {
        send(&mut &sizeless[start as usize..], length, path, writer)
    } else {
        file.seek(SeekFrom::Start(start)).map_err(|error| about(error, path))?;
        send(&mut file, length, path, writer)
    }
}

/// Changes with the file and its content, so that a client can continue to read the same one.
fn version(metadata: &Metadata, size: u64) -> String {
    format!("{}-{}-{}-{}.{:09}", metadata.dev(), metadata.ino(), size, metadata.mtime(), metadata.mtime_nsec())
}

fn send(source: &mut impl Read, length: u64, path: &Path, writer: &mut impl Write) -> Outcome<()> {
    let mut left = length;
    let mut buffer = vec![0; frame::HEADER_BYTES + CHUNK_BYTES.min(length as usize)];
    while left > 0 {
        let most = (buffer.len() - frame::HEADER_BYTES).min(left as usize);
        let count = match source.read(&mut buffer[frame::HEADER_BYTES..frame::HEADER_BYTES + most]) {
            Ok(0) => return Err(Fault::conflict(format!("{}: became shorter while it was read", path.display()))),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(about(error, path)),
        };
        buffer[..frame::HEADER_BYTES].copy_from_slice(&frame::header(kind::DATA, count));
        writer.write_all(&buffer[..frame::HEADER_BYTES + count])?;
        left -= count as u64;
    }
    Ok(frame::write_frame(writer, kind::END, &[])?)
}

// ── Writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

pub struct Upload<'a> {
    pub path: &'a Path,
    /// The token of a paused upload that goes on.
    pub resume: Option<&'a str>,
    pub bytes_max: Option<u64>,
    pub mode: u32,
    pub owner: Option<User>,
}

pub enum Written {
    Whole(u64),
    /// So many bytes, and the token under which the upload goes on.
    Paused(u64, String),
    /// The client broke off.
    Broken,
}

/// Takes the bytes that follow as frames, behind those of a paused upload that is to go on.
pub fn write(upload: &Upload, uploads: &Uploads, reader: &mut impl Read, writer: &mut impl Write) -> Outcome<Written> {
    let target = follow_links(upload.path)?;
    let existing = match fs::symlink_metadata(&target) {
        Ok(metadata) => regular(&target, &metadata).map(|_| Some(metadata))?,
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(about(error, &target)),
    };
    let name = target.file_name().ok_or_else(|| Fault::invalid("path: must name a file"))?;
    let mut temporary = match upload.resume {
        Some(token) => uploads.resume(token, &target)?,
        None => {
            let folder = target.parent().unwrap_or_else(|| Path::new("/"));
            make_folders(folder, upload.owner.as_ref())?;
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
                        target.display(),
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
    let (mode, owner) = match &existing {
        Some(metadata) => (metadata.mode() & 0o7777, Some((metadata.uid(), metadata.gid()))),
        None => (upload.mode, upload.owner.as_ref().map(|user| (user.uid, user.gid))),
    };
    if let Some((uid, gid)) = owner {
        let now = temporary.file.metadata()?;
        if (now.uid(), now.gid()) != (uid, gid) {
            sys::fchown(&temporary.file, uid, gid)?;
        }
    }
    // After the owner, whose change would take set-user-id bits away.
    temporary.file.set_permissions(Permissions::from_mode(mode))?;
    fs::rename(&temporary.path, &temporary.target)?;
    temporary.kept = true;
    Ok(())
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

/// Where a write through symbolic links at the end of a path arrives, whether that exists or not.
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
    Err(Fault::invalid(format!("{}: too many symbolic links", path.display())))
}

fn make_folders(path: &Path, owner: Option<&User>) -> Outcome<()> {
    let mut missing = Vec::new();
    for folder in path.ancestors() {
        match fs::metadata(folder) {
            Ok(metadata) if metadata.is_dir() => break,
            Ok(_) => return Err(Fault::invalid(format!("{}: is not a directory", folder.display()))),
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
        if let Some(user) = owner {
            let opened = OpenOptions::new().read(true).custom_flags(sys::O_DIRECTORY | sys::O_NOFOLLOW).open(folder);
            opened.and_then(|file| sys::fchown(&file, user.uid, user.gid)).map_err(|error| about(error, folder))?;
        }
    }
    Ok(())
}

fn regular(path: &Path, metadata: &Metadata) -> Outcome<()> {
    if metadata.is_dir() {
        return Err(Fault::invalid(format!("{}: is a directory", path.display())));
    }
    if !metadata.is_file() {
        return Err(Fault::invalid(format!("{}: is not a regular file", path.display())));
    }
    Ok(())
}

fn stat_value(path: &Path, metadata: &Metadata, size: u64) -> Value {
    object([
        ("path", Value::Text(path.to_string_lossy().into_owned())),
        ("isDir", metadata.is_dir().into()),
        ("size", size.min(INTEGER_MAX).into()),
        ("mode", u64::from(metadata.mode() & 0o7777).into()),
        ("modifiedSeconds", Value::Number(metadata.mtime().clamp(-(INTEGER_MAX as i64), INTEGER_MAX as i64) as f64)),
    ])
}

pub fn about(error: std::io::Error, path: &Path) -> Fault {
    Fault::of(error, &path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_fit_a_file_system() {
        assert_eq!(temporary_name(b"a.txt", ".atoll-1"), ".a.txt.atoll-1");
        let long = temporary_name(&[b'x'; 255], ".atoll-0123456789abcdef");
        assert_eq!(long.len(), NAME_BYTES_MAX);
        assert!(long.as_bytes().ends_with(b".atoll-0123456789abcdef"));
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
