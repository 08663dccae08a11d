//! What is in a file, and what is written on it.

use super::{Tree, HOLE_BYTES};
use crate::files::about;
use crate::files::pack::is_attribute;
use crate::protocol::bytes::printable;
use crate::protocol::fault::{Fault, Outcome};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::io::AsRawFd;
use std::path::Path;
use sys::entry::set_attribute;
use tar::{Content, Entry};

impl Tree<'_> {
    pub(super) fn copy(&mut self, content: &mut Content<impl Read>, file: &mut File, path: &Path) -> Outcome<()> {
        let failed = |error| about(error, path);
        let (mut length, mut written) = (0, 0);
        loop {
            let hole = content.skip_hole();
            let count = content.read(&mut self.buffer).map_err(|error| {
                let message = format!("{}: the archive: {}", printable(path), error);
                Fault::invalid(message)
            })?;
            if hole == 0 && count == 0 {
                break;
            }
            self.count_bytes(hole.saturating_add(count as u64), path)?;
            let start = length + hole;
            length = start + count as u64;
            let bytes = &self.buffer[..count];
            if count == 0 || (count >= HOLE_BYTES && bytes.iter().all(|&byte| byte == 0)) {
                continue;
            }
            if start != written {
                file.seek(SeekFrom::Start(start)).map_err(failed)?;
            }
            file.write_all(bytes).map_err(failed)?;
            written = length;
        }
        if written < length {
            file.set_len(length).map_err(failed)?;
        }
        Ok(())
    }

    fn count_bytes(&mut self, more: u64, path: &Path) -> Outcome<()> {
        self.report.bytes = self.report.bytes.saturating_add(more);
        match self.unpacking.bytes_max.filter(|most| self.report.bytes > *most) {
            Some(most) => {
                let message = format!("{}: the files have more than {} bytes", printable(path), most);
                Err(Fault::too_large(message))
            }
            None => Ok(()),
        }
    }

    pub(super) fn set_attributes(&mut self, entry: &Entry, file: &impl AsRawFd, path: &Path) -> Outcome<()> {
        for (name, value) in &entry.attributes {
            if !is_attribute(name) {
                self.report.attributes += 1;
                continue;
            }
            match set_attribute(file, name, value) {
                // EPERM, EINVAL: a capability that is none here. EOPNOTSUPP: the file system has no attributes.
                Err(error) if matches!(error.raw_os_error(), Some(sys::EPERM | sys::EINVAL | sys::EOPNOTSUPP)) => {
                    self.report.attributes += 1;
                }
                result => result.map_err(|error| about(error, path))?,
            }
        }
        Ok(())
    }
}
