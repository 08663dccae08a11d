import { UsageError } from './exit-codes.ts'

/** A port of this machine that leads to one of a sandbox. */
export interface PortMapping {
  /** The address here; undefined: all. */
  bind: string | undefined
  /** 0 takes a free one. */
  local: number
  remote: number
}

const defaultBind = '127.0.0.1'

/** Parses `[BIND:]LOCAL:REMOTE`, as `ssh -L` and `docker -p` have it, or `PORT` for the same port here and there. */
export function parseMapping(text: string): PortMapping {
  const [, bind, local, remote = ''] = /^(?:(?:(\[[^\]]*\]|[^:[\]]*):)?(\d{1,5}):)?(\d{1,5})$/.exec(text) ?? []
  const mapping = { bind: bindOf(bind), local: Number(local ?? remote), remote: Number(remote) }
  if (mapping.remote < 1 || mapping.remote > 65_535 || mapping.local > 65_535) {
    throw new UsageError(`${JSON.stringify(text)} is no port: it must be PORT or [BIND:]LOCAL:REMOTE`)
  }
  return mapping
}

function bindOf(text: string | undefined): string | undefined {
  if (text === undefined) return defaultBind
  return text === '*' || text === '' ? undefined : text.replace(/^\[|\]$/g, '')
}
