import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox } from '@opencomputer/sdk/node'
import { heldAtRest, holdsAgain } from './sandbox-insides.ts'
import { AtollServer } from './server.ts'

// Who runs commands and owns files: root, the user of a sandbox, or the one that a call names.

const server = await AtollServer.startForFile()
const connection = { apiUrl: server.url, apiKey: server.key }

async function started(body: object, path = ''): Promise<Sandbox> {
  const answer = await fetch(`${server.url}/api/sandboxes${path}`, {
    method: 'POST',
    headers: { 'x-api-key': server.key },
    body: JSON.stringify(body),
  })
  const { sandboxID } = (await answer.json()) as { sandboxID: string }
  assert.equal(answer.status, 201)
  return await Sandbox.connect(sandboxID, connection)
}

const whoami = async (sandbox: Sandbox) => (await sandbox.exec.run('echo $(id -u):$(id -g) $HOME')).stdout.trim()

async function refusal(path: string, body: object): Promise<{ status: number; code: string; error: string }> {
  const answer = await fetch(`${server.url}/api/sandboxes${path}`, {
    method: 'POST',
    headers: { 'x-api-key': server.key },
    body: JSON.stringify(body),
  })
  return { ...((await answer.json()) as { code: string; error: string }), status: answer.status }
}

async function refused(path: string, body: object): Promise<unknown[]> {
  const { status, code, error } = await refusal(path, body)
  return [status, code, error.split(' ')[0]?.replace(':', '')]
}

test('a sandbox has a user for its commands, terminals and files, which forks, hibernation and restarts keep', async () => {
  const sandbox = await started({ user: 'sandbox' })
  assert.equal(await whoami(sandbox), '1000:1000 /home/sandbox')
  await sandbox.files.write('/workspace/app/src/a.txt', 'x')
  await sandbox.files.makeDir('/home/sandbox/one/two')
  const owners = 'stat -c %U /workspace/app /workspace/app/src /workspace/app/src/a.txt /home/sandbox/one/two'
  assert.equal((await sandbox.exec.run(owners)).stdout, 'sandbox\n'.repeat(4))
  assert.equal((await sandbox.exec.run('touch /workspace/own && test ! -w /etc/passwd && echo yes')).stdout, 'yes\n')
  const { checkpointId } = { checkpointId: (await sandbox.createCheckpoint('users')).id }
  await sandbox.hibernate()
  await sandbox.wake()
  assert.equal(await whoami(sandbox), '1000:1000 /home/sandbox')
  await server.stop()
  await server.restart()
  assert.equal(await whoami(sandbox), '1000:1000 /home/sandbox')
  const fork = await started({}, `/from-checkpoint/${checkpointId}`)
  assert.equal(await whoami(fork), '1000:1000 /home/sandbox')
  const ofRoot = await started({ user: 'root' }, `/from-checkpoint/${checkpointId}`)
  assert.equal(await whoami(ofRoot), '0:0 /root')
  for (const one of [sandbox, fork, ofRoot]) await one.kill()
})

test('files: the user of a sandbox reaches no further through the API than in a shell, and root does where it is asked for', async () => {
  const sandbox = await started({ user: 'sandbox' })
  const run = {
    user: 'root',
    cmd: 'sh',
    args: ['-c', 'echo secret > /root/secret; chmod 600 /root/secret; chmod 700 /root'],
  }
  await server.json('POST', `/api/sandboxes/${sandbox.sandboxId}/exec/run`, run)
  await sandbox.exec.run('ln -s /root/secret /home/sandbox/link; ln -s /etc /home/sandbox/etc')
  const files = `/api/sandboxes/${sandbox.sandboxId}/files`
  const ask = async (method: string, path: string, init: RequestInit = {}) => {
    const answer = await server.fetch(path, { method, ...init })
    const text = await answer.text()
    return [answer.status, answer.headers.get('x-error-code') ?? text]
  }
  const link = 'path=/home/sandbox/link'
  for (const [method, path] of [
    ['GET', `${files}?${link}`],
    ['HEAD', `${files}?${link}`],
    ['PUT', `${files}?${link}`],
    ['PUT', `${files}?path=/home/sandbox/etc/new`],
    ['PUT', `${files}?path=/etc/passwd`],
    ['DELETE', `${files}?path=/home/sandbox/etc/passwd`],
    ['POST', `${files}/mkdir?path=/home/sandbox/etc/new`],
    ['GET', `${files}/list?path=/root`],
  ] as const) {
    assert.deepEqual(await ask(method, path, method === 'PUT' ? { body: 'x' } : {}), [403, 'forbidden'], path)
  }
  assert.deepEqual(await ask('GET', `${files}?${link}&user=root`), [200, 'secret\n'])
  assert.deepEqual(await ask('PUT', `${files}?path=/etc/made&user=root`, { body: 'x' }), [204, ''])
  assert.deepEqual(await ask('GET', `${files}?${link}&user=no-such`), [400, 'invalid_request'])

  const sign = async (user?: string) => {
    const json = { path: '/home/sandbox/link', ...(user === undefined ? {} : { user }) }
    const { url } = (await server.json('POST', `${files}/download-url`, json)) as { url: string }
    return new URL(url)
  }
  const open = async (url: URL) => {
    const answer = await fetch(url)
    return [answer.status, answer.headers.get('x-error-code') ?? (await answer.text())]
  }
  const [plain, ofRoot] = [await sign(), await sign('root')]
  assert.deepEqual(await open(plain), [403, 'forbidden'])
  assert.deepEqual(await open(ofRoot), [200, 'secret\n'])
  plain.searchParams.set('user', 'root')
  assert.deepEqual(await open(plain), [403, 'signature_invalid'])
  ofRoot.searchParams.delete('user')
  assert.deepEqual(await open(ofRoot), [403, 'signature_invalid'])
  ofRoot.searchParams.set('expires', `root\0${ofRoot.searchParams.get('expires')}`)
  assert.deepEqual(await open(ofRoot), [403, 'signature_invalid'])
  await sandbox.kill()
})

test('files: a call as a user leaves the guest as it was for what starts after it, also in a memory that came back', async () => {
  const sandbox = await started({ user: 'sandbox' })
  const score = async () => (await sandbox.exec.run('cat /proc/self/oom_score_adj')).stdout
  const before = await score()
  await sandbox.files.write('/workspace/a', 'x')
  assert.equal(await score(), before)
  await sandbox.hibernate()
  await sandbox.wake()
  assert.equal(await sandbox.files.read('/workspace/a'), 'x')
  await assert.rejects(sandbox.files.read('/etc/shadow'), /403/)
  assert.equal(await score(), before)
  await sandbox.kill()
})

test('a call names another user by name or id, and no program gives it the rights of root', async () => {
  const sandbox = await started({})
  assert.equal(await whoami(sandbox), '0:0 /root')
  const run = async (user: string | number, cmd: string) => {
    const answer = await server.json('POST', `/api/sandboxes/${sandbox.sandboxId}/exec/run`, { user, cmd })
    return (answer as { stdout: string }).stdout
  }
  assert.equal(await run('sandbox', 'id -un'), 'sandbox\n')
  assert.equal(await run(1000, 'id -un'), 'sandbox\n')
  assert.equal(await run('4242:100', 'echo $(id -u):$(id -g)'), '4242:100\n')
  assert.equal(await run('root', 'cp /usr/bin/id /usr/bin/root-id && chmod 4755 /usr/bin/root-id; id -u'), '0\n')
  assert.equal(await run('sandbox', '/usr/bin/root-id -u'), '1000\n')
  await sandbox.kill()
})

test('an unknown user is refused at once with those that there are, and leaves nothing; one that is lost by the command that needs it', async () => {
  assert.deepEqual(await refused('', { user: 'a b' }), [400, 'invalid_request', 'user'])
  assert.deepEqual(await refused('', { user: -1 }), [400, 'invalid_request', 'user'])
  const held = await heldAtRest(server.dataDir)
  const stopped = await server.json('GET', '/api/sandboxes?status=stopped')
  for (const user of ['nobody-here', 'sandbox:nobody-here']) {
    const answer = await refusal('', { user })
    assert.equal(answer.status, 400)
    assert.match(
      answer.error,
      new RegExp(`^user: the sandbox has no user or group ${user}; its users are root, .*\\bsandbox\\b`),
    )
  }
  const { status, error } = await refusal('', { templateID: 'nope' })
  assert.equal(status, 404)
  assert.match(error, /^no image nope; there are base/)
  assert.deepEqual(await server.json('GET', '/api/sandboxes?status=stopped'), stopped)
  assert.deepEqual(await server.json('GET', '/api/sandboxes'), [])
  await holdsAgain(server.dataDir, held)

  const sandbox = await started({ user: 'sandbox', name: 'lost-user' })
  const lose = { user: 'root', cmd: "sed -i '/^sandbox:/d' /etc/passwd" }
  await server.json('POST', '/api/sandboxes/lost-user/exec/run', lose)
  assert.deepEqual(await refused('/lost-user/exec/run', { cmd: 'true' }), [400, 'invalid_request', 'user'])
  await assert.rejects(sandbox.files.write('/workspace/x', 'x'), /400/)
  await sandbox.kill()
})

test('the operator chooses the user of sandboxes that ask for none; builds stay those of root', async () => {
  await server.stop()
  await server.restart({ ATOLL_DEFAULT_USER: 'sandbox' })
  const sandbox = await started({})
  assert.equal(await whoami(sandbox), '1000:1000 /home/sandbox')
  await sandbox.kill()
  const steps = [
    { type: 'run', args: { commands: ['id -u > /opt/builder'] } },
    { type: 'add_file', args: { path: '/opt/file', content: 'eA==' } },
  ]
  const built = await started({ image: { steps } })
  const seen = await built.exec.run('cat /opt/builder; stat -c %U /opt/file; id -un')
  assert.equal(seen.stdout, '0\nroot\nsandbox\n')
  await built.kill()
})
