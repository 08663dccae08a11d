import type { SandboxStatus } from 'atoll-sdk'
import { defined, oneOf, textOf } from '../../lib/search.ts'

/** What the list shows: `sort` is the id of a column, with `-` before it for the largest first. `new` opens the dialog that creates one. */
export interface ListSearch {
  text?: string
  state?: SandboxStatus
  sort?: string
  new?: 'sandbox'
  /** The checkpoint that the new one begins with. */
  checkpoint?: string
  /** The image of the new one. */
  template?: string
}

export const states = ['running', 'hibernated', 'creating', 'error'] as const satisfies readonly SandboxStatus[]

export function listSearchOf({
  text,
  state,
  sort,
  new: created,
  checkpoint,
  template,
}: Record<string, unknown>): ListSearch {
  return defined({
    text: textOf(text),
    state: oneOf(states, state),
    sort: textOf(sort),
    new: oneOf(['sandbox'] as const, created),
    checkpoint: textOf(checkpoint),
    template: textOf(template),
  })
}

export const tabs = [
  'overview',
  'terminal',
  'files',
  'ports',
  'processes',
  'metrics',
  'checkpoints',
  'egress',
  'log',
] as const
export type SandboxTab = (typeof tabs)[number]

/** `path` is that of the tab with files, `port` the one that is shown of the tab with ports. */
export interface SandboxSearch {
  tab?: Exclude<SandboxTab, 'overview'>
  path?: string
  port?: number
}

export function sandboxSearchOf({ tab, path, port }: Record<string, unknown>): SandboxSearch {
  const shown = oneOf(tabs, tab)
  const number = Number(port)
  return defined({
    tab: shown === 'overview' ? undefined : shown,
    path: textOf(path),
    port: Number.isInteger(number) && number > 0 && number < 65_536 ? number : undefined,
  })
}
