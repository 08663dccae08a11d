import { AtollError, type CreateSandboxOptions, type ForkOptions } from 'atoll-sdk'
import { defined } from '../../lib/search.ts'
import { type Pair, recordOf } from './pairs-field.tsx'

/** The form of a new sandbox as it is typed; an empty field leaves the choice to the server. */
export interface NewSandbox {
  begin: 'image' | 'checkpoint'
  name: string
  template: string
  checkpoint: string
  cpuCount: string
  memoryMB: string
  diskMB: string
  ttlSeconds: string
  onIdle: '' | 'hibernate' | 'stop'
  maxAgeSeconds: string
  user: string
  envs: readonly Pair[]
  metadata: readonly Pair[]
  secretStore: string
}

export type NewSandboxField = Exclude<keyof NewSandbox, 'begin'>

export const emptySandbox: NewSandbox = {
  begin: 'image',
  name: '',
  template: '',
  checkpoint: '',
  cpuCount: '',
  memoryMB: '',
  diskMB: '',
  ttlSeconds: '',
  onIdle: '',
  maxAgeSeconds: '',
  user: '',
  envs: [],
  metadata: [],
  secretStore: '',
}

/** What a creation from an image and one from a checkpoint both take. */
export function forkOptionsOf(form: NewSandbox): ForkOptions {
  const envs = recordOf(form.envs)
  return defined({
    name: given(form.name.trim()),
    ttlSeconds: numberOf(form.ttlSeconds),
    onIdle: given(form.onIdle),
    maxAgeSeconds: numberOf(form.maxAgeSeconds),
    memoryMB: numberOf(form.memoryMB),
    user: given(form.user.trim()),
    envs: Object.keys(envs).length === 0 ? undefined : envs,
    secretStore: given(form.secretStore),
  })
}

export function createOptionsOf(form: NewSandbox): CreateSandboxOptions {
  const metadata = recordOf(form.metadata)
  return defined({
    ...forkOptionsOf(form),
    template: given(form.template.trim()),
    cpuCount: numberOf(form.cpuCount),
    diskMB: numberOf(form.diskMB),
    metadata: Object.keys(metadata).length === 0 ? undefined : metadata,
  })
}

/** Fields of the API under other names than those of the form. */
const fields: Readonly<Record<string, NewSandboxField>> = {
  templateID: 'template',
  snapshot: 'template',
  timeout: 'ttlSeconds',
  checkpointId: 'checkpoint',
}

/** The field that the server refuses, with its reason; undefined where the error is about none of the form. */
export function refusalOf(error: unknown): { field: NewSandboxField; reason: string } | undefined {
  if (!(error instanceof AtollError)) return undefined
  const { field } = error.details
  const [first = ''] = typeof field === 'string' ? field.split('.') : []
  const known = fields[first] ?? (first in emptySandbox ? (first as NewSandboxField) : undefined)
  return known && { field: known, reason: error.message }
}

function given<Text extends string>(text: Text): Exclude<Text, ''> | undefined {
  return text === '' ? undefined : (text as Exclude<Text, ''>)
}

/** What is no number is sent as it is, so that the server says what is wrong with it. */
function numberOf(text: string): number | undefined {
  return text === '' ? undefined : Number(text)
}
