/**
 * LMDB over restores of memory. Its writers exclude each other by a robust mutex in the mapped lock file, which the kernel releases
 * for an owner that dies, by its thread id. POSIX locks tell who has the file open, and whether a reader lives.
 */
import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { before, describe, test } from 'node:test'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import { fileOfPackage } from '../support/debian-package.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, slowness, succeed } from './driver-shell.ts'
import { ask, lineAt, linesOf, overRestores, start, waysOfMemory } from './over-restores.ts'

const endWaitMs = 60_000 * slowness
const library = '/root/liblmdb.so'
/** Number of the system call in which a process waits for a mutex. */
const futexCall = process.arch === 'x64' ? '202' : '98'

/** Has a database open; each line is a command and its argument, each answer one line. The first one is the process id. */
const program = `
import ctypes, os, sys
lmdb = ctypes.CDLL("${library}")
lmdb.mdb_strerror.restype = ctypes.c_char_p
NOSUBDIR, RDONLY, NEXT = 0x4000, 0x20000, 8
class Value(ctypes.Structure): _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_void_p)]
def done(result):
    if result: raise OSError(lmdb.mdb_strerror(result).decode())
def value(text): return ctypes.byref(Value(len(text), ctypes.cast(ctypes.create_string_buffer(text.encode()), ctypes.c_void_p)))
def begun(flags):
    txn = ctypes.c_void_p()
    done(lmdb.mdb_txn_begin(env, None, flags, ctypes.byref(txn)))
    return txn
def keys_in(txn):
    cursor, key, data, found = ctypes.c_void_p(), Value(), Value(), []
    done(lmdb.mdb_cursor_open(txn, 1, ctypes.byref(cursor)))
    while lmdb.mdb_cursor_get(cursor, ctypes.byref(key), ctypes.byref(data), NEXT) == 0:
        found.append(ctypes.string_at(key.data, key.size).decode())
    lmdb.mdb_cursor_close(cursor)
    return " ".join(found)
def begin(name):
    global writing
    writing = begun(0)
    done(lmdb.mdb_put(writing, 1, value(name), value(name), 0))
    return "begun"
def commit(_):
    done(lmdb.mdb_txn_commit(writing))
    return "committed"
def write(name):
    begin(name)
    return commit(name)
def read(_):
    global reading
    reading = begun(RDONLY)
    return keys_in(reading)
def again(_): return keys_in(reading)
def keys(_):
    txn = begun(RDONLY)
    found = keys_in(txn)
    lmdb.mdb_txn_abort(txn)
    return found
def dead_readers(_):
    count = ctypes.c_int()
    done(lmdb.mdb_reader_check(env, ctypes.byref(count)))
    return count.value
env = ctypes.c_void_p()
done(lmdb.mdb_env_create(ctypes.byref(env)))
done(lmdb.mdb_env_open(env, f"/root/{sys.argv[1]}.mdb".encode(), NOSUBDIR, 0o600))
txn = begun(RDONLY)
done(lmdb.mdb_dbi_open(txn, None, 0, ctypes.byref(ctypes.c_uint())))
done(lmdb.mdb_txn_commit(txn))
print(os.getpid(), flush=True)
for line in sys.stdin:
    name, _, argument = line.strip().partition(" ")
    print(globals()[name](argument), flush=True)`

/** The databases, by what becomes of the transaction that is open over the restores. */
const endings = ['committed', 'died'] as const

/** Whether a program waits for a mutex; else what it has printed as its line of that index. */
async function waitsOrSays(guest: Guest, id: string, index: number): Promise<string> {
  const pid = await lineAt(guest, id, 0)
  for (;;) {
    const line = (await linesOf(guest, id))[index]
    if (line !== undefined) return line
    if ((await succeed(guest, `cut -d' ' -f1 /proc/${pid}/syscall`)) === futexCall) return 'waits'
  }
}

async function sendWrite(guest: Guest, id: string): Promise<void> {
  const attachment = await guest.attach(id)
  await attachment.write(Buffer.from(`write ${id.split('-')[0]}\n`))
  attachment.close()
}

async function kill(guest: Guest, id: string): Promise<void> {
  await guest.signal(id, 9)
  assert.equal((await guest.process(id, endWaitMs)).running, false)
}

for (const [how, lazyMemoryBytesMin] of waysOfMemory) {
  describe(`LMDB, memory ${how}`, () => {
    const runc = useRunc({ lazyMemoryBytesMin })
    const { guest } = runc
    let liblmdb: Buffer
    before(async () => {
      liblmdb = await fileOfPackage('liblmdb0', '*/liblmdb.so.0.*')
    })

    test('LMDB: a writer waits until the other commits or dies, and readers keep what they see', async () => {
      const source = await create(runc.driver)
      await guest(source).writeFile(library, Readable.from([liblmdb]))
      for (const ending of endings) {
        for (const role of ['owner', 'waiter', 'reader'])
          await start(guest(source), `${role}-${ending}`, program, ending)
        assert.equal(await ask(guest(source), `owner-${ending}`, 'write first'), 'committed')
        assert.equal(await ask(guest(source), `reader-${ending}`, 'read'), 'first')
        assert.equal(await ask(guest(source), `owner-${ending}`, 'begin owner'), 'begun')
        await sendWrite(guest(source), `waiter-${ending}`)
      }
      const excluded = async (id: string, where: string) => {
        for (const ending of endings) {
          assert.equal(await waitsOrSays(guest(id), `waiter-${ending}`, 1), 'waits', `${ending}, ${where}`)
          const rival = `rival-${freshId('sb')}`
          await start(guest(id), rival, program, ending)
          assert.equal(await ask(guest(id), rival, 'dead_readers'), '0', `${ending}, ${where}`)
          await sendWrite(guest(id), rival)
          assert.equal(await waitsOrSays(guest(id), rival, 2), 'waits', `${ending}, ${where}`)
          await kill(guest(id), rival)
          await guest(id).release(rival)
          assert.equal(await ask(guest(id), `owner-${ending}`, 'dead_readers'), '1', `${ending}, ${where}`)
        }
      }
      await overRestores(runc, source, excluded, async (id, where) => {
        assert.equal(await ask(guest(id), 'owner-committed', 'commit'), 'committed', where)
        await kill(guest(id), 'owner-died')
        for (const ending of endings) {
          assert.equal(await lineAt(guest(id), `waiter-${ending}`, 1), 'committed', `${ending}, ${where}`)
          const written = ending === 'committed' ? 'first owner waiter' : 'first waiter'
          assert.equal(await ask(guest(id), `waiter-${ending}`, 'keys'), written, `${ending}, ${where}`)
          assert.equal(await ask(guest(id), `reader-${ending}`, 'again'), 'first', `${ending}, ${where}`)
        }
      })
    })
  })
}
