/** The pages for users, pasted block after block by a reader who has a server, its key and `atoll`. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { globSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { buffer, text } from 'node:stream/consumers'
import { after, test } from 'node:test'
import { AtollServer } from './server.ts'

const projectDir = join(import.meta.dirname, '../..')
const server = await AtollServer.startForFile()

/** Those with blocks that a reader can paste as they stand. */
const pages = [
  ...globSync('docs/use/how-to/*.md', { cwd: projectDir }).toSorted(),
  ...['checkpoints', 'volumes', 'images', 'image-names', 'images-steps', 'sessions', 'api', 'organisations'].map(
    (page) => `docs/use/${page}.md`,
  ),
]

const programs = await sshPrograms()

/** One script of all blocks: a shell block is run, one of JavaScript is written to the file that its first line names. `…` marks an illustration. */
async function scriptOf(page: string): Promise<string> {
  const markdown = await readFile(join(projectDir, page), 'utf8')
  const blocks = [...markdown.matchAll(/^```(\w+)\n(.*?)^```$/gms)]
  const steps = blocks.flatMap(([, language = '', block = '']) => {
    if (language === 'sh' && !block.includes('…')) return [block]
    const name = /^\/\/ (\S+\.mjs)\n/.exec(block)?.[1]
    return name === undefined ? [] : [`cat > ${name} <<'END_OF_BLOCK'\n${block}END_OF_BLOCK\n`]
  })
  assert.ok(steps.length > 0, `${page} has blocks to run`)
  return steps.join('\n')
}

/** ssh takes the home of the user's account, whatever `HOME` says. */
async function sshPrograms(): Promise<string> {
  const folder = await mkdtemp('/var/tmp/atoll-docs-programs-')
  after(() => rm(folder, { recursive: true }))
  for (const name of ['ssh', 'scp']) {
    const script = `#!/bin/sh\nexec /usr/bin/${name} -F "$HOME/.ssh/config" "$@"\n`
    await writeFile(join(folder, name), script, { mode: 0o755 })
  }
  return folder
}

for (const page of pages) {
  test(`${page}: its blocks run as written, and leave nothing behind`, async () => {
    const dir = await mkdtemp('/var/tmp/atoll-docs-')
    try {
      // Without it an error of the API is none to the shell.
      await writeFile(join(dir, '.curlrc'), 'fail-with-body\nsilent\nshow-error\n')
      const child = spawn('bash', ['-eu', '-o', 'pipefail', '-c', await scriptOf(page)], {
        cwd: dir,
        stdio: ['ignore', 'pipe', 'pipe'],
        env: {
          PATH: `${programs}:${join(projectDir, 'bin')}:${join(projectDir, 'node_modules/.bin')}:${process.env['PATH']}`,
          HOME: dir,
          NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
          // `npm install` needs it where a proxy stands before the registry.
          NODE_EXTRA_CA_CERTS: process.env['NODE_EXTRA_CA_CERTS'],
          ATOLL_URL: server.url,
          ATOLL_API_KEY: server.key,
        },
      })
      const [stdout, stderr] = await Promise.all([buffer(child.stdout), text(child.stderr), once(child, 'close')])
      assert.equal(child.exitCode, 0, `${stdout.toString()}\n${stderr}`)
    } finally {
      await rm(dir, { recursive: true })
    }
    for (const path of ['/api/sandboxes', '/api/checkpoints', '/api/volumes', '/api/snapshots']) {
      assert.deepEqual(await server.json('GET', path), [], path)
    }
  })
}
