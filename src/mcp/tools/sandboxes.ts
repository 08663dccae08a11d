import { z } from 'zod'
import { AtollError, Sandbox } from '../../../sdk/src/index.ts'
import { makes, reads, removes, runsAnything, sets, tool } from '../tool.ts'
import { lastPart, onIdle, sandboxId, ttlSeconds, ttlSecondsDefault } from './common.ts'

const envs = z.record(z.string(), z.string()).describe('Environment variables')
const info = {
  sandbox_id: z.string(),
  status: z.string(),
  memory_mb: z.int(),
  cpu_count: z.number(),
  started_at: z.string(),
}
const forksMax = 20
/** A caller that was killed cancels nothing, so its command ends after this time. A reconnect takes less. */
const disconnectedSeconds = 30
const listMax = 100

export const sandboxTools = [
  tool({
    name: 'sandbox_create',
    title: 'Create a sandbox',
    description:
      'Start an isolated Linux machine (root, Debian, Python, Node, git, internet). Unused, it hibernates; delete it when done.',
    input: z.object({
      name: z.string().optional().describe('Serves wherever its id does; a-z, 0-9 and -'),
      template: z.string().optional().describe('Image; default base'),
      ttl_seconds: ttlSeconds.optional(),
      on_idle: onIdle.optional(),
      memory_mb: z.int().positive().optional(),
      cpu_count: z.int().positive().optional(),
      envs: envs.optional(),
    }),
    output: z.object({ sandbox_id: z.string() }),
    hints: makes,
    async run(input, { client, signal }) {
      const { name, template, ttl_seconds, on_idle = 'hibernate', memory_mb, cpu_count, envs: env } = input
      const { id } = await Sandbox.create({
        client,
        signal,
        name,
        template,
        ttlSeconds: ttl_seconds ?? ttlSecondsDefault,
        onIdle: on_idle,
        memoryMB: memory_mb,
        cpuCount: cpu_count,
        envs: env,
      })
      return { sandbox_id: id }
    },
  }),
  tool({
    name: 'run',
    title: 'Run a command',
    description: 'Run a shell command in a sandbox to its end and return its output. Long output keeps its end.',
    input: z.object({
      sandbox_id: sandboxId,
      command: z.string().min(1).describe('Run by bash'),
      cwd: z.string().optional(),
      envs: envs.optional(),
      user: z.string().optional().describe('Default root'),
      timeout_seconds: z.int().min(1).max(3600).optional().describe('Default 120'),
    }),
    output: z.object({
      sandbox_id: z.string(),
      exit_code: z.int(),
      timed_out: z.boolean().optional().describe('It took longer than timeout_seconds'),
      stdout: z.string(),
      stderr: z.string(),
      truncated: z.boolean().optional(),
    }),
    hints: runsAnything,
    async run({ sandbox_id, command, cwd, envs: env, user, timeout_seconds = 120 }, { client, signal, progress }) {
      const sandbox = await Sandbox.connect(sandbox_id, { client, signal })
      const decoder = new TextDecoder()
      const result = await sandbox.run('/bin/bash', {
        args: ['-c', command],
        cwd,
        envs: env,
        user,
        signal,
        timeoutSeconds: timeout_seconds,
        maxRunAfterDisconnectSeconds: disconnectedSeconds,
        onOutput: ({ data }) => progress(decoder.decode(data, { stream: true })),
      })
      const [stdout, stderr] = [lastPart(result.stdout), lastPart(result.stderr)]
      const isCut = stdout.isCut || stderr.isCut || result.truncated === true
      const { exitCode: exit_code } = result
      return {
        sandbox_id,
        exit_code,
        ...(result.timedOut === true ? { timed_out: true } : {}),
        stdout: stdout.text,
        stderr: stderr.text,
        ...(isCut ? { truncated: true } : {}),
      }
    },
  }),
  tool({
    name: 'expose_port',
    title: 'Show a port',
    description: 'Return the URL of a port of a sandbox, and whether a server listens there yet.',
    input: z.object({ sandbox_id: sandboxId, port: z.int().min(1).max(65_535) }),
    output: z.object({
      sandbox_id: z.string(),
      port: z.int(),
      url: z.string(),
      listening: z.boolean(),
      note: z.string().optional(),
    }),
    hints: reads,
    async run({ sandbox_id, port }, { client, addresses, signal }) {
      const sandbox = await Sandbox.connect(sandbox_id, { client, signal })
      const url = new URL(sandbox.url(port))
      if (addresses.preview !== undefined) url.protocol = new URL(addresses.preview).protocol
      const listening = (await sandbox.ports({ signal })).some((one) => one.port === port)
      const notes = [
        listening ? [] : [`Nothing listens on port ${port} yet: start a server there, in the background.`],
        isLoopback(url.href) && !isLoopback(addresses.api)
          ? [
              `The URL opens on the machine of the server alone, until its operator sets ATOLL_PREVIEW_URL. With the API key in`,
              `X-API-Key, programs reach the port at ${addresses.api}/api/sandboxes/${sandbox.id}/ports/${port}/proxy/`,
            ]
          : [],
      ].flat()
      const note = notes.length === 0 ? {} : { note: notes.join(' ') }
      return { sandbox_id, port, url: url.href, listening, ...note }
    },
  }),
  tool({
    name: 'checkpoint',
    title: 'Save a checkpoint',
    description: 'Save disk and running memory of a sandbox, to fork from or go back to. The sandbox runs on.',
    input: z.object({
      sandbox_id: sandboxId,
      name: z.string().min(1).max(128).optional(),
      kind: z.enum(['full', 'disk_only']).optional().describe('Default full: with memory'),
      expires_in_seconds: z.int().min(1).optional().describe('Delete it after this time; default never'),
    }),
    output: z.object({ sandbox_id: z.string(), checkpoint_id: z.string(), kind: z.string() }),
    hints: makes,
    async run({ sandbox_id, name, kind, expires_in_seconds: expiresInSeconds }, { client, signal }) {
      const sandbox = await Sandbox.connect(sandbox_id, { client, signal })
      const { id, info: saved } = await sandbox.checkpoint({ name, kind, expiresInSeconds, signal })
      return { sandbox_id, checkpoint_id: id, kind: saved.kind }
    },
  }),
  tool({
    name: 'fork',
    title: 'Fork a checkpoint',
    description: 'Start sandboxes that go on from a checkpoint, with its files and running processes.',
    input: z.object({
      checkpoint_id: z.string().min(1),
      count: z.int().min(1).max(forksMax).optional().describe('Default 1'),
      ttl_seconds: ttlSeconds.optional(),
      on_idle: onIdle.optional(),
    }),
    output: z.object({ checkpoint_id: z.string(), sandbox_ids: z.array(z.string()), errors: z.array(z.string()) }),
    hints: makes,
    async run({ checkpoint_id, count = 1, ttl_seconds, on_idle = 'hibernate' }, { client, signal }) {
      const life = { ttlSeconds: ttl_seconds ?? ttlSecondsDefault, onIdle: on_idle }
      const started = await Sandbox.forkMany(checkpoint_id, count, { client, signal, ...life })
      const sandboxes = started.filter((one) => one instanceof Sandbox)
      const errors = started.filter((one) => one instanceof AtollError)
      return {
        checkpoint_id,
        sandbox_ids: sandboxes.map(({ id }) => id),
        errors: errors.map(({ message }) => message),
      }
    },
  }),
]

export const moreSandboxTools = [
  tool({
    name: 'sandbox_list',
    title: 'List sandboxes',
    description: `List sandboxes, newest first, at most ${listMax}.`,
    input: z.object({ status: z.enum(['running', 'hibernated', 'stopped', 'error']).optional() }),
    output: z.object({ sandboxes: z.array(z.object(info)) }),
    hints: reads,
    async run({ status }, { client, signal }) {
      const sandboxes = []
      for await (const one of Sandbox.list({ client, signal, status })) {
        const { sandboxID, memoryMB, cpuCount, startedAt } = one
        sandboxes.push({
          sandbox_id: sandboxID,
          status: one.status,
          memory_mb: memoryMB,
          cpu_count: cpuCount,
          started_at: startedAt,
        })
        if (sandboxes.length === listMax) break
      }
      return { sandboxes }
    },
  }),
  tool({
    name: 'sandbox_hibernate',
    title: 'Hibernate a sandbox',
    description: 'Save memory and free the machine; the next use wakes it with its processes.',
    input: z.object({ sandbox_id: sandboxId }),
    output: z.object({ sandbox_id: z.string(), size_bytes: z.number() }),
    hints: sets,
    async run({ sandbox_id }, { client, signal }) {
      const sandbox = await Sandbox.connect(sandbox_id, { client, signal })
      const { sizeBytes } = await sandbox.hibernate({ signal })
      return { sandbox_id, size_bytes: sizeBytes }
    },
  }),
  tool({
    name: 'sandbox_restore',
    title: 'Put a sandbox back to a checkpoint',
    description: 'Put files and memory of a sandbox back to one of its checkpoints. What came later is lost.',
    input: z.object({ sandbox_id: sandboxId, checkpoint_id: z.string().min(1) }),
    output: z.object({ sandbox_id: z.string(), checkpoint_id: z.string() }),
    hints: removes,
    async run({ sandbox_id, checkpoint_id }, { client, signal }) {
      const sandbox = await Sandbox.connect(sandbox_id, { client, signal })
      await sandbox.restore(checkpoint_id, { signal })
      return { sandbox_id, checkpoint_id }
    },
  }),
]

/** Whether a name or an address is that of the machine itself. */
function isLoopback(url: string): boolean {
  // The client chooses its `Host`.
  const hostname = URL.parse(url)?.hostname ?? ''
  return hostname === '[::1]' || hostname.startsWith('127.') || /(^|\.)localhost$/.test(hostname)
}
