//! The root of a sandbox, or of a tree that is only read: an overlay whose lower layers each belong to an id range of their own and are shown in the
//! sandbox's range. The upper layer cannot be idmapped (the kernel answers EOVERFLOW), so it is owned by the sandbox's
//! range on disk.
//!
//! The idmapped copies of the layers exist in a mount namespace of this process only: the overlay keeps private clones of
//! them, and a crash at any point leaves nothing on the host.

pub mod index;
pub mod origins;

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::io::OwnedFd;
use std::path::{Path, PathBuf};

use crate::mounts;
use crate::protocol::fields::{refused, Fields};
use crate::protocol::request::range;
use sys::Error;

/// mount(2) takes one page of options. The layers are named by number, so that hundreds of them fit.
const OPTIONS_BYTES_MAX: usize = 4095;

#[derive(Debug)]
pub struct Mount {
    target: PathBuf,
    /// Absent: the overlay cannot be written.
    upper: Option<Upper>,
    start: u32,
    count: u32,
    /// Newest first; each with the first id of the range that owns it on disk.
    lowers: Vec<(u32, PathBuf)>,
    /// A folder; no layer is on a mount below it.
    hide: Option<PathBuf>,
}

#[derive(Debug)]
struct Upper {
    path: PathBuf,
    work: PathBuf,
}

impl Mount {
    pub fn from_fields(fields: &mut Fields) -> Result<Mount, Error> {
        let (start, count) = range(fields)?;
        let mut lowers = Vec::new();
        for mut lower in fields.objects("layers")? {
            lowers.push((lower.number("start")?, lower.path("path")?));
            lower.finish()?;
        }
        if lowers.is_empty() {
            return Err(refused("layers: must not be empty"));
        }
        let upper = match (fields.optional_path("upper")?, fields.optional_path("work")?) {
            (Some(path), Some(work)) => Some(Upper { path, work }),
            (None, None) if lowers.len() > 1 => None,
            (None, None) => return Err(refused("layers: must be two without upper")),
            (Some(_), None) => return Err(refused("work: is required")),
            (None, Some(_)) => return Err(refused("upper: is required")),
        };
        Ok(Mount { target: fields.path("target")?, upper, hide: fields.optional_path("hide")?, start, count, lowers })
    }
}

pub fn mount(request: &Mount) -> Result<(), Error> {
    let own = "/proc/self/ns/mnt";
    let host = File::open(own).map_err(|error| Error::io("open", own, error))?;
    match &request.hide {
        Some(hide) => mounts::enter_without(hide)?,
        None => sys::enter_private_mounts()?,
    }
    let overlay = stage(request)?;
    sys::enter_mounts(&host)?;
    sys::attach_tree(&overlay, &request.target)
}

/// Builds the overlay on a scratch file system over the target and returns it as a detached mount.
fn stage(request: &Mount) -> Result<OwnedFd, Error> {
    let scratch = &request.target;
    sys::mount_at("tmpfs", scratch, sys::MS_NOSUID | sys::MS_NODEV, "size=1m,mode=0700")?;
    let mut namespaces: HashMap<u32, OwnedFd> = HashMap::new();
    let mut names = Vec::new();
    for (index, (from, path)) in request.lowers.iter().enumerate() {
        let tree = sys::clone_tree(path)?;
        if *from != request.start && !namespaces.contains_key(from) {
            namespaces.insert(*from, sys::user_namespace(*from, request.start, request.count)?);
        }
        sys::seal_tree(&tree, namespaces.get(from), path)?;
        sys::attach_tree(&tree, &make_dir(scratch, &index.to_string())?)?;
        names.push(index.to_string());
    }
    let root = make_dir(scratch, "root")?;
    std::env::set_current_dir(scratch).map_err(|error| Error::io("enter", scratch.display(), error))?;
    let upper = request.upper.as_ref().map(|Upper { path, work }| Ok::<_, Error>((plain(path)?, plain(work)?)));
    let options = options(&names, upper.transpose()?)?;
    // A device file made inside cannot be opened through this mount, whatever is in the layers.
    let read_only = if request.upper.is_none() { sys::MS_RDONLY | sys::MS_NOSUID } else { 0 };
    sys::mount_at("overlay", &root, sys::MS_NODEV | read_only, &options)?;
    sys::clone_tree(&root)
}

/// `index` and `nfs_export` let CRIU dump inotify watches; both must be on from the first mount of an upper on.
fn options(lowers: &[String], upper: Option<(&str, &str)>) -> Result<String, Error> {
    let lowers_option = format!("lowerdir={},metacopy=off", lowers.join(":"));
    let options = match upper {
        Some((upper, work)) => {
            format!("{lowers_option},upperdir={upper},workdir={work},index=on,nfs_export=on,redirect_dir=off")
        }
        None => format!("{lowers_option},redirect_dir=nofollow"),
    };
    if options.len() > OPTIONS_BYTES_MAX {
        return Err(Error::new(format!("{} layers are too many for one overlay", lowers.len())));
    }
    Ok(options)
}

/// The overlay's option syntax has separators of its own; paths that hold one are refused instead of quoted.
fn plain(path: &Path) -> Result<&str, Error> {
    path.to_str()
        .filter(|text| !text.contains(&[',', ':', '\\'][..]))
        .ok_or_else(|| Error::new(format!("path {} holds a character that an overlay cannot take", path.display())))
}

fn make_dir(parent: &Path, name: &str) -> Result<PathBuf, Error> {
    let path = parent.join(name);
    std::fs::create_dir(&path).map_err(|error| Error::io("mkdir", path.display(), error))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_hundred_layers_fit_and_a_thousand_are_refused() {
        let names = |count: usize| (0..count).map(|index| index.to_string()).collect::<Vec<_>>();
        assert!(options(&names(500), Some(("/run/atoll-0123abcd/pool/sandboxes/sb-x/upper", "/w"))).is_ok());
        assert!(options(&names(1100), Some(("/u", "/w"))).is_err());
    }

    #[test]
    fn an_overlay_without_an_upper_layer_has_no_index_and_follows_no_redirect() {
        let options = options(&["0".to_owned(), "1".to_owned()], None).expect("options");
        assert_eq!(options, "lowerdir=0:1,metacopy=off,redirect_dir=nofollow");
    }

    #[test]
    fn an_upper_layer_comes_with_its_work_folder_and_one_layer_is_too_few_without_it() {
        let layer = r#"{"start":0,"path":"/base"}"#;
        let parse = |extra: &str, layers: &str| {
            let request = format!(
                r#"{{"protocol":{},"op":"mount-overlay","target":"/t","range":{{"start":1,"count":2}},"layers":[{layers}]{extra}}}"#,
                crate::protocol::VERSION
            );
            crate::protocol::request::Request::alone(request.as_bytes())
        };
        let two = format!("{layer},{layer}");
        assert!(parse("", &two).is_ok());
        assert!(parse(r#","upper":"/u","work":"/w""#, layer).is_ok());
        assert!(parse("", layer).is_err());
        assert!(parse(r#","upper":"/u""#, &two).is_err());
        assert!(parse(r#","work":"/w""#, &two).is_err());
    }

    #[test]
    fn a_path_with_a_separator_is_refused() {
        assert!(plain(Path::new("/a:b")).is_err());
        assert!(plain(Path::new("/a,b")).is_err());
        assert!(plain(Path::new("/a b")).is_ok());
    }
}
