//! Makes a file system that counts its files up, and never back, go on from a higher number.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::sys::{Error, O_TMPFILE};

/// What stays: without a file of such a number, btrfs would begin again below it after its next mount.
const MARK: &str = "mark";

/// Leaves a file `mark` in a folder of btrfs whose number is `from` at least. Each number below it is used up, by a file that
/// never gets a name.
pub fn count_up(dir: &Path, from: u64) -> Result<(), Error> {
    let failed = |error| Error::io("count files up in", dir.display(), error);
    loop {
        let file = OpenOptions::new().write(true).custom_flags(O_TMPFILE).mode(0o600).open(dir).map_err(failed)?;
        if file.metadata().map_err(failed)?.ino() >= from {
            break;
        }
    }
    // Under another name first: the folder may begin as a copy of one that has a mark.
    let fresh = dir.join(format!("{MARK}.new"));
    File::create(&fresh).and_then(|_| fs::rename(&fresh, dir.join(MARK))).map_err(failed)
}
