import { readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { commandEnvironment } from '../command.ts'
import type { HostNames } from '../host/names.ts'

const reasonCharsMax = 500

/** Where runc finds CRIU, for the calls that need it, and where it writes what went wrong. */
export interface RuncOptions {
  /** Path of CRIU. */
  criu?: string
  /** Absolute path of a file that this call appends to. */
  log?: string
}

/**
 * The command line of one call of runc on the containers of a data directory. CRIU is handed over in `PATH`: runc 1.1 looks
 * there unless `--criu` says otherwise, and from 1.2 on it ignores that option.
 */
export function runcCommand(
  names: Pick<HostNames, 'runcRoot'>,
  { criu, log }: RuncOptions,
  args: readonly string[],
): [string, ...string[]] {
  const path = criu === undefined ? [] : ['env', `PATH=${dirname(criu)}:${commandEnvironment()['PATH'] ?? ''}`]
  const logging = log === undefined ? [] : ['--log', log, '--log-format', 'json']
  return [...path, 'runc', '--root', names.runcRoot, ...logging, ...args] as [string, ...string[]]
}

/** What runc has logged last, as one bounded line without folders of this data directory; empty when it has said nothing. */
export async function runcFault(log: string, names: Pick<HostNames, 'runDir' | 'dataDir'>): Promise<string> {
  const lines = (await readFile(log, 'utf8').catch(() => '')).trim().split('\n')
  const said = messageOf(lines.at(-1) ?? '')
  const text = [names.runDir, names.dataDir].reduce((rest, folder) => rest.replaceAll(folder, ''), said)
  return text.replaceAll(/[^\x20-\x7e]+/g, ' ').slice(0, reasonCharsMax)
}

function messageOf(line: string): string {
  try {
    const { msg } = JSON.parse(line) as { msg?: unknown }
    return typeof msg === 'string' ? msg : line
  } catch {
    return line
  }
}
