import { assertInput } from './input.ts'
import type { VolumeMount } from './volume.ts'

const namePattern = /^[a-z0-9][a-z0-9_.-]{0,62}$/
const pathBytesMax = 1024
const segmentBytesMax = 255
// eslint-disable-next-line no-control-regex
const controlPattern = /[\u0000-\u001f\u007f]/
/** Folders with mounts of the host: a volume over one would hide it, and memory could not be saved. */
const ownFolders = ['/proc', '/sys', '/dev', '/.atoll'] as const
const ownFiles = ['/etc/hosts', '/etc/hostname', '/etc/resolv.conf', '/etc/machine-id'] as const

/** Checks the name of a volume or a snapshot. */
export function assertVolumeName(name: string, field: string): void {
  const rule = 'must be 1 to 63 of a-z 0-9 _ . -, and begin with a letter or digit'
  assertInput(namePattern.test(name), field, rule)
}

/** The volumes of one sandbox: each once, at normal paths that are neither the host's nor within each other. */
export function assertVolumePaths(mounts: readonly VolumeMount[], countMax: number): void {
  assertInput(mounts.length <= countMax, 'volumes', `must be at most ${countMax}`)
  for (const [index, { name, path }] of mounts.entries()) {
    assertVolumeName(name, `volumes.${index}.name`)
    assertVolumePath(path, `volumes.${index}.path`)
    for (const other of mounts.slice(0, index)) {
      assertInput(other.name !== name, `volumes.${index}.name`, `is a volume that the sandbox has at ${other.path}`)
      const overlaps = isWithin(path, other.path) || isWithin(other.path, path)
      assertInput(!overlaps, `volumes.${index}.path`, `must not be within another, as it is with ${other.path}`)
    }
  }
}

function assertVolumePath(path: string, field: string): void {
  assertInput(path.startsWith('/'), field, 'must be an absolute path')
  assertInput(!controlPattern.test(path) && path.isWellFormed(), field, 'must not contain control characters')
  assertInput(path !== '/', field, 'must not be the root')
  const segments = path.slice(1).split('/')
  const isNormal = segments.every((segment) => segment !== '' && segment !== '.' && segment !== '..')
  assertInput(isNormal, field, 'must have no "..", no "." and no empty part')
  const isShort = segments.every((segment) => Buffer.byteLength(segment) <= segmentBytesMax)
  assertInput(
    isShort && Buffer.byteLength(path) <= pathBytesMax,
    field,
    `must be at most ${pathBytesMax} bytes, and each part ${segmentBytesMax}`,
  )
  const own = ownFolders.find((folder) => isWithin(path, folder))
  assertInput(own === undefined, field, `must not be within ${own}`)
  const file = ownFiles.find((one) => isWithin(one, path) || isWithin(path, one))
  assertInput(file === undefined, field, `must not hide ${file}`)
}

function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(`${folder}/`)
}
