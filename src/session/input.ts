import { posix } from 'node:path'
import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { assertEnvs, assertInput, assertName } from '../sandbox/index.ts'
import type { CreateAgentConfig, CreateSession } from './api.ts'
import { type SessionConfig, type SessionLimits, defaultSessionLimits, skillsDir } from './config.ts'
import type { AgentConfig } from './session.ts'

const defaultCwd = '/workspace/app'
const defaultHarness = 'pi'
const harnessLengthMax = 1000
const pathBytesMax = 4096
const titleLengthMax = 60
/** JSON may write one character as six: the line that configures an agent must stay below its bound all the same. */
const encodedSystemPromptBytesMax = 3 * 1024 * 1024

/**
 * Checks what needs the configuration or another field, and applies the defaults; `protocol/http/sessions.ts` has checked the
 * rest. `imageCwd` is the folder that the image names. Throws `unavailable` for a harness that is not installed.
 */
export function checkCreate(
  input: CreateSession,
  config: SessionConfig,
  imageCwd?: string,
): { agentConfig: AgentConfig; title: string } {
  const limits = { ...defaultSessionLimits, ...config.limits }
  checkText(input.prompt, 'prompt', limits)
  if (input.name !== undefined) assertName(input.name)
  const agentConfig = checkAgentConfig(input.agentConfig ?? {}, config, limits, imageCwd)
  // A checkpoint may hold what the image lacks; if it does not, the agent says so.
  const missing = input.checkpointId === undefined ? config.missingHarness?.(agentConfig.harness) : undefined
  if (missing !== undefined) throw new ServiceError('unavailable', missing)
  return { agentConfig, title: sessionTitle(input.prompt) }
}

/** A prompt or a message. */
export function checkText(text: string, field: 'prompt' | 'message', limits: SessionLimits): void {
  assertInput(text.trim() !== '', field, 'must not be blank')
  assertInput(!text.includes('\0'), field, 'must not contain NUL characters')
  // A character has one byte at least.
  if (text.length <= limits.messageBytesMax && Buffer.byteLength(text) <= limits.messageBytesMax) return
  throw new ServiceError('too_large', `${field} must be at most ${limits.messageBytesMax} bytes`, {
    details: { field, limit: limits.messageBytesMax },
  })
}

/** The first line that says something, cut at 60 characters as people count them (code points). */
export function sessionTitle(prompt: string): string {
  const line = prompt.trim().split(/[\r\n\u2028\u2029]/, 1)[0] ?? ''
  return Array.from(line.slice(0, titleLengthMax * 2))
    .slice(0, titleLengthMax)
    .join('')
    .trimEnd()
}

/** `provider/model`, of which the model may hold slashes; `demo` stands alone. */
export function splitModel(model: string): { provider: string; id: string } | undefined {
  if (model === 'demo') return { provider: 'demo', id: 'demo' }
  const slash = model.indexOf('/')
  if (slash < 1 || slash === model.length - 1) return undefined
  return { provider: model.slice(0, slash), id: model.slice(slash + 1) }
}

/** With the defaults applied. */
export function checkAgentConfig(
  input: CreateAgentConfig,
  config: SessionConfig,
  limits: SessionLimits,
  imageCwd = '/',
): AgentConfig {
  const harness = input.harness ?? defaultHarness
  assertInput(
    isKnownHarness(harness, config.harnesses),
    'agent_config.harness',
    `must be one of ${harnessesText(config.harnesses)}`,
  )
  const model = input.model ?? config.defaultModel
  const named = model.length <= 200 && /^[\x21-\x7e]+$/.test(model) && splitModel(model)
  assertInput(Boolean(named), 'agent_config.model', 'must be "provider/model" or "demo"')
  assertInput(
    config.models?.includes(model) ?? true,
    'agent_config.model',
    'names a model that this server does not offer',
  )
  // The root is what an image has that names no folder, and none for a project.
  const cwd = checkPath(input.cwd ?? (imageCwd === '/' ? defaultCwd : imageCwd), 'agent_config.cwd')
  assertEnvs(input.envs ?? {}, 'agent_config.envs')
  return {
    harness,
    model,
    cwd,
    skills: checkSkills(input.skills ?? {}, cwd, limits),
    envs: { ...input.envs },
    ...defined({
      systemPrompt: input.systemPrompt === undefined ? undefined : checkSystemPrompt(input.systemPrompt, limits),
      allowedTools: input.allowedTools,
      maxTurns: input.maxTurns,
      maxTokens: input.maxTokens,
      maxCostUsd: input.maxCostUsd === undefined ? undefined : checkCost(input.maxCostUsd, model, config),
      checkpoints: input.checkpoints,
      secretEnvs: checkSecretEnvs(input.secretEnvs, input.envs),
      capsuleOnError: input.capsuleOnError,
    }),
  }
}

/** They must be among the variables: a name that is not would hide nothing. */
export function checkSecretEnvs(names: string[] | undefined, envs: AgentConfig['envs'] = {}): string[] | undefined {
  const isNamed = names?.every((name) => Object.hasOwn(envs, name)) ?? true
  assertInput(isNamed, 'agent_config.secret_envs', 'must hold names of `envs`')
  return names && [...new Set(names)]
}

function harnessesText(known: readonly string[]): string {
  return known.map((one) => (one.endsWith(':') ? `${one}COMMAND` : one)).join(', ')
}

function isKnownHarness(harness: string, known: readonly string[]): boolean {
  if (harness.length > harnessLengthMax || harness.includes('\0')) return false
  return known.some((name) =>
    name.endsWith(':') ? harness.startsWith(name) && namesProgram(harness.slice(name.length)) : name === harness,
  )
}

/** Whether a command begins with a word, quoted or not. */
function namesProgram(command: string): boolean {
  return /^\s*("[^"]+"|'[^']+'|[^\s"'])/.test(command)
}

/** Absolute path → text. A relative key lies under `/workspace/agent/`. */
function checkSkills(skills: Record<string, string>, cwd: string, limits: SessionLimits): Record<string, string> {
  const entries = Object.entries(skills)
  const field = 'agent_config.skills'
  assertInput(entries.length <= limits.skillFilesMax, field, `must be at most ${limits.skillFilesMax} files`)
  const checked: Record<string, string> = {}
  let bytes = 0
  for (const [key, text] of entries) {
    const keyField = `${field}[${JSON.stringify(key.slice(0, 200))}]`
    assertInput(key.trim() !== '' && !key.endsWith('/'), keyField, 'must be the path of a file')
    const path = checkPath(key.startsWith('/') ? key : `${skillsDir}/${key}`, keyField)
    assertInput(!Object.hasOwn(checked, path), keyField, 'names the same file as another key')
    assertInput(!text.includes('\0'), keyField, 'must not hold NUL characters')
    checked[path] = text
    bytes += Buffer.byteLength(text)
  }
  const inUse = [`${cwd}/`, `${skillsDir}/`, ...Object.keys(checked)]
  for (const path of Object.keys(checked)) {
    const isFolder = path === '/' || inUse.some((other) => other.startsWith(`${path}/`))
    assertInput(!isFolder, field, `names the file ${path}, which has to be a folder`)
  }
  if (bytes <= limits.skillBytesMax) return checked
  throw new ServiceError('too_large', `${field} must be at most ${limits.skillBytesMax} bytes together`, {
    details: { field, limit: limits.skillBytesMax },
  })
}

function checkPath(path: string, field: string): string {
  assertInput(path.length <= pathBytesMax, field, `must be at most ${pathBytesMax} bytes`)
  assertInput(path.startsWith('/'), field, 'must be an absolute path')
  assertInput(!path.includes('\0'), field, 'must not contain NUL characters')
  assertInput(!path.split('/').includes('..'), field, 'must not contain ".."')
  assertInput(Buffer.byteLength(path) <= pathBytesMax, field, `must be at most ${pathBytesMax} bytes`)
  return posix.normalize(path)
}

function checkSystemPrompt(text: string, limits: SessionLimits): string {
  const field = 'agent_config.system_prompt'
  assertInput(!text.includes('\0'), field, 'must not contain NUL characters')
  const fits =
    text.length <= limits.systemPromptBytesMax &&
    Buffer.byteLength(text) <= limits.systemPromptBytesMax &&
    encodedBytes(text) <= encodedSystemPromptBytesMax
  if (fits) return text
  throw new ServiceError('too_large', `${field} must be at most ${limits.systemPromptBytesMax} bytes`, {
    details: { field, limit: limits.systemPromptBytesMax },
  })
}

/** The length of a text in JSON, or a little more, without making the JSON, which would hold the event loop. */
function encodedBytes(text: string): number {
  const isWhole = text.isWellFormed()
  let bytes = Buffer.byteLength(text) + 2
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at)
    if (unit < 0x20) bytes += unit >= 8 && unit <= 13 && unit !== 11 ? 1 : 5
    else if (unit === 0x22 || unit === 0x5c) bytes += 1
    else if (!isWhole && unit >= 0xd800 && unit < 0xe000) bytes += 3
  }
  return bytes
}

/** A limit in money for a model without a price could never be kept. */
export function checkCost(maxCostUsd: number, model: string, config: SessionConfig): number {
  const field = 'agent_config.max_cost_usd'
  assertInput(config.prices?.has(model) ?? false, field, `needs a price for ${model}, which the operator has not set`)
  return maxCostUsd
}
