/** Trees of files between real sandboxes: over the layers of an overlay, in a user namespace, with and without programs of their own. */
import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { describe, test } from 'node:test'
import type { Guest, PackEntry, PackOptions, UnpackOptions } from '../../src/sandbox/ports/guest.ts'
import { roundsOf } from '../../src/lib/testing/thorough.ts'
import { describeTree, makeTree } from '../../src/runtime/guest-client/testing/trees.ts'
import { tarOf } from '../support/oci-image.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, remove, succeed } from './driver-shell.ts'

const quoted = (text: string) => `'${text.replaceAll("'", String.raw`'\''`)}'`
/** Runs a program of Python in a folder. */
const python = (guest: Guest, folder: string, program: string) =>
  succeed(guest, `mkdir -p ${folder} && cd ${folder} && python3 -c ${quoted(program)}`)
const digestOf = async (guest: Guest, folder: string) =>
  (await succeed(guest, `cd ${folder} && python3 -c ${quoted(describeTree)} | tail -n +2 | sha256sum`)).trim()
const pack = async (guest: Guest, entries: PackEntry[], options?: PackOptions) =>
  Buffer.concat(await (await guest.pack(entries, options)).toArray())
const unpack = (guest: Guest, tar: Uint8Array, options: UnpackOptions) => guest.unpack(Readable.from([tar]), options)

describe('trees of files on runc', () => {
  const runc = useRunc({ subnet: '10.231.224.0/20' })
  const { guest } = runc

  test('trees: one arrives in another sandbox as it was', async () => {
    const [from, to] = await Promise.all([create(runc.driver), create(runc.driver)])
    await python(guest(from), '/srv/tree', makeTree)
    const tar = await guest(from).pack([{ path: '/srv/tree', name: '' }])
    const report = await guest(to).unpack(tar, { target: '/copy/of/it' })
    assert.deepEqual([report.devices, report.attributes, report.hidden], [0, 0, 0])
    const program = (folder: string) => succeed(guest(to), `cd ${folder} && python3 -c ${quoted(describeTree)}`)
    const expected = await succeed(guest(from), `cd /srv/tree && python3 -c ${quoted(describeTree)}`)
    // The first line is the folder itself, which is not part of what it holds.
    assert.deepEqual((await program('/copy/of/it')).split('\n').slice(1), expected.split('\n').slice(1))
    assert.match(expected, /security\.capability/)
    await remove(runc.driver, from, to)
  })

  test('trees: files of lower layers are replaced, linked and merged into', async () => {
    const id = await create(runc.driver)
    const old = await succeed(guest(id), 'stat -c %a /usr/share; ls /usr/share | wc -l; cat /etc/hostname')
    const tar = tarOf([
      { path: 'usr/share', type: 'folder', mode: 0o751 },
      { path: 'usr/share/new', content: 'new' },
      { path: 'etc/debian_version', content: 'replaced' },
      { path: 'etc/again', type: 'hardLink', target: 'etc/passwd' },
      { path: 'etc/hostname', content: 'hidden' },
      { path: 'proc/x', content: 'hidden' },
      { path: '.atoll/x', content: 'hidden' },
    ])
    const { hidden } = await unpack(guest(id), tar, { target: '/' })
    assert.equal(hidden, 3)
    const [mode = '', count = '', name = ''] = old.split('\n')
    assert.notEqual(mode, '751')
    assert.deepEqual(
      (await succeed(guest(id), 'stat -c %a /usr/share; ls /usr/share | wc -l; cat /etc/hostname'))
        .split('\n')
        .slice(0, 3),
      ['751', String(Number(count) + 1), name],
    )
    assert.equal(
      await succeed(guest(id), 'cat /etc/debian_version; cmp /etc/passwd /etc/again; stat -c %h /etc/again'),
      'replaced2',
    )
    await remove(runc.driver, id)
  })

  test('trees: the whole disk of one is what another without programs gets', async () => {
    const [from, to] = await Promise.all([create(runc.driver), create(runc.driver, { image: 'scratch' })])
    const tar = await pack(guest(from), [
      { path: '/usr/bin', name: 'usr/bin' },
      { path: '/etc', name: 'etc' },
    ])
    assert.equal((await unpack(guest(to), tar, { target: '/', owner: 'root:root', mode: 'u+rX' })).hidden, 0)
    // Its owners come from the files that have just arrived.
    await unpack(guest(to), tarOf([{ path: 'x', content: 'x' }]), { target: '/home/new', owner: 'nobody' })
    const { uid, gid } = await guest(to).inspect('/home/new/x')
    assert.deepEqual([uid, gid], [65_534, 65_534])
    const whole = await pack(guest(to), [{ path: '/', name: '' }])
    await unpack(guest(from), whole, { target: '/whole' })
    const found = await succeed(
      guest(from),
      'cd /whole; ls -A; ls -A dev proc sys; ls -A etc | grep -c .; ls usr/bin | wc -l',
    )
    assert.doesNotMatch(found, /\.atoll|null|self|kernel|resolv/)
    assert.match(found, /etc/)
    await remove(runc.driver, from, to)
  })

  test('trees: tens of thousands of files take little memory', async (t) => {
    const [from, to] = await Promise.all([
      create(runc.driver, { diskMb: 1500, memoryMb: 512 }),
      create(runc.driver, { diskMb: 1500, memoryMb: 512 }),
    ])
    const perFolder = roundsOf(300, 1000)
    const make = `
import os
for top in range(100):
    os.mkdir(str(top))
    for name in range(${perFolder}): open('%d/%d' % (top, name), 'w').write('content of %d' % name)`
    await python(guest(from), '/many', make)
    const begin = performance.now()
    const tar = await guest(from).pack([{ path: '/many', name: '' }])
    const { files } = await guest(to).unpack(tar, { target: '/many' })
    t.diagnostic(`${files} entries: ${Math.round(performance.now() - begin)} ms`)
    assert.equal(files, perFolder * 100 + 101)
    assert.equal(await digestOf(guest(to), '/many'), await digestOf(guest(from), '/many'))
    for (const id of [from, to]) {
      const peak = Number(await succeed(guest(id), `awk '/VmHWM/ { print $2 }' /proc/1/status`))
      t.diagnostic(`peak of the guest: ${peak} KiB`)
      assert.ok(peak < 5 * 1024, `${peak} KiB`)
    }
    await remove(runc.driver, from, to)
  })
})
