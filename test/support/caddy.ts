import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from './listen.ts'

const caddyfile = new URL('../../deploy/caddy/Caddyfile', import.meta.url)
const startMs = 20_000

/** Debian's Caddy with our Caddyfile, a certificate authority of its own, and nothing of the machine's. */
export class Caddy implements AsyncDisposable {
  readonly port: number
  /** Certificate of the authority. */
  readonly ca: string
  readonly #child: ChildProcess
  readonly #folder: string

  private constructor(port: number, ca: string, child: ChildProcess, folder: string) {
    this.port = port
    this.ca = ca
    this.#child = child
    this.#folder = folder
  }

  /** `upstream` is the address and port of Atoll; `port` is where TLS is served. */
  static async start(upstream: string, port: number): Promise<Caddy> {
    const folder = await mkdtemp(join(tmpdir(), 'atoll-caddy-'))
    const own = ['admin off', 'local_certs', 'skip_install_trust', 'default_bind 127.0.0.1', `https_port ${port}`]
    own.push(`http_port ${await freePort()}`)
    const config = (await readFile(caddyfile, 'utf8')).replace(/^\{$/m, `{\n${own.join('\n')}`)
    await writeFile(join(folder, 'Caddyfile'), config)
    const child = spawn('caddy', ['run', '--config', join(folder, 'Caddyfile'), '--adapter', 'caddyfile'], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: {
        PATH: process.env['PATH'],
        HOME: folder,
        XDG_DATA_HOME: folder,
        XDG_CONFIG_HOME: folder,
        ATOLL_UPSTREAM: upstream,
      },
    })
    let output = ''
    let failure: Error | undefined
    child.on('error', (error) => (failure = error))
    child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()))
    const deadline = Date.now() + startMs
    for (;;) {
      const ca = await readFile(join(folder, 'caddy/pki/authorities/local/root.crt'), 'utf8').catch(() => '')
      if (ca !== '' && output.includes('serving initial configuration')) return new Caddy(port, ca, child, folder)
      if (failure !== undefined || child.exitCode !== null || Date.now() > deadline) {
        child.kill('SIGKILL')
        await rm(folder, { recursive: true, force: true })
        throw new Error(`caddy (Debian's package of that name) did not start: ${failure?.message ?? output}`)
      }
      await sleep(50)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode === null) {
      const ended = once(this.#child, 'exit')
      this.#child.kill('SIGKILL')
      await ended
    }
    await rm(this.#folder, { recursive: true, force: true })
  }
}
