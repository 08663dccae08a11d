import { chown, link, mkdir, readdir, stat, writeFile } from 'node:fs/promises'
import { limitFiles, limitsName } from '../host-names.ts'
import type { HostTool } from '../hostd/index.ts'
import { shownFiles } from '../lxcfs.ts'
import { idsPerSandbox } from '../oci/container-config.ts'

/** The sandbox that a copy of images becomes. */
export interface ImageOwner {
  /** Its host name too. */
  id: string
  /** The first of its ids on the host. */
  rangeStart: number
}

const filesAtOnce = 64
const userNamespaceFile = /^userns-\d+\.img$/
const pagesFile = /^pages-\d+\.img$/
const hostNameFile = /^utsns-\d+\.img$/
const connectionFile = /^tcp-stream-[\da-f]+\.img$/
const openFilesFile = 'files.img'
/** Files whose length may differ after a restore: their content is made at each read, or the sandbox has other limits. */
const unsized = [...shownFiles, ...limitFiles.map((name) => `/sys/fs/cgroup/${limitsName}/${name}`)]

/**
 * Makes `to` a folder of images for another sandbox: hard links of those in `from`. Three images are written anew: the two with the identity
 * of the sandbox, and the list of open files, without the lengths of files that differ there. The restored processes open images as their
 * own root user, which must be able to enter the folder. Returns the names of the images.
 */
export async function linkImages(hostd: HostTool, from: string, to: string, owner: ImageOwner): Promise<string[]> {
  await mkdir(to, { mode: 0o710 })
  await chown(to, 0, owner.rangeStart)
  const names = (await readdir(from)).filter(isImage)
  await ofEach(names, (name) => {
    if (userNamespaceFile.test(name)) return writeFile(`${to}/${name}`, userNamespaceImage(owner.rangeStart))
    if (hostNameFile.test(name)) return writeFile(`${to}/${name}`, hostNameImage(owner.id))
    if (name === openFilesFile) return forgetSizes(hostd, `${from}/${name}`, `${to}/${name}`)
    return link(`${from}/${name}`, `${to}/${name}`)
  })
  return names
}

/** Whether one of these images holds an established connection. */
export function holdConnections(names: readonly string[]): boolean {
  return names.some((name) => connectionFile.test(name))
}

/** Copies the list of open files without the lengths of `unsized`. hostd does it, as the list may have a million files. */
async function forgetSizes(hostd: HostTool, from: string, to: string): Promise<void> {
  await hostd.runTool({ op: 'forget-sizes', from, to, files: unsized })
}

/** Bytes of the images in a folder, without logs; 0 when there is no folder. */
export function imagesBytes(folder: string): Promise<number> {
  return bytesOf(folder, isImage)
}

/** Bytes of memory that the processes of these images hold. */
export function pagesBytes(folder: string): Promise<number> {
  return bytesOf(folder, (name) => pagesFile.test(name))
}

async function bytesOf(folder: string, counts: (name: string) => boolean): Promise<number> {
  const names = (await readdir(folder).catch(() => [])).filter(counts)
  const sizes = await ofEach(names, async (name) => (await stat(`${folder}/${name}`)).size)
  return sizes.reduce((sum, size) => sum + size, 0)
}

/** Works on a few files at a time: there is one for each thread, and all at once would delay other work. */
async function ofEach<Result>(names: readonly string[], work: (name: string) => Promise<Result>): Promise<Result[]> {
  const results: Result[] = []
  for (let start = 0; start < names.length; start += filesAtOnce) {
    results.push(...(await Promise.all(names.slice(start, start + filesAtOnce).map(work))))
  }
  return results
}

/** `descriptors.json` is runc's own: where the standard streams led. */
function isImage(name: string): boolean {
  return name.endsWith('.img') || name === 'descriptors.json'
}

// The format: magic numbers of CRIU's criu/include/magic.h, then entries of a length and a protobuf message
// (images/userns.proto, images/utsns.proto).
const namespaceMagic = 0x54_56_43_19
const userNamespaceMagic = 0x55_47_49_06
const hostNameMagic = 0x54_47_32_03

/** One mapping, ids from 0 inside, for users and groups alike. */
export function userNamespaceImage(rangeStart: number): Buffer {
  const mapping = [...number(1, 0), ...number(2, rangeStart), ...number(3, idsPerSandbox)]
  return image(userNamespaceMagic, [...bytes(1, mapping), ...bytes(2, mapping)])
}

export function hostNameImage(hostname: string): Buffer {
  return image(hostNameMagic, [...bytes(1, [...Buffer.from(hostname)]), ...bytes(2, [...Buffer.from('(none)')])])
}

function image(magic: number, message: number[]): Buffer {
  const header = Buffer.alloc(12)
  header.writeUInt32LE(namespaceMagic, 0)
  header.writeUInt32LE(magic, 4)
  header.writeUInt32LE(message.length, 8)
  return Buffer.concat([header, Buffer.from(message)])
}

function number(field: number, value: number): number[] {
  return [field << 3, ...varint(value)]
}

function bytes(field: number, value: number[]): number[] {
  return [(field << 3) | 2, ...varint(value.length), ...value]
}

function varint(value: number): number[] {
  const groups: number[] = []
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return [...groups, rest]
    groups.push((rest % 128) | 128)
  }
}
