import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { startTestRegistry } from '../support/image-registry.ts'
import { imageOf, tarOf } from '../support/oci-image.ts'
import { dockerfileBuilds, stepsRun } from './dockerfile-builds.ts'
import { AtollServer } from './server.ts'

// What FROM and --from of a Dockerfile stand for.

const registry = await startTestRegistry()
after(() => registry[Symbol.asyncDispose]())
const server = await AtollServer.startForFile({
  env: {
    ATOLL_REGISTRIES: JSON.stringify({ [registry.host]: { insecure: true } }),
    ATOLL_RUNNING_SANDBOXES_MAX: '2',
  },
})
const { api, contextOf, build, printedIn, rows, deleteAll, untilNothingIsLeft } = dockerfileBuilds(server)

async function fileIn(image: string, path: string): Promise<string> {
  const { body } = await api('POST', '/sandboxes', { templateID: image })
  const headers = { 'x-api-key': server.key }
  const answer = await fetch(`${server.url}/api/sandboxes/${body.sandboxID}/files?path=${path}`, { headers })
  await api('DELETE', `/sandboxes/${body.sandboxID}`)
  assert.equal(answer.status, 200, path)
  return await answer.text()
}

test('dockerfile: an image of a registry is fetched once, and its variables, folder and user are those of the stage', async () => {
  const config = {
    ...{ Env: ['GREETING=good day', 'PATH=/'], WorkingDir: '/not/there', User: '65532:65532', Cmd: ['serve'] },
    ...{ Labels: { a: '1', b: '2' }, ExposedPorts: { '80/tcp': {} }, Volumes: { '/data': {} }, StopSignal: 'SIGINT' },
    ...{ Healthcheck: { Test: ['CMD-SHELL', 'true'], Interval: 2e9 }, Shell: ['/bin/sh', '-ec'] },
  }
  registry.add('team/tools:1', imageOf([tarOf([{ path: 'tool', content: 'of the registry' }])], { config }))
  const reference = `${registry.host}/team/tools:1`
  const text = [
    `FROM ${reference}`,
    'ENV SAID="$GREETING" PATH=$PATH:/more',
    'LABEL b=3',
    'EXPOSE 81',
    'ENTRYPOINT exec this',
    'COPY --chown=0 a .',
    'COPY --from=base /etc/hostname /h',
  ]
  const { status, body, log } = await build(text, { context: await contextOf({ a: 'A' }) })
  assert.equal(status, 201, JSON.stringify(body) + log.join('\n'))
  assert.deepEqual((body as { config?: object }).config, {
    ...{
      cwd: '/not/there',
      user: '65532:65532',
      entrypoint: ['/bin/sh', '-ec', 'exec this'],
      shell: ['/bin/sh', '-ec'],
    },
    ...{ labels: { a: '1', b: '3' }, exposedPorts: ['80/tcp', '81/tcp'], volumes: ['/data'], stopSignal: 'SIGINT' },
    healthcheck: { test: ['CMD-SHELL', 'true'], intervalMs: 2000 },
    envs: { GREETING: 'good day', SAID: 'good day', PATH: '/:/more' },
  })
  assert.ok(log.includes(`${reference}: ${reference}`), log.join('\n'))
  assert.equal(await fileIn('built', '/not/there/a'), 'A')
  const asked = registry.requests.length
  const copied = await build(['FROM base', `COPY --from=${reference} /tool /`])
  assert.equal(copied.status, 201, JSON.stringify(copied.body))
  assert.equal(await printedIn('built', 'cat /tool'), 'of the registry')
  assert.equal(registry.requests.length, asked)
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: scratch is an image without anything', async () => {
  const context = await contextOf({ a: 'A', 'in/b': 'B' })
  const { status, body, log } = await build(['FROM scratch', 'COPY . /to/', 'ENV X=y'], { context })
  assert.equal(status, 201, JSON.stringify(body) + log.join('\n'))
  assert.equal(await fileIn('built', '/to/in/b'), 'B')
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: a named image that changes is built upon again, and one that nobody knows is told with names', async () => {
  await build(['FROM base', 'RUN echo 1 > /n'], {}, 'below')
  const text = ['FROM below:latest', 'RUN cat /n > /m']
  assert.deepEqual(stepsRun((await build(text)).log), ['[1/1] RUN cat /n > /m'])
  await build(['FROM base', 'RUN echo 2 > /n'], {}, 'below')
  assert.deepEqual(stepsRun((await build(text)).log), ['[1/1] RUN cat /n > /m'])
  assert.equal(await printedIn('built', 'cat /m'), '2\n')
  const unknown = await build('FROM nobody-knows', {}, 'unknown')
  assert.equal(unknown.status, 404)
  assert.match(JSON.stringify(unknown.body), /dockerfile line 1: no image nobody-knows; there are base, /)
  const elsewhere = await build(['FROM base', 'COPY --from=registry.invalid/x / /x'], {}, 'elsewhere')
  assert.match(
    JSON.stringify(elsewhere.body),
    /dockerfile line 2: registry\.invalid\/x is in a registry that is not allowed/,
  )
  assert.ok(!(await rows()).some(({ name }) => name === 'unknown'))
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: stages wait for one another where an organisation has no room for more sandboxes', async () => {
  const { status, body, log } = await build([
    ...['FROM base AS a', 'RUN sleep 0.5; echo a > /a', 'FROM base AS b', 'RUN sleep 0.5; echo b > /b'],
    ...[
      'FROM base AS c',
      'COPY --from=base /etc/hostname /',
      'FROM base',
      'COPY --from=a /a /',
      'COPY --from=b /b /',
      'COPY --from=c /etc/hostname /',
    ],
  ])
  assert.equal(status, 201, JSON.stringify(body) + log.join('\n'))
  assert.equal(await printedIn('built', 'cat /a /b'), 'a\nb\n')
  await deleteAll()
  await untilNothingIsLeft()
})

test('dockerfile: stages and builds with the same steps at the same time share what comes first', async () => {
  const same = ['FROM base AS a', 'RUN echo x > /x', 'FROM base AS b', 'RUN echo x > /x']
  const text = [...same, 'FROM base', 'COPY --from=a /x /a', 'COPY --from=b /x /b']
  for (const noCache of [false, true]) {
    const { status, body, log } = await build(text, { noCache })
    assert.equal(status, 201, JSON.stringify(body) + log.join('\n'))
  }
  assert.equal(await printedIn('built', 'cat /a /b'), 'x\nx\n')
  await deleteAll()
  await untilNothingIsLeft()
})
