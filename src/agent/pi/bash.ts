import { spawn } from 'node:child_process'
import { closeSync, existsSync, fstatSync, mkdirSync, mkdtempSync, openSync, readSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { BashOperations } from '@earendil-works/pi-coding-agent'
import { noteGroup } from '../left-groups.ts'

/** A command that the model gave no time limit. Without one a server started in the foreground would hang its turn. */
const timeoutDefaultSeconds = 600
/** The model may ask for any time, also for one that no timer can count. */
const timeoutMaxSeconds = 24 * 3600

/** Output of one command; beyond it the command is killed, since it would fill the disk. */
const outputBytesMax = 64 * 1024 * 1024

const outputCheckMs = 100
const readChunkBytes = 64 * 1024

type ExecOptions = Parameters<BashOperations['exec']>[2]

/**
 * Runs a command with a file as its output instead of a pipe: what it leaves in the background (`npm run dev &`) keeps
 * that file and runs on, where a pipe would break under it, and the call ends with the command itself.
 */
export const bashOperations: BashOperations = {
  async exec(command, cwd, options) {
    if (!existsSync(cwd)) throw new Error(`Working directory does not exist: ${cwd}`)
    const folder = mkdtempSync(join(outputFolder(), 'bash-'))
    const path = join(folder, 'output.log')
    const output = openSync(path, 'a+', 0o600)
    let isKept = false
    try {
      const { exitCode, pid } = await execute(command, cwd, options, output)
      // What still runs in the background goes on writing there, for the model to read.
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
    // A process group of its own, so that a timeout or an interrupt takes all of it.
    detached: true,
    env: options.env ?? process.env,
    // Without input: by that the guest knows a command, whose ports previews show (docs/guest-protocol.md § Private ports).
    stdio: ['ignore', output, output],
  })
  const forgetGroup = noteGroup(child.pid)
  const kill = () => killGroup(child.pid)
  let failure: string | undefined
  const end = (reason: string) => {
    failure ??= reason
    kill()
  }
  // pi knows an interrupt and a timeout by these words.
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

function killGroup(pid: number | undefined): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // It is gone already.
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
