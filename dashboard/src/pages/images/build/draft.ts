import type { ImageManifest } from 'atoll-sdk'
import { quoted } from '../../../lib/quoted.ts'

type Step = NonNullable<ImageManifest['steps']>[number]

/** A step as it is typed. One of `npm` becomes a command: the manifest has no such step. */
export interface DraftStep {
  key: number
  kind: keyof typeof stepKinds
  text: string
  /** Of a file. */
  path: string
}

export const stepKinds = {
  run: 'Run commands',
  apt: 'Debian packages',
  pip: 'Python packages',
  npm: 'npm packages',
  env: 'Variables',
  workdir: 'Working folder',
  file: 'A file',
} as const

/** What the fields of the dialog hold. */
export interface Draft {
  base: string
  steps: readonly DraftStep[]
  dockerfile: string
  reference: string
  builderMemoryMB: string
  runtimeMemoryMB: string
  memory: boolean
  startCommand: string
  readyCommand: string
}

export const emptyDraft: Draft = {
  base: '',
  steps: [{ key: 1, kind: 'run', text: '', path: '' }],
  dockerfile: '',
  reference: '',
  builderMemoryMB: '',
  runtimeMemoryMB: '',
  memory: false,
  startCommand: '',
  readyCommand: '',
}

/** What is wrong with a step before the server sees it; undefined for one that may be sent. */
export function faultOf({ kind, text, path }: DraftStep): string | undefined {
  if (kind === 'env') {
    const index = linesOf(text).findIndex((line) => !/^[A-Za-z_]\w*=/.test(line))
    return index < 0 ? undefined : `Line ${index + 1} is not NAME=value.`
  }
  if (kind === 'workdir' || kind === 'file') {
    const folder = kind === 'file' ? path : text
    if (!isEmpty({ kind, text, path }) && !folder.trim().startsWith('/')) return 'The path begins with /.'
  }
  return undefined
}

/** Says nothing, so it is left out. */
export function isEmpty({ kind, text, path }: Pick<DraftStep, 'kind' | 'text' | 'path'>): boolean {
  return text.trim() === '' && (kind !== 'file' || path.trim() === '')
}

export function manifestOfSteps(draft: Draft): ImageManifest {
  const base = draft.base.trim()
  return {
    ...(base === '' ? {} : { base }),
    steps: draft.steps.filter((step) => !isEmpty(step)).map(stepOf),
    ...optionsOf(draft),
  }
}

export function manifestOfDockerfile(draft: Draft): ImageManifest {
  return { dockerfile: draft.dockerfile, ...optionsOf(draft) }
}

export function manifestOfReference(draft: Draft): ImageManifest {
  return { oci: withRegistry(draft.reference.trim()), steps: [] }
}

function optionsOf(draft: Draft): ImageManifest {
  const number = (text: string) => (text.trim() === '' ? undefined : Number(text))
  const [builderMemoryMB, runtimeMemoryMB] = [number(draft.builderMemoryMB), number(draft.runtimeMemoryMB)]
  return {
    ...(builderMemoryMB === undefined ? {} : { builderMemoryMB }),
    ...(runtimeMemoryMB === undefined ? {} : { runtimeMemoryMB }),
    ...(draft.memory ? { memory: true } : {}),
    ...(draft.memory && draft.startCommand.trim() !== '' ? { startCommand: draft.startCommand } : {}),
    ...(draft.memory && draft.readyCommand.trim() !== '' ? { readyCommand: draft.readyCommand } : {}),
  }
}

function stepOf({ kind, text, path }: DraftStep): Step {
  switch (kind) {
    case 'apt':
      return { type: 'apt_install', args: { packages: wordsOf(text) } }
    case 'pip':
      return { type: 'pip_install', args: { packages: wordsOf(text) } }
    case 'npm': {
      const flags = '--global --no-audit --no-fund --no-update-notifier'
      return { type: 'run', args: { commands: [`npm install ${flags} -- ${wordsOf(text).map(quoted).join(' ')}`] } }
    }
    case 'run':
      return { type: 'run', args: { commands: commandsOf(text) } }
    case 'env':
      return { type: 'env', args: { vars: Object.fromEntries(linesOf(text).map(pairOf)) } }
    case 'workdir':
      return { type: 'workdir', args: { path: text.trim() } }
    case 'file':
      return { type: 'add_file', args: { path: path.trim(), content: base64Of(text), encoding: 'base64' } }
  }
}

function wordsOf(text: string): string[] {
  return text.split(/[\s,]+/).filter((word) => word !== '')
}

function linesOf(text: string): string[] {
  return text.split('\n').filter((line) => line.trim() !== '')
}

/** A command on each line; one that ends with a backslash goes on in the next. */
function commandsOf(text: string): string[] {
  const commands: string[] = []
  let begun = ''
  for (const line of linesOf(text)) {
    begun += line
    if (/(?:^|[^\\])(?:\\\\)*\\$/.test(line)) {
      begun += '\n'
      continue
    }
    commands.push(begun)
    begun = ''
  }
  return begun === '' ? commands : [...commands, begun]
}

function pairOf(line: string): [name: string, value: string] {
  const at = line.indexOf('=')
  return [line.slice(0, at).trim(), line.slice(at + 1)]
}

/** Of the text as UTF-8. */
function base64Of(text: string): string {
  const bytes = new TextEncoder().encode(text)
  const partBytes = 0x8000
  let binary = ''
  for (let at = 0; at < bytes.length; at += partBytes)
    binary += String.fromCharCode(...bytes.subarray(at, at + partBytes))
  return btoa(binary)
}

/** What `docker pull` takes, as a reference with its registry: `python:3.12` is `docker.io/library/python:3.12`. */
export function withRegistry(reference: string): string {
  const [first = '', ...rest] = reference.split('/')
  const isRegistry = rest.length > 0 && (/[.:]/.test(first) || first === 'localhost')
  if (isRegistry) return reference
  return `docker.io/${rest.length === 0 ? 'library/' : ''}${reference}`
}

/** `python-3.12` of `docker.io/library/python:3.12`. */
export function nameOfReference(reference: string): string {
  const [path = ''] = reference.trim().split('@')
  const [repository = '', tag = 'latest'] = (path.split('/').at(-1) ?? '').split(':')
  return tag === 'latest' ? repository : `${repository}-${tag}`
}
