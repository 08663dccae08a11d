import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertRefused, evaluated } from './testing/evaluated.ts'

function mountOf(options: string) {
  const text = `FROM a AS s\nFROM a\nARG T=/t ID=x\nWORKDIR /w\nRUN --mount=${options} x`
  const [operation] = evaluated(text).operations.slice(-1)
  assert.ok(operation?.type === 'run' && operation.mounts.length === 1)
  return operation.mounts[0]
}

test('--mount=type=bind: of the context, a stage or an image', () => {
  assert.deepEqual(mountOf('target=.,rw'), { type: 'bind', target: '/w', source: '/', writable: true })
  assert.deepEqual(mountOf('from=s,src=/a,readwrite'), {
    type: 'bind',
    target: '/w',
    source: '/a',
    from: 's',
    writable: true,
  })
  assert.deepEqual(mountOf('TYPE=Bind,dst=m/x/,src=../a/./b,from=s'), {
    type: 'bind',
    target: '/w/m/x',
    source: '/a/b',
    from: 's',
    writable: false,
  })
  assert.deepEqual(mountOf('type=bind,destination=$T,source=/c,readwrite=true'), {
    type: 'bind',
    target: '/t',
    source: '/c',
    writable: true,
  })
  assert.deepEqual(mountOf('type=bind,target=/t,rw=true,ro'), {
    type: 'bind',
    target: '/t',
    source: '/',
    writable: false,
  })
  // What the plan has looked up is not expanded again.
  assert.deepEqual(mountOf(`"from='s\\\\x',target=/t"`), {
    type: 'bind',
    target: '/t',
    source: '/',
    from: `'s\\x'`,
    writable: false,
  })
  assert.deepEqual(mountOf(`'type=bind,"target=/a,b",rw=0'`), {
    type: 'bind',
    target: '/a,b',
    source: '/',
    writable: false,
  })
})

test('--mount=type=cache: its id is its target', () => {
  const rest = { readOnly: false, sharing: 'shared', source: '/', mode: 0o755, uid: 0, gid: 0 }
  assert.deepEqual(mountOf('type=cache,target=/var/cache/apt'), {
    type: 'cache',
    target: '/var/cache/apt',
    id: '/var/cache/apt',
    ...rest,
  })
  assert.deepEqual(
    mountOf('type=cache,target=c,id=$ID,sharing=LOCKED,mode=0700,uid=1000,gid=1001,from=s,source=d,ro'),
    {
      type: 'cache',
      target: '/w/c',
      id: 'x',
      readOnly: true,
      sharing: 'locked',
      from: 's',
      source: '/d',
      mode: 0o700,
      uid: 1000,
      gid: 1001,
    },
  )
})

test('--mount=type=tmpfs: a size in bytes or units', () => {
  assert.deepEqual(mountOf('type=tmpfs,target=$T'), { type: 'tmpfs', target: '/t' })
  const sizes = ['1024', '512m', '1.5GiB', '2kb', '3 M'].map((size) => mountOf(`"type=tmpfs,target=/t,size=${size}"`))
  assert.deepEqual(
    sizes.map((mount) => mount?.type === 'tmpfs' && mount.sizeBytes),
    [1024, 512 * 1024 ** 2, 1.5 * 1024 ** 3, 2048, 3 * 1024 ** 2],
  )
})

test('--mount=type=secret: a file, a variable, or both', () => {
  const rest = { required: false, mode: 0o400, uid: 0, gid: 0 }
  assert.deepEqual(mountOf('type=secret,id=aws'), { type: 'secret', id: 'aws', target: '/run/secrets/aws', ...rest })
  assert.deepEqual(mountOf('type=secret,id=a,target=.aws,required,mode=0444,uid=1'), {
    type: 'secret',
    id: 'a',
    target: '/w/.aws',
    ...rest,
    required: true,
    mode: 0o444,
    uid: 1,
  })
  assert.deepEqual(mountOf('type=secret,id=a,env=TOKEN,required=false'), {
    type: 'secret',
    id: 'a',
    env: 'TOKEN',
    ...rest,
  })
  assert.deepEqual(mountOf('type=secret,id=a,env=TOKEN,target=/t'), {
    type: 'secret',
    id: 'a',
    env: 'TOKEN',
    target: '/t',
    ...rest,
  })
  assert.deepEqual(mountOf('type=secret,target=/etc/key'), { type: 'secret', id: 'key', target: '/etc/key', ...rest })
})

test('--mount: what is none is refused with its line', () => {
  const cases: [string, RegExp][] = [
    ['type=bind', /the root folder for its target/],
    ['type=cache,target=', /its target is empty/],
    ['type=cache,target=$NONE', /its target is empty/],
    ['type=tmpfs', /the root folder for its target/],
    ['type=cache,target=~/.cache', /knows no ~/],
    ['type=bind,target=/', /the root folder/],
    ['type=bind,target=$NONE/..', /the root folder/],
    ['type=cahce,target=/a', /no type "cahce"; did you mean cache/],
    ['type=ssh', /type=ssh is not supported/],
    ['type=bind,targt=/a', /no option "targt"; did you mean target/],
    ['type=bind,constructor=/a', /no option "constructor"/],
    ['type=bind,target', /target takes a value/],
    ['type=bind,target=/a,mode=0700', /mode is nothing for type=bind/],
    ['type=tmpfs,target=/a,from=s', /from is nothing for type=tmpfs/],
    ['type=secret,id=a,from=s', /from is nothing for type=secret/],
    ['type=bind,target=/a,required', /required is nothing for type=bind/],
    ['type=cache,target=/a,sharing=all', /no sharing="all"/],
    ['type=cache,target=/a,mode=9', /mode is no octal mode/],
    ['type=cache,target=/a,uid=x', /uid is no id/],
    ['type=cache,target=/a,gid=4294967295', /gid is no id/],
    ['type=tmpfs,target=/a,size=x', /size is no number/],
    ['type=tmpfs,target=/a,size=99999999p', /size is no number/],
    ['type=bind,target=/a,ro=maybe', /readonly takes true or false/],
    ['type=secret', /takes id=/],
    ['type=secret,id=a/..', /no folder/],
    ['type=secret,id=/', /no folder/],
    ['type=secret,id=a,source=b', /an id or a source/],
    ['type=secret,id=a,env=A-B', /no name of a variable/],
    [`'type=bind,"target=/a'`, /" has no end/],
    ['', /no option ""/],
  ]
  for (const [options, why] of cases) assertRefused(`FROM a\nRUN --mount=${options} x`, 2, why)
  assertRefused(`FROM a\nRUN ${'--mount=target=/a '.repeat(101)} x`, 2, /more than 100 mounts/)
})

test('--mount: several, with quotes, comments between them and a heredoc behind', () => {
  const text = `FROM a AS version
FROM a
ARG CACHE=/root/.cache NAME=app
WORKDIR /src
RUN \\
  --mount=ro \\
  # of the compiler
  --mount=type=cache,target="\${CACHE}/c",id="c-\${NAME}" \\

  --mount=from=version,src=/tmp/.v,target=/tmp/.v --mount=type=tmpfs,target="out/" \\
  <<SCRIPT
make
SCRIPT
RUN --mount=from=version make`
  const [, first, second] = evaluated(text).operations
  assert.ok(first?.type === 'run' && second?.type === 'run')
  assert.deepEqual(first.argv, ['/bin/sh', '-c', 'make\n'])
  assert.deepEqual(
    first.mounts.map((mount) => [mount.type, mount.target, 'id' in mount ? mount.id : undefined]),
    [
      ['bind', '/src', undefined],
      ['cache', '/root/.cache/c', 'c-app'],
      ['bind', '/tmp/.v', undefined],
      ['tmpfs', '/src/out', undefined],
    ],
  )
  assert.deepEqual(second.mounts, [{ type: 'bind', target: '/src', from: 'version', source: '/', writable: false }])
})
