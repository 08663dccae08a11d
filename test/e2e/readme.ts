/** The README's first chapters, pasted block after block by a reader who has a server and its key. */
import assert from 'node:assert/strict'
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'

const projectDir = join(import.meta.dirname, '../..')

/** What `npm start` has told a reader. */
export interface ReadersServer {
  url: string
  key: string
}

/** The words to put before a command that runs in a folder of the reader's machine; none where that is this one. */
type Wrap = (folder: string) => string[]

/** The blocks of one language in a chapter of the README, in order. */
async function blocks(heading: string, language: string): Promise<string[]> {
  const readme = await readFile(join(projectDir, 'README.md'), 'utf8')
  const chapter = readme.split(/^## /m).find((part) => part.startsWith(`${heading}\n`))
  assert.ok(chapter, `the README has a chapter "${heading}"`)
  return [...chapter.matchAll(/^```(\w+)\n(.*?)^```$/gms)]
    .filter(([, of]) => of === language)
    .map(([, , text]) => text ?? '')
}

/** One shell in a folder of its own, into which a reader of the README pastes block after block. */
class Terminal {
  readonly dir: string
  #shell: ChildProcessByStdio<Writable, Readable, null>
  #output = ''
  #blocks = 0

  private constructor(dir: string, wrap: Wrap) {
    this.dir = dir
    // What is on a path is what a reader has who followed the first chapter, this Node among it.
    const env = { PATH: `${join(projectDir, 'node_modules/.bin')}:${process.env['PATH']}` }
    const [command, ...argv] = [...wrap(dir), 'bash', '--norc']
    this.#shell = spawn(command, argv, { cwd: dir, env, stdio: ['pipe', 'pipe', 'inherit'], detached: true })
    this.#shell.stdout.setEncoding('utf8').on('data', (text: string) => (this.#output += text))
    // Ctrl-C goes to the whole group: curl dies of it, and the shell, which has a handler, goes on.
    this.#shell.stdin.write('trap : INT\n')
  }

  static async open(wrap: Wrap): Promise<Terminal> {
    return new Terminal(await mkdtemp('/var/tmp/atoll-readme-'), wrap)
  }

  /** Runs a block and returns what it printed. Presses Ctrl-C once that pleases `until`. */
  async paste(block: string, until?: (output: string) => boolean): Promise<string> {
    this.#output = ''
    const end = `end of block ${(this.#blocks += 1)}`
    this.#shell.stdin.write(`${block}\necho; echo ${end}\n`)
    let hasInterrupted = false
    while (!this.#output.includes(end)) {
      if (!hasInterrupted && until?.(this.#output) === true) {
        hasInterrupted = true
        this.#group('SIGINT')
      }
      await this.#news()
    }
    return this.#output.slice(0, this.#output.indexOf(end)).trim()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#shell.exitCode === null) this.#group('SIGKILL')
    await rm(this.dir, { recursive: true })
  }

  async #news(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const ended = () => reject(new Error(`the shell ended:\n${this.#output}`))
    this.#shell.stdout.once('data', resolve).once('end', ended)
    await promise
    this.#shell.stdout.off('end', ended)
  }

  #group(signal: NodeJS.Signals): void {
    if (this.#shell.pid !== undefined) process.kill(-this.#shell.pid, signal)
  }
}

/** What a reader has to fill in, and the address, which may be another one. */
function filledIn(block: string, { url, key }: ReadersServer): string {
  return block.replace('atoll_…', key).replace('http://127.0.0.1:4100', url)
}

const turns = (count: number) => (output: string) => output.split('"type":"turn_complete"').length > count

/** A session with its preview, a follow-up and its end; then sandboxes, by `curl` and by the SDK. Throws where one is not as written. */
export async function followReadme(server: ReadersServer, wrap: Wrap = () => []): Promise<void> {
  await using terminal = await Terminal.open(wrap)
  const [create = '', watch = '', followUp = '', remove = '', ...more] = await blocks('Two minutes', 'sh')
  assert.deepEqual(more, [])

  const session = JSON.parse(await terminal.paste(filledIn(create, server))) as { id: string; previewUrl: string }
  const events = await terminal.paste(watch, turns(1))
  for (const type of ['ready', 'configured', 'assistant', 'tool_use_summary', 'result']) {
    assert.ok(events.includes(`"type":"${type}"`), type)
  }
  const { host } = new URL(session.previewUrl)
  const page = `curl -s -H 'Host: ${host}' $ATOLL_URL/`
  assert.match(await terminal.paste(page), /coral reefs/i)

  await terminal.paste(followUp)
  await terminal.paste(watch, turns(2))
  assert.match(await terminal.paste(page), /sea turtles/i)
  assert.deepEqual(JSON.parse(await terminal.paste(remove)), { id: session.id, status: 'ended' })

  const [calls = '', install = '', runClient = ''] = await blocks('Sandboxes', 'sh')
  const [created = '', ran = '', ...rest] = (await terminal.paste(calls)).split(/(?<=\})(?=\{)/)
  assert.match((JSON.parse(created) as { sandboxID: string }).sandboxID, /^sb-/)
  assert.match((JSON.parse(ran) as { stdout: string }).stdout, /uid=0\(root\)/)
  assert.deepEqual(rest, [])

  // The package is the one that is tested everywhere else, not whatever the registry has today.
  assert.equal(install.trim(), 'npm install @opencomputer/sdk')
  await symlink(join(projectDir, 'node_modules'), join(terminal.dir, 'node_modules'))
  const [client = ''] = await blocks('Sandboxes', 'js')
  const [, name = ''] = /^\/\/ (\S+)\n/.exec(client) ?? []
  await writeFile(join(terminal.dir, name), client)
  assert.equal(await terminal.paste(runClient), 'hello')
}
