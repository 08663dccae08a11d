/** Places that packages come from, each for those who have its password or token: git, npm, PyPI, apt, Docker, Go. */
import { execFile, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { credentials } from './places.ts'
import { basicOf, pairs, send, type Exchange, type Response, type Site } from './web.ts'

const run = promisify(execFile)

/** Builds what they serve in a folder. */
export async function packageSites(folder: string): Promise<Record<string, Site>> {
  await mkdir(folder)
  const [git, npm, pypi, apt, go] = await Promise.all([
    gitSite(folder),
    npmSite(folder),
    pypiSite(folder),
    aptSite(folder),
    goSite(folder),
  ])
  return { 'git.test': git, 'npm.test': npm, 'pypi.test': pypi, 'apt.test': apt, 'go.test': go, ...registrySites() }
}

/** `git http-backend` over one private repository, `private.git`, that can be pushed to. */
async function gitSite(folder: string): Promise<Site> {
  const root = `${folder}/git`
  const repository = `${root}/private.git`
  await run('git', ['init', '--quiet', '--bare', '--initial-branch=main', repository])
  await run('git', ['-C', repository, 'config', 'http.receivepack', 'true'])
  const work = `${folder}/git-work`
  await run('git', ['clone', '--quiet', repository, work])
  await writeFile(`${work}/README`, 'a private file\n')
  const author = ['-c', 'user.name=test', '-c', 'user.email=test@test']
  await run('git', ['-C', work, 'add', '.'])
  await run('git', ['-C', work, ...author, 'commit', '--quiet', '--message', 'first'])
  await run('git', ['-C', work, 'push', '--quiet', 'origin', 'HEAD:main'])
  return async (exchange) => {
    if (basicOf(exchange.seen).password !== credentials.git) return unauthorised(exchange.response, 'Basic realm="git"')
    await cgi(exchange, root)
  }
}

/** RFC 3875, as far as `git http-backend` uses it. */
async function cgi({ request, response, seen, url, body }: Exchange, root: string): Promise<void> {
  const fields = pairs(seen)
  const input = await body()
  const child = spawn('git', ['http-backend'], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: {
      PATH: process.env['PATH'],
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: '1',
      REMOTE_USER: 'test',
      REQUEST_METHOD: request.method,
      PATH_INFO: url.pathname,
      QUERY_STRING: url.search.slice(1),
      CONTENT_TYPE: fields['content-type'] ?? '',
      CONTENT_LENGTH: String(input.length),
      HTTP_CONTENT_ENCODING: fields['content-encoding'] ?? '',
      GIT_PROTOCOL: fields['git-protocol'] ?? '',
    },
  })
  // It may end before it has read all.
  child.stdin.on('error', () => undefined)
  child.stdin.end(input)
  const output = Buffer.concat(await child.stdout.toArray())
  const end = output.indexOf('\r\n\r\n')
  const headers: Record<string, string> = {}
  for (const line of output.toString('latin1', 0, end).split('\r\n')) {
    const [, name = '', value = ''] = /^([^:]+): *(.*)$/.exec(line) ?? []
    headers[name.toLowerCase()] = value
  }
  const status = Number(headers['status']?.slice(0, 3) ?? 200)
  delete headers['status']
  const writer = response as ServerResponse
  writer.writeHead(status, headers)
  writer.end(output.subarray(end + 4))
}

async function npmSite(folder: string): Promise<Site> {
  const work = `${folder}/npm/package`
  await mkdir(work, { recursive: true })
  await writeFile(`${work}/package.json`, JSON.stringify({ name: 'atoll-test', version: '1.0.0', main: 'index.js' }))
  await writeFile(`${work}/index.js`, "module.exports = 'from npm'\n")
  await run('tar', ['--create', '--gzip', '--file', `${folder}/npm.tgz`, '--directory', `${folder}/npm`, 'package'])
  const archive = await readFile(`${folder}/npm.tgz`)
  const integrity = `sha512-${createHash('sha512').update(archive).digest('base64')}`
  const version = {
    name: 'atoll-test',
    version: '1.0.0',
    dist: { tarball: 'https://npm.test/atoll-test/-/atoll-test-1.0.0.tgz', integrity },
  }
  const document = { name: 'atoll-test', 'dist-tags': { latest: '1.0.0' }, versions: { '1.0.0': version } }
  return ({ response, seen, url }) => {
    if (pairs(seen)['authorization'] !== `Bearer ${credentials.npm}`) return unauthorised(response, 'Bearer')
    if (url.pathname === '/atoll-test') return sendJson(response, document)
    if (url.pathname.endsWith('.tgz')) return send(response, 200, archive)
    send(response, 404, '{}')
  }
}

/** A simple index (PEP 503) with one wheel. */
async function pypiSite(folder: string): Promise<Site> {
  const file = 'atoll_test-1.0-py3-none-any.whl'
  const program = `
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('atoll_test.py', "said = 'from pypi'\\n")
    wheel.writestr('atoll_test-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: atoll-test\\nVersion: 1.0\\n')
    wheel.writestr('atoll_test-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('atoll_test-1.0.dist-info/RECORD', 'atoll_test.py,,\\n')`
  await run('python3', ['-c', program, `${folder}/${file}`])
  const wheel = await readFile(`${folder}/${file}`)
  return ({ response, seen, url }) => {
    if (basicOf(seen).password !== credentials.pypi) return unauthorised(response, 'Basic realm="pypi"')
    if (url.pathname === `/files/${file}`) return send(response, 200, wheel)
    const page = `<!DOCTYPE html><a href="/files/${file}#sha256=${sha256(wheel)}">${file}</a>`
    send(response, url.pathname === '/simple/atoll-test/' ? 200 : 404, page, { 'content-type': 'text/html' })
  }
}

/** A flat repository with one package. */
async function aptSite(folder: string): Promise<Site> {
  const work = `${folder}/deb`
  await mkdir(`${work}/DEBIAN`, { recursive: true })
  await mkdir(`${work}/opt`)
  await writeFile(`${work}/opt/atoll-test`, 'from apt\n')
  const control =
    'Package: atoll-test\nVersion: 1.0\nArchitecture: all\nMaintainer: test <test@test>\nDescription: test\n'
  await writeFile(`${work}/DEBIAN/control`, control)
  await run('dpkg-deb', ['--build', '--root-owner-group', work, `${folder}/atoll-test.deb`])
  const archive = await readFile(`${folder}/atoll-test.deb`)
  const index = `${control}Filename: ./atoll-test.deb\nSize: ${archive.length}\nSHA256: ${sha256(archive)}\n`
  const release = `Suite: test\nDate: ${new Date().toUTCString()}\nSHA256:\n ${sha256(index)} ${Buffer.byteLength(index)} Packages\n`
  const files: Record<string, Buffer | string> = {
    '/Release': release,
    '/Packages': index,
    '/atoll-test.deb': archive,
  }
  return ({ response, seen, url }) => {
    if (basicOf(seen).password !== credentials.apt) return unauthorised(response, 'Basic realm="apt"')
    const found = files[url.pathname.replace('/./', '/')]
    send(response, found === undefined ? 404 : 200, found ?? '')
  }
}

/** A registry whose token comes from its own `/token`, and whose blobs come from another host. */
function registrySites(): Record<string, Site> {
  const token = sha256('token of the registry')
  const blob = gzipSync('a layer')
  const config = '{"architecture":"amd64","os":"linux"}'
  const blobs = new Map([blob, Buffer.from(config)].map((bytes) => [`sha256:${sha256(bytes)}`, bytes]))
  const describe = (mediaType: string, bytes: Buffer | string) => ({
    mediaType,
    digest: `sha256:${sha256(bytes)}`,
    size: Buffer.byteLength(bytes),
  })
  const type = 'application/vnd.oci.image.manifest.v1+json'
  const manifest = JSON.stringify({
    schemaVersion: 2,
    mediaType: type,
    config: describe('application/vnd.oci.image.config.v1+json', config),
    layers: [describe('application/vnd.oci.image.layer.v1.tar+gzip', blob)],
  })
  const registry: Site = ({ response, seen, url }) => {
    if (url.pathname === '/token') {
      if (basicOf(seen).password !== credentials.registry) return unauthorised(response, 'Basic realm="registry"')
      return sendJson(response, { token })
    }
    const challenge =
      'Bearer realm="https://registry.test/token",service="registry.test",scope="repository:private:pull"'
    if (pairs(seen)['authorization'] !== `Bearer ${token}`) return unauthorised(response, challenge)
    if (url.pathname === '/v2/') return send(response, 200, '{}')
    const [, kind, reference = ''] = /^\/v2\/private\/(manifests|blobs)\/([^/]+)$/.exec(url.pathname) ?? []
    if (kind === 'manifests') return send(response, 200, manifest, { 'content-type': type })
    if (kind === 'blobs') return send(response, 307, '', { location: `https://storage.test/${reference}` })
    send(response, 404, '{}')
  }
  const storage: Site = ({ response, url }) => {
    const found = blobs.get(url.pathname.slice(1))
    send(response, found === undefined ? 404 : 200, found ?? '')
  }
  return { 'registry.test': registry, 'storage.test': storage }
}

/** A module proxy (`GOPROXY`) with one module. */
async function goSite(folder: string): Promise<Site> {
  const program = `
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as module:
    module.writestr('go.test/module@v1.0.0/go.mod', 'module go.test/module\\n')
    module.writestr('go.test/module@v1.0.0/said.go', 'package module\\n')`
  await run('python3', ['-c', program, `${folder}/module.zip`])
  const files: Record<string, Buffer | string> = {
    '/go.test/module/@v/list': 'v1.0.0\n',
    '/go.test/module/@v/v1.0.0.info': '{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}',
    '/go.test/module/@v/v1.0.0.mod': 'module go.test/module\n',
    '/go.test/module/@v/v1.0.0.zip': await readFile(`${folder}/module.zip`),
  }
  return ({ response, seen, url }) => {
    if (basicOf(seen).password !== credentials.go) return unauthorised(response, 'Basic realm="go"')
    const found = files[url.pathname]
    send(response, found === undefined ? 404 : 200, found ?? '')
  }
}

function sendJson(response: Response, value: unknown): void {
  send(response, 200, JSON.stringify(value), { 'content-type': 'application/json' })
}

function unauthorised(response: Response, challenge: string): void {
  send(response, 401, '{"errors":[{"code":"UNAUTHORIZED"}]}', { 'www-authenticate': challenge })
}

function sha256(bytes: Buffer | string): string {
  return createHash('sha256').update(bytes).digest('hex')
}
