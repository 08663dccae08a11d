import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, request as send } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import { startDemoModel } from '../../src/gateway/index.ts'
import { isTurnComplete, readEvents } from './event-stream.ts'
import { heldInMemory, heldOnDisk, processesOf } from './sandbox-insides.ts'
import { AtollServer } from './server.ts'
import { createSession, resultOf } from './session-client.ts'

/** A model API that wants a key, and counts the requests with and without it. */
async function startKeyedModel(key: string) {
  const demo = await startDemoModel()
  const asked = { withKey: 0, without: 0 }
  const server = createServer((request, response) => {
    if (request.headers['x-api-key'] !== key) {
      asked.without += 1
      response.writeHead(401).end()
      return
    }
    asked.withKey += 1
    const { url, method, headers } = request
    const onward = send(new URL(url ?? '/', demo.baseUrl), { method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(response)
    })
    request.pipe(onward)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    asked,
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.closeAllConnections()
      server.close()
      await demo.close()
    },
  }
}

test('secrets: the key of the model API is nowhere in the sandbox: not in its environment, memory, files or saved memory, nor in logs', async () => {
  await using opened = new AsyncDisposableStack()
  const key = `sk-ant-${randomBytes(24).toString('hex')}`
  const model = opened.adopt(await startKeyedModel(key), (started) => started.close())
  const env = {
    ANTHROPIC_API_KEY: key,
    ANTHROPIC_BASE_URL: model.baseUrl,
    ATOLL_MODEL: 'anthropic/some-model',
    ATOLL_LOG_LEVEL: 'debug',
  }
  await using server = await AtollServer.start({ env })
  const welcome = server.output.length
  // What must be found, so that finding nothing means something.
  const canary = `canary-${randomBytes(24).toString('hex')}`
  const session = await createSession(
    server,
    'run: echo $CANARY > /root/canary; env; cat /proc/[0-9]*/environ | tr "\\0" "\\n"',
    {
      agent_config: { envs: { CANARY: canary } },
    },
  )
  const events = await readEvents(server, session.id, isTurnComplete)
  assert.equal(resultOf(events)?.['subtype'], 'success')
  assert.ok(model.asked.withKey > 0)
  assert.equal(model.asked.without, 0, 'the gateway is the only way')
  const said = JSON.stringify(events)
  assert.match(said, /PATH=/)
  assert.ok(said.includes(canary) && !said.includes(key))
  assert.match(said, /ATOLL_GATEWAY_URL=/)
  assert.doesNotMatch(said, /ATOLL_GATEWAY_TOKEN/, 'no environment has the token of the session')

  const pids = await processesOf(session.sandboxId)
  assert.ok(pids.length >= 2, 'the guest and the agent')
  assert.deepEqual(await heldInMemory(pids, [key, canary, server.key]), [canary])
  const { status } = (await server.json('POST', `/api/sandboxes/${session.sandboxId}/hibernate`)) as { status: string }
  assert.equal(status, 'hibernated')
  assert.deepEqual(await heldOnDisk(server.dataDir, [key, canary, server.key]), [canary])

  const logged = server.output.slice(welcome)
  assert.ok(logged.length > 0)
  for (const secret of [key, canary, server.key]) assert.ok(!logged.includes(secret), 'and nothing of it is logged')
  assert.ok(!server.output.includes(key))
})
