import type { KeptRow } from './kept-rows.ts'

/** What CRIU leaves out, which the table says: `check` asserts what a process finds instead. */
export const lost: readonly KeptRow[] = [
  {
    name: 'a TCP connection that nobody has accepted is reset',
    make: `
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())`,
    check: `
server.setblocking(False)
try: server.accept(); assert False
except BlockingIOError: pass
try: assert client.recv(9) == b""
except ConnectionResetError: pass
with socket.create_connection(server.getsockname()): assert select.select([server], [], [], 10)[0]`,
  },
  {
    name: 'UDP packets that nobody has read',
    make: `
one, other = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
one.bind(("127.0.0.1", 0)), other.sendto(b"lost", one.getsockname())
assert not quiet(one)`,
    check: `
assert quiet(one)
other.sendto(b"new", one.getsockname())
assert one.recv(9) == b"new"`,
  },
  {
    name: 'what a process would give back of SysV semaphores at its end',
    make: `
sem = called(libc.semget(74, 1, 0o1600))
called(libc.semctl(sem, 0, 16, 5))
pid = child(lambda: called(libc.semop(sem, struct.pack("Hhh", 0, -2, 0x1000), 1)))`,
    check: `
assert called(libc.semctl(sem, 0, 12)) == 3
os.kill(pid, signal.SIGKILL), os.waitpid(pid, 0)
assert called(libc.semctl(sem, 0, 12)) == 3`,
  },
]

const watchedAndRemoved = (folder: string) => `
os.mkdir("${folder}")
fd = called(libc.inotify_init1(os.O_NONBLOCK))
called(libc.inotify_add_watch(fd, b"${folder}", 0x100))
held = os.open("${folder}", os.O_RDONLY)
os.rmdir("${folder}")`

/** What a dump refuses: `reason` is in the message. */
export const refused: readonly { name: string; make: string; reason: RegExp }[] = [
  {
    name: 'a child under a debugger',
    make: `
def traced(): called(libc.ptrace(0, 0, 0, 0))
pid = child(traced)
os.kill(pid, signal.SIGUSR1)
os.waitpid(pid, 0)`,
    reason: /a process is under a debugger/,
  },
  {
    name: 'a lease of a file',
    make: `
import fcntl
leased = os.open("/root/leased", os.O_RDONLY | os.O_CREAT)
fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_RDLCK)`,
    reason: /a process holds a lease on a file/,
  },
  {
    name: 'a watch on a removed file that is open',
    make: `
written("/root/gone")
gone = os.open("/root/gone", os.O_RDONLY)
watch = called(libc.inotify_init1(0))
called(libc.inotify_add_watch(watch, b"/root/gone", 0x100))
os.unlink("/root/gone")`,
    reason: /a removed file that is still open is watched/,
  },
  {
    name: 'a pipe of packets',
    make: `
pipe = os.pipe2(os.O_DIRECT)`,
    reason: /a pipe in packet mode/,
  },
  {
    name: 'a multipath TCP socket',
    make: `
one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)`,
    reason: /a multipath TCP socket is open/,
  },
  {
    name: 'a connection to a unix socket that nobody has accepted, with data',
    make: `
server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
server.bind("/root/unaccepted"), server.listen(5)
client.connect("/root/unaccepted"), client.send(b"x")`,
    reason: /a connection to a unix socket has data and is waiting to be accepted/,
  },
  {
    name: 'credentials in flight over a unix socket',
    make: `
one, other = socket.socketpair()
other.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
one.send(b"x")`,
    reason: /a unix socket holds credentials that were not received/,
  },
  {
    name: 'an urgent byte of TCP',
    make: `
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer = server.accept()[0]
client.send(b"u", socket.MSG_OOB)
until(lambda: select.select([], [], [peer], 0)[2])`,
    reason: /a connection holds an urgent byte/,
  },
  {
    name: 'an urgent byte that stays in the stream',
    make: `
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer = server.accept()[0]
peer.setsockopt(socket.SOL_SOCKET, 10, 1)
client.send(b"u", socket.MSG_OOB)
until(lambda: select.select([], [], [peer], 0)[2])`,
    reason: /a connection holds an urgent byte/,
  },
  {
    name: 'an urgent byte of a unix socket',
    make: `
one, other = socket.socketpair()
one.send(b"u", socket.MSG_OOB)`,
    reason: /a connection holds an urgent byte/,
  },
  {
    name: 'an answer in a netlink socket',
    make: `
one = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
one.bind((0, 0))
one.send(struct.pack("IHHIIBxHiII", 32, 18, 0x301, 1, 0, 0, 0, 0, 0, 0))
until(lambda: not quiet(one))`,
    reason: /a netlink socket holds messages that were not read/,
  },
  {
    name: 'a watch on a folder that was removed and is open',
    make: watchedAndRemoved('/root/gone'),
    reason: /something is watched \(inotify\) that was removed/,
  },
  {
    name: 'a watch on such a folder in /dev/shm',
    make: watchedAndRemoved('/dev/shm/gone'),
    reason: /something is watched \(inotify\) that was removed/,
  },
  {
    name: 'a watch on a file of /proc',
    make: `
fd = called(libc.inotify_init1(os.O_NONBLOCK))
called(libc.inotify_add_watch(fd, b"/proc/self", 0x20))`,
    reason: /something is watched \(inotify\) that was removed/,
  },
  {
    name: 'memory in huge pages',
    make: `
fd = os.memfd_create("huge", 4)`,
    reason: /an open file belongs to no mount of the sandbox/,
  },
  {
    name: 'a POSIX message queue',
    make: `
fd = called(ctypes.CDLL("librt.so.1", use_errno=True).mq_open(b"/queue", os.O_CREAT | os.O_RDWR, 0o600, None))`,
    reason: /a POSIX message queue exists|an open file belongs to no mount of the sandbox/,
  },
]
