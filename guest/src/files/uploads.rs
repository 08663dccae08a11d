//! Uploads that their client paused for a memory dump. Each waits as a temporary file under its name: no file is open.

use crate::protocol::fault::{Fault, Outcome};
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Counted in time in which the sandbox ran.
const PAUSE_MAX: Duration = Duration::from_secs(60);
const PAUSED_MAX: usize = 64;

/// A file under a temporary name. A drop removes it unless it has got its final name.
pub struct Temporary {
    pub file: File,
    pub path: PathBuf,
    /// The final path.
    pub target: PathBuf,
    pub bytes: u64,
    pub kept: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[derive(Default)]
pub struct Uploads(Mutex<Vec<Paused>>);

struct Paused {
    token: String,
    path: PathBuf,
    target: PathBuf,
    /// Device and inode: root in the sandbox may have put something else in its place.
    identity: (u64, u64),
    bytes: u64,
    left: Duration,
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, Vec<Paused>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Keeps a temporary file; the returned token resumes the upload.
    pub fn pause(&self, mut temporary: Temporary) -> Outcome<String> {
        let metadata = temporary.file.metadata()?;
        let token = random_hex(16)?;
        let mut paused = self.lock();
        if paused.len() >= PAUSED_MAX {
            return Err(Fault::unavailable(format!("more than {} uploads are paused", PAUSED_MAX)));
        }
        temporary.kept = true;
        paused.push(Paused {
            token: token.clone(),
            path: temporary.path.clone(),
            target: temporary.target.clone(),
            identity: (metadata.dev(), metadata.ino()),
            bytes: temporary.bytes,
            left: PAUSE_MAX,
        });
        Ok(token)
    }

    pub fn resume(&self, token: &str, target: &Path) -> Outcome<Temporary> {
        let missing = || Fault::not_found("resume: no such upload is paused");
        let paused = {
            let mut all = self.lock();
            let index = all.iter().position(|it| it.token == token && it.target == target).ok_or_else(missing)?;
            all.remove(index)
        };
        let options = OpenOptions::new()
            .append(true)
            .custom_flags(sys::O_NOFOLLOW | sys::O_NONBLOCK | sys::O_NOCTTY)
            .open(&paused.path);
        let file = options.map_err(|_| missing())?;
        let metadata = file.metadata()?;
        if (metadata.dev(), metadata.ino()) != paused.identity || metadata.len() != paused.bytes {
            return Err(missing());
        }
        Ok(Temporary { file, path: paused.path, target: paused.target, bytes: paused.bytes, kept: false })
    }

    /// Removes the uploads whose client stays away.
    pub fn pass(&self, time: Duration) {
        let mut all = self.lock();
        for paused in all.iter_mut() {
            paused.left = paused.left.saturating_sub(time);
        }
        all.retain(|paused| {
            let keep = paused.left > Duration::from_secs(0);
            if !keep {
                let _ = fs::remove_file(&paused.path);
            }
            keep
        });
    }
}

/// Draws at each call: forks of this process must not get the same bytes.
pub fn random_hex(bytes: usize) -> Outcome<String> {
    let mut random = vec![0; bytes];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .map_err(|error| Fault::own(error, "/dev/urandom"))?;
    Ok(random.iter().map(|byte| format!("{:02x}", byte)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn temporary(name: &str) -> Temporary {
        let path = std::env::temp_dir().join(format!("atoll-guest-{}-{}", name, random_hex(8).unwrap()));
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
        file.write_all(b"abc").unwrap();
        Temporary { file, path, target: PathBuf::from("/target"), bytes: 3, kept: false }
    }

    #[test]
    fn a_paused_upload_goes_on_once_for_its_target_only() {
        let uploads = Uploads::default();
        let token = uploads.pause(temporary("resume")).unwrap();
        assert!(uploads.resume(&token, Path::new("/other")).is_err());
        let mut resumed = uploads.resume(&token, Path::new("/target")).unwrap();
        resumed.file.write_all(b"def").unwrap();
        assert_eq!(fs::read(&resumed.path).unwrap(), b"abcdef");
        assert!(uploads.resume(&token, Path::new("/target")).is_err());
        let path = resumed.path.clone();
        drop(resumed);
        assert!(!path.exists());
    }

    #[test]
    fn what_was_put_in_its_place_is_not_written_to() {
        let uploads = Uploads::default();
        let paused = temporary("swap");
        let path = paused.path.clone();
        let token = uploads.pause(paused).unwrap();
        let other = temporary("other");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&other.path, &path).unwrap();
        assert!(uploads.resume(&token, Path::new("/target")).is_err());
        assert_eq!(fs::read(&other.path).unwrap(), b"abc");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_upload_whose_client_stays_away_is_removed() {
        let uploads = Uploads::default();
        let paused = temporary("late");
        let path = paused.path.clone();
        let token = uploads.pause(paused).unwrap();
        uploads.pass(PAUSE_MAX - Duration::from_secs(1));
        assert!(path.exists());
        uploads.pass(Duration::from_secs(1));
        assert!(!path.exists() && uploads.resume(&token, Path::new("/target")).is_err());
    }
}
