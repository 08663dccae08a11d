/** The world that the tests of egress are about, without any sandbox: what they take for granted of its servers. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { run } from '../conformance/network-world.ts'
import { credentials } from './egress/places.ts'
import { EgressWorld } from './egress/world.ts'

let world: EgressWorld
before(async () => {
  world = await EgressWorld.make()
})
after(() => world[Symbol.asyncDispose]())

/** curl on this host, for which a name is at the main address. */
async function curl(name: string, ...argv: string[]): Promise<string> {
  const names = ['--connect-to', `::${world.main}:`, '--cacert', world.rootFile]
  return (await run('curl', ['--silent', '--show-error', '--max-time', '20', ...names, ...argv, `https://${name}`]))
    .stdout
}

test('world: its echo tells what it was sent, over HTTP/1.1 and HTTP/2, and its journal has it', async () => {
  const mark = await world.mark()
  for (const version of ['1.1', '2']) {
    const told = JSON.parse(await curl('api.test/some/path?x=1', `--http${version}`, '--data', 'a body')) as object
    const { method, path, host, sni, body } = { method: '', path: '', host: '', sni: '', body: '', ...told }
    assert.deepEqual([method, path, host, sni, body], ['POST', '/some/path?x=1', 'api.test', 'api.test', 'a body'])
  }
  const versions = (await world.requestsSince(mark)).map(({ version }) => version)
  assert.deepEqual(versions, ['1.1', '2.0'])
})

test('world: compressed answers, redirects, events, bytes with a checksum', async () => {
  for (const kind of ['gzip', 'deflate', 'br'])
    assert.match(await curl(`api.test/${kind}`, '--compressed'), /"sni":"api.test"/)
  assert.match(await curl('api.test/redirect?to=https://other.test/there', '--location'), /"host":"other.test"/)
  assert.match(await curl('api.test/events?count=3'), /data: event 3/)
  const { stdout } = await run('bash', [
    '-c',
    `curl -s --cacert ${world.rootFile} --connect-to ::${world.main}: 'https://api.test/bytes?count=3000000' | sha256sum`,
  ])
  assert.equal(stdout.split(' ')[0], await curl('api.test/sum?count=3000000'))
})

test('world: WebSocket and gRPC', async () => {
  const program = `
    import { WebSocket } from 'ws'
    import { connect } from 'node:http2'
    const socket = new WebSocket('wss://${world.main}/chat', { servername: 'api.test', checkServerIdentity: () => undefined })
    socket.on('message', (data, isBinary) => {
      if (JSON.parse(data).path) socket.send('"ping"')
      else { console.log('ws', String(data)); socket.close(); call() }
    })
    function call() {
      const session = connect('https://${world.main}', { servername: 'grpc.test' })
      const stream = session.request({ ':method': 'POST', ':path': '/grpc/call', 'content-type': 'application/grpc', te: 'trailers' })
      stream.on('data', (data) => console.log('grpc', String(data)))
      stream.on('trailers', (fields) => { console.log('status', fields['grpc-status']); session.close() })
      stream.end('message')
    }`
  const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', program], {
    env: { ...process.env, NODE_EXTRA_CA_CERTS: world.rootFile },
  })
  assert.deepEqual(stdout.trim().split('\n'), ['ws "ping"', 'grpc message', 'status 0'])
})

test('world: packages are for those who have their token', async () => {
  const user = (password: string) => ['--user', `x:${password}`]
  assert.match(
    await curl('git.test/private.git/info/refs?service=git-upload-pack', ...user(credentials.git)),
    /refs\/heads\/main/,
  )
  assert.match(await curl('npm.test/atoll-test', '--header', `Authorization: Bearer ${credentials.npm}`), /tarball/)
  assert.match(await curl('pypi.test/simple/atoll-test/', ...user(credentials.pypi)), /whl/)
  assert.match(await curl('apt.test/./Packages', ...user(credentials.apt)), /atoll-test/)
  assert.match(await curl('registry.test/token', ...user(credentials.registry)), /token/)
  assert.match(await curl('go.test/go.test/module/@v/list', ...user(credentials.go)), /v1/)
  for (const place of ['git.test/private.git/HEAD', 'npm.test/atoll-test', 'apt.test/Packages', 'registry.test/v2/']) {
    assert.equal(await curl(place, '--output', '/dev/null', '--write-out', '%{http_code}'), '401', place)
  }
})

test('world: its git takes a push', async () => {
  const url = `https://x:${credentials.git}@git.test/private.git`
  const script = `
    set -e; cd "$(mktemp -d)"
    export GIT_SSL_CAINFO=${world.rootFile}; git="git -c http.curloptResolve=git.test:443:${world.main}"
    $git clone --quiet ${url} . ; head -c 3000000 /dev/urandom >big; git add big
    git -c user.name=t -c user.email=t@t commit --quiet -m more; $git push --quiet origin HEAD:more; $git ls-remote --heads origin | wc -l
    rm -rf "$PWD"`
  assert.equal((await run('bash', ['-c', script])).stdout.trim(), '2')
})

test('world: its S3 takes what is signed with the right key alone', async () => {
  const put = (secretKey: string) =>
    curl(
      's3.test/bucket/some%20key?x=a%2Fb',
      '--aws-sigv4',
      'aws:amz:us-east-1:s3',
      '--user',
      `${credentials.s3.accessKey}:${secretKey}`,
      '--request',
      'PUT',
      '--data-binary',
      'an object',
      '--write-out',
      '%{http_code}',
    )
  assert.match(await put(credentials.s3.secretKey), /200$/)
  assert.match(await put('another'), /SignatureDoesNotMatch.*403$/)
})

test('world: names over UDP, TCP and HTTPS, one that changes, and servers of lines', async () => {
  await world.setName('changes.test', { answers: [['192.0.2.1'], ['192.0.2.2']] })
  const program = `
import socket, struct, sys
def ask(name, kind):
    query = struct.pack('>6H', 7, 256, 1, 0, 0, 0) + b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\\0' + struct.pack('>2H', kind, 1)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.settimeout(5)
    udp.sendto(query, ('${world.main}', 53)); answer = udp.recv(4096)
    return answer[3] & 15, '.'.join(map(str, answer[-4:]))
print(ask('changes.test', 1), ask('changes.test', 1), ask('deep.er.wild.test', 1)[0], ask('nobody.test', 1)[0])
for port in 22, 21, 9000:
    line = socket.create_connection(('${world.main}', port), 5); line.sendall(b'hello\\n'); print(line.makefile().readline().strip())`
  const { stdout } = await run('python3', ['-c', program])
  assert.deepEqual(stdout.trim().split('\n'), [
    "(0, '192.0.2.1') (0, '192.0.2.2') 0 3",
    'SSH-2.0-OpenSSH_9.2p1 Test',
    '220 test FTP',
    'echo hello',
  ])
})

test('world: the private address answers this host', async () => {
  const { stdout } = await run('curl', ['--silent', `http://${world.private}/`])
  assert.equal((JSON.parse(stdout) as { address: string }).address, world.private)
})
