/** Images that leave: archives that other programs read, and registries that ask who is there. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { Atoll, Image, NotFoundError, Sandbox } from '../../sdk/src/index.ts'
import { startDebianRegistry, startTestRegistry, testUser } from '../support/image-registry.ts'
import { imageOf, ociArchiveOf, tarOf } from '../support/oci-image.ts'
import { AtollServer } from './server.ts'

const run = promisify(execFile)
const work = mkdtempSync(`${tmpdir()}/atoll-registries-`)
after(() => rm(work, { recursive: true, force: true }))
await using stack = new AsyncDisposableStack()
const registry = stack.use(await startDebianRegistry())
const open = stack.use(await startTestRegistry())
const kept = stack.move()
after(() => kept.disposeAsync())
const insecure = { insecure: true }
const server = await AtollServer.startForFile({
  env: {
    ATOLL_REGISTRIES: JSON.stringify({ [registry.host]: insecure, [open.host]: insecure, 'no-such.invalid': {} }),
  },
})
const client = new Atoll({ url: server.url, apiKey: server.key })
const slow = { requestTimeoutMs: 120_000 }

/** What tells trees apart, but for the times of folders and parts of seconds, which no tar has. */
const tree = String.raw`cd / && own='-path ./proc -o -path ./sys -o -path ./dev -o -path ./.atoll -o -path ./etc/hosts -o -path ./etc/hostname
  -o -path ./run/atoll -o -path ./etc/machine-id -o -path ./etc/resolv.conf' && set -f && find . -xdev \( $own \) -prune -o -printf '%p %y %m %U:%G %l\n' &&
  find . -xdev \( $own \) -prune -o -type f -printf '%p %s %T@\n' | sed 's/[.][0-9]*$//' && find opt etc -xdev -type f ! -path 'etc/[hmr]*' -exec sha256sum {} +`
const steps = [
  // What is deleted is in no archive, and a small one is made sooner.
  `rm -rf /usr/local /usr/share /usr/sbin /usr/lib/git-core /usr/lib/apt /usr/lib/openssh /usr/lib/*/perl* /usr/lib/*/gconv
  cd /usr/bin && rm -rf git* perl* rg scalar openssl ssh* rsync apt* dpkg* sqlite*
  cd /usr/lib/*-linux-gnu && rm -rf libicu* libperl* libgnutls* libunistring* libdb-* libapt* libstdc++* libsqlite*`,
  `mkdir -p /opt/tree/deep && cd /opt/tree && printf hello > file && chown 1234:5678 file && chmod 4750 file && ln file hard
  ln -s ../no/where link && printf x > 'name with ü and
newline' && : > empty && mkdir -m 2775 shared && mkfifo pipe && truncate -s 3M sparse && touch -d '2001-02-03 04:05:06' file
  setfattr -n user.note -v kept file 2>/dev/null || python3 -c 'import os; os.setxattr("file", "user.note", b"kept")'
  rm -r /var/lib/dpkg; mkdir /var/lib/dpkg; head -c 200000 /dev/urandom > random`,
]

async function printed(sandbox: Sandbox, command: string): Promise<string> {
  const { exitCode, stdout, stderr } = await sandbox.run(command)
  assert.equal(exitCode, 0, stderr)
  return stdout
}

async function linesOf(sandbox: Sandbox): Promise<string[]> {
  await printed(sandbox, `(${tree}) | sort > /dev/shm/tree`)
  return (await sandbox.files.readText('/dev/shm/tree')).split('\n')
}

async function writeExport(image: Image, file: string): Promise<void> {
  await writeFile(file, await image.archive(slow))
}

let image: Image
let small: Image
const facts = {
  ...{ Entrypoint: ['/run me'], Cmd: ['a', ''], User: '7:8', Env: ['A=b'], WorkingDir: '/w', StopSignal: 'SIGINT' },
  ...{ Labels: { 'a.b': 'c' }, ExposedPorts: { '80/tcp': {} }, Volumes: { '/data': {} } },
}
/** Of Docker alone: skopeo leaves them out. */
const ofDocker = {
  Healthcheck: { Test: ['CMD', 'true'], Interval: 2_000_000_000, Retries: 3 },
  Shell: ['/bin/ash', '-c'],
}
before(async () => {
  const manifest = {
    steps: [
      ...steps.map((command) => ({ type: 'run' as const, args: { commands: [command] } })),
      { type: 'env' as const, args: { vars: { COLOUR: 'blue = green' } } },
      { type: 'workdir' as const, args: { path: '/opt/tree' } },
    ],
  }
  image = await Image.build('tree:1', manifest, { client })
  const layer = tarOf([
    { path: 'w', type: 'folder' },
    { path: 'w/f', content: 'x' },
  ])
  small = await Image.fromArchive('small', ociArchiveOf(imageOf([layer], { config: { ...facts, ...ofDocker } })), {
    client,
  })
})

test('image export: an import of it has the same tree, variables and folder', async () => {
  await writeExport(image, `${work}/tree.tar`)
  await using from = await Sandbox.create({ snapshot: 'tree:1', client })
  const again = await Image.fromArchive('again', await image.archive(slow), { client, ...slow })
  await using to = await Sandbox.create({ snapshot: 'again', client })
  const [one, other] = [await linesOf(from), await linesOf(to)]
  assert.ok(one.length > 1000, String(one.length))
  assert.deepEqual(other, one)
  const shown =
    'pwd; stat -c %h file hard; echo "$COLOUR"; sha256sum random; python3 -c \'import os; print(os.getxattr("file", "user.note"))\''
  const words = await printed(from, shown)
  assert.match(words, /^\/opt\/tree\n2\n2\nblue = green\n[^]*b'kept'\n$/)
  assert.equal(await printed(to, shown), words)
  assert.equal(again.info.status, 'ready')
})

test('image export: skopeo and umoci read it, and two of one image are equal', async () => {
  const { stdout } = await run('skopeo', ['inspect', '--config', `oci-archive:${work}/tree.tar`])
  const config = JSON.parse(stdout) as {
    config: { Env: string[]; WorkingDir: string }
    history: object[]
    created: string
  }
  assert.ok(config.config.Env.includes('COLOUR=blue = green'))
  assert.equal(config.config.WorkingDir, '/opt/tree')
  assert.equal(config.history.length, 1)
  await run('skopeo', ['--insecure-policy', 'copy', `oci-archive:${work}/tree.tar`, `oci:${work}/layout:1`])
  await run('umoci', ['unpack', '--image', `${work}/layout:1`, `${work}/bundle`])
  const { stdout: names } = await run('find', [`${work}/bundle/rootfs/opt/tree`, '-printf', '%P %y %m %U:%G\n'])
  assert.match(names, /^file f 4750 1234:5678$/m)
  assert.ok(!(await readdir(`${work}/bundle/rootfs`)).includes('proc'))
  await writeExport(image, `${work}/second.tar`)
  await run('cmp', [`${work}/tree.tar`, `${work}/second.tar`])
  await rm(`${work}/bundle`, { recursive: true })
})

test('image export: what an OCI image says of itself stands in it, and nothing is left of it', async () => {
  await writeExport(small, `${work}/facts.tar`)
  const { stdout } = await run('skopeo', ['inspect', '--config', `oci-archive:${work}/facts.tar`])
  assert.deepEqual((JSON.parse(stdout) as { config: object }).config, facts)
  const again = await Image.fromArchive('facts', await small.archive(slow), { client, ...slow })
  assert.deepEqual(again.info.config, small.info.config)
  const { healthcheck, shell, labels } = again.info.config ?? {}
  assert.deepEqual([healthcheck, shell], [{ test: ['CMD', 'true'], intervalMs: 2000, retries: 3 }, ['/bin/ash', '-c']])
  assert.deepEqual(labels, { 'a.b': 'c' })
  assert.deepEqual(await readdir(`${server.dataDir}/exports`), [])
  const sandboxes = await client.json<{ sandboxID: string }[]>('GET', '/api/sandboxes')
  assert.ok(!sandboxes.some(({ sandboxID }) => sandboxID.startsWith('sb-build-')))
})

test('image push: a registry that asks for credentials takes those of the organisation, for reading too', async () => {
  const reference = `${registry.host}/team/tree:2`
  const refused = (reason: RegExp) => (error: Error) => reason.test(error.message)
  await assert.rejects(small.push(reference, slow), refused(/may not be written to the registry .* credentials/))
  await client.registries.login(registry.host, testUser)
  const pushed = await small.push(reference, slow)
  assert.match(pushed.digest, /^sha256:[0-9a-f]{64}$/)
  const { stdout } = await run('skopeo', [
    ...[
      'inspect',
      '--tls-verify=false',
      '--creds',
      `${testUser.username}:${testUser.password}`,
      `docker://${reference}`,
    ],
  ])
  assert.equal((JSON.parse(stdout) as { Digest: string }).Digest, pushed.digest)
  const pulled = await Image.build('pulled', { oci: reference }, { client, ...slow })
  assert.equal(pulled.info.oci?.digest, pushed.digest)
  await using sandbox = await Sandbox.create({ snapshot: 'pulled', client })
  assert.equal(await sandbox.files.readText('/w/f'), 'x')
  await client.registries.login(registry.host, { ...testUser, password: 'wrong' })
  await assert.rejects(small.push(reference, slow), refused(/may not be written/))
  await client.registries.logout(registry.host)
  await assert.rejects(
    Image.build('none', { oci: `${registry.host}/team/tree:3` }, { client }),
    refused(/may not be read/),
  )
  await assert.rejects(client.registries.get(registry.host), NotFoundError)
})

test('image push: what cannot go is told in words, without addresses', async () => {
  for (const [reference, reason] of [
    ['evil.example.com/a:1', /reference is in a registry that is not allowed here/],
    [`${open.host}/a@sha256:${'a'.repeat(64)}`, /reference must have a tag/],
    ['tools', /reference must be REGISTRY/],
    ['no-such.invalid/a:1', /the registry no-such\.invalid does not take the image/],
  ] as const) {
    await assert.rejects(small.push(reference, slow), (error: Error) => {
      assert.match(error.message, reason)
      return !/\d+\.\d+\.\d+\.\d+/.test(error.message) || error.message.includes('ATOLL_REGISTRIES')
    })
  }
  open.interfere = (_path, response) => {
    response.writeHead(500).end('broken')
    return true
  }
  await assert.rejects(small.push(`${open.host}/a:1`, slow), /does not take the image|does not answer/)
  assert.deepEqual(await readdir(`${server.dataDir}/exports`), [])
})

test('image replace: one in the background takes its name after kill -9 of the server, which means the old image until then', async () => {
  const wait = { type: 'run' as const, args: { commands: ['echo next > /srv/next; sleep 12'] } }
  const old = await Image.build('app', { steps: [] }, { client })
  const next = await Image.begin('app', { steps: [wait] }, { client, replace: true })
  await server.kill()
  await server.restart()
  assert.equal((await Image.get('app', { client })).info.id, old.info.id)
  const ended = await (await Image.get(next.info.id, { client })).follow(slow)
  assert.deepEqual([ended.info.name, ended.info.replaces], ['app', undefined])
  assert.equal((await Image.get('app', { client })).info.id, next.info.id)
  assert.equal((await Image.get(old.info.id, { client })).info.name, undefined)
})
