import type { KeptRow } from './kept-rows.ts'

/** Files, memory and what waits for them. */
export const keptFiles: readonly KeptRow[] = [
  {
    name: 'inotify: watches on folders and files of the disk and of the image, in /dev/shm and /tmp, with their numbers and masks',
    make: `
fd = called(libc.inotify_init1(os.O_NONBLOCK))
for folder in ("/root/watched", "/dev/shm/watched", "/tmp/watched"): os.mkdir(folder)
written("/root/watched-file")
paths = ["/root/watched", "/dev/shm/watched", "/tmp/watched", "/usr/share", "/etc/hosts", "/etc/resolv.conf"]
watches = [called(libc.inotify_add_watch(fd, path.encode(), 0x120)) for path in [*paths, "/etc/passwd", "/root/watched-file"]]
called(libc.inotify_rm_watch(fd, watches[0]))
watches[0] = called(libc.inotify_add_watch(fd, paths[0].encode(), 0x100))
os.read(fd, 4096)`,
    check: `
def events():
    data, found = os.read(fd, 65536), []
    while data:
        watch, mask, _, size = struct.unpack("iIII", data[:16])
        found.append((watch, mask, data[16:16 + size].rstrip(b"\\0")))
        data = data[16 + size:]
    return found
for index in (0, 1, 2, 3):
    written(f"{paths[index]}/new", b"")
    assert (watches[index], 0x100, b"new") in events(), paths[index]
for index, path in ((4, "/etc/hosts"), (5, "/etc/resolv.conf"), (6, "/etc/passwd"), (7, "/root/watched-file")):
    with open(path) as file: pass
    assert (watches[index], 0x20, b"") in events(), path
assert called(libc.inotify_add_watch(fd, b"/root", 0x100)) not in watches`,
  },
  {
    name: 'files that are removed and open: on the disk, in /tmp and /dev/shm, of the image, with holes, positions and a second descriptor',
    make: `
files = []
for folder in ("/root", "/tmp", "/dev/shm"):
    fd = os.open(written(f"{folder}/removed", b"0123456789"), os.O_RDWR)
    os.ftruncate(fd, 1 << 20)
    os.pwrite(fd, b"end", (1 << 20) - 3)
    os.lseek(fd, 4, 0)
    os.unlink(f"{folder}/removed")
    files.append((fd, os.dup(fd), os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)))
lower = os.open("/etc/issue", os.O_RDONLY)
text = os.pread(lower, 100, 0)
os.unlink("/etc/issue")
named = os.open(written("/root/named"), os.O_RDWR)
os.link("/root/named", "/root/other"), os.unlink("/root/named")
nameless = os.open("/root", os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(nameless, b"nameless")`,
    check: `
for fd, same, reader in files:
    assert os.read(same, 3) == b"456" and os.lseek(fd, 0, 1) == 7
    assert os.pread(reader, 3, (1 << 20) - 3) == b"end" and os.fstat(fd).st_size == 1 << 20
    assert os.fstat(fd).st_nlink == 0 and os.fstat(fd).st_ino == os.fstat(reader).st_ino
    os.pwrite(fd, b"X", 0)
    assert os.pread(reader, 1, 0) == b"X"
assert os.pread(lower, 100, 0) == text and not os.path.exists("/etc/issue")
assert os.fstat(named).st_ino == os.stat("/root/other").st_ino and not os.path.exists("/root/named")
assert os.pread(nameless, 9, 0) == b"nameless"`,
  },
  {
    name: 'mapped files: shared and private, removed, in /dev/shm and /tmp, anonymous memory that processes share',
    make: `
maps = []
for folder in ("/root", "/tmp", "/dev/shm"):
    for removed in (False, True):
        path = written(f"{folder}/mapped-{removed}", bytes(8192))
        fd = os.open(path, os.O_RDWR)
        shared, private = mmap.mmap(fd, 8192), mmap.mmap(fd, 8192, mmap.MAP_PRIVATE)
        shared[0:6], private[4096:4100] = b"shared", b"mine"
        if removed: os.unlink(path)
        maps.append((fd, shared, private))
common = mmap.mmap(-1, 4096)
def answer():
    def told(*_): common[0] += 1
    signal.signal(signal.SIGUSR1, told)
answerer = child(answer)`,
    check: `
for fd, shared, private in maps:
    assert shared[0:6] == b"shared" and private[4096:4100] == b"mine" and shared[4096:4100] == bytes(4)
    os.pwrite(fd, b"new", 100)
    assert shared[100:103] == b"new"
os.kill(answerer, signal.SIGUSR1)
until(lambda: common[0] == 1)`,
  },
  {
    name: 'memory files with their seals, shared between processes',
    make: `
fd = os.memfd_create("sealed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
os.write(fd, b"content")
fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE)
plain = os.memfd_create("plain", os.MFD_CLOEXEC)
os.ftruncate(plain, 4096)
view = mmap.mmap(plain, 4096)`,
    check: `
assert os.pread(fd, 9, 0) == b"content"
assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) == fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE
assert fcntl.fcntl(plain, fcntl.F_GET_SEALS) == fcntl.F_SEAL_SEAL
try: os.pwrite(fd, b"x", 0); assert False
except PermissionError: pass
os.pwrite(plain, b"seen", 0)
assert view[0:4] == b"seen" and "memfd:plain" in os.readlink(f"/proc/self/fd/{plain}")`,
  },
  {
    name: 'eventfd: counters and semaphores',
    make: `
counter, plain, large = os.eventfd(7), os.eventfd(3, os.EFD_NONBLOCK), os.eventfd(0)
os.eventfd_write(large, (1 << 64) - 2)
semaphore, drained = os.eventfd(2, os.EFD_SEMAPHORE | os.EFD_NONBLOCK), os.eventfd(0, os.EFD_SEMAPHORE)`,
    check: `
assert os.eventfd_read(counter) == 7 and os.eventfd_read(plain) == 3 and os.eventfd_read(large) == (1 << 64) - 2
assert [os.eventfd_read(semaphore) for _ in range(2)] == [1, 1] and quiet(semaphore) and quiet(drained)
os.eventfd_write(drained, 2)
assert [os.eventfd_read(drained) for _ in range(2)] == [1, 1]
try: os.eventfd_read(plain); assert False
except BlockingIOError: pass`,
  },
  {
    name: 'epoll: interests and flags, one in another, descriptors whose number was used again',
    make: `
epoll, outer = select.epoll(), select.epoll()
pipes = [os.pipe() for _ in range(4)]
epoll.register(pipes[0][0], select.EPOLLIN | select.EPOLLET)
epoll.register(pipes[1][0], select.EPOLLIN | select.EPOLLONESHOT)
outer.register(epoll.fileno(), select.EPOLLIN)
# The first takes its interest along to another number.
epoll.register(pipes[2][0], select.EPOLLIN)
moved = os.dup(pipes[2][0])
os.write(pipes[3][1], b"x")
epoll.register(pipes[3][0], select.EPOLLIN)`,
    check: `
assert [fd for fd, _ in outer.poll(5)] == [epoll.fileno()]
assert epoll.poll(5) == [(pipes[3][0], select.EPOLLIN)]
os.read(pipes[3][0], 1)
os.write(pipes[0][1], b"x")
assert epoll.poll(5) == [(pipes[0][0], select.EPOLLIN)] and epoll.poll(0) == []
os.write(pipes[1][1], b"x")
assert epoll.poll(5) == [(pipes[1][0], select.EPOLLIN)] and epoll.poll(0) == []
os.write(pipes[2][1], b"x")
assert epoll.poll(5) == [(pipes[2][0], select.EPOLLIN)] and os.read(moved, 1) == b"x"`,
  },
  {
    name: 'descriptors: flags, owners and signals (F_SETOWN, F_SETSIG), O_PATH, folders, positions shared by dup, gaps in their numbers',
    make: `
owner = child(lambda: None)
pipe = os.pipe()
fcntl.fcntl(pipe[0], fcntl.F_SETOWN, owner), fcntl.fcntl(pipe[0], fcntl.F_SETSIG, signal.SIGUSR2)
appending = os.open(written("/root/appended"), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
path = os.open("/root/appended", os.O_PATH)
os.symlink("/root/appended", "/root/symlink")
folder = os.open("/usr/share", os.O_RDONLY | os.O_DIRECTORY)
os.dup2(folder, 700)
opened = [os.open("/root/appended", os.O_RDONLY), os.open("/dev/null", os.O_RDWR), os.open("/dev/urandom", os.O_RDONLY), os.open("/dev/full", os.O_WRONLY)]
copy = os.dup(opened[0])
os.lseek(copy, 3, 0)
def flags_of(fd): return fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_DIRECTORY, fcntl.fcntl(fd, fcntl.F_GETFD)
flags = {fd: flags_of(fd) for fd in [appending, path, folder, 700, *opened]}`,
    check: `
assert fcntl.fcntl(pipe[0], fcntl.F_GETOWN) == owner and fcntl.fcntl(pipe[0], fcntl.F_GETSIG) == signal.SIGUSR2
for fd, before in flags.items(): assert flags_of(fd) == before, fd
os.write(appending, b"+")
assert os.fstat(path).st_size == 8 and os.read(opened[0], 99) == b"tent+"
try: os.read(path, 1); assert False
except OSError as error: assert error.errno == errno.EBADF
assert "doc" in os.listdir(folder) and os.stat("doc", dir_fd=700) and len(os.read(opened[2], 9)) == 9
try: os.write(opened[3], b"x"); assert False
except OSError as error: assert error.errno == errno.ENOSPC`,
  },
  {
    name: 'inotify: where events were not read, an overflow says that some are missing; nothing else, and what is next',
    make: `
os.mkdir("/root/unread"), os.mkdir("/root/read")
fds = [called(libc.inotify_init1(os.O_NONBLOCK)) for _ in range(3)]
watched = [called(libc.inotify_add_watch(fd, path, 0xfff)) for fd in fds for path in (b"/root/unread", b"/root/read")]
written("/root/unread/lost"), written("/root/read/seen")
os.read(fds[2], 65536)
assert not quiet(fds[0]) and not quiet(fds[1]) and quiet(fds[2])`,
    check: `
overflow = struct.pack("iIII", -1, 0x4000, 0, 0)
assert os.read(fds[0], 65536) == overflow and os.read(fds[1], 65536) == overflow
assert all(quiet(fd) for fd in fds)
os.mkdir("/root/unread/new")
for fd, watch in zip(fds, watched[::2]):
    assert os.read(fd, 65536) == struct.pack("iIII16s", watch, 0x40000100, 0, 16, b"new")
assert called(libc.inotify_add_watch(fds[0], b"/root", 0x100)) not in watched`,
  },
]
