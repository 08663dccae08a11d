/** What another tenant's key opens: nothing, and it tells nothing. */
import assert from 'node:assert/strict'
import { refused, type Target, type Try } from './target.ts'

/** Of the neighbour's sandbox. */
const calls: [method: string, path: string, body?: unknown][] = [
  ['GET', ''],
  ['DELETE', ''],
  ['POST', '/hibernate', {}],
  ['POST', '/wake', {}],
  ['POST', '/reboot', {}],
  ['POST', '/power-cycle', {}],
  ['POST', '/timeout', { timeout: 1 }],
  ['GET', '/tags'],
  ['PUT', '/tags', { a: 'b' }],
  ['POST', '/scale', { memoryMB: 256 }],
  ['PUT', '/limits', { memoryMB: 256 }],
  ['GET', '/autoscale'],
  ['GET', '/scaling-lock'],
  ['PUT', '/scaling-lock', { locked: true }],
  ['GET', '/metrics'],
  ['GET', '/checkpoints'],
  ['POST', '/checkpoints', { name: 'mine' }],
  ['POST', '/preview', { port: 8080 }],
  ['GET', '/preview'],
  ['DELETE', '/preview/8080'],
  ['GET', '/files?path=/etc/hostname'],
  ['PUT', '/files?path=/root/mine', 'mine'],
  ['DELETE', '/files?path=/etc/hostname'],
  ['GET', '/files/list?path=/'],
  ['POST', '/files/mkdir?path=/root/mine'],
  ['POST', '/files/upload-url', { path: '/root/mine' }],
  ['POST', '/files/download-url', { path: '/etc/hostname' }],
  ['POST', '/exec/run', { cmd: 'true' }],
  ['POST', '/exec/run-async', { cmd: 'true' }],
  ['POST', '/exec', { cmd: 'true' }],
  ['GET', '/exec'],
  ['POST', '/pty', { cols: 80, rows: 24 }],
  ['GET', '/ports'],
  ['GET', '/processes'],
  ['DELETE', '/processes/1'],
]

export const strangerTries: Try[] = [
  ...calls.map(([method, path, body]): Try => ({
    name: `${method} ${path || '/'} of another's sandbox`,
    run: async ({ attacker, neighbourId }) => {
      const answer = await attacker.raw(method, `/api/sandboxes/${neighbourId}${path}`, { body })
      const unknown = await attacker.raw(method, `/api/sandboxes/sb-00000000${path}`, { body })
      refused(answer, 404)
      // As if it were not there.
      assert.deepEqual([answer.status, answer.body.code], [unknown.status, unknown.body.code])
    },
  })),
  {
    name: 'a checkpoint, a snapshot, a volume and a session of another by their ids',
    run: async ({ attacker, neighbour, neighbourId }) => {
      const { body: checkpoint } = await neighbour.post(`/api/sandboxes/${neighbourId}/checkpoints`, {
        name: 'theirs',
        kind: 'disk_only',
      })
      const { body: volume } = await neighbour.post('/api/volumes', { name: 'theirs' })
      const { body: session } = await neighbour.post('/v1/sessions', { prompt: 'a', user_id: 'u1' })
      assert.ok(checkpoint.id && volume.name && session.id)
      const tried = [
        ['POST', `/api/sandboxes/from-checkpoint/${checkpoint.id}`, {}],
        ['POST', `/api/sandboxes/checkpoints/${checkpoint.id}/publish`, {}],
        ['POST', `/api/sandboxes/checkpoints/${checkpoint.id}/patches`, { script: 'true', strategy: 'on_wake' }],
        ['GET', `/api/sandboxes/checkpoints/${checkpoint.id}/patches`],
        ['DELETE', '/api/volumes/theirs'],
        ['GET', '/api/volumes/theirs'],
        ['POST', '/api/volumes/theirs/snapshots', { name: 'mine' }],
        ['POST', '/api/sandboxes', { volumes: [{ name: 'theirs', path: '/mnt' }] }],
        ['GET', `/v1/sessions/${session.id}`],
        ['DELETE', `/v1/sessions/${session.id}`],
        ['POST', `/v1/sessions/${session.id}/messages`, { message: 'a', user_id: 'u' }],
        ['POST', `/v1/sessions/${session.id}/interrupt`, {}],
        ['POST', `/v1/sessions/${session.id}/fork`, { user_id: 'u' }],
        ['POST', `/v1/sessions/${session.id}/tokens`, {}],
        ['GET', `/v1/sessions/${session.id}/events`],
        ['GET', `/v1/sessions/${session.id}/export`],
      ] as const
      for (const [method, path, body] of tried) {
        const answer = await attacker.raw(method, path, { body })
        assert.ok([400, 404].includes(answer.status), `${method} ${path}: ${answer.status} ${answer.text}`)
      }
      await neighbour.delete(`/v1/sessions/${session.id}`)
    },
  },
  {
    name: 'lists show nothing of another',
    run: async ({ attacker, neighbourId }) => {
      for (const path of [
        '/api/sandboxes',
        '/api/volumes',
        '/api/snapshots',
        '/v1/sessions',
        '/api/images',
        '/api/tags',
      ]) {
        const { text } = await attacker.raw('GET', path)
        assert.ok(!text.includes(neighbourId) && !text.includes('theirs'), path)
      }
    },
  },
  {
    name: 'a signed address of one sandbox is none of another',
    run: async ({ attacker, sandboxId, neighbourId }: Target) => {
      const { body } = await attacker.post(`/api/sandboxes/${sandboxId}/files/download-url`, { path: '/etc/hostname' })
      const url = new URL(body.url as string)
      const path = url.pathname.replace(sandboxId, neighbourId) + url.search
      const answer = await attacker.raw('GET', path, { key: null })
      assert.ok([401, 403, 404].includes(answer.status), String(answer.status))
      const other = url.pathname + url.search.replace('hostname', 'shadow')
      const changed = await attacker.raw('GET', other, { key: null })
      assert.ok([401, 403, 404].includes(changed.status), String(changed.status))
    },
  },
]
