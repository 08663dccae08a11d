import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { type HostState, hostState } from './host-state.ts'
import { AtollServer } from './server.ts'
import { settled } from './settled.ts'

const run = promisify(execFile)
/** Ten in every run of the tests; `npm run test:soak` asks for two hundred. */
const rounds = Number(process.env['ATOLL_SOAK_ROUNDS'] || 10)

interface Started {
  sandboxID: string
}

/** The host, the rules in the kernel, and what lies in the data directory beside the database's own files. */
async function everything(server: AtollServer): Promise<HostState & { rules: string[]; files: string[] }> {
  const rules = (await run('nft', ['list', 'ruleset'])).stdout.split('\n').filter((line) => !line.includes('expires'))
  const names = await readdir(server.dataDir, { recursive: true })
  return { ...(await hostState()), rules, files: names.filter((name) => !name.startsWith('db')).toSorted() }
}

test(`after ${rounds} rounds of create, checkpoint, fork and delete the machine is as before`, async () => {
  await using server = await AtollServer.start({ env: { ATOLL_REQUESTS_PER_SECOND: '1000' } })
  const round = async (kind: 'full' | 'disk_only') => {
    const { sandboxID: source } = (await server.json('POST', '/api/sandboxes', { timeout: 0 })) as Started
    const program = { cmd: 'sh', args: ['-c', 'while true; do date > /tmp/now; sleep 0.1; done'] }
    await server.json('POST', `/api/sandboxes/${source}/exec`, program)
    const path = `/api/sandboxes/${source}/checkpoints`
    const { id } = (await server.json('POST', path, { name: 'round', kind })) as { id: string }
    const forks = (await server.json('POST', `/api/sandboxes/from-checkpoint/${id}`, { count: 2 })) as {
      sandboxes: Started[]
    }
    const [first, second] = forks.sandboxes.map((started) => started.sandboxID)
    await server.json('POST', `/api/sandboxes/${first}/hibernate`, {})
    await server.json('POST', `/api/sandboxes/${first}/exec/run`, { cmd: 'true' })
    await server.json('DELETE', `/api/sandboxes/${source}`)
    await server.json('DELETE', `${path}/${id}`)
    await Promise.all([first, second].map((fork) => server.json('DELETE', `/api/sandboxes/${fork}`)))
  }
  // The first round makes what stays for good: modules that the kernel loads, sets of rules that fill at first use.
  await round('full')
  const before = await everything(server)
  for (let count = 0; count < rounds; count += 1) await round(count % 2 === 0 ? 'full' : 'disk_only')
  assert.deepEqual(await settled(() => everything(server), before), before)
})
