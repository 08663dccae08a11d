import { quoted, refused } from './fault.ts'

export interface Platform {
  os: 'linux'
  arch: string
  variant: string
}

const archs: Readonly<Record<string, string>> = {
  x64: 'amd64',
  arm64: 'arm64',
  arm: 'arm',
  riscv64: 'riscv64',
  ppc64: 'ppc64le',
  s390x: 's390x',
}
const aliases: Readonly<Record<string, string>> = { x86_64: 'amd64', 'x86-64': 'amd64', aarch64: 'arm64', armhf: 'arm' }

/** That of this machine, by which images are built. */
export const machinePlatform: Platform = {
  os: 'linux',
  arch: archs[process.arch] ?? process.arch,
  variant: process.arch === 'arm' ? 'v7' : '',
}

/** The arguments that every build has before its first `FROM`. */
export function platformArgs({ os, arch, variant }: Platform): Record<string, string> {
  const platform = [os, arch, variant].filter((part) => part !== '').join('/')
  return Object.fromEntries(
    ['TARGET', 'BUILD'].flatMap((side) => [
      [`${side}PLATFORM`, platform],
      [`${side}OS`, os],
      [`${side}ARCH`, arch],
      [`${side}VARIANT`, variant],
    ]),
  )
}

/** Throws with the line unless `text` names the platform of this machine: `linux/amd64`, `linux`, `amd64`, `x86_64`. */
export function checkPlatform(text: string, line: number): void {
  const { os, arch, variant } = machinePlatform
  const parts = text.toLowerCase().split('/')
  const [first = '', second, third, ...more] = parts[0] === os ? parts : [os, ...parts]
  const named = second === undefined ? arch : (aliases[second] ?? second)
  const isVariant = third === undefined || third === variant || (arch === 'arm64' && third === 'v8')
  if (first === os && named === arch && isVariant && more.length === 0) return
  throw refused(line, `the platform ${quoted(text)} is not that of this machine, ${os}/${arch}`)
}
