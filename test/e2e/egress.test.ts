/** Everyday work of a sandbox whose egress is a list and whose secrets are placeholders. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { fileOfPackage } from '../support/debian-package.ts'
import { Inside, withoutProxy } from './egress/inside.ts'
import { credentials } from './egress/places.ts'
import { EgressWorld } from './egress/world.ts'
import { AtollServer } from './server.ts'

/** `npm run test:soak` moves more. */
const moved = Number(process.env['ATOLL_EGRESS_BYTES'] || 256 * 1024 ** 2)
const apiKey = 'k3y-of-the-api-' + 'w7'.repeat(12)

const secrets = {
  API_KEY: { value: apiKey, allowedHosts: ['api.test', 'grpc.test'] },
  GIT_TOKEN: { value: credentials.git, allowedHosts: ['git.test'], placeholder: 'github' },
  NPM_TOKEN: { value: credentials.npm, allowedHosts: ['npm.test'] },
  PYPI_TOKEN: { value: credentials.pypi, allowedHosts: ['pypi.test'] },
  GO_TOKEN: { value: credentials.go, allowedHosts: ['go.test'] },
  APT_TOKEN: { value: credentials.apt, allowedHosts: ['apt.test'] },
  REGISTRY_TOKEN: { value: credentials.registry, allowedHosts: ['registry.test'] },
  AWS_ACCESS_KEY_ID: { value: credentials.s3.accessKey, allowedHosts: ['s3.test'] },
  AWS_SECRET_ACCESS_KEY: {
    value: credentials.s3.secretKey,
    allowedHosts: ['s3.test'],
    sign: { type: 'aws-sigv4', accessKeyId: 'AWS_ACCESS_KEY_ID' },
  },
}
const allow = [
  ...['api.test', 'other.test', 'two.test', 'grpc.test', 'git.test', 'npm.test', 'pypi.test', 'apt.test'],
  ...['registry.test', 'storage.test', 's3.test', 'go.test', 'second.test', { host: 'raw.test', ports: [22] }],
]

const opened = new AsyncDisposableStack()
let world: EgressWorld
let server: AtollServer
let inside: Inside
before(async () => {
  world = opened.use(await EgressWorld.make())
  server = opened.use(await AtollServer.start({ env: world.env }))
  inside = await Inside.make(server, world, { egress: { mode: 'list', allow }, secrets })
})
after(() => opened.disposeAsync())

/** As two kinds of programs do: by the proxy of their environment, and as if there were none. */
const ways = [
  { way: 'by the proxy of the environment', prefix: '' },
  { way: 'without a proxy', prefix: `${withoutProxy} ` },
] as const

test('secrets: inside are placeholders of the shapes that were chosen, and the answer tells what holds', async () => {
  assert.match(await inside.variable('API_KEY'), /^osb_sealed_[0-9a-f]{32}$/)
  assert.match(await inside.variable('GIT_TOKEN'), /^ghp_\w{36}$/)
  const told = (await server.json('GET', `/api/sandboxes/${inside.id}/egress`)) as {
    state: string
    layers: { source: string; mode: string }[]
    secrets: { name: string; isUsed: boolean }[]
  }
  assert.equal(told.state, 'confined')
  assert.deepEqual(
    told.layers.map(({ source, mode }) => [source, mode]),
    [['creation', 'list']],
  )
  assert.deepEqual(told.secrets.map(({ name }) => name).toSorted(), Object.keys(secrets).toSorted())
  assert.ok(told.secrets.every(({ isUsed }) => isUsed))
  assert.ok(!JSON.stringify(told).includes(apiKey))
})

for (const { way, prefix } of ways) {
  test(`curl ${way}: with a secret in a header, in Basic credentials and in a body, over HTTP/1.1 and HTTP/2`, async () => {
    for (const version of ['1.1', '2']) {
      const mark = await world.mark()
      const argv = `-sS --fail --http${version} -H "X-Key: $API_KEY" -u "user:$API_KEY" --data "key=$API_KEY"`
      const told = JSON.parse(await inside.sh(`${prefix}curl ${argv} https://api.test/call`)) as { body: string }
      assert.ok(!JSON.stringify(told).includes(apiKey), 'the echo is masked')
      const [request] = await world.requestsSince(mark)
      assert.ok(request)
      assert.equal(request.body, `key=${apiKey}`)
      const coded = Buffer.from(`user:${apiKey}`).toString('base64')
      assert.ok(!JSON.stringify(told).includes(coded), 'in Basic credentials too')
      const basic = `Basic ${coded}`
      assert.ok(request.rawHeaders.includes(apiKey) && request.rawHeaders.includes(basic), String(request.rawHeaders))
    }
  })

  test(`curl ${way}: TLS to a host without a secret is not read, and HTTP in the clear works`, async () => {
    assert.match(
      await inside.sh(
        `${prefix}curl -sS --fail --cacert world.pem https://other.test/`.replace('world', '/root/world'),
      ),
      /"sni":"other.test"/,
    )
    assert.equal(
      (await inside.run(`${prefix}curl -sS https://other.test/`)).exitCode,
      60,
      'its own certificate is seen',
    )
    assert.match(await inside.sh(`${prefix}curl -sS --fail http://other.test/`), /"host":"other.test"/)
  })

  test(`curl ${way}: what is not listed is refused, and which rule is missing is told`, async () => {
    assert.match(
      await inside.sh(`${prefix}curl -sS -o /dev/null -w '%{http_code}' http://evil.test/ || true`),
      /403|000/,
    )
    const { exitCode, stderr } = await inside.run(`${prefix}curl -sS https://evil.test/`)
    assert.ok([6, 35, 56].includes(exitCode), `${exitCode} ${stderr}`)
  })

  test(`${(moved / 1024 ** 2).toFixed(0)} MiB ${way}: down and up, read and unread, with the right checksum`, async () => {
    for (const [host, ca] of [
      ['api.test', ''],
      ['other.test', '--cacert /root/world.pem'],
    ] as const) {
      const curl = `${prefix}curl -sS --fail ${ca}`
      const sum = await inside.sh(`${curl} https://${host}/sum?count=${moved}`)
      assert.equal(await inside.sh(`${curl} https://${host}/bytes?count=${moved} | sha256sum | cut -d' ' -f1`), sum)
      const told = await inside.sh(`${curl} https://${host}/bytes?count=${moved} | ${curl} -T - https://${host}/up`)
      const { bodyBytes, bodySha256 } = JSON.parse(told) as { bodyBytes: number; bodySha256: string }
      assert.deepEqual([bodyBytes, bodySha256], [moved, sum])
    }
  })
}

test('Node: fetch, with a secret, compressed and streamed answers', async () => {
  const said = await inside.node(`
    const headers = { 'x-key': process.env.API_KEY }
    for (const path of ['', 'gzip', 'br', 'deflate']) {
      const told = await (await fetch('https://api.test/' + path, { headers, method: 'POST', body: process.env.API_KEY })).json()
      console.log(told.method, told.body.length > 0)
    }
    let events = 0
    for await (const chunk of (await fetch('https://api.test/events?count=5', { headers })).body) events += String(Buffer.from(chunk)).split('data:').length - 1
    console.log(events)`)
  assert.deepEqual(said.split('\n'), ['POST true', 'POST true', 'POST true', 'POST true', '5'])
})

test('Python: urllib and requests trust what reads their TLS', async () => {
  const said = await inside.python(`
import urllib.request
from pip._vendor import requests
asked = urllib.request.Request('https://api.test/', headers={'X-Key': os.environ['API_KEY']})
print(json.load(urllib.request.urlopen(asked))['method'])
print(requests.post('https://api.test/', data=os.environ['API_KEY']).json()['method'])`)
  assert.deepEqual(said.split('\n'), ['GET', 'POST'])
})

test('server-sent events and other endless answers come as they are sent', async () => {
  const said = await inside.sh(`curl -sSN https://api.test/drip | head -n 3`)
  assert.equal(said, 'drop\ndrop\ndrop')
})

test('WebSocket: with a secret in its first request', async () => {
  const mark = await world.mark()
  const said = await inside.node(`
    const socket = new WebSocket('wss://api.test/chat', [])
    let count = 0
    socket.onmessage = ({ data }) => {
      if (count++ === 0) return socket.send('x'.repeat(100_000))
      console.log(data.length); socket.close()
    }
    socket.onclose = ({ wasClean }) => console.log(wasClean)
    socket.onerror = ({ message }) => console.log(message)`)
  assert.deepEqual(said.split('\n'), ['100000', 'true'])
  assert.equal((await world.requestsSince(mark))[0]?.path, '/chat')
  await inside.sh(
    `curl -sS --http1.1 -m 15 -H "X-Key: $API_KEY" -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' https://api.test/keyed -o /dev/null || true`,
  )
  const keyed = (await world.requestsSince(mark)).find(({ path }) => path === '/keyed')
  assert.ok(keyed?.rawHeaders.includes(apiKey))
})

test('gRPC: messages both ways at once, and trailers', async () => {
  const said = await inside.node(`
    import { connect } from 'node:http2'
    const session = connect('https://grpc.test')
    const stream = session.request({ ':method': 'POST', ':path': '/grpc/echo', 'content-type': 'application/grpc', te: 'trailers', authorization: 'Bearer ' + process.env.API_KEY })
    let rounds = 0
    stream.on('data', (data) => { if (++rounds < 5) stream.write('message ' + rounds); else stream.end() })
    stream.on('trailers', (fields) => { console.log(rounds, fields['grpc-status'], fields['grpc-message']); session.close() })
    stream.on('error', (error) => { console.log(error.message); session.close() })
    stream.write('message 0')`)
  assert.equal(said, '5 0 fine')
})

test('git: a private repository is cloned and pushed to', async () => {
  const said = await inside.sh(`
    set -e; cd /root; rm -rf private
    git clone --quiet "https://x:$GIT_TOKEN@git.test/private.git"
    cat private/README; cd private; commit='git -c user.name=t -c user.email=t@t commit --quiet -m more'
    head -c 100000 /dev/urandom >small; git add small; $commit; git push --quiet origin HEAD:more
    head -c 3000000 /dev/urandom >big; git add big; $commit; git push --quiet origin HEAD:more
    git ls-remote --heads origin | wc -l`)
  assert.equal(said, 'a private file\n2')
})

test('npm: a private package is installed', async () => {
  await inside.sh(`
    rm -rf /root/npm && mkdir -p /root/npm && cd /root/npm
    printf 'registry=https://npm.test/\\n//npm.test/:_authToken=\${NPM_TOKEN}\\n' >.npmrc
    npm install --no-audit --no-fund --no-update-notifier atoll-test`)
  assert.equal(await inside.sh(`cd /root/npm && node -p 'require("atoll-test")'`), 'from npm')
})

test('pip: a private package is installed', async () => {
  const command =
    'pip install --quiet --disable-pip-version-check --break-system-packages --root-user-action=ignore --no-deps'
  await inside.sh(`${command} --index-url "https://x:$PYPI_TOKEN@pypi.test/simple" atoll-test`)
  assert.equal(await inside.sh(`python3 -c 'import atoll_test; print(atoll_test.said)'`), 'from pypi')
})

test('apt: a private package is installed', async () => {
  const said = await inside.sh(`
    set -e
    echo 'deb [trusted=yes] https://apt.test ./' >/etc/apt/sources.list.d/test.list
    echo "machine apt.test login x password $APT_TOKEN" >/etc/apt/auth.conf.d/test.conf
    options='-o Dir::Etc::SourceList=/etc/apt/sources.list.d/test.list -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root'
    apt-get $options -qq update && apt-get $options -qq install --yes atoll-test >/dev/null 2>&1; cat /opt/atoll-test`)
  assert.equal(said, 'from apt')
})

test('Docker: a token is got with a password, a manifest with the token, a blob from another host', async () => {
  const said = await inside.sh(`
    set -e
    get() { curl -sS --fail "$@"; }
    [ "$(curl -s -o /dev/null -w '%{http_code}' https://registry.test/v2/)" = 401 ]
    token=$(get -u "x:$REGISTRY_TOKEN" 'https://registry.test/token?service=registry.test' | sed 's/.*"token":"\\([^"]*\\)".*/\\1/')
    digest=$(get -H "Authorization: Bearer $token" https://registry.test/v2/private/manifests/latest | grep -o 'sha256:[0-9a-f]*' | tail -1)
    get -H "Authorization: Bearer $token" -o /dev/null -w '%{redirect_url}' "https://registry.test/v2/private/blobs/$digest" >/tmp/url
    get --cacert /root/world.pem "$(cat /tmp/url)" | gunzip`)
  assert.equal(said, 'a layer')
})

test('Go: a private module is got by its own tool', async () => {
  // The tool alone is enough to get modules; all of Debian's package is ten times as large.
  await inside.upload('/root/go/bin/go', await fileOfPackage('golang-1.19-go', './usr/lib/go-1.19/bin/go'))
  const said = await inside.sh(`
    chmod +x /root/go/bin/go; mkdir -p /root/go-work; cd /root/go-work
    printf 'module work\\n\\ngo 1.19\\n\\nrequire go.test/module v1.0.0\\n' >go.mod
    export GOROOT=/root/go GOPATH=/tmp/go GOCACHE=/tmp/go-cache GOFLAGS=-mod=mod GONOSUMDB='*' GOPROXY="https://x:$GO_TOKEN@go.test"
    /root/go/bin/go mod download && cat /tmp/go/pkg/mod/go.test/module@v1.0.0/go.mod`)
  assert.equal(said, 'module go.test/module')
})

test('S3: requests are signed anew with the true key', async () => {
  const s3 = `curl -sS --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY"`
  assert.equal(
    await inside.sh(`${s3} -X PUT --data-binary 'an object' 'https://s3.test/bucket/some%20key?x=a%2Fb'`),
    '',
  )
  assert.equal(await inside.sh(`${s3} --fail 'https://s3.test/bucket/some%20key'`), 'an object')
  await inside.sh(
    `head -c 20000000 /dev/zero >/tmp/large; ${s3} --fail -H 'X-Amz-Content-Sha256: UNSIGNED-PAYLOAD' -T /tmp/large https://s3.test/bucket/large`,
  )
})

test('SSH: where a rule names its port, the server may speak first', async () => {
  assert.match(
    await inside.python(`print(tcp('raw.test', 22, b'hello\\n'))`),
    /^SSH-2\.0-OpenSSH_9.2p1 Test\|+echo hello/,
  )
})

test('the model gateway and the metadata service are reached', async () => {
  assert.match(await inside.sh(`curl -sS -o /dev/null -w '%{http_code}' http://169.254.169.254/`), /^[24]\d\d$/)
  assert.match(
    await inside.sh(`curl -sS -o /dev/null -w '%{http_code}' http://gateway.atoll.internal:4180/`),
    /^[24]\d\d$/,
  )
})

test('log: each request is told with its bytes and the names of its secrets, and can be followed', async () => {
  const abort = new AbortController()
  const path = `/api/sandboxes/${inside.id}/egress/log?follow=true&after=newest`
  const stream = await server.fetch(path, { headers: { Accept: 'text/event-stream' }, signal: abort.signal })
  assert.match(stream.headers.get('content-type') ?? '', /^text\/event-stream/)
  await inside.sh(`curl -sS --fail -H "X-Key: $API_KEY" -o /dev/null 'https://api.test/logged?query=hidden'`)
  const entry = await inside.logs(({ path: told }) => told === '/logged')
  assert.deepEqual(
    [entry.decision, entry.host, entry.port, entry.method, entry.status],
    ['allowed', 'api.test', 443, 'GET', 200],
  )
  assert.deepEqual(entry.secrets, ['API_KEY'])
  assert.ok(entry.sentBytes > 0 && entry.receivedBytes > 0)
  let followed = ''
  const decoder = new TextDecoder()
  for await (const chunk of stream.body ?? []) {
    followed += decoder.decode(chunk as Uint8Array, { stream: true })
    if (followed.includes('/logged')) break
  }
  abort.abort()
  assert.ok(!followed.includes(apiKey) && !followed.includes('hidden'))
})

test('many requests on one connection, many connections at once', async () => {
  const said = await inside.sh(`
    seq 200 | sed 's|.*|url=https://api.test/n/&\\noutput=/dev/null|' >/tmp/urls
    curl -sS --fail --parallel --parallel-max 50 -w '%{http_code}\\n' -K /tmp/urls | sort | uniq -c
    curl -sS --fail -w '%{num_connects}\\n' -K /tmp/urls | awk '{ sum += $1 } END { print sum }'`)
  assert.match(said, /^\s*200 200\n1$/)
})

test('rules: what is added is reached, what is removed is not, at once and on open connections', async () => {
  const changing = await Inside.make(server, world, { egress: { mode: 'list', allow: ['other.test'] } })
  const get = (host: string) => changing.python(`print(status(tls('${host}', at=anywhere, data=request('${host}'))))`)
  assert.equal(await get('other.test'), '200')
  assert.match(await get('second.test'), /access denied/)
  await changing.setEgress({ mode: 'list', allow: ['other.test', 'second.test'] })
  assert.equal(await get('second.test'), '200')
  await changing.start(`curl -sSN --cacert /root/world.pem https://other.test/drip; echo ended`, '/tmp/drip')
  await changing.start(`curl -sSN --cacert /root/world.pem https://second.test/drip; echo ended`, '/tmp/kept')
  for (const file of ['/tmp/drip', '/tmp/kept']) await changing.says(file, /drop/)
  await changing.setEgress({ mode: 'list', allow: ['second.test'] })
  await changing.says('/tmp/drip', /ended/)
  assert.match(await get('other.test'), /access denied/)
  assert.doesNotMatch(await changing.sh('cat /tmp/kept'), /ended/)
  await changing.setEgress({ mode: 'none' })
  await changing.says('/tmp/kept', /ended/)
  assert.match(
    await changing.python(`print(lookup('second.test')); print(tcp(anywhere, 80))`),
    /no such name\n(reset|closed)/,
  )
})

test('rules that only record: nothing is refused, and what would be is told', async () => {
  const watched = await Inside.make(server, world, { egress: { mode: 'list', allow: ['other.test'], logOnly: true } })
  assert.equal(await watched.python(`print(status(tls('second.test', data=request('second.test'))))`), '200')
  await watched.logs(({ host, port, decision }) => host === 'second.test' && port === 443 && decision === 'would_deny')
})

test('rules of the organisation hold beneath those of a creation, for what runs too', async () => {
  const wide = await Inside.make(server, world, { egress: { mode: 'list', allow: ['*'] } })
  const get = () => wide.python(`print(status(tls('second.test', at=anywhere, data=request('second.test'))))`)
  assert.equal(await get(), '200')
  await server.json('PUT', '/api/egress', { policy: { deny: ['second.test'] } })
  try {
    assert.match(await get(), /access denied/)
    const entry = await wide.logs(({ host, decision }) => host === 'second.test' && decision === 'denied')
    assert.equal(entry.rule, 'organisation.deny[0]')
    const plain = await Inside.make(server, world, {})
    assert.match(
      await plain.python(`print(status(tls('second.test', at=anywhere, data=request('second.test'))))`),
      /access denied/,
    )
  } finally {
    await server.json('PUT', '/api/egress', { policy: null })
  }
  assert.equal(await get(), '200')
})
