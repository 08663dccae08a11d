import type { z } from 'zod'
import { scaling as wire } from '../../protocol/http/index.ts'
import type { Sandbox } from '../../sandbox/index.ts'
import type { HttpConfig } from '../server/config.ts'
import { routesOf, wakingErrors } from '../server/route.ts'

const route = routesOf('Scaling', 'sandbox')

const sizeErrors = [...wakingErrors, 'scaling_locked', 'oom_floor'] as const

export const scalingRoutes = [
  route('POST', '/api/sandboxes/:id/scale', {
    id: 'scaleSandbox',
    lenient: true,
    summary: 'Change memory, and CPU in step, while it runs',
    description:
      'One CPU for each 4096 MB, and never fewer than it has. Turns autoscale off. `oom_floor` tells in `details` how much its processes need.',
    body: wire.scaleBody,
    answers: { 200: { description: 'What it has now', body: wire.scaled } },
    errors: sizeErrors,
    async handle({ orgId, params, body, deps }) {
      const { sandbox, wasAutoscaled } = await deps.sandboxes.scaling.scale(orgId, params.id, body.memoryMB)
      return { statusCode: 200, body: { ...sizesBody(sandbox, deps.config), autoscaleDisabled: wasAutoscaled } }
    },
  }),
  route('PUT', '/api/sandboxes/:id/limits', {
    id: 'setSandboxLimits',
    summary: 'Change memory or CPU while it runs',
    description: 'CPU that is not given follows memory as in `scale`. Autoscale stays as it is.',
    body: wire.limitsBody,
    answers: { 200: { description: 'What it has now', body: wire.limits } },
    errors: sizeErrors,
    async handle({ orgId, params, body, deps }) {
      const wanted = { memoryMb: body.memoryMB, cpuPercent: body.cpuPercent }
      const sandbox = await deps.sandboxes.scaling.limit(orgId, params.id, wanted)
      return { statusCode: 200, body: sizesBody(sandbox, deps.config) }
    },
  }),
  route('PUT', '/api/sandboxes/:id/autoscale', {
    id: 'setAutoscale',
    lenient: true,
    summary: 'Let the memory of a sandbox follow its use, or stop that',
    description: 'While it runs it gets the next tier when it is short of memory, and the one below after little use.',
    body: wire.setAutoscaleBody,
    answers: { 200: { description: 'As it is now', body: wire.autoscale } },
    errors: ['conflict', 'sandbox_stopped', 'scaling_locked'],
    async handle({ orgId, params, body, deps }) {
      const { enabled, minMemoryMB: minMemoryMb, maxMemoryMB: maxMemoryMb } = body
      const wanted = { enabled, minMemoryMb, maxMemoryMb }
      return {
        statusCode: 200,
        body: autoscaleBody(await deps.sandboxes.scaling.setAutoscale(orgId, params.id, wanted)),
      }
    },
  }),
  route('GET', '/api/sandboxes/:id/autoscale', {
    id: 'getAutoscale',
    lenient: true,
    summary: 'Read whether the memory of a sandbox follows its use',
    answers: { 200: { description: 'As it is now', body: wire.autoscale } },
    answer: async ({ orgId, params, deps }) => autoscaleBody(await deps.sandboxes.get(orgId, params.id)),
  }),
  route('PUT', '/api/sandboxes/:id/scaling-lock', {
    id: 'setScalingLock',
    lenient: true,
    summary: 'Lock the sizes of a sandbox, or unlock them',
    description: 'Locking turns autoscale off; unlocking does not turn it on.',
    body: wire.setScalingLockBody,
    answers: { 200: { description: 'As it is now', body: wire.scalingLock } },
    errors: ['conflict', 'sandbox_stopped'],
    answer: async ({ orgId, params, body, deps }) =>
      lockBody(await deps.sandboxes.scaling.setLock(orgId, params.id, body.locked)),
  }),
  route('GET', '/api/sandboxes/:id/scaling-lock', {
    id: 'getScalingLock',
    lenient: true,
    summary: 'Read whether the sizes of a sandbox are locked',
    answers: { 200: { description: 'As it is now', body: wire.scalingLock } },
    answer: async ({ orgId, params, deps }) => lockBody(await deps.sandboxes.get(orgId, params.id)),
  }),
]

function sizesBody({ id, memoryMb, cpuCount }: Sandbox, { workerId }: HttpConfig): z.output<typeof wire.limits> {
  const cpuPercent = Math.round(cpuCount * 100)
  return { sandboxID: id, memoryMB: memoryMb, cpuPercent, workerID: workerId, migrated: false, ok: true }
}

function autoscaleBody(sandbox: Sandbox): z.output<typeof wire.autoscale> {
  const { id, isAutoscaled, autoscaleMinMb, autoscaleMaxMb } = sandbox
  return { sandboxID: id, enabled: isAutoscaled, minMemoryMB: autoscaleMinMb, maxMemoryMB: autoscaleMaxMb }
}

function lockBody({ id, isScalingLocked }: Sandbox): z.output<typeof wire.scalingLock> {
  return { sandboxID: id, locked: isScalingLocked }
}
