//! The bytes of a layer: a file, through a program that decompresses it, counted and hashed on the way.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use sys::{Code, Error, TooLarge};

/// The user of programs that read hostile bytes.
const NOBODY: u32 = 65_534;
const MAGIC_BYTES: usize = 4;

pub struct Stream {
    source: Box<dyn Read>,
    decompressor: Option<(Child, &'static str)>,
    hasher: Option<(Child, ChildStdin)>,
    read: u64,
    bytes_max: u64,
}

impl Stream {
    /// The file's first bytes tell how it is compressed. More than `bytes_max` decompressed bytes are an error.
    pub fn open(path: &Path, hashed: bool, bytes_max: u64) -> Result<Stream, Error> {
        let open = || File::open(path).map_err(|error| Error::io("open", path.display(), error));
        let (source, decompressor) = match program(&open()?)? {
            None => (Box::new(open()?) as Box<dyn Read>, None),
            Some(name) => {
                let mut child = start(Command::new(name).arg("-dc").stdin(open()?).stderr(Stdio::null()), name)?;
                let output = child.stdout.take().ok_or_else(|| Error::new("no pipe"))?;
                (Box::new(output) as Box<dyn Read>, Some((child, name)))
            }
        };
        let mut stream = Stream { source, decompressor, hasher: None, read: 0, bytes_max };
        if hashed {
            let mut child = start(Command::new("sha256sum").stdin(Stdio::piped()), "sha256sum")?;
            let input = child.stdin.take().ok_or_else(|| Error::new("no pipe"))?;
            stream.hasher = Some((child, input));
        }
        Ok(stream)
    }

    /// Reads the rest. Returns how many bytes there were, and their SHA-256 in hex if it was asked for.
    pub fn finish(mut self) -> Result<(u64, String), Error> {
        let failed = |error: io::Error| Error::with(Code::of(&error), error.to_string());
        io::copy(&mut self, &mut io::sink()).map_err(failed)?;
        if let Some((mut child, name)) = self.decompressor.take() {
            if !child.wait().map_err(failed)?.success() {
                return Err(Error::new(format!("{name} cannot decompress it")));
            }
        }
        let mut digest = String::new();
        if let Some((mut child, input)) = self.hasher.take() {
            drop(input);
            let mut output = child.stdout.take().ok_or_else(|| Error::new("no pipe"))?;
            output.read_to_string(&mut digest).map_err(failed)?;
            child.wait().map_err(failed)?;
            digest.truncate(64);
        }
        Ok((self.read, digest))
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(into)?;
        self.read += count as u64;
        if self.read > self.bytes_max {
            return Err(TooLarge { bytes_max: self.bytes_max }.into());
        }
        if let Some((_, input)) = &mut self.hasher {
            input.write_all(&into[..count])?;
        }
        Ok(count)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let decompressor = self.decompressor.take().map(|(child, _)| child);
        let hasher = self.hasher.take().map(|(child, _)| child);
        for mut child in decompressor.into_iter().chain(hasher) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(command: &mut Command, name: &str) -> Result<Child, Error> {
    let command = command.stdout(Stdio::piped()).current_dir("/").gid(NOBODY).uid(NOBODY);
    command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::with(Code::NotInstalled, format!("{name} is not installed")),
        _ => Error::io("start", name, error),
    })
}

/// The program that decompresses a file; `None` for one that needs none.
fn program(mut file: &File) -> Result<Option<&'static str>, Error> {
    let mut magic = Vec::new();
    let first = Read::by_ref(&mut file).take(MAGIC_BYTES as u64).read_to_end(&mut magic);
    first.map_err(|error| Error::new(error.to_string()))?;
    Ok(match magic[..] {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd] => Some("zstd"),
        _ => None,
    })
}
