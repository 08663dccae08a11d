import { spawn, type ChildProcessByStdio } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AnyMessage, Stream } from '@agentclientprotocol/sdk'
import { LineSplitter } from '../../protocol/line-splitter.ts'
import type { ModelProxy } from '../model-proxy.ts'
import { noteGroup } from '../process-groups.ts'

const stderrCharactersMax = 4000

/** Output closes a little before the end of a program is told, and the last of standard error comes a little after it. */
const endMs = 500
const stderrMs = 50

/**
 * The agent program, in a process group of its own; that it has a pipe as input tells the guest that its ports are not for
 * previews. `stream` is what it says on standard output, line by line, without what
 * is no message: many programs greet, warn or log there.
 */
export class AcpProcess {
  readonly stream: Stream
  /** Resolves, with words, when the program has ended or could not be started. */
  readonly ended: Promise<string>
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>
  #stderr = ''
  #isOver = false

  constructor(command: readonly [string, ...string[]], cwd: string, env: NodeJS.ProcessEnv) {
    const [program, ...args] = command
    this.#child = spawn(program, args, { cwd, env, stdio: ['pipe', 'pipe', 'pipe'], detached: true })
    const forgetGroup = noteGroup(this.#child.pid)
    const ended = Promise.withResolvers<string>()
    this.ended = ended.promise
    this.#child.once('error', (error: NodeJS.ErrnoException) => {
      this.#isOver = true
      ended.resolve(
        error.code === 'ENOENT'
          ? `The command ${program} was not found in the sandbox; install it in the image, or with a checkpoint.`
          : `The command ${program} cannot be started: ${error.message}`,
      )
    })
    this.#child.once('exit', (code, signal) => {
      this.#isOver = true
      forgetGroup()
      const end = `The agent ${program} ended with ${signal ?? `status ${code}`}.`
      ended.resolve(sleep(stderrMs).then(() => `${end} ${this.#stderr.slice(-1000).trim()}`))
    })
    // The end of the program is told by `ended`; a message on its way to it is lost with it.
    this.#child.stdin.on('error', () => {})
    this.#child.stderr.on('data', (chunk: Buffer) => {
      this.#stderr = (this.#stderr + chunk.toString('utf8')).slice(-stderrCharactersMax)
    })
    this.stream = { readable: messages(this.#child.stdout), writable: lines(this.#child.stdin) }
  }

  get isOver(): boolean {
    return this.#isOver
  }

  /** Why the program has ended, if it has or is about to. */
  async endWords(): Promise<string | undefined> {
    return await Promise.race([this.ended, sleep(endMs, undefined)])
  }

  /** Ends the program with all that it has in its process group. */
  kill(): void {
    if (this.#child.pid === undefined) return
    try {
      process.kill(-this.#child.pid, 'SIGKILL')
    } catch {
      // It is gone already.
    }
  }
}

function messages(stdout: Readable): ReadableStream<AnyMessage> {
  const splitter = new LineSplitter()
  let isWanted = true
  return new ReadableStream<AnyMessage>({
    start(controller) {
      stdout.on('data', (chunk: Buffer) => {
        if (!isWanted) return
        for (const line of splitter.push(chunk)) {
          const message = line.type === 'line' ? parse(line.text) : undefined
          if (message) controller.enqueue(message)
        }
        if ((controller.desiredSize ?? 0) <= 0) stdout.pause()
      })
      stdout.once('close', () => {
        if (isWanted) controller.close()
      })
    },
    pull() {
      stdout.resume()
    },
    cancel() {
      isWanted = false
      // So that the program is not held up by a full pipe.
      stdout.resume()
    },
  })
}

function parse(line: string): AnyMessage | undefined {
  try {
    const value: unknown = JSON.parse(line)
    const isMessage = typeof value === 'object' && value !== null && 'jsonrpc' in value
    return isMessage ? (value as AnyMessage) : undefined
  } catch {
    return undefined
  }
}

function lines(stdin: Writable): WritableStream<AnyMessage> {
  return new WritableStream<AnyMessage>({
    write(message) {
      return new Promise((resolve) => stdin.write(`${JSON.stringify(message)}\n`, () => resolve()))
    },
  })
}

/** `acp:` and what follows: a program and its arguments, split at blanks; single and double quotes hold one together. */
export function acpCommand(harness: string): [string, ...string[]] | undefined {
  const words: string[] = []
  for (const [, double, single, plain] of harness.slice('acp:'.length).matchAll(/"([^"]*)"|'([^']*)'|([^\s"']+)/g)) {
    words.push(double ?? single ?? plain ?? '')
  }
  const [program, ...args] = words
  return program ? [program, ...args] : undefined
}

/**
 * How programs find their model: the names that Anthropic's and OpenAI's clients read. What the session's own environment says
 * goes before, but an address and its keys go together: the proxy takes no key but its own, and no other server is told that one.
 */
export function programEnvironment(
  own: NodeJS.ProcessEnv,
  modelId: string,
  proxy: Pick<ModelProxy, 'url' | 'credential'>,
): NodeJS.ProcessEnv {
  const environment: NodeJS.ProcessEnv = {
    OPENAI_MODEL: modelId,
    ANTHROPIC_MODEL: modelId,
    IS_SANDBOX: '1',
    ...own,
  }
  if (!own['OPENAI_BASE_URL']) {
    environment['OPENAI_BASE_URL'] = `${proxy.url}/openai/v1`
    environment['OPENAI_API_KEY'] = proxy.credential
  }
  if (!own['ANTHROPIC_BASE_URL']) {
    environment['ANTHROPIC_BASE_URL'] = `${proxy.url}/anthropic`
    environment['ANTHROPIC_API_KEY'] = proxy.credential
    // Clients prefer it to the key.
    delete environment['ANTHROPIC_AUTH_TOKEN']
  }
  return environment
}
