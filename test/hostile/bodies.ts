/** Input that is wrong, too much, or made to grow. */
import assert from 'node:assert/strict'
import { refused, type Try } from './target.ts'

const deep = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`
const refusal = (
  name: string,
  method: string,
  path: string,
  body: unknown,
  status: number | number[],
  words?: RegExp,
): Try => ({
  name: `${method} ${path}: ${name}`,
  run: async ({ attacker, sandboxId }) =>
    refused(await attacker.raw(method, path.replace('{id}', sandboxId), { body }), status, words),
})

const creates = '/api/sandboxes'
const run = '/api/sandboxes/{id}/exec/run'
/** A step whose files have none of their fields. */
const filesOf = (count: number) => ({
  type: 'add_dir',
  args: { path: '/a', files: Array.from({ length: count }, () => ({})) },
})
const dockerfile = (text: string) => ({ name: 'hostile', dockerfile: text })

export const bodyTries: Try[] = [
  refusal('no JSON', 'POST', creates, '{', 400, /JSON/),
  refusal('null', 'POST', creates, 'null', 400, /null/),
  refusal('a list', 'POST', creates, '[]', 400),
  refusal('a number', 'POST', creates, '1', 400),
  refusal('bytes that are no UTF-8', 'POST', creates, '"\ud800"', 400),
  refusal('lists a thousand deep', 'POST', creates, `{"metadata":${deep(1000)}}`, [400, 413]),
  refusal('lists a hundred thousand deep', 'POST', creates, `{"metadata":${deep(100_000)}}`, [400, 413]),
  refusal('a hundred thousand values', 'POST', creates, `{"tags":[${'1,'.repeat(100_000)}1]}`, [400, 413]),
  refusal('a key __proto__', 'POST', creates, '{"metadata":{"__proto__":{"a":"b"}}}', 400, /__proto__/),
  refusal('two mebibytes', 'POST', creates, { metadata: { a: 'x'.repeat(2 * 2 ** 20) } }, [400, 413]),
  refusal('a negative size', 'POST', creates, { memoryMB: -1 }, 400, /memoryMB/),
  refusal('a size above all bounds', 'POST', creates, { memoryMB: 1e12 }, [400, 403], /memoryMB/),
  refusal('a size that is no integer', 'POST', creates, { memoryMB: 1.5 }, 400, /memoryMB/),
  refusal('a size as text', 'POST', creates, { memoryMB: '512' }, 400, /memoryMB/),
  refusal('a timeout below zero', 'POST', creates, { timeout: -1 }, 400, /timeout/),
  refusal('an image outside its folder', 'POST', creates, { templateID: '../../etc' }, [400, 404]),
  refusal('an image with a NUL', 'POST', creates, { templateID: 'base\0' }, [400, 404]),
  refusal('a variable with a NUL', 'POST', creates, { envs: { A: 'a\0b' } }, 400, /envs/),
  refusal('a variable whose name has =', 'POST', creates, { envs: { 'A=B': 'c' } }, 400, /envs/),
  refusal(
    'many variables',
    'POST',
    creates,
    { envs: Object.fromEntries(Array.from({ length: 20_000 }, (_, n) => [`A${n}`, 'b'])) },
    [400, 413],
  ),
  refusal('a volume over /proc', 'POST', creates, { volumes: [{ name: 'a', path: '/proc' }] }, [400, 404]),
  refusal('a volume above the root', 'POST', creates, { volumes: [{ name: 'a', path: '/../../etc' }] }, [400, 404]),
  refusal('a command with a NUL', 'POST', run, { cmd: 'a\0b' }, 400),
  refusal('no command', 'POST', run, {}, 400, /cmd/),
  refusal('a folder with a NUL', 'POST', run, { cmd: 'true', cwd: '/\0' }, 400),
  refusal('a user of spaces', 'POST', run, { cmd: 'true', user: '  ' }, 400),
  refusal('a user above all ids', 'POST', run, { cmd: 'true', user: '4294967296' }, 400),
  refusal('a user -1', 'POST', run, { cmd: 'true', user: '-1' }, 400),
  refusal('arguments of a mebibyte', 'POST', run, { cmd: 'true', args: ['x'.repeat(2 ** 20)] }, [400, 413]),
  refusal(
    'a million short arguments',
    'POST',
    run,
    { cmd: 'true', args: Array.from({ length: 200_000 }, () => 'a') },
    [400, 413],
  ),
  refusal('a timeout of years', 'POST', run, { cmd: 'true', timeout: 1e15 }, 400, /timeout/),
  refusal('a negative quota', 'PUT', '/api/sandboxes/{id}/limits', { memoryMB: -5 }, 400),
  refusal('all of the machine', 'PUT', '/api/sandboxes/{id}/limits', { memoryMB: 1e9 }, [400, 403]),
  refusal(
    'a name of a thousand characters',
    'POST',
    '/api/sandboxes/{id}/checkpoints',
    { name: 'x'.repeat(1000) },
    400,
    /name/,
  ),
  refusal(
    'a name with slashes',
    'POST',
    '/api/snapshots',
    { name: '../../a', manifest: { base: 'base', steps: [] } },
    400,
  ),
  refusal('a volume without a name', 'POST', '/api/volumes', { name: '' }, 400, /name/),
  refusal('a volume with a name of another folder', 'POST', '/api/volumes', { name: '../a' }, 400, /name/),
  refusal('tags that are a list', 'PUT', '/api/sandboxes/{id}/tags', ['a'], 400),
  refusal('a port above all', 'POST', '/api/sandboxes/{id}/preview', { port: 70_000 }, 400, /port/),
  refusal('port 0', 'POST', '/api/sandboxes/{id}/preview', { port: 0 }, 400, /port/),
  refusal('a domain with a path', 'POST', '/api/sandboxes/{id}/preview', { port: 80, domain: 'a.example/b' }, 400),
  refusal(
    '99 000 files without a field',
    'POST',
    '/api/sandboxes',
    { image: { steps: [filesOf(99_000)] } },
    [400, 413],
  ),
  refusal(
    '33 000 steps that are none',
    'POST',
    '/api/snapshots',
    { name: 'a', image: { steps: Array.from({ length: 33_000 }, () => ({})) } },
    400,
    /image\.steps\.0/,
  ),
  refusal(
    '9000 volumes that are none',
    'POST',
    '/v1/sessions',
    { prompt: 'a', user_id: 'u', volumes: Array.from({ length: 9000 }, () => ({})) },
    400,
    /volumes\.0/,
  ),
  refusal(
    '2000 variables',
    'POST',
    '/api/sandboxes',
    { envs: Object.fromEntries(Array.from({ length: 2000 }, (_, n) => [`A${n}`, ''])) },
    [400, 413],
  ),
  refusal(
    'metadata of 8 MB',
    'POST',
    '/api/sandboxes',
    { metadata: { a: '\u0001'.repeat(1_400_000) } },
    400,
    /metadata/,
  ),
  refusal(
    'a command of 8 MB',
    'POST',
    '/api/snapshots',
    { name: 'a', image: { steps: [{ type: 'run', args: { commands: ['x'.repeat(8_000_000)] } }] } },
    400,
    /image\.steps/,
  ),
  refusal(
    'variables that double',
    'POST',
    '/templates',
    dockerfile(`FROM base\nENV A=aaaaaaaaaa\n${'ENV A=$A$A\n'.repeat(24)}RUN true\n`),
    [400, 413],
  ),
  refusal(
    'names of a long variable',
    'POST',
    '/templates',
    dockerfile(
      `FROM base\nENV A=${'a'.repeat(30_000)}\n${Array.from({ length: 60 }, (_, n) => `ENV B${n}=$A$A$A$A`).join('\n')}\n`,
    ),
    [400, 413],
  ),
  refusal(
    '600 kB of continuation lines',
    'POST',
    '/templates',
    dockerfile(`FROM base\nRUN true ${'\\\n '.repeat(200_000)}\nNONSENSE\n`),
    [400, 413],
  ),
  refusal('a stage of itself', 'POST', '/templates', dockerfile('FROM base AS a\nCOPY --from=a / /x\n'), 400),
  refusal('no FROM', 'POST', '/templates', dockerfile('RUN true\n'), 400),
  refusal('a copy from above', 'POST', '/templates', dockerfile('FROM base\nCOPY ../../etc/shadow /a\n'), 400),
  refusal('an ADD of an address', 'POST', '/templates', dockerfile('FROM base\nADD http://169.254.169.254/ /a\n'), 400),
  refusal('a session without a task of sense', 'POST', '/v1/sessions', { prompt: 'a', user_id: 1 }, 400),
  refusal(
    'a harness that is none',
    'POST',
    '/v1/sessions',
    { prompt: 'a', user_id: 'u', agent_config: { harness: '../x' } },
    400,
  ),
  refusal(
    'skills outside their folder',
    'POST',
    '/v1/sessions',
    { prompt: 'a', user_id: 'u', agent_config: { skills: { '../../x': 'y' } } },
    400,
  ),
  {
    name: 'query: a cursor, a limit and a filter that are nonsense',
    run: async ({ attacker }) => {
      for (const query of ['limit=-1', 'limit=1e9', 'limit=a', 'cursor=%00', 'cursor=../../x', 'status=no'])
        refused(await attacker.raw('GET', `/api/sandboxes?${query}`), 400)
    },
  },
  {
    name: 'query: a broken percent escape, in path and query',
    run: async ({ attacker, sandboxId }) => {
      for (const path of [`/api/sandboxes/%zz`, `/api/sandboxes/${sandboxId}/files?path=%`, `/api/tags?x=%e0%a4%a`])
        refused(await attacker.raw('GET', path), [400, 404])
    },
  },
  {
    name: 'headers: keys of a megabyte, with a NUL, and none',
    run: async ({ attacker }) => {
      refused(await attacker.raw('GET', '/api/sandboxes', { key: null }), 401)
      refused(await attacker.raw('GET', '/api/sandboxes', { key: 'x'.repeat(8_000) }), 401)
      refused(await attacker.raw('GET', '/api/sandboxes', { key: '' }), 401)
      const { status } = await attacker.raw('GET', '/api/sandboxes', { headers: { 'last-event-id': 'x'.repeat(1000) } })
      assert.equal(status, 200)
    },
  },
]
