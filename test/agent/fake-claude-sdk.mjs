// Stands for @anthropic-ai/claude-agent-sdk, which may not be shipped: the documented query(), its options and its messages,
// with a tool loop of its own over Anthropic's wire. Its conversation is a file in HOME, like the real one's.
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const tools = [
  { name: 'Bash', input_schema: { type: 'object', properties: { command: {}, description: {} } } },
  { name: 'Write', input_schema: { type: 'object', properties: { file_path: {}, content: {} } } },
  { name: 'Edit', input_schema: { type: 'object', properties: { file_path: {}, old_string: {}, new_string: {} } } },
]

export async function* query({ prompt, options }) {
  const { env, cwd, model, abortController, maxTurns = Infinity, resume, permissionMode } = options
  if (permissionMode !== 'bypassPermissions' || env.IS_SANDBOX !== '1')
    throw new Error('as root, permissions cannot be skipped')
  if (!options.disallowedTools.includes('WebSearch')) throw new Error('the gateway refuses what WebSearch asks for')
  const session_id = resume ?? randomUUID()
  const file = join(env.HOME, '.claude', `${session_id}.json`)
  const messages = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : []
  yield { type: 'system', subtype: 'init', session_id, model, tools: tools.map(({ name }) => name), cwd }
  yield null
  yield { type: 'a_message_of_a_newer_version', session_id, data: [1, { deep: true }] }
  messages.push({ role: 'user', content: prompt })
  const system = `${options.systemPrompt.append}\nWorking directory: ${cwd}`
  for (let turns = 1; ; turns++) {
    const response = await fetch(`${env.ANTHROPIC_BASE_URL}/v1/messages`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'x-api-key': env.ANTHROPIC_API_KEY,
        'anthropic-version': '2023-06-01',
      },
      body: JSON.stringify({ model, system, messages, tools, max_tokens: 4096 }),
      signal: abortController.signal,
    })
    if (!response.ok) {
      yield {
        type: 'result',
        subtype: 'success',
        is_error: true,
        result: await response.text(),
        num_turns: turns,
        session_id,
      }
      throw new Error('Claude Code process exited with code 1')
    }
    const answer = await response.json()
    const message = { role: 'assistant', content: answer.content }
    messages.push(message)
    yield {
      type: 'assistant',
      message: { ...message, model, usage: answer.usage },
      parent_tool_use_id: null,
      session_id,
    }
    const calls = answer.content.filter(({ type }) => type === 'tool_use')
    const content = []
    for (const call of calls)
      content.push({
        type: 'tool_result',
        tool_use_id: call.id,
        ...(await run(call, cwd, env, abortController.signal)),
      })
    if (calls.length > 0) messages.push({ role: 'user', content })
    if (calls.length > 0)
      yield { type: 'user', message: { role: 'user', content }, parent_tool_use_id: null, session_id }
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, JSON.stringify(messages))
    const common = {
      type: 'result',
      num_turns: turns,
      duration_ms: 1,
      total_cost_usd: 0.001,
      usage: answer.usage,
      session_id,
    }
    if (calls.length > 0 && turns >= maxTurns) return yield { ...common, subtype: 'error_max_turns', is_error: true }
    if (calls.length === 0) {
      return yield {
        ...common,
        subtype: 'success',
        is_error: false,
        result: answer.content.map(({ text }) => text ?? '').join(''),
      }
    }
  }
}

async function run({ name, input }, cwd, env, signal) {
  if (name === 'Bash') return await bash(input.command, cwd, env, signal)
  const text =
    name === 'Write'
      ? input.content
      : readFileSync(input.file_path, 'utf8').replace(input.old_string, () => input.new_string)
  writeFileSync(input.file_path, text)
  return { content: `${input.file_path} has been updated` }
}

function bash(command, cwd, env, signal) {
  return new Promise((resolve, reject) => {
    const child = spawn('bash', ['-c', command], { cwd, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
    let output = ''
    const abort = () => {
      process.kill(-child.pid, 'SIGKILL')
      reject(signal.reason)
    }
    signal.addEventListener('abort', abort, { once: true })
    child.stdout.on('data', (chunk) => (output += chunk))
    child.stderr.on('data', (chunk) => (output += chunk))
    child.once('exit', (code) => {
      signal.removeEventListener('abort', abort)
      resolve({ content: [{ type: 'text', text: output }], is_error: code !== 0 })
    })
  })
}
