import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { common, exec as wire } from '../../protocol/http/index.ts'
import type { ProcessInfo, RunCommand } from '../../sandbox/index.ts'
import { attach, carryExec, carryPty, wantsUpgrade } from '../server/exec-socket.ts'
import { jsonObject, JsonText } from '../server/json-text.ts'
import { taken } from '../server/taken.ts'
import { routesOf, wakingErrors } from '../server/route.ts'
import { reportedSeconds } from '../server/time.ts'
import { defined } from '../../lib/defined.ts'

const route = routesOf('Exec', 'sandbox:exec')
const noKey = 'Idempotency-Key: this command ends with its connection; one that must run once is for exec/run-async'

export const execRoutes = [
  route('POST', '/api/sandboxes/:id/exec/run', {
    id: 'runCommand',
    lenient: true,
    summary: 'Run a command to its end',
    description:
      'Past `timeout` its whole process group dies, `exitCode` is 124 and `timedOut` true. It also dies when the client goes away, so an `Idempotency-Key` is refused.',
    body: wire.runCommand,
    answers: { 200: { description: 'Its result', body: wire.runResult } },
    errors: wakingErrors,
    async handle({ orgId, params, body, request, reply, deps }) {
      if (request.headers['idempotency-key'] !== undefined) throw new ServiceError('invalid_request', noKey)
      const gone = new AbortController()
      const sent = taken(reply.raw)
      void sent.then(() => gone.abort())
      const result = await deps.sandboxes.exec.run(orgId, params.id, runCommand(body), { signal: gone.signal, sent })
      return { statusCode: 200, body: new JsonText(() => jsonObject(result)) }
    },
  }),
  route('POST', '/api/sandboxes/:id/exec/run-async', {
    id: 'runCommandAsync',
    lenient: true,
    summary: 'Run a command in the background',
    body: wire.runCommand,
    creates: true,
    answers: { 202: { description: 'It runs', body: wire.runHandle } },
    errors: wakingErrors,
    async handle({ orgId, params, body, creation, deps }) {
      const { execId } = await deps.sandboxes.exec.runAsync(orgId, params.id, runCommand(body), { creation })
      return { statusCode: 202, body: { execId } }
    },
  }),
  route('GET', '/api/sandboxes/:id/exec/:execId/result', {
    id: 'getCommandResult',
    lenient: true,
    summary: 'Read the result of a background command',
    description: 'Waits for its end up to one second. Results are kept for ten minutes.',
    query: wire.resultQuery,
    answers: { 200: { description: 'Its state and output so far', body: wire.runState } },
    errors: wakingErrors,
    async handle({ orgId, params, query, reply, deps }) {
      const options = { waitMs: (query.wait ?? 1) * 1000, sent: taken(reply.raw) }
      const result = await deps.sandboxes.exec.result(orgId, params.id, params.execId, options)
      return { statusCode: 200, body: new JsonText(() => jsonObject(result)) }
    },
  }),
  route('POST', '/api/sandboxes/:id/exec', {
    id: 'startExec',
    lenient: true,
    summary: 'Start an exec session',
    description: 'It lives in the sandbox: clients attach and detach as they like.',
    body: wire.startExec,
    creates: true,
    answers: { 201: { description: 'It runs', body: wire.execSession } },
    errors: wakingErrors,
    async handle({ orgId, params, body, creation, deps }) {
      const input = { ...runCommand(body), ...defined({ maxRunAfterDisconnectSeconds: body.maxRunAfterDisconnect }) }
      const info = await deps.sandboxes.exec.start(orgId, params.id, input, { creation })
      return { statusCode: 201, body: execBody(params.id, info) }
    },
  }),
  route('GET', '/api/sandboxes/:id/exec', {
    id: 'listExecs',
    lenient: true,
    summary: 'List exec sessions',
    answers: { 200: { description: 'Those that run, and those that ended lately', body: z.array(wire.execSession) } },
    errors: wakingErrors,
    answer: async ({ orgId, params, deps }) =>
      (await deps.sandboxes.exec.list(orgId, params.id)).map((info) => execBody(params.id, info)),
  }),
  route('GET', '/api/sandboxes/:id/exec/:execId', {
    id: 'attachExec',
    audited: true,
    lenient: true,
    summary: 'Attach to an exec session (WebSocket)',
    description:
      'Binary frames whose first byte is the stream: 0 input (empty: end of input), 1 output, 2 errors, 3 exit (int32, big-endian, and a byte 1 when the timeout ' +
      'ended it; the last one), 4 end of what was kept (int64, the offset reached). Kept output comes first, from `offset` on.',
    auth: 'key_or_query',
    query: wire.attachQuery,
    answers: { 101: { description: 'Attached' } },
    errors: wakingErrors,
    handle: wantsUpgrade,
    upgrade: async (call) => attach(call, call.params.execId, carryExec),
  }),
  route('POST', '/api/sandboxes/:id/exec/:execId/kill', {
    id: 'killExec',
    lenient: true,
    summary: 'Send a signal to the process group of an exec session',
    body: wire.killExec,
    answers: { 204: { description: 'Sent' } },
    errors: wakingErrors,
    answer: ({ orgId, params, body, deps }) => deps.sandboxes.exec.kill(orgId, params.id, params.execId, body.signal),
  }),
  route('POST', '/api/sandboxes/:id/pty', {
    id: 'startTerminal',
    lenient: true,
    tag: 'Terminals',
    summary: 'Start a terminal',
    body: wire.startPty,
    creates: true,
    answers: { 201: { description: 'It runs', body: wire.ptySession } },
    errors: wakingErrors,
    async handle({ orgId, params, body, creation, deps }) {
      const { cols, rows, ...command } = body
      const input = { cols, rows, ...defined(command) }
      const info = await deps.sandboxes.exec.startPty(orgId, params.id, input, { creation })
      return { statusCode: 201, body: { sessionID: info.id, sandboxID: params.id } }
    },
  }),
  route('GET', '/api/sandboxes/:id/pty', {
    id: 'listTerminals',
    tag: 'Terminals',
    summary: 'List terminals',
    answers: { 200: { description: 'Those that run, and those that ended lately', body: z.array(wire.execSession) } },
    errors: wakingErrors,
    answer: async ({ orgId, params, deps }) =>
      (await deps.sandboxes.exec.list(orgId, params.id, 'pty')).map((info) => execBody(params.id, info)),
  }),
  route('GET', '/api/sandboxes/:id/pty/:ptyId', {
    id: 'attachTerminal',
    audited: true,
    lenient: true,
    tag: 'Terminals',
    summary: 'Attach to a terminal (WebSocket)',
    description:
      'Raw bytes both ways. Kept output comes first, from `offset` on. When its shell has ended, the socket closes with code 1000 and the ' +
      'reason `exit N`, where N is the exit status.',
    auth: 'key_or_query',
    query: wire.attachQuery,
    answers: { 101: { description: 'Attached' } },
    errors: wakingErrors,
    handle: wantsUpgrade,
    upgrade: async (call) => attach(call, call.params.ptyId, carryPty, 'pty'),
  }),
  route('POST', '/api/sandboxes/:id/pty/:ptyId/resize', {
    id: 'resizeTerminal',
    tag: 'Terminals',
    summary: 'Resize a terminal',
    body: wire.resizePty,
    answers: { 200: { description: 'Resized', body: common.empty } },
    errors: wakingErrors,
    answer: ({ orgId, params, body, deps }) =>
      deps.sandboxes.exec.resizePty(orgId, params.id, params.ptyId, body.cols, body.rows),
  }),
  route('DELETE', '/api/sandboxes/:id/pty/:ptyId', {
    id: 'deleteTerminal',
    tag: 'Terminals',
    summary: 'End a terminal',
    answers: { 204: { description: 'It has ended' } },
    errors: wakingErrors,
    answer: ({ orgId, params, deps }) => deps.sandboxes.exec.deletePty(orgId, params.id, params.ptyId),
  }),
]

function runCommand({ cmd, timeout, args, envs, cwd, user }: z.output<typeof wire.runCommand>): RunCommand {
  return { cmd, ...defined({ args, envs, cwd, user, timeoutSeconds: timeout }) }
}

function execBody(sandboxId: string, info: ProcessInfo): z.output<typeof wire.execSession> {
  const [command = '', ...args] = info.argv
  return {
    sessionID: info.id,
    sandboxID: sandboxId,
    command,
    args,
    running: info.running,
    exitCode: info.exitCode ?? null,
    ...(info.timedOut === true ? { timedOut: true as const } : {}),
    startedAt: reportedSeconds(info.startedAt),
    attachedClients: info.attachedClients,
  }
}
