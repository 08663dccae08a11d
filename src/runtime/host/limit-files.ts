import { mkdir, open } from 'node:fs/promises'
import type { SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import type { HostNames, limitFiles } from '../host-names.ts'
import { resourcesOf } from '../oci/container-config.ts'
import { readNow } from '../read-now.ts'
import type { OpenHost } from './context.ts'

const mebibyte = 1024 * 1024
type LimitFile = (typeof limitFiles)[number]

/**
 * The limits of a sandbox, as files in the form of control groups of version 2. The sandbox sees the folder read-only at
 * `/sys/fs/cgroup/sandbox` (`hostd/src/limits.rs`), whatever version the host has.
 */
export async function makeLimitFiles(host: OpenHost, spec: SandboxSpec, diskBytes: number): Promise<void> {
  await mkdir(host.names.limitsDir(spec.id), { mode: 0o755 })
  await Promise.all([writeLimits(host, spec, 'w'), writeDiskUse(host.names, spec.id, diskBytes, 'w')])
}

/** Changes the files of a sandbox. One that does not run, or ends meanwhile, has none. */
export async function writeLimits(
  { names, traits }: OpenHost,
  spec: SandboxSpec,
  flag: 'w' | 'r+' = 'r+',
): Promise<void> {
  for (const [name, value] of shownBy(traits, spec)) await write(names, spec.id, name, value, flag)
}

/** What the files of a running sandbox show that is not so, and what they should show, as `memory.max 1`. */
export function wrongLimits({ names, traits }: OpenHost, spec: SandboxSpec): { had: string[]; wanted: string[] } {
  const wrong = { had: [] as string[], wanted: [] as string[] }
  for (const [name, value] of shownBy(traits, spec)) {
    const has = readNow(`${names.limitsDir(spec.id)}/${name}`)?.trim()
    if (has === undefined || has === value) continue
    wrong.had.push(`${name} ${has}`)
    wrong.wanted.push(`${name} ${value}`)
  }
  return wrong
}

function shownBy(traits: OpenHost['traits'], spec: SandboxSpec): [name: LimitFile, value: string][] {
  const { memory, pids, cpu } = resourcesOf(spec, traits)
  return [
    ['memory.max', String(memory.limit)],
    ['pids.max', String(pids.limit)],
    ['cpu.max', `${cpu.quota} ${cpu.period}`],
    ['disk.max', String(spec.diskMb * mebibyte)],
  ]
}

export function writeDiskUse(names: HostNames, id: string, bytes: number, flag: 'w' | 'r+' = 'r+'): Promise<void> {
  return write(names, id, 'disk.current', String(bytes), flag)
}

/**
 * In place, since processes may hold the file open, and with one write: a reader sees the old value or the new one, for a moment with
 * empty lines behind it.
 */
async function write(names: HostNames, id: string, name: LimitFile, value: string, flag: 'w' | 'r+'): Promise<void> {
  const file = await open(`${names.limitsDir(id)}/${name}`, flag, 0o444).catch((error: NodeJS.ErrnoException) => {
    if (flag === 'w' || error.code !== 'ENOENT') throw error
  })
  if (file === undefined) return
  try {
    const text = `${value}\n`
    const { size } = await file.stat()
    await file.write(text.padEnd(size, '\n'), 0)
    if (size > text.length) await file.truncate(text.length)
  } finally {
    await file.close()
  }
}
