import type { KeptRow } from './kept-rows.ts'

/** What processes talk through. */
export const keptChannels: readonly KeptRow[] = [
  {
    name: 'pipes and FIFOs: half full and full, their sizes, writers that are gone',
    make: `
half, full, ended, large = [os.pipe() for _ in range(4)]
os.write(half[1], b"half")
os.set_blocking(full[1], False)
size = 0
try:
    while True: size += os.write(full[1], b"f" * 4096)
except BlockingIOError: pass
os.write(ended[1], b"last")
os.close(ended[1])
capacity = fcntl.fcntl(large[1], 1031, 1 << 20)
os.write(large[1], b"l" * 300000)
os.mkfifo("/root/fifo")
fifo = os.open("/root/fifo", os.O_RDWR)
os.write(fifo, b"named")`,
    check: `
assert os.read(half[0], 9) == b"half" and quiet(half[0])
try: os.write(full[1], b"x"); assert False
except BlockingIOError: pass
found = 0
while not quiet(full[0]): found += len(os.read(full[0], 65536))
assert found == size
assert os.read(ended[0], 9) == b"last" and os.read(ended[0], 9) == b""
assert fcntl.fcntl(large[1], 1032) == capacity
data = b""
while len(data) < 300000: data += os.read(large[0], 65536)
assert data == b"l" * 300000 and os.read(fifo, 9) == b"named"`,
  },
  {
    name: 'unix sockets: streams, datagrams and packets with what was sent and not read; half closed; listening; abstract; without a name',
    make: `
pairs = {kind: socket.socketpair(socket.AF_UNIX, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)}
for kind, (one, _) in pairs.items(): one.send(b"first"), one.send(b"second")
shut = socket.socketpair()
shut[0].send(b"last"), shut[0].shutdown(socket.SHUT_WR)
gone = socket.socketpair()
gone[0].close()
os.makedirs("/root/s", exist_ok=True)
servers = []
for address in ("/root/s/listener", "\\0atoll-kept"):
    server = socket.socket(socket.AF_UNIX)
    server.bind(address), server.listen(5)
    client = socket.socket(socket.AF_UNIX)
    client.connect(address)
    peer = server.accept()[0]
    servers.append((address, server, client, peer))
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
receiver.bind("/root/s/datagrams")
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sender.connect("/root/s/datagrams"), sender.send(b"queued")`,
    check: `
stream = b""
while len(stream) < 11: stream += pairs[socket.SOCK_STREAM][1].recv(99)
assert stream == b"firstsecond"
for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    assert [pairs[kind][1].recv(99) for _ in range(2)] == [b"first", b"second"], kind
assert shut[1].recv(9) == b"last" and shut[1].recv(9) == b""
shut[1].send(b"back")
assert shut[0].recv(9) == b"back" and gone[1].recv(9) == b""
for address, server, client, peer in servers:
    client.send(b"old")
    assert peer.recv(9) == b"old"
    with socket.socket(socket.AF_UNIX) as new:
        new.connect(address), new.send(b"new")
        assert server.accept()[0].recv(9) == b"new"
assert receiver.recv(9) == b"queued"
sender.send(b"more")
assert receiver.recv(9) == b"more"`,
  },
  {
    name: 'descriptors in flight over a unix socket',
    make: `
one, other = socket.socketpair()
ends = os.pipe()
os.write(ends[1], b"through")
socket.send_fds(one, [b"take"], [ends[0], os.open(written("/root/flying"), os.O_RDONLY)])
os.close(ends[0])`,
    check: `
text, fds, _, _ = socket.recv_fds(other, 99, 9)
assert text == b"take" and os.read(fds[0], 9) == b"through" and os.read(fds[1], 9) == b"content"`,
  },
  {
    name: 'TCP on the loopback, IPv4 and IPv6: open with what was sent and not read, listening, bound, options',
    make: `
made = []
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.create_server((host, 0), family=family)
    address = server.getsockname()
    def connection():
        client = socket.create_connection(address[:2])
        return client, server.accept()[0]
    opened = connection()
    opened[0].send(b"c" * 50000), opened[1].send(b"s" * 50000)
    opened[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened[0].setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    bound = socket.socket(family)
    bound.bind((host, 0))
    made.append((server, address, opened, bound, bound.getsockname()))`,
    check: `
def received(end, size):
    data = b""
    while len(data) < size: data += end.recv(65536)
    return data
for server, address, opened, bound, name in made:
    assert received(opened[1], 50000) == b"c" * 50000 and received(opened[0], 50000) == b"s" * 50000
    opened[0].send(b"more")
    assert opened[1].recv(9) == b"more"
    assert opened[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) and opened[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    with socket.create_connection(address[:2]) as client: assert server.accept()[0].getpeername() == client.getsockname()
    assert bound.getsockname() == name
    bound.listen()`,
  },
  {
    name: 'UDP: bound, connected, options',
    make: `
one, other = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
one.bind(("127.0.0.1", 0)), other.connect(one.getsockname())
one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
names = (one.getsockname(), other.getsockname(), other.getpeername())`,
    check: `
assert names == (one.getsockname(), other.getsockname(), other.getpeername())
assert one.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)
other.send(b"packet")
assert one.recv(9) == b"packet"`,
  },
  {
    name: 'SysV shared memory, semaphores and message queues with their content',
    make: `
libc.shmat.restype = ctypes.c_void_p
shm, sem, msg = called(libc.shmget(71, 4096, 0o1600)), called(libc.semget(72, 2, 0o1600)), called(libc.msgget(73, 0o1600))
at = called(libc.shmat(shm, None, 0))
ctypes.memmove(at, b"shared", 6)
called(libc.semctl(sem, 1, 16, 5))
for text in (b"one", b"two"): called(libc.msgsnd(msg, struct.pack("q", 3) + text, 3, 0))`,
    check: `
assert (shm, sem, msg) == (libc.shmget(71, 0, 0), libc.semget(72, 0, 0), libc.msgget(73, 0))
assert ctypes.string_at(at, 6) == b"shared" and called(libc.semctl(sem, 1, 12)) == 5
buffer = ctypes.create_string_buffer(64)
for text in (b"one", b"two"):
    assert called(libc.msgrcv(msg, buffer, 50, 0, 0)) == 3 and buffer.raw[:11] == struct.pack("q", 3) + text`,
  },
  {
    name: 'POSIX semaphores and shared memory; futexes on which processes wait',
    make: `
libc.sem_open.restype = ctypes.c_void_p
sem = ctypes.c_void_p(libc.sem_open(b"/kept", os.O_CREAT, 0o600, 2))
lock = mmap.mmap(-1, 4096)
base = ctypes.addressof(ctypes.c_char.from_buffer(lock))
called(libc.sem_init(ctypes.c_void_p(base), 1, 0))
told, tell = os.pipe()
waiter = os.fork()
if waiter == 0:
    os.write(tell, b"w")
    libc.sem_wait(ctypes.c_void_p(base))
    os._exit(7)
os.read(told, 1)
until(lambda: open(f"/proc/{waiter}/wchan").read() != "0" or field(waiter, "State")[0] == "S")`,
    check: `
value = ctypes.c_int()
called(libc.sem_getvalue(sem, ctypes.byref(value)))
assert value.value == 2 and os.path.exists("/dev/shm/sem.kept")
called(libc.sem_post(ctypes.c_void_p(base)))
assert os.waitstatus_to_exitcode(os.waitpid(waiter, 0)[1]) == 7`,
  },
  {
    name: 'robust mutexes in mapped files, held by a process and by a thread of it; whose owner dies, goes to the next',
    make: `
file = open(written("/root/mutexes", bytes(4096)), "r+b")
mutexes = mmap.mmap(file.fileno(), 4096)
base = ctypes.addressof(ctypes.c_char.from_buffer(mutexes))
def mutex(index): return ctypes.c_void_p(base + 256 * index)
attributes = ctypes.create_string_buffer(64)
assert libc.pthread_mutexattr_init(attributes) == 0
assert libc.pthread_mutexattr_setpshared(attributes, 1) == 0 and libc.pthread_mutexattr_setrobust(attributes, 1) == 0
for index in range(4): assert libc.pthread_mutex_init(mutex(index), attributes) == 0
def own(index):
    assert libc.pthread_mutex_lock(mutex(index)) == 0
def held():
    own(0), own(1)
    taken = threading.Event()
    def work():
        own(2), own(3), taken.set()
        while True: signal.pause()
    threading.Thread(target=work, daemon=True).start()
    taken.wait()
owner = child(held)
waited, done = os.pipe()
waiter = child(lambda: threading.Thread(target=lambda: os.write(done, b"%d" % libc.pthread_mutex_lock(mutex(3)))).start())
assert [libc.pthread_mutex_trylock(mutex(index)) for index in range(4)] == [errno.EBUSY] * 4`,
    check: `
assert [libc.pthread_mutex_trylock(mutex(index)) for index in range(4)] == [errno.EBUSY] * 4 and quiet(waited)
os.kill(owner, signal.SIGKILL)
for index in range(3):
    assert libc.pthread_mutex_lock(mutex(index)) == errno.EOWNERDEAD, index
    assert libc.pthread_mutex_consistent(mutex(index)) == 0 and libc.pthread_mutex_unlock(mutex(index)) == 0
assert os.read(waited, 9) == b"%d" % errno.EOWNERDEAD`,
  },
]
