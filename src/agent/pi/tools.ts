import { spawn } from 'node:child_process'
import { existsSync, closeSync, fstatSync, mkdirSync, mkdtempSync, openSync, readSync, rmSync } from 'node:fs'
import { glob } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  createBashToolDefinition,
  createFindToolDefinition,
  type ToolDefinition,
  type BashOperations,
} from '@earendil-works/pi-coding-agent'
import { toolNames } from '../../protocol/agent.ts'
import { killGroup, recordGroup } from '../process-groups.ts'

/** pi's names that differ from the protocol's. */
const protocolNames: Record<string, string> = { find: 'glob' }

export function protocolToolName(name: string): string {
  return protocolNames[name] ?? name
}

/** The tools of the model: all, or those that the configuration allows. */
export function allowedToolNames(allowed: readonly string[] | undefined): string[] {
  if (!allowed) return [...toolNames]
  const wanted = new Set(allowed.map((name) => protocolToolName(name.toLowerCase())))
  return toolNames.filter((name) => wanted.has(name))
}

/** Replacements of pi's tools: `bash` with output that outlives the call, and `glob`, pi's `find` without a download of `fd`. */
export function ownTools(cwd: string): ToolDefinition[] {
  const bash = createBashToolDefinition(cwd, { operations: bashOperations })
  const find = createFindToolDefinition(cwd, {
    operations: {
      exists: existsSync,
      async glob(pattern, folder, { ignore, limit }) {
        const paths: string[] = []
        for await (const path of glob(pattern, { cwd: folder, exclude: ignore })) {
          paths.push(join(folder, path))
          if (paths.length >= limit) break
        }
        return paths
      },
    },
  })
  const description = find.description.replace(' Respects .gitignore.', ' Leaves out node_modules and .git.')
  const tools = [
    bash,
    { ...find, name: 'glob', label: 'glob', description, promptSnippet: 'Find files by glob pattern' },
  ]
  // pi types each tool by its parameters, but a list of tools by none.
  return tools as unknown as ToolDefinition[]
}

/** For a command without a timeout: a server in the foreground would block its turn for ever. */
const timeoutDefaultSeconds = 600
/** The model may ask for a timeout beyond the range of timers. */
const timeoutMaxSeconds = 24 * 3600

/** A command with more output is killed, because it would fill the disk. */
const outputBytesMax = 64 * 1024 * 1024

const outputCheckMs = 100
const readChunkBytes = 64 * 1024

type ExecOptions = Parameters<BashOperations['exec']>[2]

/** Runs a command with a file as its output, which background processes (`npm run dev &`) keep; a closed pipe would kill them. */
export const bashOperations: BashOperations = {
  async exec(command, cwd, options) {
    if (!existsSync(cwd)) throw new Error(`Working directory does not exist: ${cwd}`)
    const folder = mkdtempSync(join(outputFolder(), 'bash-'))
    const path = join(folder, 'output.log')
    const output = openSync(path, 'a+', 0o600)
    let isKept = false
    try {
      const { exitCode, pid } = await execute(command, cwd, options, output)
      // Background processes continue to write there, and the model can read it.
      isKept = pid !== undefined && isGroupAlive(pid)
      return { exitCode }
    } finally {
      closeSync(output)
      if (!isKept) rmSync(folder, { recursive: true, force: true })
    }
  },
}

function outputFolder(): string {
  const folder = join(tmpdir(), 'atoll-agent')
  mkdirSync(folder, { recursive: true })
  return folder
}

async function execute(
  command: string,
  cwd: string,
  options: ExecOptions,
  output: number,
): Promise<{ exitCode: number | null; pid: number | undefined }> {
  const wantedSeconds = options.timeout !== undefined && options.timeout > 0 ? options.timeout : timeoutDefaultSeconds
  const timeoutSeconds = Math.min(wantedSeconds, timeoutMaxSeconds)
  const child = spawn('bash', ['-c', command], {
    cwd,
    // A process group of its own, so that a timeout or an interrupt kills all of it.
    detached: true,
    env: options.env ?? process.env,
    // No input: the guest recognises commands by that, and previews show their ports (docs/internals/guest-protocol.md § Private ports).
    stdio: ['ignore', output, output],
  })
  const forgetGroup = recordGroup(child.pid)
  let failure: string | undefined
  const end = (reason: string) => {
    failure ??= reason
    killGroup(child.pid)
  }
  // pi recognises an interrupt and a timeout by these messages.
  const onAbort = () => end('aborted')
  const timer = setTimeout(() => end(`timeout:${timeoutSeconds}`), timeoutSeconds * 1000)
  const sizeCheck = setInterval(() => {
    if (fstatSync(output).size > outputBytesMax)
      end(`The command wrote more than ${outputBytesMax} bytes; it was killed.`)
  }, outputCheckMs)
  options.signal?.addEventListener('abort', onAbort, { once: true })
  if (options.signal?.aborted) onAbort()
  try {
    const exited = Promise.withResolvers<number | null>()
    child.once('error', exited.reject)
    child.once('exit', (code, signal) => exited.resolve(signal ? 128 : code))
    const exitCode = await exited.promise
    pass(output, options.onData)
    if (failure !== undefined) throw new Error(failure)
    return { exitCode, pid: child.pid }
  } finally {
    forgetGroup()
    clearTimeout(timer)
    clearInterval(sizeCheck)
    options.signal?.removeEventListener('abort', onAbort)
  }
}

function pass(output: number, onData: (data: Buffer) => void): void {
  const end = Math.min(fstatSync(output).size, outputBytesMax)
  for (let offset = 0; offset < end;) {
    const chunk = Buffer.alloc(Math.min(readChunkBytes, end - offset))
    const length = readSync(output, chunk, 0, chunk.length, offset)
    if (length === 0) return
    onData(chunk.subarray(0, length))
    offset += length
  }
}

function isGroupAlive(pid: number): boolean {
  try {
    process.kill(-pid, 0)
    return true
  } catch {
    return false
  }
}
