import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { askPreview } from './preview.ts'
import { AtollServer } from './server.ts'

const readmePath = join(import.meta.dirname, '../../README.md')

/** The shell blocks of a chapter of the README, in order. */
async function shellBlocks(heading: string): Promise<string[]> {
  const readme = await readFile(readmePath, 'utf8')
  const chapter = readme.split(/^## /m).find((part) => part.startsWith(`${heading}\n`))
  assert.ok(chapter, `the README has a chapter "${heading}"`)
  return [...chapter.matchAll(/^```sh\n(.*?)^```$/gms)].map((match) => match[1] ?? '')
}

/** Runs a block in bash until it ends, or until its output holds `until`. */
async function runBlock(script: string, env: Record<string, string>, until?: string): Promise<string> {
  const shell = spawn('bash', ['-euc', script], {
    env: { PATH: process.env['PATH'], ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true,
  })
  let output = ''
  for await (const chunk of shell.stdout) {
    output += String(chunk)
    if (until !== undefined && output.includes(until)) break
  }
  // Its whole group, since what still runs is curl.
  if (until !== undefined && shell.pid !== undefined) process.kill(-shell.pid)
  return output
}

test('the two-minute story of the README works as written', async () => {
  await using server = await AtollServer.start()
  const [exports, ...blocks] = await shellBlocks('Two minutes')
  assert.match(exports ?? '', /export ATOLL_API_KEY=/)
  assert.equal(blocks.length, 3, 'watch, follow up, delete')
  const env: Record<string, string> = { ATOLL_API_KEY: server.key, ATOLL_URL: server.url }
  // The first block exports what a reader has to fill in; its curl runs with this server's values.
  const creation = (exports ?? '').replace(/^export .*$/gm, '')
  const session = JSON.parse(await runBlock(creation, env)) as { id: string; previewUrl: string }
  env['SESSION_ID'] = session.id
  const [watch = '', followUp = '', remove = ''] = blocks

  const events = await runBlock(watch, env, '"turn_complete"')
  for (const type of ['ready', 'configured', 'assistant', 'tool_use_summary', 'result']) {
    assert.ok(events.includes(`"type":"${type}"`), type)
  }
  const host = new URL(session.previewUrl).host
  assert.match((await askPreview(server, host)).body, /coral reefs/i)

  await runBlock(followUp, env)
  const seen = Number([...events.matchAll(/^id: (\d+)$/gm)].at(-1)?.[1])
  await runBlock(`${watch.trim()}'&after=${seen}'`, env, '"turn_complete"')
  assert.match((await askPreview(server, host)).body, /sea turtles/i)

  assert.deepEqual(JSON.parse(await runBlock(remove, env)), { id: session.id, status: 'ended' })
})
