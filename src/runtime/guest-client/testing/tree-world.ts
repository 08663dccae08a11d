import { execFile } from 'node:child_process'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { promisify } from 'node:util'
import type { PackEntry, PackOptions, Unpacked, UnpackOptions } from '../../../sandbox/ports/guest.ts'
import { GuestProcess } from './guest-process.ts'
import { describeTree } from './trees.ts'

const execute = promisify(execFile)

/** A guest for all tests of the calling file, and what they make trees of files with. */
export class TreeWorld {
  readonly machine: GuestProcess
  #folders = 0

  private constructor(machine: GuestProcess) {
    this.machine = machine
  }

  static async startForFile(): Promise<TreeWorld> {
    return new TreeWorld(await GuestProcess.startForFile())
  }

  /** A new empty folder. */
  readonly place = async (): Promise<string> => {
    const folder = join(this.machine.folder, `tree-${++this.#folders}`)
    await mkdir(folder)
    return folder
  }

  readonly pack = async (entries: PackEntry[], options?: PackOptions): Promise<Buffer> =>
    Buffer.concat(await (await this.machine.guest.pack(entries, options)).toArray())

  readonly unpack = async (tar: Uint8Array, options: UnpackOptions): Promise<Unpacked> =>
    this.machine.guest.unpack(Readable.from([tar]), options)

  /** The archive that GNU tar makes of the files of a script. */
  readonly tarOf = async (script: string, names = '.', format = '--format=gnu'): Promise<Buffer> => {
    const folder = await this.place()
    await shell(folder, script)
    const options = { cwd: folder, encoding: 'buffer' as const, maxBuffer: 64 << 20 }
    return (await execute('sh', ['-ec', `tar ${format} -P -cf - ${names}`], options)).stdout
  }
}

export async function shell(folder: string, script: string): Promise<string> {
  return (await execute('sh', ['-ec', script], { cwd: folder })).stdout
}

export async function python(folder: string, script: string): Promise<string> {
  return (await execute('python3', ['-c', script], { cwd: folder, maxBuffer: 64 << 20 })).stdout
}

/** The folder, and all that is in it. */
export async function describe(folder: string): Promise<string[]> {
  return (await python(folder, describeTree)).split('\n')
}

/** What is below a folder, in the form `name type mode user:group`, and the targets of links. */
export async function list(folder: string): Promise<string[]> {
  const find = `find . -mindepth 1 -printf '%P %y %m %U:%G %l\n' | sed 's/ $//' | LC_ALL=C sort`
  return (await shell(folder, find)).split('\n').slice(0, -1)
}
