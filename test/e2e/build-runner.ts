import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Atoll, AtollError, Image } from '../../sdk/src/index.ts'
import { imageOf, ociArchiveOf } from '../support/oci-image.ts'
import { type BuildCase, writeBuildCase } from './build-case.ts'
import { type FoundEntry, type Outcome, pathsOf } from './build-expectations.ts'
import type { AtollServer } from './server.ts'

/** What a path is, told by one command for all of them. */
const look = `
import json, grp, os, pwd, stat, sys
def name(table, id):
    try: return table(id)[0]
    except KeyError: return str(id)
found = {}
for path in json.loads(sys.argv[1]):
    try: it = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError): continue
    kind = 'link' if stat.S_ISLNK(it.st_mode) else 'dir' if stat.S_ISDIR(it.st_mode) else 'file' if stat.S_ISREG(it.st_mode) else 'other'
    entry = {'kind': kind, 'mode': '%04o' % stat.S_IMODE(it.st_mode), 'inode': str(it.st_ino),
             'owner': name(pwd.getpwuid, it.st_uid) + ':' + name(grp.getgrgid, it.st_gid)}
    if kind == 'link': entry['target'] = os.readlink(path)
    if kind == 'dir': entry['names'] = os.listdir(path)
    if kind == 'file': entry['content'] = open(path, errors='surrogateescape', newline='').read(65536)
    found[path] = entry
print(json.dumps(found))
`

/** Builds a case under this name as the SDK does, and looks at what has come of it in a sandbox. Leaves nothing. */
export async function runBuildCase(server: AtollServer, name: string, it: BuildCase): Promise<Outcome> {
  const dir = mkdtempSync(join(tmpdir(), 'atoll-build-'))
  const client = new Atoll({ url: server.url, apiKey: server.key })
  const { buildArgs, target, secrets } = it
  const build = (built: string, dockerfile: string) =>
    Image.fromDockerfile({ context: join(dir, 'context'), dockerfile: join(dir, dockerfile) }).build(built, {
      ...{ client, buildArgs, secrets, noCache: true },
      ...(target === undefined ? {} : { target }),
    })
  try {
    writeBuildCase(dir, { ...it, dockerfile: it.dockerfile.replaceAll('LAYERS', layersName(name)) })
    if (it.layers.length > 0) await importLayers(server, layersName(name), it.layers)
    if (it.before !== undefined) await (await build(`${name}-before`, 'before')).delete()
    const error = await build(name, 'Dockerfile').then(
      () => undefined,
      (reason: unknown) => failure(reason),
    )
    return await outcome(server, name, it, error)
  } finally {
    rmSync(dir, { recursive: true })
    for (const made of [name, layersName(name)]) await server.fetch(`/api/snapshots/${made}`, { method: 'DELETE' })
  }
}

const layersName = (name: string) => `${name}-layers`

async function importLayers(server: AtollServer, name: string, layers: readonly Buffer[]): Promise<void> {
  const body = ociArchiveOf(imageOf(layers))
  const answer = await server.fetch(`/api/images/${name}/archive`, { method: 'PUT', body })
  if (!answer.ok) throw new Error(await answer.text())
}

function failure(reason: unknown): Outcome['error'] {
  if (!(reason instanceof AtollError)) throw reason
  const { line } = reason.details
  return { message: reason.message, ...(typeof line === 'number' ? { line } : {}) }
}

async function outcome(
  server: AtollServer,
  name: string,
  { expectations }: BuildCase,
  error: Outcome['error'],
): Promise<Outcome> {
  const log = await (await server.fetch(`/api/images/${name}/log`)).text()
  const none = { log, config: {}, entries: {}, envs: {}, cwd: '', user: '' }
  if (error) return { ...none, error }
  const { config = {} } = (await server.json('GET', `/api/snapshots/${name}`)) as { config?: Record<string, unknown> }
  if (expectations.every(({ type }) => type === 'config' || type.endsWith('log'))) return { ...none, config }
  const started = (await server.json('POST', '/api/sandboxes', { snapshot: name })) as { sandboxID: string }
  const path = `/api/sandboxes/${started.sandboxID}`
  const run = async (cmd: string, args: string[], user?: string) => {
    const body = { cmd, args, ...(user === undefined ? {} : { user, cwd: '/' }) }
    const ended = (await server.json('POST', `${path}/exec/run`, body)) as {
      exitCode: number
      stdout: string
      stderr: string
    }
    if (ended.exitCode !== 0) throw new Error(`${cmd}: ${ended.stderr}`)
    return ended.stdout
  }
  try {
    const [whole, entries] = await Promise.all([
      run('/bin/sh', ['-c', 'pwd; id -un 2> /dev/null || id -u; env -0']),
      run('python3', ['-c', look, JSON.stringify(pathsOf(expectations))], 'root'),
    ])
    const [, cwd = '', user = '', variables = ''] = /^(.*)\n(.*)\n([^]*)$/.exec(whole) ?? []
    const envs = variables.split('\0').map((variable) => [variable.split('=', 1)[0]!, variable.replace(/^[^=]*=/, '')])
    return {
      log,
      config,
      entries: JSON.parse(entries) as Record<string, FoundEntry>,
      envs: Object.fromEntries(envs) as Record<string, string>,
      cwd,
      user,
    }
  } finally {
    await server.json('DELETE', path)
  }
}
