import { posix } from 'node:path'
import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import type { CreateAgentConfig, CreateSession } from './api.ts'
import { type SessionConfig, type SessionLimits, defaultSessionLimits, skillsDir } from './config.ts'
import type { AgentConfig } from './session.ts'

const defaultCwd = '/workspace/app'
const defaultHarness = 'pi'
const nameLengthMax = 1000
const pathBytesMax = 4096
const titleLengthMax = 60
const turnsMax = 10_000
const allowedToolsMax = 100
const envsBytesMax = 128 * 1024
/** JSON may write one character as six: the line that configures an agent must stay below its bound all the same. */
const encodedSystemPromptBytesMax = 3 * 1024 * 1024

/** Throws `invalid_request` naming the field (as the wire calls it) unless it holds. */
function assertInput(condition: boolean, field: string, rule: string): asserts condition {
  if (!condition) throw new ServiceError('invalid_request', `${field} ${rule}`, { details: { field } })
}

/** Checks what a session is created from and applies the defaults. Throws `unavailable` for a harness that is not installed. */
export function checkCreate(input: CreateSession, config: SessionConfig): { agentConfig: AgentConfig; title: string } {
  const limits = { ...defaultSessionLimits, ...config.limits }
  checkText(input.prompt, 'prompt', limits)
  checkName(input.userId, 'user_id')
  if (input.userEmail !== undefined) checkName(input.userEmail, 'user_email')
  if (input.userName !== undefined) checkName(input.userName, 'user_name')
  const agentConfig = checkAgentConfig(input.agentConfig ?? {}, config, limits)
  // A checkpoint may hold what the image lacks; if it does not, the agent says so.
  const missing = input.checkpointId === undefined ? config.missingHarness?.(agentConfig.harness) : undefined
  if (missing !== undefined) throw new ServiceError('unavailable', missing)
  return { agentConfig, title: titleOf(input.prompt) }
}

/** A prompt or a message. */
export function checkText(text: string, field: 'prompt' | 'message', limits: SessionLimits): void {
  assertInput(text.trim() !== '', field, 'must not be blank')
  assertInput(!text.includes('\0'), field, 'must not contain NUL characters')
  const bytes = Buffer.byteLength(text)
  if (bytes <= limits.messageBytesMax) return
  throw new ServiceError('too_large', `${field} must be at most ${limits.messageBytesMax} bytes`, {
    details: { field, limit: limits.messageBytesMax },
  })
}

/** The first line that says something, cut at 60 characters as people count them (code points). */
export function titleOf(prompt: string): string {
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

function checkAgentConfig(input: CreateAgentConfig, config: SessionConfig, limits: SessionLimits): AgentConfig {
  const harness = input.harness ?? defaultHarness
  assertInput(isKnownHarness(harness, config.harnesses), 'agent_config.harness', `names no known harness`)
  const model = input.model ?? config.defaultModel
  const named = model.length <= 200 && /^[\x21-\x7e]+$/.test(model) && splitModel(model)
  assertInput(Boolean(named), 'agent_config.model', 'must be "provider/model" or "demo"')
  assertInput(
    config.models?.includes(model) ?? true,
    'agent_config.model',
    'names a model that this server does not offer',
  )
  const cwd = checkPath(input.cwd ?? defaultCwd, 'agent_config.cwd')
  checkEnvs(input.envs ?? {})
  return {
    harness,
    model,
    cwd,
    skills: checkSkills(input.skills ?? {}, cwd, limits),
    envs: { ...input.envs },
    ...defined({
      systemPrompt: input.systemPrompt === undefined ? undefined : checkSystemPrompt(input.systemPrompt, limits),
      allowedTools: input.allowedTools && checkTools(input.allowedTools),
      maxTurns: input.maxTurns === undefined ? undefined : checkCount(input.maxTurns, 'max_turns', turnsMax),
      maxTokens:
        input.maxTokens === undefined ? undefined : checkCount(input.maxTokens, 'max_tokens', Number.MAX_SAFE_INTEGER),
      maxCostUsd: input.maxCostUsd === undefined ? undefined : checkCost(input.maxCostUsd, model, config),
    }),
  }
}

function isKnownHarness(harness: string, known: readonly string[]): boolean {
  if (harness.length > nameLengthMax || harness.includes('\0')) return false
  return known.some((name) =>
    name.endsWith(':') ? harness.startsWith(name) && namesProgram(harness.slice(name.length)) : name === harness,
  )
}

/** Whether a command begins with a word, which quotes may hold. */
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
    Buffer.byteLength(text) <= limits.systemPromptBytesMax &&
    Buffer.byteLength(JSON.stringify(text)) <= encodedSystemPromptBytesMax
  if (fits) return text
  throw new ServiceError('too_large', `${field} must be at most ${limits.systemPromptBytesMax} bytes`, {
    details: { field, limit: limits.systemPromptBytesMax },
  })
}

function checkTools(tools: string[]): string[] {
  const field = 'agent_config.allowed_tools'
  assertInput(tools.length <= allowedToolsMax, field, `must be at most ${allowedToolsMax} names`)
  for (const tool of tools) assertInput(tool.length > 0 && tool.length <= 200, field, 'must hold names of tools')
  return [...tools]
}

function checkCount(value: number, name: string, max: number): number {
  const rule = `must be a whole number from 1 to ${max}`
  assertInput(Number.isInteger(value) && value >= 1 && value <= max, `agent_config.${name}`, rule)
  return value
}

/** A limit in money for a model without a price could never be kept. */
function checkCost(maxCostUsd: number, model: string, config: SessionConfig): number {
  const field = 'agent_config.max_cost_usd'
  assertInput(Number.isFinite(maxCostUsd) && maxCostUsd > 0, field, 'must be more than 0')
  assertInput(config.prices?.has(model) ?? false, field, `needs a price for ${model}, which the operator has not set`)
  return maxCostUsd
}

function checkEnvs(envs: Record<string, string>): void {
  const field = 'agent_config.envs'
  let bytes = 0
  for (const [name, value] of Object.entries(envs)) {
    const rule = `has a name that is no environment variable: ${JSON.stringify(name.slice(0, 200))}`
    assertInput(/^[A-Za-z_][A-Za-z0-9_]*$/.test(name), field, rule)
    assertInput(!value.includes('\0'), `${field}.${name}`, 'must not contain NUL characters')
    bytes += name.length + Buffer.byteLength(value) + 2
  }
  assertInput(bytes <= envsBytesMax, field, `must be at most ${envsBytesMax} bytes together`)
}

function checkName(value: string, field: string): void {
  assertInput(value.trim() !== '', field, 'must not be blank')
  assertInput(!value.includes('\0'), field, 'must not contain NUL characters')
  assertInput(value.length <= nameLengthMax, field, `must be at most ${nameLengthMax} characters`)
}
