/** Locks of files over restores of memory: a restore that drops one lets two processes write where each believes to be alone. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { useRunc } from './driver-runc-host.ts'
import { create, python, sendLine, slowness } from './driver-shell.ts'
import { ask, overRestores, start, waysOfMemory } from './over-restores.ts'

const rowsPerTransaction = 300
const endWaitMs = 60_000 * slowness

/** How a process has the file mapped whose locks it holds; CRIU's restorer closes a descriptor of its own for each mapping. */
const mappings = ['none', 'shared', 'private', 'closed', 'executable'] as const

/**
 * One process for each mapping and kind of locks, and what each holds: a POSIX lock as [kind, first byte, bytes], where 0 bytes are
 * all up to the end of any file. `pair`: two processes that read-lock the same bytes and write-lock others.
 */
const held = {
  write: [['w', 0, 0]],
  read: [['r', 0, 0]],
  ranges: [
    ['w', 10, 5],
    ['r', 20, 10],
    ['w', 40, 1],
    ['w', 1_073_741_824, 510],
  ],
} as const

/** Takes the locks of {@link held}, of OFD and flock; a line ends all of its processes, and then itself. */
const holder = `
import ctypes, fcntl, json, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
held, mappings = json.loads(sys.argv[1]), json.loads(sys.argv[2])
kinds = {"r": fcntl.F_RDLCK, "w": fcntl.F_WRLCK}
OFD_SETLK = 37

def flock_of(kind, start, size):
    return struct.pack("hhqqi4x", kind, 0, start, size, 0)

def mapped(path, how):
    if how == "none": return
    fd = os.open(path, os.O_RDWR)
    flags = {"shared": mmap.MAP_SHARED, "closed": mmap.MAP_SHARED}.get(how, mmap.MAP_PRIVATE)
    prot = mmap.PROT_READ | (mmap.PROT_EXEC if how == "executable" else mmap.PROT_WRITE)
    assert libc.mmap(None, 8192, prot, flags, fd, 0) not in (None, ctypes.c_void_p(-1).value)
    if how == "closed": os.close(fd)

def await_children():
    try:
        while True: os.wait()
    except ChildProcessError: pass

def start(path, how, take):
    told, tell = os.pipe()
    if os.fork() == 0:
        os.close(go)
        fd = os.open(path, os.O_RDWR)
        mapped(path, how)
        take(fd)
        os.write(tell, b".")
        os.read(wait, 1)
        await_children()
        os._exit(0)
    assert os.read(told, 1) == b"."
    os.close(told)
    os.close(tell)

def posix(locks, command=fcntl.F_SETLK):
    def take(fd):
        for kind, first, size in locks: fcntl.fcntl(fd, command, flock_of(kinds[kind], first, size))
    return take

def inherited(fd):
    "The descriptor of the mapping is that of the parent, which has mapped the file too."
    posix([["w", 5, 5]])(fd)
    if os.fork() == 0:
        posix([["w", 15, 5]])(fd)
        os.write(grandchild, b".")
        os.read(wait, 1)
        os._exit(0)
    assert os.read(grandparent, 1) == b"."

os.makedirs("/root/locks")
wait, go = os.pipe()
grandparent, grandchild = os.pipe()
for how in mappings:
    def path(name):
        path = f"/root/locks/{name}-{how}"
        if not os.path.exists(path):
            with open(path, "wb") as file: file.write(bytes(8192))
        return path
    for name, locks in held.items(): start(path(name), how, posix(locks))
    for first in (30, 31): start(path("pair"), how, posix([["r", 0, 20], ["w", first, 1]]))
    start(path("inherited"), how, inherited)
    start(path("ofd"), how, posix([["w", 10, 5], ["r", 20, 5]], OFD_SETLK))
    start(path("flock"), how, lambda fd: fcntl.flock(fd, fcntl.LOCK_EX))
    start(path("flock-shared"), how, lambda fd: fcntl.flock(fd, fcntl.LOCK_SH))
print("ready", flush=True)
sys.stdin.readline()
os.close(go)
await_children()`

/** Prints a line for each byte that another process cannot lock: who has it, unless several readers may, and the range. */
const prober = `
import fcntl, os, struct
kinds = {fcntl.F_RDLCK: "read", fcntl.F_WRLCK: "write"}
for name in sorted(os.listdir("/root/locks")):
    fd = os.open(f"/root/locks/{name}", os.O_RDWR)
    for first in [0, 5, 9, 10, 14, 15, 19, 20, 29, 30, 31, 40, 41, 1073741823, 1073741824, 1073742333, 1073742334]:
        for wanted in kinds:
            answer = fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack("hhqqi4x", wanted, 0, first, 1, 0))
            found, _, start, size, pid = struct.unpack("hhqqi4x", answer)
            if found == fcntl.F_UNLCK: continue
            who = pid if found == fcntl.F_WRLCK else "any"
            print(f"{name}: {kinds[wanted]} {first} meets {kinds[found]} {start} {size} of {who}")
    for kind in (fcntl.LOCK_SH, fcntl.LOCK_EX):
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            fcntl.flock(fd, fcntl.LOCK_UN)
        except BlockingIOError: print(f"{name}: flock {kind}")`

/**
 * Has a database in a journal mode open, with a reader whose transaction began before; each line is a command, each answer one line.
 */
const writer = `
import itertools, sqlite3, sys
path, mode = f"/root/{sys.argv[1]}.db", sys.argv[1]
def opened():
    return sqlite3.connect(path, isolation_level=None, timeout=0)
database = opened()
database.execute(f"pragma journal_mode={mode}")
database.execute("create table if not exists t(who text, n int)")
for line in itertools.chain(["begin"], sys.stdin):
    try:
        if line.strip() == "begin":
            database.execute("begin immediate")
            database.executemany("insert into t values('a', ?)", ((n,) for n in range(${rowsPerTransaction})))
        else: database.execute(line)
        print("ok", flush=True)
    except sqlite3.Error as error: print(error, flush=True)`

const reader = `
import sqlite3, sys
database = sqlite3.connect(f"/root/{sys.argv[1]}.db", isolation_level=None, timeout=0)
def count(): return database.execute("select count(*) from t").fetchone()[0]
database.execute("begin")
print(count(), flush=True)
for line in sys.stdin:
    if line.strip() == "again": database.execute("commit"); database.execute("begin")
    print(count(), flush=True)`

const rival = (mode: string) => `
import sqlite3
database = sqlite3.connect("/root/${mode}.db", isolation_level=None, timeout=0)
try:
    database.execute("begin immediate")
    database.executemany("insert into t values('b', ?)", ((n,) for n in range(${rowsPerTransaction})))
    database.execute("commit")
    print("ok")
except sqlite3.Error as error: print(error)`

const rowsOf = (mode: string) => `
import sqlite3
database = sqlite3.connect("/root/${mode}.db")
print(database.execute("select count(*) from t where who = 'a'").fetchone()[0],
      database.execute("select count(*) from t where who = 'b'").fetchone()[0],
      database.execute("pragma integrity_check").fetchone()[0])`

const modes = ['wal', 'delete', 'persist'] as const

for (const [how, lazyMemoryBytesMin] of waysOfMemory) {
  describe(`locks of files, memory ${how}`, () => {
    const runc = useRunc({ lazyMemoryBytesMin })
    const { guest } = runc
    const probe = async (id: string) => (await python(guest(id), prober)).split('\n')

    test('locks: POSIX, OFD and flock ones of mapped and unmapped files stay with the processes that hold them', async () => {
      const source = await create(runc.driver)
      await start(guest(source), 'holder', holder, JSON.stringify(held), JSON.stringify(mappings))
      const before = await probe(source)
      assert.equal(new Set(before.map((line) => line.split(':')[0])).size, 8 * mappings.length)
      const same = async (id: string, where: string) => assert.deepEqual(await probe(id), before, where)
      await overRestores(runc, source, same, async (id, where) => {
        await sendLine(guest(id), 'holder')
        assert.equal((await guest(id).process('holder', endWaitMs)).running, false, where)
        assert.deepEqual(await probe(id), [''], where)
      })
    })

    test('SQLite: of a transaction that is open over a restore no row is lost, nor of those that come after it', async () => {
      const source = await create(runc.driver)
      for (const mode of modes) {
        await start(guest(source), `writer-${mode}`, writer, mode)
        assert.equal(await ask(guest(source), `writer-${mode}`, 'commit'), 'ok')
        await start(guest(source), `reader-${mode}`, reader, mode)
        assert.equal(await ask(guest(source), `writer-${mode}`, 'begin'), 'ok')
      }
      const locked = async (id: string, where: string) => {
        for (const mode of modes) {
          assert.equal(await python(guest(id), rival(mode)), 'database is locked', `${mode}, ${where}`)
          assert.equal(await ask(guest(id), `reader-${mode}`, 'count'), String(rowsPerTransaction), `${mode}, ${where}`)
        }
      }
      await overRestores(runc, source, locked, async (id, where) => {
        for (const mode of modes) {
          if (mode !== 'wal') {
            // The writer of a rollback journal waits for readers, of which this one is the last.
            assert.equal(await ask(guest(id), `writer-${mode}`, 'commit'), 'database is locked', `${mode}, ${where}`)
            await guest(id).signal(`reader-${mode}`, 9)
            assert.equal((await guest(id).process(`reader-${mode}`, endWaitMs)).running, false)
          }
          assert.equal(await ask(guest(id), `writer-${mode}`, 'commit'), 'ok', `${mode}, ${where}`)
          assert.equal(await python(guest(id), rival(mode)), 'ok', `${mode}, ${where}`)
          const rows = `${2 * rowsPerTransaction} ${rowsPerTransaction} ok`
          assert.equal(await python(guest(id), rowsOf(mode)), rows, `${mode}, ${where}`)
        }
        assert.equal(await ask(guest(id), 'reader-wal', 'count'), String(rowsPerTransaction), where)
        assert.equal(await ask(guest(id), 'reader-wal', 'again'), String(3 * rowsPerTransaction), where)
      })
    })
  })
}
