import { mkdir, writeFile } from 'node:fs/promises'
import type { SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import type { HostNames } from '../host-names.ts'
import { resourcesOf } from '../oci/container-config.ts'
import type { OpenHost } from './context.ts'

const mebibyte = 1024 * 1024
/** A process that holds one of them open is only restored where the file is as long as it was. */
const fileBytes = 32

/**
 * The limits of a sandbox, as files in the form of control groups of version 2. The sandbox sees the folder read-only at
 * `/sys/fs/cgroup/sandbox` (`hostd/src/limits.rs`), whatever version the host has.
 */
export async function makeLimitFiles(host: OpenHost, spec: SandboxSpec, diskBytes: number): Promise<void> {
  await mkdir(host.names.limitsDir(spec.id), { mode: 0o755 })
  await Promise.all([writeLimits(host, spec, 'w'), writeDiskUse(host.names, spec.id, diskBytes, 'w')])
}

/** Changes the files of a running sandbox; it may be of an earlier version, and have none. */
export async function writeLimits(
  { names, traits }: OpenHost,
  spec: SandboxSpec,
  flag: 'w' | 'r+' = 'r+',
): Promise<void> {
  const { memory, pids, cpu } = resourcesOf(spec, traits)
  const files = {
    'memory.max': memory.limit,
    'pids.max': pids.limit,
    'cpu.max': `${cpu.quota} ${cpu.period}`,
    'disk.max': spec.diskMb * mebibyte,
  }
  for (const [name, value] of Object.entries(files)) await write(names, spec.id, name, String(value), flag)
}

export function writeDiskUse(names: HostNames, id: string, bytes: number, flag: 'w' | 'r+' = 'r+'): Promise<void> {
  return write(names, id, 'disk.current', String(bytes), flag)
}

/** In place and at once: a reader sees the one or the other. */
async function write(names: HostNames, id: string, name: string, value: string, flag: 'w' | 'r+'): Promise<void> {
  const text = value.padEnd(fileBytes, '\n')
  await writeFile(`${names.limitsDir(id)}/${name}`, text, { flag, mode: 0o444 }).catch(
    (error: NodeJS.ErrnoException) => {
      if (flag === 'w' || error.code !== 'ENOENT') throw error
    },
  )
}
