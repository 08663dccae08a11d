/** A sandbox with rules and secrets, seen from outside it and from inside. */
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { eventually } from '../../../src/lib/testing/eventually.ts'
import { startSandbox } from '../sandbox-calls.ts'
import type { AtollServer } from '../server.ts'
import type { EgressWorld } from './world.ts'

export interface LogEntry {
  number: number
  decision: 'allowed' | 'denied' | 'would_deny' | 'failed'
  protocol: string
  host?: string
  address?: string
  port: number
  method?: string
  path?: string
  status?: number
  rule?: string
  reason?: string
  sentBytes: number
  receivedBytes: number
  secrets?: string[]
}

export interface Ended {
  exitCode: number
  stdout: string
  stderr: string
}

/** Before a command that shall go without the proxy of its environment. */
export const withoutProxy = 'env -u HTTP_PROXY -u HTTPS_PROXY -u http_proxy -u https_proxy -u NO_PROXY -u no_proxy'

const probe = await readFile(join(import.meta.dirname, 'probe.py'))
const commandSeconds = 300

export class Inside {
  readonly id: string
  readonly server: AtollServer
  readonly world: EgressWorld

  constructor(server: AtollServer, world: EgressWorld, id: string) {
    this.server = server
    this.world = world
    this.id = id
  }

  /** With the probe, and the root of the world in a file that no program reads by itself. */
  static async make(server: AtollServer, world: EgressWorld, body: object): Promise<Inside> {
    const inside = new Inside(server, world, await startSandbox(server, body))
    await inside.write('/root/probe.py', probe)
    await inside.write('/root/world.pem', Buffer.from(world.rootPem))
    return inside
  }

  async write(path: string, bytes: Buffer): Promise<void> {
    await this.run(`echo ${bytes.toString('base64')} | base64 -d >${path}`)
  }

  /** Of any size. */
  async upload(path: string, bytes: Buffer): Promise<void> {
    const answer = await this.server.fetch(`/api/sandboxes/${this.id}/files?path=${encodeURIComponent(path)}`, {
      method: 'PUT',
      body: new Uint8Array(bytes),
    })
    assert.ok(answer.ok, await answer.text())
  }

  async run(script: string, envs: Record<string, string> = {}): Promise<Ended> {
    const body = { cmd: 'bash', args: ['-c', script], envs, timeout: commandSeconds }
    return (await this.server.json('POST', `/api/sandboxes/${this.id}/exec/run`, body)) as Ended
  }

  /** What a command prints; it must succeed. */
  async sh(script: string): Promise<string> {
    const { exitCode, stdout, stderr } = await this.run(script)
    assert.equal(exitCode, 0, `${script}\n${stdout}\n${stderr}`)
    return stdout.trim()
  }

  /** What a program prints that has all of the probe; what it throws is printed too. `anywhere` is an address outside that answers. */
  async python(program: string): Promise<string> {
    const head = `from probe import *\nanywhere = '${this.world.second}'\n`
    await this.write('/root/program.py', Buffer.from(`${head}${program}\n`))
    const { stdout, stderr } = await this.run('cd /root && python3 program.py')
    return `${stdout}${stderr}`.trim()
  }

  async node(program: string, envs: Record<string, string> = {}): Promise<string> {
    await this.write('/root/program.mjs', Buffer.from(program))
    const { stdout, stderr } = await this.run('cd /root && node --no-warnings program.mjs', envs)
    return `${stdout}${stderr}`.trim()
  }

  /** The variable of a secret, as a command sees it. */
  async variable(name: string): Promise<string> {
    return await this.sh(`printenv ${name}`)
  }

  /** The last entries of its log. */
  async log(): Promise<LogEntry[]> {
    const path = `/api/sandboxes/${this.id}/egress/log?after=newest&limit=1000`
    return ((await this.server.json('GET', path)) as { data: LogEntry[] }).data
  }

  /** Waits until the log has such an entry. */
  async logs(isWanted: (entry: LogEntry) => boolean, what = 'an entry of the egress log'): Promise<LogEntry> {
    return await eventually(
      async () => {
        const all = await this.log()
        const found = all.find(isWanted)
        if (found === undefined) throw new Error(`not in the log: ${JSON.stringify(all.slice(-5))}`)
        return found
      },
      { what },
    )
  }

  async setEgress(egress: object): Promise<void> {
    await this.server.json('PUT', `/api/sandboxes/${this.id}/egress`, egress)
  }

  /** Waits for an event of this sandbox. */
  async event(type: string, isWanted: (data: Record<string, unknown>) => boolean = () => true): Promise<object> {
    return await eventually(
      async () => {
        const path = `/api/events?follow=false&type=${type}&limit=1000`
        const { events } = (await this.server.json('GET', path)) as { events: LoggedEvent[] }
        const found = events.find(({ sandboxId, data }) => sandboxId === this.id && isWanted(data))
        if (found === undefined) throw new Error(`no such event among ${JSON.stringify(events.slice(-3))}`)
        return found
      },
      { what: `an event ${type}` },
    )
  }

  /** Starts a command that stays, and leaves what it prints in a file. */
  async start(command: string, file: string): Promise<void> {
    await this.sh(`(setsid bash -c ${quoted(command)} >${file} 2>&1 </dev/null &)`)
  }

  /** Waits until a file inside has such words. */
  async says(file: string, words: RegExp): Promise<string> {
    return await eventually(
      async () => {
        const text = await this.sh(`cat ${file}`)
        if (!words.test(text)) throw new Error(`not said: ${text.slice(-300)}`)
        return text
      },
      { what: `${String(words)} in ${file}` },
    )
  }
}

interface LoggedEvent {
  sandboxId?: string
  data: Record<string, unknown>
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`
}
