import assert from 'node:assert/strict'
import { execFile, execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { HostNames } from '../../src/runtime/host-names.ts'
import { dockerfileBuilds, type Files, type Row, stepsRun } from './dockerfile-builds.ts'
import { AtollServer } from './server.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

// Dockerfiles built by a real server in real sandboxes.

const server = await AtollServer.startForFile()

const { api, contextOf, build, logOf, printedIn, rows, sandboxes, layersOnDisk, deleteAll, untilNothingIsLeft } =
  dockerfileBuilds(server)

test('dockerfile: instructions without files are carried out in order, with variables, folders and users', async () => {
  const { status, body, log } = await build([
    'ARG OF=base',
    'FROM $OF',
    'ENV GREETING=hello NAME="to you"',
    'WORKDIR /srv/app',
    'WORKDIR sub',
    'RUN echo "$GREETING $NAME" > said && pwd > where',
    'RUN ["/bin/sh", "-c", "id -un > who"]',
    'SHELL ["/bin/bash", "-c"]',
    'RUN echo ${BASH_VERSION:0:1} > shell',
    'RUN <<END',
    'echo one > heredoc',
    'echo two >> heredoc',
    'END',
    'RUN mkdir /home/own && chown sandbox /home/own',
    'USER sandbox',
    'RUN id -un > /home/own/who',
    'LABEL team=reef',
    'CMD ["serve"]',
  ])
  assert.equal(status, 201, JSON.stringify(body))
  assert.ok(log.includes('[1/8] WORKDIR /srv/app'), log.join('\n'))
  const printed = await printedIn(
    'built',
    'cat said where who shell heredoc /home/own/who; echo $GREETING; grep -c GREETING /etc/environment',
  )
  assert.equal(printed, 'hello to you\n/srv/app/sub\nroot\n5\none\ntwo\nsandbox\nhello\n1\n')
  const again = await api('POST', '/sandboxes', { templateID: 'built' })
  const ran = await api('POST', `/sandboxes/${again.body.sandboxID}/exec/run`, { cmd: 'id -un; pwd' })
  assert.equal(ran.body.stdout, 'sandbox\n/srv/app/sub\n')
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: a step that fails is told with its number, type and line, and those before it stay', async () => {
  const text = ['FROM base', '', 'RUN echo one > /one', '# why', 'RUN echo bad >&2; \\', '  exit 3']
  const failed = await build(text)
  assert.equal(failed.status, 400)
  assert.match(JSON.stringify(failed.body), /step 2 \(run, line 5\) exited with 3: bad/)
  const row = (await rows()).find(({ name, status }) => name === 'built' || status === 'failed')
  assert.deepEqual([row?.status, row?.line], ['failed', 5])
  const { log } = await build([...text.slice(0, 4), 'RUN true'])
  assert.ok(log.includes('[1/2] RUN echo one > /one: reused'), log.join('\n'))
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: stages run side by side, and only those that the target needs', async () => {
  const { status, body, log } = await build([
    // Each waits for the other.
    'FROM base AS one',
    'RUN --mount=type=cache,target=/met echo 1 | tee /one > /met/one; timeout 60 sh -c "until test -e /met/two; do sleep 0.05; done"',
    'FROM base AS two',
    'RUN --mount=type=cache,target=/met echo 2 | tee /two > /met/two; timeout 60 sh -c "until test -e /met/one; do sleep 0.05; done"',
    'FROM base AS unused',
    'RUN exit 1',
    'FROM one',
    'COPY --from=two /two /',
    'RUN cat /one /two > /both',
  ])
  assert.equal(status, 201, JSON.stringify(body) + log.join('\n'))
  assert.equal(await printedIn('built', 'cat /both'), '1\n2\n')
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: files of the context are copied with their modes, as root or whoever is named', async () => {
  const context = await contextOf({
    'src/a.txt': 'a',
    'src/deep/b.txt': 'b',
    'src/run.sh': { content: '#!/bin/sh\necho ran', mode: 0o755 },
    'src/link': { link: 'a.txt' },
    'one.conf': '1',
    'two.conf': '2',
    'to-src': { link: 'src' },
    'package.json': '{}',
  })
  const { status, body, log } = await build(
    [
      'FROM base',
      'WORKDIR /srv',
      'COPY src /srv/all',
      'COPY --chown=sandbox:nogroup --chmod=0600 *.conf conf/',
      'COPY src/a.txt renamed',
      'COPY to-src /srv/followed',
      'COPY package.json yarn.lock* ./',
      'COPY --exclude=deep src/ some/',
      'COPY --parents src/./deep/b.txt parents',
      'COPY <<END heredoc.txt',
      'text',
      'END',
      'RUN all/run.sh > ran',
    ],
    { context },
  )
  assert.equal(status, 201, JSON.stringify(body) + log.join('\n'))
  const printed = await printedIn('built', 'cd /srv; find . -printf "%P %M %u:%g %l\\n" | sort; cat ran heredoc.txt')
  assert.equal(
    printed,
    [
      ' drwxr-xr-x root:root ',
      ...['all drwxr-xr-x root:root ', 'all/a.txt -rw-r--r-- root:root ', 'all/deep drwxr-xr-x root:root '],
      ...['all/deep/b.txt -rw-r--r-- root:root ', 'all/link lrwxrwxrwx root:root a.txt'],
      'all/run.sh -rwxr-xr-x root:root ',
      ...['conf drwxr-xr-x sandbox:nogroup ', 'conf/one.conf -rw------- sandbox:nogroup '],
      'conf/two.conf -rw------- sandbox:nogroup ',
      ...[
        'followed drwxr-xr-x root:root ',
        'followed/a.txt -rw-r--r-- root:root ',
        'followed/deep drwxr-xr-x root:root ',
      ],
      ...['followed/deep/b.txt -rw-r--r-- root:root ', 'followed/link lrwxrwxrwx root:root a.txt'],
      'followed/run.sh -rwxr-xr-x root:root ',
      ...['heredoc.txt -rw-r--r-- root:root ', 'package.json -rw-r--r-- root:root '],
      ...[
        'parents drwxr-xr-x root:root ',
        'parents/deep drwxr-xr-x root:root ',
        'parents/deep/b.txt -rw-r--r-- root:root ',
      ],
      ...['ran -rw-r--r-- root:root ', 'renamed -rw-r--r-- root:root '],
      ...['some drwxr-xr-x root:root ', 'some/a.txt -rw-r--r-- root:root ', 'some/link lrwxrwxrwx root:root a.txt'],
      'some/run.sh -rwxr-xr-x root:root ',
      'ran',
      'text',
      '',
    ].join('\n'),
  )
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: one changed file makes the steps run again that depend on it, and no time of a file does', async () => {
  const text = ['FROM base', 'COPY a /a', 'RUN cat /a > /a2', 'COPY b /b', 'RUN cat /b > /b2']
  assert.equal((await build(text, { context: await contextOf({ a: '1', b: '1' }) })).status, 201)
  const changed = await build(text, { context: await contextOf({ a: '1', b: '2' }) })
  assert.deepEqual(stepsRun(changed.log), ['[3/4] COPY b /b', '[4/4] RUN cat /b > /b2'])
  const mode = await build(text, { context: await contextOf({ a: '1', b: { content: '2', mode: 0o600 } }) })
  assert.deepEqual(stepsRun(mode.log), ['[3/4] COPY b /b', '[4/4] RUN cat /b > /b2'])
  const all = await build(text, { context: await contextOf({ a: '1', b: '1' }), noCache: true })
  assert.equal(stepsRun(all.log).length, 4)
  assert.equal(await printedIn('built', 'cat /b2'), '1')
  const cached = await build(text, { context: await contextOf({ a: '1', b: '1', unused: 'x' }) })
  assert.deepEqual(stepsRun(cached.log), [])
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: what cannot be copied is told with the line of its instruction', async () => {
  const context = await contextOf({ 'a/x': '1', b: '2', c: '3' })
  const faults: [string, RegExp][] = [
    ['COPY missing /', /line 2.*no \\?"missing\\?" to copy/],
    ['COPY x[ /', /line 2.*malformed/],
    ['COPY ?  /new-file', /step 1 \(copy, line 2\) failed: several files need a folder/],
    ['COPY a /etc/passwd', /step 1 \(copy, line 2\) failed: .*passwd/],
    ['COPY b /etc/passwd/', /step 1 \(copy, line 2\) failed: .*passwd/],
    ['COPY --chown=nobody-there b /', /step 1 \(copy, line 2\) failed: .*nobody-there/],
  ]
  for (const [line, message] of faults) {
    const { status, body } = await build(['FROM base', line], { context })
    assert.ok(status >= 400 && status < 500, `${line}: ${status} ${JSON.stringify(body)}`)
    assert.match(JSON.stringify(body), message, line)
  }
  const without = await build(['FROM base', 'COPY a /'])
  assert.match(JSON.stringify(without.body), /line 2.*the build has no context/)
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: files come from another stage and another image with their owners, and links are followed there', async () => {
  await build(
    ['FROM base', 'RUN echo tool > /opt/tool && chown sandbox /opt/tool && chmod 4750 /opt/tool'],
    {},
    'tools',
  )
  const { status, body, log } = await build([
    'FROM base AS made',
    'RUN mkdir -p /out/deep "/out/new\\nline" && echo 1 > /out/deep/1 && ln -s deep/1 /out/link && ln -s /out /way && ln /out/deep/1 /out/hard',
    'FROM base',
    'COPY --from=made /way /copied',
    'COPY --from=made /way/link /linked',
    'COPY --from=made /out/*/1 /glob/',
    'COPY --from=tools /opt/tool /opt/tool',
    'COPY --from=tools --chown=0:0 /opt/tool /opt/mine',
  ])
  assert.equal(status, 201, JSON.stringify(body) + log.join('\n'))
  const command = `cd /; find copied linked glob opt/tool opt/mine -printf '%P %M %u %l\\n' | sort; stat -c %h copied/hard`
  assert.deepEqual((await printedIn('built', command)).trimEnd().split('\n'), [
    ' -rw-r--r-- root ',
    ' -rwsr-x--- root ',
    ' -rwsr-x--- sandbox ',
    ' drwxr-xr-x root ',
    ' drwxr-xr-x root ',
    '1 -rw-r--r-- root ',
    'deep drwxr-xr-x root ',
    'deep/1 -rw-r--r-- root ',
    'hard -rw-r--r-- root ',
    'link lrwxrwxrwx root deep/1',
    'new\\nline drwxr-xr-x root ',
    '2',
  ])
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: ADD unpacks archives by what they hold, and copies what is none', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'atoll-add-'))
  await writeFile(`${folder}/inside`, 'packed')
  const packed = (flag: string) => execFileSync('tar', ['-C', folder, flag, '-c', 'inside'])
  const files: Files = {
    'plain.tar': packed('--no-auto-compress'),
    'gz.bin': packed('-z'),
    bz2: packed('-j'),
    xz: packed('-J'),
    zst: execFileSync('zstd', ['-c'], { input: packed('--no-auto-compress') }),
    'text.tar.gz': 'no archive',
    'only.gz': execFileSync('gzip', ['-c'], { input: 'text' }),
  }
  await writeFile(`${folder}/inside`, randomBytes(100_000))
  const random = packed('-z')
  await rm(folder, { recursive: true })
  const { status, body, log } = await build(
    [
      'FROM base',
      ...Object.keys(files).map((name) => `ADD ${name} /to/${name}/`),
      'ADD --unpack=false plain.tar /whole.tar',
      'COPY gz.bin /copied',
    ],
    { context: await contextOf(files) },
  )
  assert.equal(status, 201, JSON.stringify(body) + log.join('\n'))
  const printed = await printedIn(
    'built',
    'cd /to; find . -type f | sort; cat */inside; file=/whole.tar; test -s $file; test -s /copied',
  )
  const unpacked = ['plain.tar', 'gz.bin', 'bz2', 'xz', 'zst'].map((name) => `./${name}/inside`)
  const copied = ['./only.gz/only.gz', './text.tar.gz/text.tar.gz']
  assert.equal(printed, [...unpacked, ...copied].toSorted().join('\n') + '\n' + 'packed'.repeat(5))
  const damaged = {
    cut: random.subarray(0, 30_000),
    bad: Buffer.concat([random.subarray(0, 20_000), Buffer.alloc(30_000, 7)]),
  }
  for (const [name, content] of Object.entries(damaged)) {
    const refused = await build(['FROM base', 'RUN true', `ADD ${name} /to/`], {
      context: await contextOf({ [name]: content }),
    })
    assert.match(JSON.stringify(refused.body), /step 2 \(add, line 3\) failed: /, name)
  }
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: RUN has caches, memory, files of stages and of the context, and none of them is in the image', async () => {
  const context = await contextOf({ 'in/a': 'of the context' })
  const text = (line: string) => [
    'FROM base AS made',
    'RUN echo made > /made',
    'FROM base',
    'RUN --mount=type=cache,target=/cache echo $(cat /cache/n)x > /cache/n; cp /cache/n /n',
    'RUN --mount=type=tmpfs,target=/memory echo 1 > /memory/x && grep -q " /memory tmpfs" /proc/mounts',
    'RUN --mount=from=made,source=/made,target=/bound/made --mount=target=/ctx,source=in cat /bound/made /ctx/a > /both',
    'RUN --mount=target=/ctx if touch /ctx/x; then exit 1; fi',
    'RUN --mount=target=/ctx,rw touch /ctx/x',
    line,
  ]
  const { status, body, log } = await build(text('RUN true'), { context })
  assert.equal(status, 201, JSON.stringify(body) + log.join('\n'))
  assert.equal(
    await printedIn('built', 'cat /n /both; ls -d /cache /memory /ctx /bound 2>&1 | grep -c "cannot access"'),
    'x\nmade\nof the context4\n',
  )
  await build(text('RUN exit'), { context, noCache: true })
  assert.equal(await printedIn('built', 'cat /n'), 'xx\n')
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: a secret is there for its instruction and nowhere else', async () => {
  const value = `reef-${Math.random().toString(36).slice(2)}-value`
  const begun = new Date().toISOString()
  const secrets = { token: Buffer.from(value).toString('base64') }
  const text = [
    'FROM base',
    'RUN --mount=type=secret,id=token test "$(cat /run/secrets/token)" != "" && stat -c %a /run/secrets/token > /mode',
    'RUN --mount=type=secret,id=token,env=TOKEN test -n "$TOKEN"; env | wc -c > /chars',
    'RUN test ! -e /run/secrets/token && test -z "$TOKEN"',
    'RUN --mount=type=secret,id=other test ! -e /run/secrets/other',
  ]
  const { status, body, log } = await build(text, { secrets })
  assert.equal(status, 201, JSON.stringify(body) + log.join('\n'))
  assert.equal(await printedIn('built', 'cat /mode'), '400\n')
  assert.ok(!log.join('\n').includes(value) && !server.output.includes(value))
  assert.ok(!JSON.stringify(await rows()).includes(value))
  // Of all that was written since.
  const recent = `find "$1" "$2" -type f -size -100M -newermt "$3" -not -path "*/proc/*" -print0 | xargs -0 -r grep -laF -e "$4" -e "$5"`
  const { poolDir } = new HostNames(server.dataDir)
  const filesWith = async (...texts: [string, string]) => {
    const given = [server.dataDir, poolDir, begun, ...texts]
    return (await promisify(execFile)('sh', ['-c', `${recent} || true`, 'sh', ...given])).stdout
  }
  assert.match(await filesWith('RUN test ! -e', 'RUN test ! -e'), /build-logs/)
  assert.equal(await filesWith(value, secrets.token), '')
  const missing = await build(['FROM base', 'RUN echo', 'RUN --mount=type=secret,id=needed,required=true true'])
  assert.match(JSON.stringify(missing.body), /step 2 \(run, line 3\) failed: .*secret needed/)
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: nothing that a step leaves running reads the secret of the next, writes to its files or keeps it from starting', async () => {
  const secrets = { token: Buffer.from('of the second step').toString('base64') }
  const text = [
    'FROM base',
    'RUN setsid sh -c "while :; do touch /alive; cat /run/secrets/token /proc/*/environ >> /stolen 2>&1; done" >/dev/null 2>&1 & \\',
    '  while ! test -e /alive; do :; done',
    'RUN --mount=type=secret,id=token --mount=type=secret,id=token,env=TOKEN rm -f /alive /stolen; sleep 1; test ! -e /alive',
    // When it explodes, nothing of the step needs a process or a thread any more.
    'RUN bomb() { bomb | bomb & }; (sleep 2; bomb) >/dev/null 2>&1 & exec sleep 3',
    'RUN test ! -e /stolen && test "$(ls -d /proc/[0-9]* | wc -l)" -lt 8',
  ]
  const { status, body, log } = await build(text, { secrets })
  assert.equal(status, 201, JSON.stringify(body) + log.join('\n'))
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: a detached build goes on after kill -9 with its context; without its secret it fails and says so', async () => {
  const context = await contextOf({ a: 'kept' })
  const dockerfile = ['FROM base', 'COPY a /a', 'RUN sleep 1', 'COPY a /b', 'RUN cat /b > /c'].join('\n')
  await api('POST', '/snapshots?async=1', { name: 'goes-on', image: { dockerfile, context } })
  await eventually(async () => (await layersOnDisk()).length >= 1, { what: 'the first step is done' })
  await server.kill()
  await server.restart()
  const followed = await fetch(`${server.url}/api/images/goes-on/events`, { headers: { 'x-api-key': server.key } })
  assert.match(await followed.text(), /event: result/)
  assert.equal(await printedIn('goes-on', 'cat /a /c'), 'keptkept')
  await deleteAll()
  await untilNothingIsLeft()

  // Its first step waits for the end of the server, and only the first time.
  const withSecret = [
    'FROM base',
    'RUN --mount=type=cache,target=/lives test -e /lives/one || { touch /lives/one; echo begun; sleep 600; }',
    'RUN --mount=type=secret,id=token cat /run/secrets/token > /dev/null',
  ].join('\n')
  await api('POST', '/snapshots?async=1', {
    name: 'secret',
    image: { dockerfile: withSecret, secrets: { token: 'YQ==' } },
  })
  await eventually(async () => (await logOf('secret')).includes('begun'), { what: 'the first step has begun' })
  await server.kill()
  await server.restart()
  await eventually(async () => (await api<Row>('GET', '/images/secret')).body.status === 'failed', {
    what: 'it has failed',
  })
  assert.match((await api<Row>('GET', '/images/secret')).body.error!, /the secret token is gone/)
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: a build that is cancelled or cut off leaves nothing, whatever its stages do', async () => {
  const context = await contextOf(
    Object.fromEntries(Array.from({ length: 200 }, (_, at) => [`f${at}`, 'x'.repeat(10_000)])),
  )
  const dockerfile = [
    'FROM base AS one',
    'RUN sleep 0.3',
    'COPY . /all',
    'RUN --mount=type=cache,target=/c --mount=target=/ctx sleep 30',
    'FROM base AS two',
    'RUN sleep 30',
    'FROM base',
    'COPY --from=one / /one',
    'COPY --from=two / /two',
  ].join('\n')
  for (const layers of [0, 1, 2]) {
    await api('POST', '/snapshots?async=1', { name: 'cut-off', image: { dockerfile, context } })
    await eventually(async () => (await layersOnDisk()).length >= layers && (await sandboxes()).length > 0, {
      what: `${layers} steps are done`,
    })
    assert.equal((await api('DELETE', '/snapshots/cut-off')).status, 204)
    await untilNothingIsLeft()
  }
  const abandoned = api('POST', '/snapshots', { name: 'cut-off', image: { dockerfile, context } }).catch(
    () => undefined,
  )
  await eventually(async () => (await layersOnDisk()).length >= 2, { what: 'two steps are done' })
  await server.kill()
  await abandoned
  await server.restart()
  assert.deepEqual(await rows(), [])
  await untilNothingIsLeft()
  const mounts = await readFile('/proc/self/mountinfo', 'utf8')
  assert.ok(!mounts.includes(`${server.dataDir}/step`), 'no mount of a step is left')
})
