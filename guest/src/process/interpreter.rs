//! The program that is missing when execve(2) answers ENOENT for an existing one: the interpreter of a script, or the loader of a binary.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use sys::O_NONBLOCK;

/// Bytes that the kernel reads of a script's first line (`BINPRM_BUF_SIZE`).
const FIRST_LINE_BYTES: usize = 256;
/// An interpreter may be a script too, or itself; the kernel follows at most this many.
const DEPTH_MAX: usize = 5;
/// A linker makes about a dozen.
const SEGMENTS_MAX: u64 = 128;
const PT_INTERP: u32 = 3;

/// The missing interpreter of a program, for a message: printable, at most 255 characters. `path` is the `PATH` of the program, `cwd` its
/// folder. None when the program itself is missing, or its interpreter cannot be found out.
pub fn missing_interpreter(program: &str, path: &str, cwd: &Path) -> Option<String> {
    let mut current = locate(program, path, cwd)?;
    for _ in 0..DEPTH_MAX {
        let name = interpreter_of(&current)?;
        let next = cwd.join(OsStr::from_bytes(&name));
        match fs::metadata(&next) {
            Ok(_) => current = next,
            Err(error) if matches!(error.raw_os_error(), Some(2 | 20)) => return Some(printable(&name)),
            Err(_) => return None,
        }
    }
    None
}

/// Finds a program as execvp(3) does.
fn locate(program: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(cwd.join(program)).filter(|found| found.is_file());
    }
    path.split(':').map(|folder| cwd.join(folder).join(program)).find(|found| found.is_file())
}

fn interpreter_of(program: &Path) -> Option<Vec<u8>> {
    // The name may lead to a FIFO or a device by now, and an open must not wait for it.
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(program).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut head = [0; FIRST_LINE_BYTES];
    let read = file.read_at(&mut head, 0).ok()?;
    let head = &head[..read];
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next()?;
        let word = line.split(|byte| b" \t\0".contains(byte)).find(|word| !word.is_empty())?;
        return Some(word.to_vec());
    }
    loader_of(&file, head)
}

/// The loader that an ELF file of this machine's byte order names (elf(5)).
fn loader_of(file: &File, head: &[u8]) -> Option<Vec<u8>> {
    if head.len() < 64 || !head.starts_with(b"\x7fELF") || head[5] != 1 {
        return None;
    }
    let is_64 = head[4] == 2;
    let (table, size, count) = if is_64 { (32, 54, 56) } else { (28, 42, 44) };
    let table = number(head, table, if is_64 { 8 } else { 4 })?;
    let size = number(head, size, 2)?;
    let count = number(head, count, 2)?.min(SEGMENTS_MAX);
    for index in 0..count {
        let mut entry = [0; 40];
        file.read_exact_at(&mut entry, table.checked_add(index * size)?).ok()?;
        if number(&entry, 0, 4)? != PT_INTERP as u64 {
            continue;
        }
        let (offset, length) = if is_64 { (8, 32) } else { (4, 16) };
        let width = if is_64 { 8 } else { 4 };
        let length = number(&entry, length, width)?.min(FIRST_LINE_BYTES as u64);
        let mut name = vec![0; length as usize];
        file.read_exact_at(&mut name, number(&entry, offset, width)?).ok()?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        name.truncate(end);
        return Some(name).filter(|name| !name.is_empty());
    }
    None
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let part = bytes.get(at..at + width)?;
    Some(part.iter().rev().fold(0, |number, &byte| number << 8 | byte as u64))
}

fn printable(name: &[u8]) -> String {
    let mut shown = String::new();
    for letter in String::from_utf8_lossy(name).chars() {
        match letter.is_control() {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown.chars().take(FIRST_LINE_BYTES - 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{symlink, PermissionsExt};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("atoll-interpreter-{}-{}", name, std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn write(folder: &Path, name: &str, text: &[u8]) -> String {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file.to_str().unwrap().to_string()
    }

    #[test]
    fn a_script_names_its_interpreter_also_behind_others_and_by_the_path() {
        let folder = folder("script");
        let one = write(&folder, "one", b"#! /no/such -x\necho\n");
        let two = write(&folder, "two", format!("#!{}\n", one).as_bytes());
        let root = Path::new("/");
        for program in [&one, &two] {
            assert_eq!(missing_interpreter(program, "", root).as_deref(), Some("/no/such"));
        }
        assert_eq!(missing_interpreter("one", &format!("/x:{}", folder.display()), root).as_deref(), Some("/no/such"));
        assert_eq!(missing_interpreter("./one", "", &folder).as_deref(), Some("/no/such"));
        assert_eq!(missing_interpreter("/no/script", "", root), None);
        assert_eq!(missing_interpreter("/bin/sh", "", root), None);
        let _ = fs::remove_dir_all(&folder);
    }

    #[test]
    fn hostile_names_are_bounded_and_printable() {
        let folder = folder("hostile");
        let line = write(&folder, "line", b"#!/bin/sh\r\necho\n");
        assert_eq!(missing_interpreter(&line, "", Path::new("/")).as_deref(), Some("/bin/sh\\r"));
        let escape = write(&folder, "escape", b"#!/\x1b[2J\xff\n");
        assert_eq!(missing_interpreter(&escape, "", Path::new("/")).as_deref(), Some("/\\u{1b}[2J\u{fffd}"));
        let long = write(&folder, "long", &[b"#!/".to_vec(), vec![b'x'; 10_000]].concat());
        assert!(missing_interpreter(&long, "", Path::new("/")).map_or(true, |name| name.len() <= 255));
        for (name, text) in [("empty", &b"#!\n"[..]), ("short", b"\x7fELF"), ("zeros", &[0; 300])] {
            assert_eq!(missing_interpreter(&write(&folder, name, text), "", Path::new("/")), None, "{}", name);
        }
        let turn = folder.join("turn");
        write(&folder, "turn", format!("#!{}\n", turn.display()).as_bytes());
        assert_eq!(missing_interpreter(turn.to_str().unwrap(), "", Path::new("/")), None);
        symlink("/dev/zero", folder.join("device")).unwrap();
        assert_eq!(missing_interpreter(folder.join("device").to_str().unwrap(), "", Path::new("/")), None);
        let _ = fs::remove_dir_all(&folder);
    }

    #[test]
    fn a_binary_names_its_loader() {
        let folder = folder("binary");
        let mut elf = vec![0; 64 + 56 + 16];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 1;
        elf[64] = PT_INTERP as u8;
        elf[64 + 8] = 120;
        elf[64 + 32] = 10;
        elf[120..130].copy_from_slice(b"/lib/none\0");
        let binary = write(&folder, "binary", &elf);
        assert_eq!(missing_interpreter(&binary, "", Path::new("/")).as_deref(), Some("/lib/none"));
        elf[56] = 0xff;
        elf[57] = 0xff;
        elf[64] = 1;
        let endless = write(&folder, "endless", &elf);
        assert_eq!(missing_interpreter(&endless, "", Path::new("/")), None);
        let _ = fs::remove_dir_all(&folder);
    }
}
