import type { CheckpointKind, CreateSandboxOptions, EgressPolicy, ForkOptions } from 'atoll-sdk'
import { type Commands, quoted } from '../../ui/commands.tsx'
import { literalOf } from '../../sandboxes/literal.ts'

/** The acts on sandboxes by other means than this page. `sandbox` is an id or a name. */

function pathOf(sandbox: string, rest = ''): string {
  return `/api/sandboxes/${encodeURIComponent(sandbox)}${rest}`
}

function sdkOf(sandbox: string, call: string): string {
  return `const sandbox = await Sandbox.connect(${literalOf(sandbox)})\nawait sandbox.${call}`
}

function flags(pairs: readonly (readonly [name: string, value: string | number | undefined])[]): string {
  return pairs.flatMap(([name, value]) => (value === undefined ? [] : [` ${name} ${quoted(String(value))}`])).join('')
}

export function createCommands(options: CreateSandboxOptions): Commands {
  const {
    name,
    template,
    ttlSeconds,
    onIdle,
    maxAgeSeconds,
    cpuCount,
    memoryMB,
    diskMB,
    envs = {},
    secretStore,
  } = options
  const cli = `atoll create${flags([
    ['--name', name],
    ['--template', template],
    ['--timeout', ttlSeconds],
    ['--on-idle', onIdle],
    ['--max-age', maxAgeSeconds],
    ['--cpu', cpuCount],
    ['--memory', memoryMB],
    ['--disk', diskMB],
    ...Object.entries(envs).map(([key, value]) => ['-e', `${key}=${value}`] as const),
    ['--secret-store', secretStore],
  ])}`
  const json = {
    ...{ name, templateID: template, timeout: ttlSeconds, onIdle, maxAgeSeconds, cpuCount, memoryMB, diskMB },
    ...{ envs: options.envs, secretStore },
  }
  return {
    cli,
    curl: { method: 'POST', path: '/api/sandboxes', json },
    sdk: `const sandbox = await Sandbox.create(${literalOf(options)})`,
  }
}

export function forkCommands(checkpoint: string, options: ForkOptions, count = 1): Commands {
  const { name, ttlSeconds, onIdle, maxAgeSeconds, memoryMB, envs = {}, secretStore } = options
  const cli = `atoll fork ${quoted(checkpoint)}${flags([
    ['--name', name],
    ['--count', count > 1 ? count : undefined],
    ['--timeout', ttlSeconds],
    ['--on-idle', onIdle],
    ['--max-age', maxAgeSeconds],
    ['--memory', memoryMB],
    ...Object.entries(envs).map(([key, value]) => ['-e', `${key}=${value}`] as const),
    ['--secret-store', secretStore],
  ])}`
  const json = {
    ...{ name, timeout: ttlSeconds, onIdle, maxAgeSeconds, memoryMB, envs: options.envs, secretStore },
    ...(count > 1 ? { count } : {}),
  }
  const given = literalOf(options)
  const rest = given === '{}' ? '' : `, ${given}`
  return {
    cli,
    curl: { method: 'POST', path: `/api/sandboxes/from-checkpoint/${encodeURIComponent(checkpoint)}`, json },
    sdk:
      count > 1
        ? `const forks = await Sandbox.forkMany(${literalOf(checkpoint)}, ${count}${rest})`
        : `const fork = await Sandbox.fork(${literalOf(checkpoint)}${rest})`,
  }
}

/** A fork of the present: of a checkpoint that is made first and deleted by itself after `keptSeconds`. */
export function forkPresentCommands(
  sandbox: string,
  checkpoint: { kind: CheckpointKind; expiresInSeconds: number },
  options: Pick<ForkOptions, 'name' | 'ttlSeconds' | 'onIdle'>,
  count: number,
): Commands {
  const { kind, expiresInSeconds } = checkpoint
  const made = `atoll checkpoint ${quoted(sandbox)} --kind ${kind} --expires-in ${expiresInSeconds}`
  const given = literalOf(options)
  return {
    cli: `atoll fork "$(${made})"${flags([
      ['--name', options.name],
      ['--count', count > 1 ? count : undefined],
      ['--timeout', options.ttlSeconds],
      ['--on-idle', options.onIdle],
    ])}`,
    sdk: `const checkpoint = await sandbox.checkpoint(${literalOf(checkpoint)})\n${
      count > 1
        ? `const forks = await checkpoint.forkMany(${count}${given === '{}' ? '' : `, ${given}`})`
        : `const fork = await checkpoint.fork(${given === '{}' ? '' : given})`
    }`,
  }
}

export function wakeCommands(sandbox: string): Commands {
  return {
    cli: `atoll wake ${quoted(sandbox)}`,
    curl: { method: 'POST', path: pathOf(sandbox, '/wake') },
    sdk: sdkOf(sandbox, 'wake()'),
  }
}

export function hibernateCommands(sandbox: string): Commands {
  return {
    cli: `atoll hibernate ${quoted(sandbox)}`,
    curl: { method: 'POST', path: pathOf(sandbox, '/hibernate') },
    sdk: sdkOf(sandbox, 'hibernate()'),
  }
}

export function rebootCommands(sandbox: string): Commands {
  return { curl: { method: 'POST', path: pathOf(sandbox, '/reboot') }, sdk: sdkOf(sandbox, 'reboot()') }
}

export function deleteCommands(sandbox: string): Commands {
  return {
    cli: `atoll rm ${quoted(sandbox)}`,
    curl: { method: 'DELETE', path: pathOf(sandbox) },
    sdk: sdkOf(sandbox, 'delete()'),
  }
}

/** `change` is in the terms of the SDK. */
export function updateCommands(
  sandbox: string,
  change: { name?: string | null; ttlSeconds?: number; onIdle?: 'hibernate' | 'stop'; maxAgeSeconds?: number },
): Commands {
  const { name, ttlSeconds: timeout, ...rest } = change
  const cli = [
    ...(name === undefined ? [] : [`atoll rename ${quoted(sandbox)} ${name === null ? '--none' : quoted(name)}`]),
    ...(timeout === undefined ? [] : [`atoll timeout ${quoted(sandbox)} ${timeout}`]),
  ].join('\n')
  return {
    ...(cli === '' ? {} : { cli }),
    curl: { method: 'PATCH', path: pathOf(sandbox), json: { name, timeout, ...rest } },
    sdk: sdkOf(sandbox, `update(${literalOf(change)})`),
  }
}

export function scaleCommands(sandbox: string, memoryMB: number, cpuPercent: number): Commands {
  return {
    cli: `atoll scale ${quoted(sandbox)} ${memoryMB} --cpu ${cpuPercent}`,
    curl: { method: 'PUT', path: pathOf(sandbox, '/limits'), json: { memoryMB, cpuPercent } },
    sdk: sdkOf(sandbox, `setLimits(${literalOf({ memoryMB, cpuPercent })})`),
  }
}

export function tagCommands(sandbox: string, tags: Readonly<Record<string, string>>): Commands {
  return {
    cli: `atoll tag ${quoted(sandbox)}${Object.entries(tags)
      .map(([key, value]) => ` ${quoted(`${key}=${value}`)}`)
      .join('')}`,
    curl: { method: 'PUT', path: pathOf(sandbox, '/tags'), json: { tags } },
    sdk: sdkOf(sandbox, `setTags(${literalOf(tags)})`),
  }
}

export function checkpointCommands(
  sandbox: string,
  options: { name: string; kind?: 'full' | 'disk_only'; expiresInSeconds?: number },
): Commands {
  const { name, kind, expiresInSeconds } = options
  return {
    cli: `atoll checkpoint ${quoted(sandbox)}${flags([
      ['--name', name],
      ['--kind', kind],
      ['--expires-in', expiresInSeconds],
    ])}`,
    curl: { method: 'POST', path: pathOf(sandbox, '/checkpoints'), json: options },
    sdk: `const checkpoint = await sandbox.checkpoint(${literalOf(options)})`,
  }
}

export function restoreCommands(sandbox: string, checkpointId: string): Commands {
  return {
    cli: `atoll restore ${quoted(sandbox)} ${quoted(checkpointId)}`,
    curl: { method: 'POST', path: pathOf(sandbox, `/checkpoints/${encodeURIComponent(checkpointId)}/restore`) },
    sdk: sdkOf(sandbox, `restore(${literalOf(checkpointId)})`),
  }
}

/** `token` and `domain`: null takes it away, undefined leaves it. */
export function previewCommands(
  sandbox: string,
  port: number,
  change: { token?: string | null; domain?: string | null },
): Commands {
  const { token, domain } = change
  const isTaken = token === null || domain === null
  const authConfig = typeof token === 'string' ? { scheme: 'bearer', token } : token
  return {
    ...(isTaken
      ? {}
      : {
          cli: `atoll preview ${quoted(sandbox)} ${port}${flags([
            ['--token', token ?? undefined],
            ['--domain', domain ?? undefined],
          ])}`,
        }),
    curl: { method: 'POST', path: pathOf(sandbox, '/preview'), json: { port, domain, authConfig } },
    sdk: sdkOf(sandbox, `preview(${port}, ${literalOf(change)})`),
  }
}

export function egressCommands(sandbox: string, policy: EgressPolicy): Commands {
  const rules = (flag: string, list: EgressPolicy['allow'] = []) =>
    list.map((rule) => [flag, typeof rule === 'string' ? rule : JSON.stringify(rule)] as const)
  const cli = `atoll egress set ${quoted(sandbox)}${flags([
    ['--mode', policy.mode],
    ...rules('--allow', policy.allow),
    ...rules('--deny', policy.deny),
  ])}${policy.logOnly === true ? ' --log-only' : ''}`
  return {
    cli,
    curl: { method: 'PUT', path: pathOf(sandbox, '/egress'), json: policy },
    sdk: sdkOf(sandbox, `egress.set(${literalOf(policy)})`),
  }
}
