//! Robust mutexes (pthread_mutexattr_setrobust) of processes that end because their memory is saved.
//!
//! At the end of a thread the kernel walks its list of robust mutexes and releases each, in a mapped file too. The file stays, and the
//! restored process, which still believes that it holds the mutex, would meet another holder. LMDB has its writers' mutex in such a file.
//! So the lists are emptied once everything is saved, while all threads stand still: the image has them whole, and the kernel finds nothing
//! to release.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::process::freeze::members;
use sys::Error;

/// `struct robust_list_head`: the first entry, which is the head itself in an empty list; an offset; the entry that is being taken or left.
const HEAD_BYTES: usize = 24;
const PENDING: u64 = 16;

/// A list that is not empty.
struct List {
    process: i32,
    head: u64,
    content: [u8; HEAD_BYTES],
}

pub fn empty(groups: &[PathBuf]) -> Result<(), Error> {
    let mut emptied = Vec::new();
    for list in members(groups).into_iter().flat_map(lists_of) {
        let outcome = list.and_then(|list| list.empty().map(|()| emptied.push(list)));
        if let Err(error) = outcome {
            // The processes go on and need their lists.
            for list in &emptied {
                list.put_back()?;
            }
            return Err(error);
        }
    }
    Ok(())
}

fn lists_of(process: i32) -> Vec<Result<List, Error>> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let numbers = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    numbers.filter_map(|thread| list_of(process, thread).transpose()).collect()
}

fn list_of(process: i32, thread: i32) -> Result<Option<List>, Error> {
    let head = match sys::robust_list(thread) {
        Ok(0) => return Ok(None),
        Ok(head) => head,
        Err(error) => return Err(Error::io("find the robust mutexes of", thread, error)),
    };
    let mut content = [0; HEAD_BYTES];
    // The kernel could not walk an unreadable list either.
    let is_readable = memory(process)?.read_exact_at(&mut content, head).is_ok();
    let list = List { process, head, content };
    Ok(Some(list).filter(|list| is_readable && !list.is_empty()))
}

impl List {
    fn is_empty(&self) -> bool {
        self.content[..8] == self.head.to_ne_bytes() && self.content[PENDING as usize..] == [0; 8]
    }

    fn empty(&self) -> Result<(), Error> {
        self.write(self.head, &self.head.to_ne_bytes())?;
        self.write(self.head + PENDING, &[0; 8])
    }

    fn put_back(&self) -> Result<(), Error> {
        self.write(self.head, &self.content)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let written = memory(self.process)?.write_all_at(bytes, at);
        written.map_err(|error| Error::io("write the memory of", self.process, error))
    }
}

fn memory(process: i32) -> Result<File, Error> {
    let path = format!("/proc/{process}/mem");
    File::options().read(true).write(true).open(&path).map_err(|error| Error::io("open", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::raw::c_long;

    #[cfg(target_arch = "aarch64")]
    const SYS_SET_ROBUST_LIST: c_long = 99;
    #[cfg(not(target_arch = "aarch64"))]
    const SYS_SET_ROBUST_LIST: c_long = 273;

    extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }

    /// Sets the list of the calling thread.
    fn set_list(head: u64) {
        // SAFETY: the list of this thread lives until the test sets the thread's own again.
        assert_eq!(unsafe { syscall(SYS_SET_ROBUST_LIST, head, 24usize) }, 0);
    }

    /// One entry, and an operation that is pending.
    fn with_list(work: impl FnOnce(i32, &[u64; 3]) + Send + 'static) {
        let thread = std::thread::spawn(move || {
            let mut entry = [0u64; 2];
            let own = sys::robust_list(0).unwrap();
            let mut head = [0u64, 0, 0];
            entry[0] = head.as_ptr() as u64;
            head[0] = entry.as_ptr() as u64;
            head[2] = entry.as_ptr() as u64;
            set_list(head.as_ptr() as u64);
            work(sys::thread_id(), &head);
            set_list(own);
        });
        thread.join().unwrap();
    }

    fn now(list: &[u64; 3]) -> [u64; 3] {
        // SAFETY: a reference can be read; the kernel or another process writes whole words.
        [0, 1, 2].map(|index| unsafe { std::ptr::read_volatile(&list[index]) })
    }

    #[test]
    fn a_list_is_emptied_and_put_back() {
        with_list(|thread, head| {
            let process = std::process::id() as i32;
            let before = now(head);
            let found = || list_of(process, thread).ok().unwrap();
            let list = found().unwrap();
            assert!(list.empty().is_ok());
            assert_eq!(now(head), [head.as_ptr() as u64, 0, 0]);
            assert!(found().is_none());
            assert!(list.put_back().is_ok());
            assert_eq!(now(head), before);
        });
    }

    #[test]
    fn the_lists_of_all_threads_of_a_process_are_found() {
        with_list(|thread, head| {
            let process = std::process::id() as i32;
            assert!(thread != process);
            let found = lists_of(process).into_iter().filter_map(Result::ok);
            assert!(found.into_iter().any(|list| list.head == head.as_ptr() as u64));
        });
    }
}
