import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { AtollServer } from './server.ts'

const projectDir = join(import.meta.dirname, '../..')
const files = { backup: 'backup/backup.ts', restore: 'backup/restore.ts', main: 'main.ts' }

/** Another machine: where a restore goes. */
export interface Target {
  dataDir: string
  subnet: string
  env?: Record<string, string>
}

export interface StartedProgram {
  child: ChildProcess
  output(): string
  /** Resolves once it has printed such words; rejects when it ends before. */
  says(words: RegExp): Promise<void>
  /** Its exit status; null when it was killed. */
  ended: Promise<number | null>
}

/** Starts a program with the environment of a server, or with that of another machine. */
export function startProgram(
  server: AtollServer,
  name: keyof typeof files,
  words: readonly string[],
  target?: Target,
): StartedProgram {
  const { dataDir, subnet, env = {} } = target ?? { dataDir: server.dataDir, subnet: server.subnet }
  const child = spawn(process.execPath, [join(projectDir, 'src/server', files[name]), ...words], {
    cwd: projectDir,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      PATH: process.env['PATH'],
      NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
      ATOLL_LISTEN: `127.0.0.1:${server.port}`,
      ATOLL_DATA_DIR: dataDir,
      ATOLL_SUBNET: subnet,
      ATOLL_IMAGE_DIR: process.env['ATOLL_IMAGE_DIR'] ?? '',
      ATOLL_DISK_POOL_MB: '8192',
      ...env,
    },
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const ended = once(child, 'close').then(() => child.exitCode)
  return {
    child,
    output: () => output,
    ended,
    async says(words_) {
      while (!words_.test(output)) {
        const next = await Promise.race([once(child.stdout, 'data'), ended.then(() => undefined)])
        if (next === undefined && !words_.test(output)) throw new Error(`it ended without these words:\n${output}`)
      }
    },
  }
}

export async function runBackup(
  server: AtollServer,
  ...words: string[]
): Promise<{ status: number | null; output: string }> {
  const program = startProgram(server, 'backup', words)
  return { status: await program.ended, output: program.output() }
}

export async function restoreInto(
  server: AtollServer,
  dir: string,
  target: Target,
): Promise<{ status: number | null; output: string }> {
  const program = startProgram(server, 'restore', [dir], target)
  return { status: await program.ended, output: program.output() }
}
