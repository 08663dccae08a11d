import { quoted, refused, suggestion } from './fault.ts'
import type { RawInstruction } from './lines.ts'

type Kind = 'text' | 'list' | 'boolean'

const copyFlags = { chown: 'text', chmod: 'text', link: 'boolean', exclude: 'list' } as const
const known: Readonly<Record<string, Readonly<Record<string, Kind>>>> = {
  FROM: { platform: 'text' },
  RUN: { mount: 'list', network: 'text', security: 'text', device: 'list' },
  COPY: { ...copyFlags, from: 'text', parents: 'boolean' },
  ADD: { ...copyFlags, checksum: 'text', 'keep-git-dir': 'boolean', unpack: 'boolean' },
  HEALTHCHECK: { interval: 'text', timeout: 'text', 'start-period': 'text', 'start-interval': 'text', retries: 'text' },
}

/** The flags of an instruction by name. Throws with the line of one that it does not have, or that stands there twice. */
export class Flags {
  readonly #values = new Map<string, string[]>()

  constructor({ name, flags, line }: RawInstruction) {
    const kinds = known[name] ?? {}
    for (const flag of flags) {
      const equals = flag.indexOf('=')
      const key = equals < 0 ? flag.slice(2) : flag.slice(2, equals)
      const kind = Object.hasOwn(kinds, key) ? kinds[key] : undefined
      if (kind === undefined)
        throw refused(line, `${name} has no flag ${quoted(`--${key}`)}${suggestion(key, Object.keys(kinds))}`)
      const value = equals < 0 ? undefined : flag.slice(equals + 1)
      const before = this.#values.get(key) ?? []
      if (kind !== 'list' && before.length > 0) throw refused(line, `${name} has --${key} twice`)
      if (kind === 'boolean') {
        if (!['true', 'false', '', undefined].includes(value?.toLowerCase()))
          throw refused(line, `--${key} takes true or false`)
      } else if (value === undefined) throw refused(line, `--${key} takes a value: --${key}=…`)
      before.push(value ?? 'true')
      this.#values.set(key, before)
    }
  }

  text(name: string): string | undefined {
    return this.#values.get(name)?.[0]
  }

  list(name: string): readonly string[] {
    return this.#values.get(name) ?? []
  }

  boolean(name: string): boolean | undefined {
    const value = this.text(name)
    return value === undefined ? undefined : value.toLowerCase() !== 'false'
  }
}
