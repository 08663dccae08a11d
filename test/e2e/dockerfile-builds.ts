import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { HostNames } from '../../src/runtime/host-names.ts'
import { tarEnd, tarFile } from '../../src/protocol/tar-writer.ts'
import type { AtollServer } from './server.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

export interface Row {
  id: string
  name?: string
  status: string
  error?: string
  line?: number
  contentHash: string
  checkpointId?: string
}

export type Files = Record<string, string | Buffer | { content: string | Buffer; mode: number } | { link: string }>

function* entriesOf(files: Files) {
  for (const [path, given] of Object.entries(files)) {
    if (typeof given === 'object' && 'link' in given) {
      yield { path, type: 'symlink' as const, mode: 0o777, target: given.link }
      continue
    }
    const { content, mode } = typeof given === 'object' && 'mode' in given ? given : { content: given, mode: 0o644 }
    const bytes = Buffer.from(content)
    const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`
    yield { path, type: 'file' as const, mode, digest, size: bytes.length, bytes }
  }
}

interface Built {
  status: number
  body: Row
  /** The lines of its log. */
  log: string[]
}

export const stepsRun = (log: readonly string[]) =>
  log.filter((line) => /^\[.*\d\/\d+\] /.test(line) && !/: reused$| done in /.test(line))

/** Builds of Dockerfiles over the API of a server, and what is left of them. */
export function dockerfileBuilds(server: AtollServer) {
  // oxlint-disable-next-line typescript/no-explicit-any
  async function api<Answer = any>(method: string, path: string, body?: object) {
    const answer = await fetch(`${server.url}/api${path}`, {
      method,
      headers: { 'x-api-key': server.key },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await answer.text()
    return { status: answer.status, body: (text === '' ? undefined : JSON.parse(text)) as Answer }
  }

  /** Sends files and returns the id of the context. */
  async function contextOf(files: Files): Promise<string> {
    const entries = [...entriesOf(files)]
    const listed = entries.map((entry) => ({ ...entry, bytes: undefined }))
    const made = await api('POST', '/images/contexts', { files: listed })
    assert.equal(made.status, 201, JSON.stringify(made.body))
    const { id, missing, uploadUrl } = made.body
    const parts = entries.flatMap((entry) => {
      if (entry.type !== 'file' || !missing.includes(entry.digest)) return []
      const { path, mode, bytes } = entry
      return tarFile({ name: path, mode, modifiedSeconds: 0 }, bytes)
    })
    if (missing.length > 0) {
      const sent = await fetch(uploadUrl, { method: 'PUT', body: Buffer.concat([...parts, tarEnd]) })
      assert.equal(sent.status, 200, await sent.text())
    }
    return id
  }

  async function build(dockerfile: string | string[], image: object = {}, name = 'built'): Promise<Built> {
    const text = typeof dockerfile === 'string' ? dockerfile : dockerfile.join('\n')
    const { status, body } = await api('POST', '/snapshots', {
      name,
      replace: true,
      image: { dockerfile: text, ...image },
    })
    return { status, body, log: await logOf(name) }
  }

  async function logOf(name: string): Promise<string[]> {
    const answer = await fetch(`${server.url}/api/images/${name}/log`, { headers: { 'x-api-key': server.key } })
    return (await answer.text()).split('\n')
  }

  /** What a command prints in a sandbox from an image. */
  async function printedIn(image: string, command: string): Promise<string> {
    const { body, status } = await api('POST', '/sandboxes', { templateID: image })
    assert.equal(status, 201, JSON.stringify(body))
    const { sandboxID } = body
    const ran = await api('POST', `/sandboxes/${sandboxID}/exec/run`, {
      cmd: 'sh',
      args: ['-c', command],
      user: 'root',
    })
    await api('DELETE', `/sandboxes/${sandboxID}`)
    assert.equal(ran.body.exitCode, 0, JSON.stringify(ran.body))
    return ran.body.stdout
  }

  const rows = async () => (await api<Row[]>('GET', '/images')).body
  const sandboxes = async () => (await api<{ sandboxID: string }[]>('GET', '/sandboxes')).body.map((it) => it.sandboxID)
  const layersOnDisk = () => readdir(new HostNames(server.dataDir).poolDir + '/layers')

  async function deleteAll(): Promise<void> {
    for (const id of await sandboxes()) await api('DELETE', `/sandboxes/${id}`)
    for (const { id } of await rows()) await api('DELETE', `/images/${id}`)
  }

  async function untilNothingIsLeft(): Promise<void> {
    await eventually(async () => (await layersOnDisk()).length === 0, { what: 'no layer is left' })
    assert.deepEqual(await sandboxes(), [])
  }

  return { api, contextOf, build, logOf, printedIn, rows, sandboxes, layersOnDisk, deleteAll, untilNothingIsLeft }
}
