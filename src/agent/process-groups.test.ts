import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { killOrphanGroups, recordGroup } from './process-groups.ts'

const folder = mkdtempSync(join(tmpdir(), 'atoll-groups-'))
after(() => rmSync(folder, { recursive: true }))
process.env['TMPDIR'] = folder
const notes = join(folder, 'atoll-agent/groups')

test('process groups: the group of a dead owner is killed, the group of a living owner stays', async () => {
  await using left = group()
  await using own = group()
  recordGroup(left.pid)
  // No process has this start, so the owner looks dead.
  const [name = ''] = readdirSync(notes)
  const note = JSON.parse(readFileSync(join(notes, name), 'utf8')) as { owner: { start: string } }
  writeFileSync(join(notes, name), JSON.stringify({ ...note, owner: { ...note.owner, start: '1' } }))
  const forget = recordGroup(own.pid)
  killOrphanGroups()
  assert.equal((await left.exited)[1], 'SIGKILL')
  assert.equal(readdirSync(notes).length, 1)
  forget()
  assert.deepEqual(readdirSync(notes), [])
})

test('process groups: a record that cannot be written stops no command', async () => {
  await using child = group()
  process.env['TMPDIR'] = join(folder, 'file')
  writeFileSync(join(folder, 'file'), '')
  try {
    recordGroup(child.pid)()
    killOrphanGroups()
  } finally {
    process.env['TMPDIR'] = folder
  }
})

function group() {
  const child = spawn('sleep', ['60'], { detached: true, stdio: 'ignore' })
  const exited = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>
  return {
    pid: child.pid,
    exited,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await exited
    },
  }
}
