import { defined } from '../../lib/defined.ts'
import type { ImageConfig } from '../config.ts'
import { refused } from './fault.ts'
import type { StageState } from './operations.ts'
import { portsMax } from './ports.ts'
import type { BaseState } from './stages.ts'

const shellDefault = ['/bin/sh', '-c'] as const
/** Of a stage and all that it stands on, together. */
const variablesMax = 1000
/** What a command in a sandbox takes. */
const variableBytesMax = 128 * 1024
const labelsMax = 1000
const labelBytesMax = 128 * 1024
const volumesMax = 1000

/** What a stage begins with on an image; on `scratch` without one. */
export function initialState({ envs = {}, cwd, user, config = {} }: BaseState = {}): StageState {
  const [program, ...words] = config.shell ?? []
  return {
    envs: { ...envs },
    args: {},
    ...defined({ cwd, user }),
    shell: program === undefined ? shellDefault : [program, ...words],
    config: { ...config },
  }
}

/** Variables of `ENV`, or arguments. Throws with the line when there are too many for a command. */
export function withVariables(
  state: StageState,
  kind: 'envs' | 'args',
  added: Readonly<Record<string, string>>,
  line: number,
): StageState {
  const next = { ...state, [kind]: { ...state[kind], ...added } }
  const all = { ...next.args, ...next.envs }
  if (Object.keys(all).length > variablesMax) throw refused(line, `more than ${variablesMax} variables`)
  if (bytesOf(all) > variableBytesMax)
    throw refused(line, `variables have more than ${variableBytesMax} bytes together`)
  return next
}

export function withLabels(state: StageState, added: Readonly<Record<string, string>>, line: number): StageState {
  const labels = { ...state.config.labels, ...added }
  if (Object.keys(labels).length > labelsMax) throw refused(line, `more than ${labelsMax} labels`)
  if (bytesOf(labels) > labelBytesMax) throw refused(line, `labels have more than ${labelBytesMax} bytes together`)
  return withConfig(state, { labels })
}

export function withPorts(state: StageState, added: readonly string[], line: number): StageState {
  const exposedPorts = [...new Set([...(state.config.exposedPorts ?? []), ...added])]
  if (exposedPorts.length > portsMax) throw refused(line, `more than ${portsMax} ports`)
  return withConfig(state, { exposedPorts })
}

export function withVolumes(state: StageState, added: readonly string[], line: number): StageState {
  const volumes = [...new Set([...(state.config.volumes ?? []), ...added])]
  if (volumes.length > volumesMax) throw refused(line, `more than ${volumesMax} volumes`)
  return withConfig(state, { volumes })
}

/** A `CMD` that the stage itself has not set is that of the base, and made for its entrypoint. */
export function withEntrypoint(state: StageState, entrypoint: readonly string[], hasOwnCmd: boolean): StageState {
  const { cmd, entrypoint: _, ...rest } = state.config
  const config: ImageConfig = { ...rest, ...(hasOwnCmd && cmd !== undefined ? { cmd } : {}) }
  return { ...state, config: entrypoint.length === 0 ? config : { ...config, entrypoint } }
}

export function withCmd(state: StageState, cmd: readonly string[]): StageState {
  const { cmd: _, ...config } = state.config
  return { ...state, config: cmd.length === 0 ? config : { ...config, cmd } }
}

export function withConfig(state: StageState, config: ImageConfig): StageState {
  return { ...state, config: { ...state.config, ...config } }
}

function bytesOf(texts: Readonly<Record<string, string>>): number {
  // An environment has a = and a zero byte more for each.
  return Object.entries(texts).reduce((sum, [name, value]) => sum + Buffer.byteLength(name + value) + 2, 0)
}
