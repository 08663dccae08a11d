//! Raises the next inode number of a btrfs subvolume.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use sys::{Error, O_TMPFILE};

/// The file stays: without a file of such a number, btrfs would continue below that number after its next mount.
const MARK: &str = "mark";

/// Leaves a file `mark` with an inode number of at least `from` in a folder of btrfs. Unnamed files use up each number below it.
pub fn raise(dir: &Path, from: u64) -> Result<(), Error> {
    let failed = |error| Error::io("count files up in", dir.display(), error);
    loop {
        let file = OpenOptions::new().write(true).custom_flags(O_TMPFILE).mode(0o600).open(dir).map_err(failed)?;
        if file.metadata().map_err(failed)?.ino() >= from {
            break;
        }
    }
    // Under another name first: the folder may be a copy of one with a mark.
    let fresh = dir.join(format!("{MARK}.new"));
    File::create(&fresh).and_then(|_| fs::rename(&fresh, dir.join(MARK))).map_err(failed)
}
