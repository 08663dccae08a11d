//! Unpacks a layer of an OCI image (image-spec, layer.md), which is a tar of unknown origin, into a folder as overlay wants it.

mod stream;
mod tree;

use std::path::{Path, PathBuf};

use crate::protocol::fields::Fields;
use stream::Stream;
use sys::Error;
use tar::Tar;
use tree::{Limits, Tree};

/// More than an image of that many files needs. Bounds the memory of a layer that has nothing but folders.
const FOLDER_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub struct Unpack {
    blob: PathBuf,
    bytes_max: u64,
    limits: Limits,
    /// Absent: the layer is only hashed.
    target: Option<PathBuf>,
    /// Unpacked layers below, newest first.
    lowers: Vec<PathBuf>,
    /// For an archive of an image: names of whiteouts stay as they are, and nothing is hashed.
    plain: bool,
}

impl Unpack {
    pub fn from_fields(fields: &mut Fields) -> Result<Unpack, Error> {
        let (files, depth) = (fields.number("filesMax")?, fields.number("depthMax")?);
        Ok(Unpack {
            blob: fields.path("blob")?,
            bytes_max: fields.number("bytesMax")?,
            limits: Limits { files, depth, folder_bytes: FOLDER_BYTES_MAX },
            target: fields.optional_path("target")?,
            lowers: fields.paths("lowers")?,
            plain: fields.flag("plain")?,
        })
    }
}

/// Tells one line of JSON: `digest`, the SHA-256 of the uncompressed tar in hex, `bytes` and `files` of it, and what was left out.
pub fn unpack_layer(Unpack { blob, bytes_max, limits, target, lowers, plain }: Unpack) -> Result<String, Error> {
    // Sandboxes come first.
    sys::yield_to_others();
    let stream = Stream::open(&blob, !plain, bytes_max)?;
    let unpacked = match target {
        None => Unpacked { stream, report: tree::Report::default() },
        Some(target) => unpack(stream, &target, &lowers, plain, limits)?,
    };
    let Unpacked { stream, report } = unpacked;
    let (bytes, digest) = stream.finish()?;
    Ok(format!(
        "{{\"digest\":\"{digest}\",\"bytes\":{bytes},\"files\":{},\"devices\":{},\"attributes\":{},\"isOpaque\":{}}}\n",
        report.files, report.devices, report.attributes, report.is_opaque
    ))
}

struct Unpacked {
    stream: Stream,
    report: tree::Report,
}

fn unpack(stream: Stream, target: &Path, lowers: &[PathBuf], plain: bool, limits: Limits) -> Result<Unpacked, Error> {
    let mut tree = Tree::open(target, lowers, plain, limits)?;
    let mut tar = Tar::new(stream);
    while let Some(entry) = tar.next_entry()? {
        tree.add(&entry, &mut tar.content())?;
    }
    Ok(Unpacked { stream: tar.into_input(), report: tree.finish()? })
}

#[cfg(test)]
mod tests;
