//! The index of an overlay whose upper layer and work folder are a copy, such as a btrfs snapshot. The index names its upper layer by a
//! handle of the original, and the kernel refuses it for another layer (ESTALE). Entries for files join hard links of lower layers and are
//! valid for the copy too; entries for folders are handles of the original.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::Path;

use sys::Error;

/// Makes the kernel accept the index for the copy. Harmless without an index, and on a repeat.
pub fn adopt(work: &Path) -> Result<(), Error> {
    let index = work.join("index");
    let entries = match fs::read_dir(&index) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|error| Error::io("read", index.display(), error))?,
    };
    for entry in entries {
        let entry = entry.map_err(|error| Error::io("read", index.display(), error))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(|error| Error::io("stat", path.display(), error))?;
        if kind.is_dir() {
            fs::remove_dir(&path).map_err(|error| Error::io("rmdir", path.display(), error))?;
        }
    }
    let name = CStr::from_bytes_with_nul(b"trusted.overlay.upper\0").expect("constant");
    sys::remove_attribute(&sys::c_path(&index)?, name).map_err(|error| Error::io("change", index.display(), error))?;
    // The snapshot is on the disk already. After a loss of power the copy must not have the index of the original.
    let synced = fs::File::open(&index).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Error::io("sync", index.display(), error))
}
