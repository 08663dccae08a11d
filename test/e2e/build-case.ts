/**
 * A case of `test/builds`: a Dockerfile, its context and what must come of it, in one text.
 *
 * ```
 * # The rule in words.
 * -- Dockerfile --            also `crlf`, `bom` behind the name
 * -- before --                a Dockerfile that is built first, with the same context
 * -- context/PATH 0600 --     a file; a folder with `/` at its end; `PATH -> TARGET` a link; `empty`, `gzip`: the bytes of the file;
 *                             `archive [gzip|bzip2|xz|zstd]`: its lines are entries, `file NAME MODE UID:GID "content"`, `dir …`, `link NAME -> TARGET`, `hardlink`, with `{"record":"of pax"}`
 * -- layer --               a layer of an image that the Dockerfile names as `LAYERS`, in the lines of an archive; `layer 128`: so many, with `{n}`
 * -- args --                  `NAME=value`, `--target=STAGE`, `--secret ID=value`
 * -- expect --                see build-expectations.ts
 * ```
 */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { gzipSync, zstdCompressSync } from 'node:zlib'
import { type TarEntry, tarOf } from '../support/oci-image.ts'
import { type Expectation, parseExpectation, parseFacts } from './build-expectations.ts'

export interface BuildCase {
  rule: string
  dockerfile: string
  before?: string
  /** The text of `Dockerfile.dockerignore`. */
  ignored?: string
  files: readonly ContextFile[]
  /** Tars, lowest first. */
  layers: readonly Buffer[]
  buildArgs: Record<string, string>
  target?: string
  /** By id. */
  secrets: Record<string, string>
  expectations: readonly Expectation[]
}

interface ContextFile {
  path: string
  type: 'file' | 'folder' | 'link'
  mode?: number
  content: Buffer
  target?: string
}

export function parseBuildCase(text: string): BuildCase {
  const [head = '', ...rest] = text.split(/^-- (.+) --$\n?/m)
  const sections = Array.from({ length: rest.length / 2 }, (_, n) => section(rest[2 * n]!, rest[2 * n + 1]!))
  const bodyOf = (name: string) => sections.find((it) => it.name === name)?.body
  const args = lines(bodyOf('args'))
  const pairs = (pattern: RegExp) => args.flatMap((arg) => pattern.exec(arg)?.slice(1, 3) ?? [])
  const targets = args.flatMap((arg) => /^--target=(.*)$/.exec(arg)?.[1] ?? [])
  const [before, ignored] = [bodyOf('before'), bodyOf('Dockerfile.dockerignore')]
  const found: BuildCase = {
    rule: head.replaceAll(/^# ?/gm, '').trim(),
    dockerfile: bodyOf('Dockerfile') ?? assert.fail('a Dockerfile'),
    ...(before === undefined ? {} : { before }),
    ...(ignored === undefined ? {} : { ignored }),
    files: sections.flatMap((it) => (it.name.startsWith('context/') ? [contextFile(it)] : [])),
    layers: sections.flatMap(layersOf),
    buildArgs: record(pairs(/^([^-=][^=]*)=(.*)$/)),
    ...(targets[0] === undefined ? {} : { target: targets[0] }),
    secrets: record(pairs(/^--secret ([^=]+)=(.*)$/)),
    expectations: lines(bodyOf('expect')).map(parseExpectation),
  }
  assert.ok(found.rule !== '' && found.expectations.length > 0, 'a rule and expectations')
  return found
}

/** Writes `Dockerfile`, `before` and, below `context`, the files. */
export function writeBuildCase(dir: string, { dockerfile, before, ignored, files }: BuildCase): void {
  writeFileSync(join(dir, 'Dockerfile'), dockerfile)
  if (before !== undefined) writeFileSync(join(dir, 'before'), before)
  if (ignored !== undefined) writeFileSync(join(dir, 'Dockerfile.dockerignore'), ignored)
  mkdirSync(join(dir, 'context'))
  for (const { path, type, mode, content, target } of files) {
    const to = join(dir, 'context', path)
    mkdirSync(dirname(to), { recursive: true })
    if (type === 'link') symlinkSync(target!, to)
    else if (type === 'folder') mkdirSync(to, { recursive: true })
    else writeFileSync(to, content)
    if (mode !== undefined) chmodSync(to, mode)
  }
}

interface Section {
  name: string
  words: string[]
  body: string
}

/** `NAME words…`; a name with blanks ends before the first word that is known, one in quotes is JSON. */
function section(title: string, body: string): Section {
  const prefix = /^(?:context\/)?/.exec(title)![0]
  const quoted = /^"(?:[^"\\]|\\.)*"/.exec(title.slice(prefix.length))?.[0]
  const known = /(?: (?:[0-7]{4}|crlf|bom|empty|archive|gzip|bzip2|xz|zstd))*$/.exec(title)![0]
  const name =
    quoted === undefined ? title.slice(0, title.length - known.length) : prefix + (JSON.parse(quoted) as string)
  const words = known.split(' ').slice(1)
  if (words.includes('crlf')) return { name, words, body: body.replaceAll('\n', '\r\n') }
  return { name, words, body: words.includes('bom') ? `\uFEFF${body}` : body }
}

function contextFile({ name, words, body }: Section): ContextFile {
  const [path = '', target] = name.slice('context/'.length).split(' -> ')
  const digits = words.find((word) => /^\d{4}$/.test(word))
  const mode = digits === undefined ? {} : { mode: Number.parseInt(digits, 8) }
  if (target !== undefined) return { path, type: 'link', target, content: Buffer.alloc(0) }
  if (path.endsWith('/')) return { path, type: 'folder', ...mode, content: Buffer.alloc(0) }
  const bytes = words.includes('archive') ? tarOf(lines(body).map(tarEntry)) : Buffer.from(body)
  const content = words.includes('empty') ? Buffer.alloc(0) : compressed(bytes, words)
  return { path, type: 'file', ...mode, content }
}

function layersOf({ name, body }: Section): Buffer[] {
  const [, count] = /^layer(?: (\d+))?$/.exec(name) ?? []
  if (!name.startsWith('layer')) return []
  const layer = (n: number) => tarOf(lines(body.replaceAll('{n}', String(n))).map(tarEntry))
  return Array.from({ length: Number(count ?? 1) }, (_, n) => layer(n + 1))
}

function compressed(bytes: Buffer, words: readonly string[]): Buffer {
  if (words.includes('gzip')) return gzipSync(bytes)
  if (words.includes('zstd')) return zstdCompressSync(bytes)
  const program = words.find((word) => word === 'bzip2' || word === 'xz')
  return program === undefined ? bytes : execFileSync(program, ['-c'], { input: bytes })
}

const entryTypes: Record<string, TarEntry['type']> = { dir: 'folder', link: 'link', hardlink: 'hardLink' }

function tarEntry(line: string): TarEntry {
  const { kind, path, mode, owner, content, target, records } = parseFacts(line)
  const [uid, gid] = owner?.split(':').map(Number) ?? []
  return {
    path,
    ...(kind === 'file' ? {} : { type: entryTypes[kind] ?? assert.fail(line) }),
    ...(mode === undefined ? {} : { mode: Number.parseInt(mode, 8) }),
    ...(uid === undefined || gid === undefined ? {} : { uid, gid }),
    ...(content === undefined ? {} : { content }),
    ...(target === undefined ? {} : { target }),
    ...(records === undefined ? {} : { records }),
  }
}

function lines(body = ''): string[] {
  return body.split('\n').filter((line) => line.trim() !== '')
}

function record(flat: readonly string[]): Record<string, string> {
  return Object.fromEntries(flat.flatMap((name, n) => (n % 2 === 0 ? [[name, flat[n + 1]!]] : [])))
}
