import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { askPreview } from './preview.ts'
import type { AtollServer } from './server.ts'
import { Terminal } from './sockets.ts'

const run = promisify(execFile)

/** The version is fixed because a test that follows a registry fails on other people's days. */
const vitePackage = 'vite@7.1.12'
const counterPort = 3000
const vitePort = 5173

/**
 * Programs whose state lives in memory, in one sandbox: a Node server that counts its requests, a Python prompt in a terminal,
 * a shell loop, Redis from Debian, and a Vite development server.
 */
export class Workload {
  readonly ptyId: string
  readonly #server: AtollServer

  private constructor(server: AtollServer, ptyId: string) {
    this.#server = server
    this.ptyId = ptyId
  }

  static async start(server: AtollServer, sandboxId: string): Promise<Workload> {
    const path = `/api/sandboxes/${sandboxId}`
    const background = (cmd: string, args: string[], cwd = '/') =>
      server.json('POST', `${path}/exec`, { cmd, args, cwd })
    const counter = `let n = 0; require('http').createServer((q, s) => s.end(String(++n))).listen(${counterPort}, '127.0.0.1')`
    await background('node', ['-e', counter])
    await background('sh', [
      '-c',
      'n=0; while true; do n=$((n+1)); echo $n > /tmp/n; mv /tmp/n /tmp/loop; sleep 0.02; done',
    ])

    await uploadPrograms(server, sandboxId)
    await background('/opt/redis/ld.so', ['--library-path', '/opt/redis', '/opt/redis/redis-server', '--save', ''])
    await background('node', ['node_modules/vite/bin/vite.js', '--port', String(vitePort)], '/opt/site')

    const pty = (await server.json('POST', `${path}/pty`, { shell: '/usr/bin/python3' })) as { sessionID: string }
    const workload = new Workload(server, pty.sessionID)
    await using terminal = await workload.terminal(sandboxId)
    terminal.type('x = 41\n')
    await terminal.shows('x = 41')
    await workload.ready(sandboxId)
    await workload.redis(sandboxId, 'SET', 'colour', 'coral')
    return workload
  }

  async ready(sandboxId: string): Promise<void> {
    while ((await this.#page(sandboxId, counterPort)).status !== 200) await sleep(100)
    while ((await this.#page(sandboxId, vitePort)).status !== 200) await sleep(100)
    while ((await this.redis(sandboxId, 'PING')) !== 'PONG') await sleep(100)
  }

  /** Asks the server that counts; each call raises the count by one. */
  async count(sandboxId: string): Promise<number> {
    return Number((await this.#page(sandboxId, counterPort)).body)
  }

  async loop(sandboxId: string): Promise<number> {
    return Number(await this.sh(sandboxId, 'cat /tmp/loop'))
  }

  async vite(sandboxId: string): Promise<string> {
    return (await this.#page(sandboxId, vitePort)).body
  }

  /** One command in Redis's inline protocol; the answer without its type mark. */
  async redis(sandboxId: string, ...words: string[]): Promise<string> {
    const script = `exec 3<>/dev/tcp/127.0.0.1/6379 && echo "$0" >&3 && read -r first <&3 && case $first in \\$*) read -r first <&3;; esac; echo "$first"`
    const answer = await this.sh(sandboxId, script, words.join(' '))
    return answer.replace(/^[+:]/, '').trim()
  }

  /** What the Python prompt says to an expression. */
  async python(sandboxId: string, expression: string, expected: string): Promise<void> {
    await using terminal = await this.terminal(sandboxId)
    terminal.type(`print("is", ${expression})\n`)
    await terminal.shows(`is ${expected}`)
  }

  async terminal(sandboxId: string): Promise<Terminal & AsyncDisposable> {
    const terminal = await Terminal.open(this.#server, sandboxId, this.ptyId)
    return Object.assign(terminal, { [Symbol.asyncDispose]: async () => terminal.close() })
  }

  async sh(sandboxId: string, script: string, ...args: string[]): Promise<string> {
    const command = { cmd: 'bash', args: ['-c', script, ...args] }
    const result = (await this.#server.json('POST', `/api/sandboxes/${sandboxId}/exec/run`, command)) as {
      stdout: string
    }
    return result.stdout
  }

  async #page(sandboxId: string, port: number) {
    return await askPreview(this.#server, `${sandboxId}-p${port}.preview.localhost`)
  }
}

/** Sandboxes here may have no way to a package server, so the programs come from this machine. */
async function uploadPrograms(server: AtollServer, sandboxId: string): Promise<void> {
  const dir = await mkdtemp('/var/tmp/atoll-workload-')
  try {
    await run('mkdir', ['-p', `${dir}/opt/redis`, `${dir}/opt/site`])
    // One binary that looks at the name by which it is called (Debian's package redis-tools).
    const { stdout } = await run('ldd', ['/usr/bin/redis-check-rdb'])
    const libraries = [...stdout.matchAll(/(\/\S+)/g)].map((match) => match[1] ?? '')
    await run('cp', ['-L', ...libraries, `${dir}/opt/redis`])
    await run('cp', ['-L', '/usr/bin/redis-check-rdb', `${dir}/opt/redis/redis-server`])
    const loader = libraries.find((library) => library.includes('/ld-linux'))
    await run('cp', ['-L', loader ?? '', `${dir}/opt/redis/ld.so`])
    const site = join(dir, 'opt/site')
    await writeFile(join(site, 'package.json'), '{"private": true, "type": "module"}')
    await run('npm', ['install', '--no-audit', '--no-fund', '--prefix', site, vitePackage])
    await writeFile(
      join(site, 'index.html'),
      '<!doctype html><title>Served by Vite</title><script type="module" src="/main.js"></script>',
    )
    await writeFile(join(site, 'main.js'), 'document.body.append("hello")')
    await run('tar', ['--create', '--gzip', '--file', `${dir}/all.tgz`, '--directory', dir, 'opt'])
    const body = await readFile(`${dir}/all.tgz`)
    const upload = await server.fetch(`/api/sandboxes/${sandboxId}/files?path=/tmp/all.tgz`, { method: 'PUT', body })
    if (!upload.ok) throw new Error(await upload.text())
    const unpack = { cmd: 'tar', args: ['--extract', '--gzip', '--file', '/tmp/all.tgz', '--directory', '/'] }
    await server.json('POST', `/api/sandboxes/${sandboxId}/exec/run`, unpack)
  } finally {
    await rm(dir, { recursive: true })
  }
}
