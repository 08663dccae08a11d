//! All requests. Each verb has one form; a request of another form is refused by the name of the wrong field.

use std::path::PathBuf;

use super::fields::{refused, Fields, Process};
use super::VERSION;
use crate::process::launch::Program;
use crate::{dump_check, fork_generation, layer, limits, network, overlay, reserve, step_mounts};
use sys::{Code, Error};

#[derive(Debug)]
pub enum Request {
    /// For the resident hostd alone.
    Resident(Resident),
    StartProgram(Program),
    Brief(Brief),
    Long(Long),
}

#[derive(Debug)]
pub enum Resident {
    /// The program that the request of the same id has started.
    KillProgram,
    ConnectPort {
        process: Process,
        port: u16,
    },
    AwaitExit(Process),
    /// Comes on the relay's socket, like the next one.
    ConnectGuest(PathBuf),
    CutGuest(PathBuf),
}

/// A few system calls, which a thread of the resident hostd makes: a process would cost more. Such a request cannot be killed, so each ends
/// by itself. Changes to the namespaces of the thread end with it.
#[derive(Debug)]
pub enum Brief {
    AdoptIndex { work: PathBuf },
    AttachFolder(step_mounts::AttachFolder),
    AttachSecret(step_mounts::AttachSecret),
    AttachTmpfs(step_mounts::AttachTmpfs),
    CreateSubvolume { path: PathBuf },
    DeleteLink { link: String },
    DeleteSubvolume { path: PathBuf },
    DetachMount(step_mounts::Detach),
    ExchangePaths { one: PathBuf, other: PathBuf },
    ForgetOrigins { dir: PathBuf },
    ForgetSizes { from: PathBuf, to: PathBuf, files: Vec<PathBuf> },
    JoinNetwork(network::Join),
    LimitSubvolume { path: PathBuf, bytes: u64 },
    MakeRunFolder { dir: PathBuf },
    MakeSource { dir: PathBuf },
    MountOverlay(overlay::Mount),
    MountTmpfs { target: PathBuf, bytes: u64, inodes: u64, owner: u32 },
    MountVolume { source: PathBuf, target: PathBuf, start: u32, count: u32, read_only: bool },
    RaiseInodeNumbers { dir: PathBuf, from: u64 },
    RemoveFolders { dirs: Vec<PathBuf> },
    ReplaceFiles { process: Process, source: PathBuf, files: Vec<PathBuf>, groups: Vec<PathBuf> },
    SealMount { process: Process, mount: u64 },
    ShowLimits(limits::Show),
    SnapshotSubvolume { from: PathBuf, path: PathBuf, writable: bool },
    WriteForkGeneration(fork_generation::Write),
}

/// Takes its time, or changes its process. So each has a process of its own, which can be killed.
#[derive(Debug)]
pub enum Long {
    AwaitDumps { runc_root: PathBuf, timeout_ms: u64 },
    AwaitUnconnected { pid: i32 },
    CheckDump(dump_check::Check),
    EmptyRobustLists { groups: Vec<PathBuf> },
    EndCriu { dirs: Vec<PathBuf>, lazy_pages: bool },
    EndTools { paths: Vec<PathBuf> },
    Freeze { groups: Vec<PathBuf> },
    HoldBack { first: i32, hooks: PathBuf, groups: Vec<PathBuf> },
    ReserveSpace(reserve::Reserve),
    SharePages { like: PathBuf, dir: PathBuf },
    UnpackLayer(layer::Unpack),
}

impl Request {
    /// The argument of `perform`, which names the version of the protocol.
    pub fn alone(text: &[u8]) -> Result<Request, Error> {
        let mut fields = Fields::parse(text)?;
        assert_version(&mut fields)?;
        Request::parse(fields)
    }

    pub fn parse(mut fields: Fields) -> Result<Request, Error> {
        let op = fields.text("op")?;
        let request = Request::of(&op, &mut fields).and_then(|request| fields.finish().map(|()| request));
        request.map_err(|error| error.of(&op))
    }

    fn of(op: &str, given: &mut Fields) -> Result<Request, Error> {
        if op == "start-program" {
            return Program::from_fields(given).map(Request::StartProgram);
        }
        if let Some(resident) = Resident::of(op, given)? {
            return Ok(Request::Resident(resident));
        }
        if let Some(brief) = Brief::of(op, given)? {
            return Ok(Request::Brief(brief));
        }
        let unknown = || refused("unknown operation: this program may be older than the server, run npm run setup");
        Long::of(op, given)?.map(Request::Long).ok_or_else(unknown)
    }
}

impl Resident {
    /// Reads a request on the socket of the relay, where nothing else is asked.
    pub fn parse(mut fields: Fields) -> Result<Resident, Error> {
        let op = fields.text("op")?;
        let resident = Resident::of(&op, &mut fields)?.ok_or_else(|| refused("another operation"))?;
        fields.finish().map(|()| resident)
    }

    fn of(op: &str, given: &mut Fields) -> Result<Option<Resident>, Error> {
        Ok(Some(match op {
            "kill-program" => Resident::KillProgram,
            "connect-port" => Resident::ConnectPort { process: given.process()?, port: given.number("port")? },
            "await-exit" => Resident::AwaitExit(given.process()?),
            "connect-guest" => Resident::ConnectGuest(given.path("path")?),
            "cut-guest" => Resident::CutGuest(given.path("path")?),
            _ => return Ok(None),
        }))
    }
}

impl Brief {
    fn of(op: &str, given: &mut Fields) -> Result<Option<Brief>, Error> {
        Ok(Some(match op {
            "adopt-index" => Brief::AdoptIndex { work: given.path("work")? },
            "attach-folder" => Brief::AttachFolder(step_mounts::AttachFolder::from_fields(given)?),
            "attach-secret" => Brief::AttachSecret(step_mounts::AttachSecret::from_fields(given)?),
            "attach-tmpfs" => Brief::AttachTmpfs(step_mounts::AttachTmpfs::from_fields(given)?),
            "create-subvolume" => Brief::CreateSubvolume { path: given.path("path")? },
            "delete-link" => Brief::DeleteLink { link: given.text("link")? },
            "delete-subvolume" => Brief::DeleteSubvolume { path: given.path("path")? },
            "detach-mount" => Brief::DetachMount(step_mounts::Detach::from_fields(given)?),
            "exchange-paths" => Brief::ExchangePaths { one: given.path("one")?, other: given.path("other")? },
            "forget-origins" => Brief::ForgetOrigins { dir: given.path("dir")? },
            "forget-sizes" => Brief::ForgetSizes {
                from: given.path("from")?,
                to: given.path("to")?,
                files: given.some_paths("files")?,
            },
            "join-network" => Brief::JoinNetwork(network::Join::from_fields(given)?),
            "limit-subvolume" => Brief::LimitSubvolume { path: given.path("path")?, bytes: given.number("bytes")? },
            "make-run-folder" => Brief::MakeRunFolder { dir: given.path("dir")? },
            "make-source" => Brief::MakeSource { dir: given.path("dir")? },
            "mount-overlay" => Brief::MountOverlay(overlay::Mount::from_fields(given)?),
            "mount-tmpfs" => Brief::MountTmpfs {
                target: given.path("target")?,
                bytes: given.number("bytes")?,
                inodes: given.number("inodes")?,
                owner: given.number("owner")?,
            },
            "mount-volume" => {
                let (start, count) = range(given)?;
                Brief::MountVolume {
                    source: given.path("source")?,
                    target: given.path("target")?,
                    start,
                    count,
                    read_only: given.flag("readOnly")?,
                }
            }
            "raise-inode-numbers" => Brief::RaiseInodeNumbers { dir: given.path("dir")?, from: given.number("from")? },
            "remove-folders" => Brief::RemoveFolders { dirs: given.some_paths("dirs")? },
            "replace-files" => Brief::ReplaceFiles {
                process: given.process()?,
                source: given.path("source")?,
                files: given.some_paths("files")?,
                groups: given.some_paths("groups")?,
            },
            "seal-mount" => Brief::SealMount { process: given.process()?, mount: given.number("mount")? },
            "show-limits" => Brief::ShowLimits(limits::Show::from_fields(given)?),
            "snapshot-subvolume" => Brief::SnapshotSubvolume {
                from: given.path("from")?,
                path: given.path("path")?,
                writable: given.flag("writable")?,
            },
            "write-fork-generation" => Brief::WriteForkGeneration(fork_generation::Write::from_fields(given)?),
            _ => return Ok(None),
        }))
    }
}

impl Long {
    fn of(op: &str, given: &mut Fields) -> Result<Option<Long>, Error> {
        Ok(Some(match op {
            "await-dumps" => {
                Long::AwaitDumps { runc_root: given.path("runcRoot")?, timeout_ms: given.number("timeoutMs")? }
            }
            "await-unconnected" => Long::AwaitUnconnected { pid: given.number("pid")? },
            "check-dump" => Long::CheckDump(dump_check::Check::from_fields(given)?),
            "empty-robust-lists" => Long::EmptyRobustLists { groups: given.some_paths("groups")? },
            "end-criu" => Long::EndCriu { dirs: given.some_paths("dirs")?, lazy_pages: given.flag("lazyPages")? },
            "end-tools" => Long::EndTools { paths: given.some_paths("paths")? },
            "freeze" => Long::Freeze { groups: given.some_paths("groups")? },
            "hold-back" => Long::HoldBack {
                first: given.number("first")?,
                hooks: given.path("hooks")?,
                groups: given.some_paths("groups")?,
            },
            "reserve-space" => Long::ReserveSpace(reserve::Reserve::from_fields(given)?),
            "share-pages" => Long::SharePages { like: given.path("like")?, dir: given.path("dir")? },
            "unpack-layer" => Long::UnpackLayer(layer::Unpack::from_fields(given)?),
            _ => return Ok(None),
        }))
    }
}

/// Takes the version that the other side speaks, and refuses another one than this program's.
pub fn assert_version(fields: &mut Fields) -> Result<(), Error> {
    match fields.number::<u64>("protocol")? {
        VERSION => Ok(()),
        other => {
            let message =
                format!("the server speaks version {other} of the protocol, atoll-hostd {VERSION}: run npm run setup");
            Err(Error::with(Code::UnsupportedProtocol, message))
        }
    }
}

/// `count` ids from `start` on: start and count.
pub fn range(fields: &mut Fields) -> Result<(u32, u32), Error> {
    let mut range = fields.object("range")?;
    let (start, count) = (range.number("start")?, range.number("count")?);
    range.finish().map(|()| (start, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Request, Error> {
        Request::alone(text.as_bytes())
    }

    /// One of each request, as the schema of the server has them; a test of the server compares the two.
    fn samples() -> Vec<String> {
        let text = include_str!("request/samples.jsonl");
        text.lines().map(|line| line.replacen('{', &format!("{{\"protocol\":{VERSION},"), 1)).collect()
    }

    #[test]
    fn each_request_is_taken_and_no_field_can_be_missing_or_added() {
        for text in samples() {
            parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let fault = parse(&text.replacen('{', "{\"extra\":1,", 1)).expect_err("a field more");
            assert!(fault.to_string().ends_with("extra: unknown field"), "{fault}");
            let whole = match json::parse(&text).expect("JSON") {
                json::Value::Object(fields) => fields,
                _ => unreachable!(),
            };
            let op = whole["op"].as_text().expect("a text");
            for name in whole.keys().filter(|name| !OPTIONAL.contains(&(op, name.as_str()))) {
                let mut less = whole.clone();
                less.remove(name);
                let mut text = String::new();
                json::Value::Object(less).write(&mut text);
                let fault = parse(&text).expect_err("a field less");
                assert!(fault.to_string().ends_with(&format!("{name}: is required")), "{text}: {fault}");
            }
        }
    }

    /// Optional fields, each after the name of its operation.
    const OPTIONAL: [(&str, &str); 6] = [
        ("attach-folder", "part"),
        ("start-program", "hide"),
        ("start-program", "keep"),
        ("mount-overlay", "hide"),
        ("join-network", "held"),
        ("unpack-layer", "target"),
    ];

    #[test]
    fn mutilated_requests_are_refused_without_a_panic() {
        // A generator of its own (xorshift), so that a failure comes again.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let samples = samples();
        for _ in 0..20_000 {
            let mut bytes = samples[random(samples.len())].clone().into_bytes();
            for _ in 0..=random(4) {
                let at = random(bytes.len().max(1));
                if bytes.is_empty() {
                    break;
                }
                match random(4) {
                    0 => bytes[at] = random(256) as u8,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, b"{}[]\",:\\0-e/"[random(12)]),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            if let Err(error) = Request::alone(&bytes) {
                assert!(matches!(error.code, Code::InvalidRequest | Code::UnsupportedProtocol), "{error}");
            }
        }
    }

    #[test]
    fn another_version_and_an_unknown_operation_are_refused() {
        let other = parse(&format!("{{\"protocol\":{},\"op\":\"freeze\",\"groups\":[\"/a\"]}}", VERSION + 1))
            .expect_err("refused");
        assert_eq!(other.code, Code::UnsupportedProtocol);
        let unknown = parse(&format!("{{\"protocol\":{VERSION},\"op\":\"number\"}}")).expect_err("refused");
        assert!(unknown.code == Code::InvalidRequest && unknown.to_string().starts_with("number: unknown operation"));
    }
}
