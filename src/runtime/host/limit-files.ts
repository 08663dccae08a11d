import { mkdir, open } from 'node:fs/promises'
import type { SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import type { HostNames, limitFiles } from '../host-names.ts'
import { type HostTraits, resourcesOf } from '../oci/container-config.ts'
import { readNow } from '../read-now.ts'

const mebibyte = 1024 * 1024
type LimitFile = (typeof limitFiles)[number]

/**
 * The limits of a sandbox, as files in the form of control groups of version 2. The sandbox sees the folder read-only at
 * `/sys/fs/cgroup/sandbox` (`hostd/src/limits.rs`), whatever version the host has.
 */
export class LimitFiles {
  readonly #names: HostNames
  readonly #traits: HostTraits

  constructor({ names, traits }: { names: HostNames; traits: HostTraits }) {
    this.#names = names
    this.#traits = traits
  }

  async make(spec: SandboxSpec, diskBytes: number): Promise<void> {
    await mkdir(this.#names.limitsDir(spec.id), { mode: 0o755 })
    await Promise.all([this.write(spec, 'w'), this.writeDiskUse(spec.id, diskBytes, 'w')])
  }

  /** Changes the files of a sandbox. One that does not run, or ends meanwhile, has none. */
  async write(spec: SandboxSpec, flag: 'w' | 'r+' = 'r+'): Promise<void> {
    for (const [name, value] of this.#shownBy(spec)) await write(this.#names, spec.id, name, value, flag)
  }

  writeDiskUse(id: string, bytes: number, flag: 'w' | 'r+' = 'r+'): Promise<void> {
    return write(this.#names, id, 'disk.current', String(bytes), flag)
  }

  /** Wrong values in the files of a running sandbox, and those that they should show, such as `memory.max 1`. */
  findWrong(spec: SandboxSpec): { had: string[]; wanted: string[] } {
    const wrong = { had: [] as string[], wanted: [] as string[] }
    for (const [name, value] of this.#shownBy(spec)) {
      const has = readNow(`${this.#names.limitsDir(spec.id)}/${name}`)?.trim()
      if (has === undefined || has === value) continue
      wrong.had.push(`${name} ${has}`)
      wrong.wanted.push(`${name} ${value}`)
    }
    return wrong
  }

  #shownBy(spec: SandboxSpec): [name: LimitFile, value: string][] {
    const { memory, pids, cpu } = resourcesOf(spec, this.#traits)
    return [
      ['memory.max', String(memory.limit)],
      ['pids.max', String(pids.limit)],
      ['cpu.max', `${cpu.quota} ${cpu.period}`],
      ['disk.max', String(spec.diskMb * mebibyte)],
    ]
  }
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
