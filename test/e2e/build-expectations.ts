/**
 * What a case of `test/builds` expects, a line each. Paths and names may be JSON strings.
 *
 * ```
 * file PATH [MODE] [OWNER:GROUP] ["content"]     dir PATH [MODE] [OWNER:GROUP]     link PATH -> TARGET [OWNER:GROUP]
 * absent PATH     names FOLDER: NAME…  (all that it has)     same PATH PATH  (one file)
 * env NAME=VALUE     unset NAME     cwd PATH     user NAME     as a command of a sandbox has them
 * config {JSON}      of these facts of the image; null: absent
 * log WORDS          no-log WORDS
 * fails: WORDS       fails line N: WORDS         of the error; `*` for any line
 * ```
 */
import assert from 'node:assert/strict'
import { isDeepStrictEqual } from 'node:util'

export interface Facts {
  kind: string
  path: string
  mode?: string
  owner?: string
  content?: string
  target?: string
  /** Of pax, for an entry of an archive. */
  records?: Record<string, string>
}

export type Expectation =
  | ({ type: 'entry' } & Facts)
  | { type: 'names'; path: string; names: string[] }
  | { type: 'same'; paths: string[] }
  | { type: 'env'; name: string; value?: string }
  | { type: 'cwd' | 'user' | 'log' | 'no-log'; value: string }
  | { type: 'config'; facts: Record<string, unknown> }
  | { type: 'fails'; line?: number | '*'; words: string }

/** What a build has come to. */
export interface Outcome {
  error?: { message: string; line?: number }
  log: string
  config: Record<string, unknown>
  /** By path; absent ones are absent. */
  entries: Record<string, FoundEntry>
  envs: Record<string, string>
  cwd: string
  user: string
}

export interface FoundEntry {
  kind: 'file' | 'dir' | 'link' | 'other'
  mode: string
  owner: string
  inode: string
  content?: string
  target?: string
  names?: string[]
}

export function parseExpectation(line: string): Expectation {
  const [, type = '', rest = ''] = /^(\S+)(?: (.*))?$/.exec(line) ?? []
  switch (type) {
    case 'file':
    case 'dir':
    case 'link':
    case 'absent':
      return { type: 'entry', ...parseFacts(line) }
    case 'names': {
      const [path = '', ...names] = words(rest)
      return { type, path: path.replace(/:$/, ''), names: names.toSorted() }
    }
    case 'same':
      return { type, paths: words(rest) }
    case 'env': {
      const [, name = '', value = ''] = /^(\w+)=(.*)$/.exec(rest) ?? []
      return { type, name, value }
    }
    case 'unset':
      return { type: 'env', name: rest }
    case 'cwd':
    case 'user':
    case 'log':
    case 'no-log':
      return { type, value: rest }
    case 'config':
      return { type, facts: JSON.parse(rest) as Record<string, unknown> }
    case 'fails:':
      return { type: 'fails', words: rest }
    case 'fails': {
      const [, at = '', text = ''] = /^line (\d+|\*): (.*)$/.exec(rest) ?? assert.fail(line)
      return { type, line: at === '*' ? at : Number(at), words: text }
    }
    default:
      return assert.fail(`no expectation: ${line}`)
  }
}

export function parseFacts(line: string): Facts {
  const [text, target] = line.split(' -> ')
  const [kind = '', path = '', ...more] = words(text!)
  const facts: Facts = { kind, path }
  const [to, ...behind] = words(target ?? '')
  if (to !== undefined) facts.target = to
  for (const [word, quoted] of [...words(text!, true).slice(2), ...behind.map((it) => [it, false] as const)]) {
    if (quoted) facts.content = word
    else if (word.startsWith('{')) facts.records = JSON.parse(word) as Record<string, string>
    else if (/^[0-7]{4}$/.test(word)) facts.mode = word
    else if (word.includes(':')) facts.owner = word
    else assert.fail(`not understood: ${word} of ${line}`)
  }
  assert.ok(path !== '' && more.length <= 3, line)
  return facts
}

/** What the outcome lacks, in words. */
export function faultsOf(expectations: readonly Expectation[], outcome: Outcome): string[] {
  const failure = expectations.find((it) => it.type === 'fails')
  if (failure) return failureFaults(failure, outcome)
  if (outcome.error) return [`failed: ${outcome.error.message}`]
  return expectations.flatMap((it) => faults(it, outcome))
}

/** The paths whose entries `faultsOf` wants to know. */
export function pathsOf(expectations: readonly Expectation[]): string[] {
  return expectations.flatMap((it) => (it.type === 'same' ? it.paths : 'path' in it ? [it.path] : []))
}

function failureFaults(failure: Expectation & { type: 'fails' }, { error }: Outcome): string[] {
  if (error === undefined) return ['was built, and must fail']
  const { line, words: text } = failure
  const faulty = []
  if (!error.message.toLowerCase().includes(text.toLowerCase())) faulty.push(`“${text}” is not in: ${error.message}`)
  if (line === '*' ? error.line === undefined : line !== undefined && error.line !== line)
    faulty.push(`line ${error.line} in place of ${line}: ${error.message}`)
  return faulty
}

function faults(expectation: Expectation, outcome: Outcome): string[] {
  const differs = (what: string, found: unknown, expected: unknown) =>
    isDeepStrictEqual(found, expected)
      ? []
      : [`${what}: ${JSON.stringify(found)} in place of ${JSON.stringify(expected)}`]
  switch (expectation.type) {
    case 'entry':
      return entryFaults(expectation, outcome.entries[expectation.path], differs)
    case 'names':
      return differs(
        `names in ${expectation.path}`,
        outcome.entries[expectation.path]?.names?.toSorted(),
        expectation.names,
      )
    case 'same': {
      const inodes = expectation.paths.map((path) => outcome.entries[path]?.inode ?? path)
      return differs(expectation.paths.join(' and '), new Set(inodes).size, 1)
    }
    case 'env':
      return differs(`$${expectation.name}`, outcome.envs[expectation.name], expectation.value)
    case 'cwd':
    case 'user':
      return differs(expectation.type, outcome[expectation.type], expectation.value)
    case 'config':
      return Object.entries(expectation.facts).flatMap(([name, expected]) =>
        differs(name, outcome.config[name] ?? null, expected),
      )
    case 'log':
      return outcome.log.includes(expectation.value)
        ? []
        : [`“${expectation.value}” is not in the log:\n${outcome.log}`]
    case 'no-log':
      return outcome.log.includes(expectation.value) ? [`“${expectation.value}” is in the log:\n${outcome.log}`] : []
    case 'fails':
      return []
  }
}

function entryFaults(
  { kind, path, mode, owner, content, target }: Facts,
  found: FoundEntry | undefined,
  differs: (what: string, found: unknown, expected: unknown) => string[],
): string[] {
  if (kind === 'absent' || found === undefined) return differs(path, found === undefined ? 'absent' : found.kind, kind)
  return [
    ...differs(path, found.kind, kind),
    ...(mode === undefined ? [] : differs(`mode of ${path}`, found.mode, mode)),
    ...(owner === undefined ? [] : differs(`owner of ${path}`, found.owner, owner)),
    ...(content === undefined ? [] : differs(`content of ${path}`, found.content, content)),
    ...(target === undefined ? [] : differs(`target of ${path}`, found.target, target)),
  ]
}

function words(text: string): string[]
function words(text: string, marked: true): [word: string, quoted: boolean][]
function words(text: string, marked?: true): unknown[] {
  const found = [...text.matchAll(/"(?:[^"\\]|\\.)*"|\S+/g)].map(([word]): [string, boolean] =>
    word.startsWith('"') ? [JSON.parse(word) as string, true] : [word, false],
  )
  return marked ? found : found.map(([word]) => word)
}
