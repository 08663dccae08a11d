import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { endLeftGroups, noteGroup } from './process-groups.ts'

const folder = mkdtempSync(join(tmpdir(), 'atoll-groups-'))
after(() => rmSync(folder, { recursive: true }))
process.env['TMPDIR'] = folder
const notes = join(folder, 'atoll-agent/groups')

test('a group that a dead process has noted is ended, one of a living process stays', async () => {
  await using left = group()
  await using own = group()
  noteGroup(left.pid)
  // As if by a process that has died: nothing has this start.
  const [name = ''] = readdirSync(notes)
  const note = JSON.parse(readFileSync(join(notes, name), 'utf8')) as { owner: { start: string } }
  writeFileSync(join(notes, name), JSON.stringify({ ...note, owner: { ...note.owner, start: '1' } }))
  const forget = noteGroup(own.pid)
  endLeftGroups()
  assert.equal((await left.exited)[1], 'SIGKILL')
  assert.equal(readdirSync(notes).length, 1)
  forget()
  assert.deepEqual(readdirSync(notes), [])
})

test('where nothing can be noted a command still runs', async () => {
  await using child = group()
  process.env['TMPDIR'] = join(folder, 'file')
  writeFileSync(join(folder, 'file'), '')
  try {
    noteGroup(child.pid)()
    endLeftGroups()
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
