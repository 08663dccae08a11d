import { spawn, type ChildProcessByStdio } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import { setImmediate as nextIteration, setTimeout as sleep } from 'node:timers/promises'
import type { AnyMessage, Stream } from '@agentclientprotocol/sdk'
import { LineSplitter } from '../../protocol/line-splitter.ts'
import type { ModelProxy } from '../model-proxy.ts'
import { groupsBelow, killGroup, recordGroup } from '../process-groups.ts'

const stderrCharactersMax = 4000
/** A message may hold a file. What is made of it has bounds of its own. */
const lineBytesMax = 16 * 1024 * 1024

/** The output closes a little before the `exit` event, on a busy machine seconds, and the last of standard error arrives a little after it. */
const endMs = 5000
const stderrMs = 50

/**
 * The agent program, in a process group of its own. Its input is a pipe, by which the guest knows that its ports are not for previews.
 * `stream` holds the messages of its standard output; lines that are no message, such as greetings and logs, are dropped.
 */
export class AcpProcess {
  readonly stream: Stream
  /** Resolves with the reason when the program has ended or could not be started. */
  readonly ended: Promise<string>
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>
  /** Called with the size of each message that was too large to be read. */
  onLeftOut: ((bytes: number) => void) | undefined
  #stderr = ''
  #isOver = false

  constructor(command: readonly [string, ...string[]], cwd: string, env: NodeJS.ProcessEnv) {
    const [program, ...args] = command
    this.#child = spawn(program, args, { cwd, env, stdio: ['pipe', 'pipe', 'pipe'], detached: true })
    const forgetGroup = recordGroup(this.#child.pid)
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
      const lastWords = async () => {
        await sleep(stderrMs)
        // A timer that is late runs before what has come meanwhile is read.
        await nextIteration()
        return `${end} ${this.#stderr.slice(-1000).trim()}`
      }
      ended.resolve(lastWords())
    })
    // `ended` reports the end of the program; a message on its way to it is lost.
    this.#child.stdin.on('error', () => {})
    this.#child.stderr.on('data', (chunk: Buffer) => {
      this.#stderr = (this.#stderr + chunk.toString('utf8')).slice(-stderrCharactersMax)
    })
    this.stream = {
      readable: messages(this.#child.stdout, (bytes) => this.onLeftOut?.(bytes)),
      writable: lines(this.#child.stdin),
    }
  }

  /** Undefined when the program has ended or could not be started: another process may have the id then. */
  get pid(): number | undefined {
    return this.#isOver ? undefined : this.#child.pid
  }

  get isOver(): boolean {
    return this.#isOver
  }

  /** The reason of the program's end; undefined unless it ends within `endMs`. */
  async endReason(): Promise<string | undefined> {
    return await Promise.race([this.ended, sleep(endMs, undefined)])
  }

  /** The process groups of the commands that run. */
  get commandGroups(): Set<number> {
    return groupsBelow(this.#child.pid)
  }

  /** Kills the process group of the program. */
  kill(): void {
    killGroup(this.#child.pid)
  }
}

function messages(stdout: Readable, leftOut: (bytes: number) => void): ReadableStream<AnyMessage> {
  const splitter = new LineSplitter(lineBytesMax)
  let isWanted = true
  return new ReadableStream<AnyMessage>({
    start(controller) {
      stdout.on('data', (chunk: Buffer) => {
        if (!isWanted) return
        for (const line of splitter.push(chunk)) {
          const message = line.type === 'line' ? parse(line.text) : insteadOf(line)
          if (line.type === 'too_long' && isLikeMessage(line.head)) leftOut(line.byteLength)
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
      // A full pipe would block the program.
      stdout.resume()
    },
  })
}

function isLikeMessage(head: string): boolean {
  return /^\s*\{.*"jsonrpc"/s.test(head)
}

/** A failed answer in place of one that was too large. Without it the request would wait for ever. */
function insteadOf({ head, byteLength }: { head: string; byteLength: number }): AnyMessage | undefined {
  const [, id] = /"id"\s*:\s*(\d+)\s*,\s*"(?:result|error)"/.exec(head) ?? []
  if (id === undefined || !isLikeMessage(head)) return undefined
  const message = `The agent answered with ${byteLength} bytes, more than can be read.`
  return { jsonrpc: '2.0', id: Number(id), error: { code: -32_603, message } }
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

/** Splits `acp:<command>` at blanks into a program and its arguments. Single and double quotes group words. */
export function acpCommand(harness: string): [string, ...string[]] | undefined {
  const words: string[] = []
  for (const [, double, single, plain] of harness.slice('acp:'.length).matchAll(/"([^"]*)"|'([^']*)'|([^\s"']+)/g)) {
    words.push(double ?? single ?? plain ?? '')
  }
  const [program, ...args] = words
  return program ? [program, ...args] : undefined
}

/**
 * The environment of an agent program, with the variables that Anthropic's and OpenAI's clients read. Variables of the session take
 * precedence, but an address and its keys belong together: the proxy accepts only its own key, and no other server is sent that key.
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
    // Clients prefer this token to the key.
    delete environment['ANTHROPIC_AUTH_TOKEN']
  }
  return environment
}
