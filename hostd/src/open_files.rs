//! What an image of CRIU says of the files that processes had open (`files.img`, its images/fdinfo.proto and images/regfile.proto).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::criu_image::{fields, of_each_entry, varint, LENGTH_DELIMITED};
use sys::Error;

/// Fields: of an entry its regular file, of a regular file its path and size.
const REGULAR: u64 = 3;
const NAME: u64 = 6;
const SIZE: u64 = 8;

/// Makes `to` a copy of `from` without the sizes of the given files: CRIU compares sizes at a restore, and theirs change with their content.
/// An entry that is not understood stays as it is, for CRIU to judge.
pub fn forget_sizes(from: &Path, to: &Path, files: &[PathBuf]) -> Result<(), Error> {
    let changed = |entry: &[u8]| without_size(entry, files);
    let mut has_some = false;
    of_each_entry(from, |_, entry| {
        has_some |= changed(entry).is_some();
        Ok(())
    })?;
    if !has_some {
        return std::fs::hard_link(from, to).map_err(|error| Error::io("link", to.display(), error));
    }
    let failed = |error| Error::io("write", to.display(), error);
    let mut out = BufWriter::new(File::options().write(true).create_new(true).open(to).map_err(failed)?);
    of_each_entry(from, |header, entry| {
        let shorter = changed(entry);
        let entry = shorter.as_deref().unwrap_or(entry);
        out.write_all(header).map_err(failed)?;
        out.write_all(&(entry.len() as u32).to_le_bytes()).map_err(failed)?;
        out.write_all(entry).map_err(failed)
    })?;
    out.flush().map_err(failed)
}

/// The entry without its size; `None` if it is of no such file or has no size.
fn without_size(entry: &[u8], files: &[PathBuf]) -> Option<Vec<u8>> {
    let outer = fields(entry)?;
    let regular = fields(outer.iter().find(|field| field.number == REGULAR)?.content)?;
    let name = regular.iter().find(|field| field.number == NAME)?.content;
    if !files.iter().any(|file| file.as_os_str().as_bytes() == name)
        || !regular.iter().any(|field| field.number == SIZE)
    {
        return None;
    }
    let shorter: Vec<u8> =
        regular.iter().filter(|field| field.number != SIZE).flat_map(|field| field.whole).copied().collect();
    let mut changed = Vec::with_capacity(entry.len());
    for field in outer {
        if field.number == REGULAR {
            changed.extend(varint(REGULAR << 3 | LENGTH_DELIMITED));
            changed.extend(varint(shorter.len() as u64));
            changed.extend(&shorter);
        } else {
            changed.extend(field.whole);
        }
    }
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::criu_image::building::{image, message, number};

    fn file(id: u64, name: &str, size: Option<u64>) -> Vec<u8> {
        let mut regular = [number(1, id), number(2, 0o100000), number(3, 0), message(5, &[number(1, 0)])].concat();
        regular.extend([message(NAME, &[name]), number(7, 1234)].concat());
        regular.extend(size.map(|size| number(SIZE, size)).unwrap_or_default());
        regular.extend(number(10, 0o100444));
        [number(1, 1), number(2, id), message(REGULAR, &[regular])].concat()
    }

    fn changed(name: &str, content: &[u8]) -> (Result<(), Error>, Option<Vec<u8>>) {
        let folder = std::env::temp_dir().join(format!("atoll-open-files-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (from, to) = (folder.join("from"), folder.join("to"));
        std::fs::write(&from, content).unwrap();
        let done = forget_sizes(&from, &to, &["/proc/stat".into(), "/proc/loadavg".into()]);
        assert_eq!(std::fs::read(&from).unwrap(), content);
        let made = std::fs::read(&to).ok();
        std::fs::remove_dir_all(&folder).unwrap();
        (done, made)
    }

    #[test]
    fn the_named_files_lose_their_sizes_and_nothing_else_changes() {
        let pipe = [number(1, 2), number(2, 9), message(17, &[number(1, 9)])].concat();
        let of = |stat, loadavg| {
            let others = [file(1, "/etc/passwd", Some(900)), file(2, "/proc/stat", stat), pipe.clone()];
            image(
                &[others.to_vec(), vec![file(3, "/proc/loadavg", loadavg), file(4, "/x/proc/stat", Some(3))]].concat(),
            )
        };
        let (done, made) = changed("sizes", &of(Some(300), Some(26)));
        assert!(done.is_ok());
        assert_eq!(made, Some(of(None, None)));
        let (_, same) = changed("none", &of(None, None));
        assert_eq!(same, Some(of(None, None)));
    }

    #[test]
    fn what_is_not_understood_stays_and_what_is_cut_off_is_an_error() {
        let odd = vec![
            vec![0xff; 12],
            message(REGULAR, &[[0x0f]]),
            vec![],
            message(REGULAR, &[message(NAME, &["/proc/stat"])]),
            b"\x1a\x7f".to_vec(),
        ];
        assert_eq!(changed("odd", &image(&odd)).1, Some(image(&odd)));
        let whole = image(&[file(2, "/proc/stat", Some(300))]);
        for length in [0, 7, 9, 12, whole.len() - 1] {
            assert!(changed("short", &whole[..length]).0.is_err(), "{length} bytes");
        }
    }
}
