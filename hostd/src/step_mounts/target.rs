//! The target of a mount: found in the root of a sandbox over whatever links it has, or made.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::io::OwnedFd;
use std::path::{Component, Path, PathBuf};

use sys::folder::Folder;
use sys::{Code, Error};

/// What the runtime mounts, and the guest.
const OWN: [&str; 4] = ["/proc", "/sys", "/dev", "/.atoll"];
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

pub struct Place {
    pub entry: File,
    /// From the top one on.
    steps: Vec<(Folder, OsString)>,
}

impl Place {
    /// How many entries were made: the last of the path.
    pub fn made(&self) -> usize {
        self.steps.len()
    }

    pub fn undo(self, is_file: bool) {
        drop(self.entry);
        undo(self.steps, is_file);
    }
}

fn undo(steps: Vec<(Folder, OsString)>, is_file: bool) {
    for (folder, name) in steps.into_iter().rev() {
        // A failure leaves an empty entry.
        let _ = folder.remove_folder(&name).or_else(|error| if is_file { folder.unlink(&name) } else { Err(error) });
    }
}

/// `path_of` tells where a descriptor leads. To be called with the rights of the sandbox's root, to whom belongs what is made.
pub fn make(
    root: &Folder,
    path: &Path,
    is_file: bool,
    path_of: &dyn Fn(&File) -> io::Result<PathBuf>,
) -> Result<Place, Error> {
    let shown = path.display().to_string();
    let names = names_of(path).ok_or_else(|| wrong(&shown, "is no normal path"))?;
    let failed = |error: io::Error| fault(&shown, &error).unwrap_or_else(|| Error::io("mount on", &shown, error));
    let (found, missing) = deepest(root, &names).map_err(failed)?;
    let leads_to = path_of(&found).map_err(failed)?;
    if is_own(&leads_to, missing.is_empty()) {
        return Err(wrong(&shown, "is, or leads to, a folder of the runtime"));
    }
    let is_folder = found.metadata().map_err(failed)?.is_dir();
    if missing.is_empty() {
        return match is_folder == is_file {
            true => Err(wrong(
                &shown,
                if is_file { "is a folder, and a file is to be mounted there" } else { "is no folder" },
            )),
            false => Ok(Place { entry: found, steps: Vec::new() }),
        };
    }
    if !is_folder {
        return Err(wrong(&shown, "leads over something that is no folder"));
    }
    let mut steps = Vec::new();
    match make_missing(Folder::from(OwnedFd::from(found)), missing, is_file, &mut steps) {
        Ok(entry) => Ok(Place { entry, steps }),
        Err(error) => {
            undo(steps, is_file);
            Err(failed(error))
        }
    }
}

/// The names of an absolute path without `.` and `..`.
fn names_of(path: &Path) -> Option<Vec<&OsStr>> {
    let mut parts = path.components();
    let names = |part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    };
    match parts.next() {
        Some(Component::RootDir) => parts.map(names).collect(),
        _ => None,
    }
}

/// The last entry of a path that there is, and the names that are missing.
fn deepest<'a>(root: &Folder, names: &'a [&'a OsStr]) -> io::Result<(File, &'a [&'a OsStr])> {
    let mut count = names.len();
    loop {
        let path: PathBuf = Path::new("/").join(names[..count].iter().collect::<PathBuf>());
        match root.resolve(path.as_os_str()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && count > 0 => count -= 1,
            found => return found.map(|found| (found, &names[count..])),
        }
    }
}

/// EEXIST at a link that leads nowhere.
fn make_missing(
    mut folder: Folder,
    names: &[&OsStr],
    is_file: bool,
    steps: &mut Vec<(Folder, OsString)>,
) -> io::Result<File> {
    for (index, name) in names.iter().enumerate() {
        let is_last = index + 1 == names.len();
        if is_last && is_file {
            let file = folder.create(name)?;
            let entry = folder.look(name);
            steps.push((folder, name.to_os_string()));
            sys::entry::change_file_mode(&file, FILE_MODE)?;
            return entry;
        }
        let made = folder.make_folder(name)?;
        steps.push((folder, name.to_os_string()));
        sys::entry::change_file_mode(&made, FOLDER_MODE)?;
        folder = made;
    }
    Ok(File::from(OwnedFd::from(folder)))
}

/// Removes what was made for a mount and is empty: the last `made` entries of the path at which it was.
pub fn remove(root: &Folder, parent: &Folder, point: &Path, made: usize, is_file: bool) {
    let name = match point.file_name() {
        Some(name) if made > 0 => name,
        _ => return,
    };
    let is_empty = |file: File| file.metadata().map_or(false, |found| found.is_file() && found.len() == 0);
    let removed = match is_file {
        true if parent.look(name).map_or(false, is_empty) => parent.unlink(name),
        true => return,
        false => parent.remove_folder(name),
    };
    if removed.is_err() {
        return;
    }
    for folder in point.ancestors().skip(1).take(made - 1) {
        let (above, name) = match (folder.parent(), folder.file_name()) {
            (Some(above), Some(name)) => (above, name),
            _ => return,
        };
        let above = root.resolve_strictly(above.as_os_str()).map(|above| Folder::from(OwnedFd::from(above)));
        if above.and_then(|above| above.remove_folder(name)).is_err() {
            return;
        }
    }
}

/// Whether a path is the root itself, or one of the runtime's.
fn is_own(path: &Path, is_whole: bool) -> bool {
    (is_whole && path == Path::new("/")) || OWN.iter().any(|own| path.starts_with(own))
}

/// The fault of a target that the sandbox has made what it is; `None` for another error.
pub fn fault(shown: &str, error: &io::Error) -> Option<Error> {
    let why = match error.raw_os_error() {
        Some(sys::ENOTDIR) => "leads over something that is no folder",
        Some(sys::ELOOP) => "leads over a link that may not be followed",
        Some(sys::EXDEV) => "leads over a mount",
        Some(sys::ENOENT) => "is not there",
        _ if error.kind() == io::ErrorKind::AlreadyExists => "leads over a link to nothing",
        Some(sys::EROFS) => "is in a folder that is read-only",
        _ => return None,
    };
    Some(wrong(shown, why))
}

pub fn wrong(shown: &str, why: &str) -> Error {
    Error::with(Code::Target, format!("{shown} {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{symlink, PermissionsExt};
    use std::os::unix::io::AsRawFd;

    /// A folder as the root of a sandbox, beside one that it must not reach.
    struct World {
        path: PathBuf,
        root: Folder,
    }

    impl World {
        fn new(name: &str) -> World {
            let path = std::env::temp_dir().join(format!("atoll-target-{}-{name}", std::process::id()));
            fs::create_dir_all(path.join("root/srv")).unwrap();
            fs::create_dir_all(path.join("outside")).unwrap();
            let root = Folder::open(&path.join("root")).unwrap();
            World { path, root }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.path.join("root").join(path)
        }

        /// Makes a target and says where it is and how much of it was made, or why not.
        fn make(&self, path: &str, is_file: bool) -> Result<(String, usize), String> {
            let path_of = |file: &File| {
                let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
                let below = path.strip_prefix(self.path.join("root")).expect("leaves the root");
                Ok(Path::new("/").join(below))
            };
            let place = make(&self.root, Path::new(path), is_file, &path_of).map_err(|error| error.to_string())?;
            let is = path_of(&place.entry).unwrap().display().to_string();
            Ok((is, place.made()))
        }

        fn remove(&self, path: &str, made: usize, is_file: bool) {
            let point = Path::new(path);
            let parent = self.root.resolve_strictly(point.parent().unwrap().as_os_str()).unwrap();
            remove(&self.root, &Folder::from(OwnedFd::from(parent)), point, made, is_file);
        }
    }

    impl Drop for World {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.path).unwrap();
        }
    }

    fn is(path: &str, made: usize) -> Result<(String, usize), String> {
        Ok((path.into(), made))
    }

    #[test]
    fn what_is_missing_is_made_and_removed_where_it_is_empty() {
        let world = World::new("missing");
        assert_eq!(world.make("/srv", false), is("/srv", 0));
        assert_eq!(world.make("/srv/a/b/c", false), is("/srv/a/b/c", 3));
        assert_eq!(fs::metadata(world.at("srv/a")).unwrap().permissions().mode() & 0o7777, 0o755);
        assert_eq!(world.make("/srv/a/key", true), is("/srv/a/key", 1));
        assert_eq!(fs::metadata(world.at("srv/a/key")).unwrap().permissions().mode() & 0o7777, 0o644);
        world.remove("/srv/a/b/c", 3, false);
        assert!(!world.at("srv/a/b").exists() && world.at("srv/a/key").exists());
        fs::write(world.at("srv/a/key"), "of a step").unwrap();
        world.remove("/srv/a/key", 1, true);
        assert!(world.at("srv/a/key").exists());
        fs::write(world.at("srv/a/key"), "").unwrap();
        world.remove("/srv/a/key", 2, true);
        assert!(!world.at("srv/a").exists() && world.at("srv").exists());
    }

    #[test]
    fn links_stay_in_the_root_of_the_sandbox() {
        let world = World::new("links");
        let outside = world.path.join("outside");
        symlink("/srv", world.at("absolute")).unwrap();
        symlink("../../../../srv", world.at("upward")).unwrap();
        symlink(&outside, world.at("host")).unwrap();
        symlink("/nowhere", world.at("dangling")).unwrap();
        symlink("loop", world.at("loop")).unwrap();
        assert_eq!(world.make("/absolute/one", false), is("/srv/one", 1));
        assert_eq!(world.make("/upward/two", true), is("/srv/two", 1));
        assert_eq!(world.make("/host", false), Err("/host leads over a link to nothing".into()));
        assert_eq!(world.make("/host/a", false), Err("/host/a leads over a link to nothing".into()));
        assert_eq!(world.make("/dangling/a", false), Err("/dangling/a leads over a link to nothing".into()));
        assert_eq!(world.make("/loop/a", false), Err("/loop/a leads over a link that may not be followed".into()));
        // The same path as outside, but inside.
        fs::create_dir_all(world.at(outside.strip_prefix("/").unwrap().to_str().unwrap())).unwrap();
        let (path, made) = world.make("/host/a", false).unwrap();
        assert_eq!((path, made), (format!("{}/a", outside.display()), 1));
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn folders_of_the_runtime_and_other_kinds_are_refused() {
        let world = World::new("refused");
        for name in ["proc", "sys/a", "dev", ".atoll/run"] {
            fs::create_dir_all(world.at(name)).unwrap();
        }
        symlink("/proc", world.at("link")).unwrap();
        fs::write(world.at("file"), "").unwrap();
        let own = "is, or leads to, a folder of the runtime";
        for path in ["/", "/proc", "/proc/self", "/sys/a/b", "/dev/shm", "/.atoll", "/.atoll/run/x", "/link", "/link/x"]
        {
            assert_eq!(world.make(path, false), Err(format!("{path} {own}")));
        }
        assert_eq!(world.make("/procedures", false), is("/procedures", 1));
        assert_eq!(world.make("/file", false), Err("/file is no folder".into()));
        assert_eq!(world.make("/file/a", false), Err("/file/a leads over something that is no folder".into()));
        assert_eq!(world.make("/srv", true), Err("/srv is a folder, and a file is to be mounted there".into()));
        assert_eq!(world.make("/file", true), is("/file", 0));
        for path in ["/srv/../etc", "srv"] {
            assert_eq!(world.make(path, false), Err(format!("{path} is no normal path")));
        }
        assert!(!world.at("proc/self").exists() && !world.at("proc/x").exists());
    }
}
