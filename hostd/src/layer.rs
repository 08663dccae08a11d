//! Unpacks a layer of an OCI image (image-spec, layer.md), which is a tar of unknown origin, into a folder as overlay wants it.
//!
//!     atoll-hostd unpack-layer --blob FILE --bytes-max N --files-max N --depth-max N [--target DIR [--lower DIR …]] [--plain yes]
//!
//! Prints one line of JSON: `digest`, the SHA-256 of the uncompressed tar in hex, `bytes` and `files` of it, and what was left out.
//! Without a target it hashes only. `--plain yes` takes the names of whiteouts as they are and hashes nothing, for an archive of an image.

mod stream;
mod tar;
mod tree;

use std::path::Path;

use crate::protocol::args::Args;
use stream::Stream;
use sys::Error;
use tar::Tar;
use tree::{Limits, Tree};

/// Above what any image of that many files has, and a bound on the memory of one that has nothing but folders.
const FOLDER_BYTES_MAX: usize = 64 << 20;

pub fn command(mut args: Args) -> Result<(), Error> {
    let blob = args.path("blob")?;
    let bytes_max = args.number("bytes-max")?;
    let (files, depth) = (args.number("files-max")?, args.number("depth-max")?);
    let limits = Limits { files, depth, folder_bytes: FOLDER_BYTES_MAX };
    let target = args.optional_path("target")?;
    let lowers = args.optional_paths("lower")?;
    let plain = args.optional_text("plain")?.map_or(false, |value| value == "yes");
    args.finish()?;
    // Sandboxes come first.
    sys::yield_to_others();
    let stream = Stream::open(&blob, !plain, bytes_max)?;
    let unpacked = match target {
        None => Unpacked { stream, report: tree::Report::default() },
        Some(target) => unpack(stream, &target, &lowers, plain, limits)?,
    };
    let Unpacked { stream, report } = unpacked;
    let (bytes, digest) = stream.finish()?;
    println!(
        "{{\"digest\":\"{digest}\",\"bytes\":{bytes},\"files\":{},\"devices\":{},\"attributes\":{},\"isOpaque\":{}}}",
        report.files, report.devices, report.attributes, report.is_opaque
    );
    Ok(())
}

struct Unpacked {
    stream: Stream,
    report: tree::Report,
}

fn unpack(
    stream: Stream,
    target: &Path,
    lowers: &[std::path::PathBuf],
    plain: bool,
    limits: Limits,
) -> Result<Unpacked, Error> {
    let mut tree = Tree::open(target, lowers, plain, limits)?;
    let mut tar = Tar::new(stream);
    while let Some(entry) = tar.next()? {
        tree.add(&entry, &mut tar.content())?;
    }
    Ok(Unpacked { stream: tar.into_input(), report: tree.finish()? })
}

#[cfg(test)]
mod tests;
