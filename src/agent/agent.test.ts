import assert from 'node:assert/strict'
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { test } from 'node:test'
import { agentEventBytesMax, parseAgentCommand, type AgentEvent } from '../protocol/agent.ts'
import { Agent } from './agent.ts'
import type { Harness, HarnessEvent, TurnInput, TurnOutcome } from './harness.ts'
import { fittingLine } from './output.ts'
import { TurnJournal } from './state-dir.ts'

type Run = (turn: TurnInput, emit: (event: HarnessEvent) => void, signal: AbortSignal) => Promise<TurnOutcome>

const usage = { inputTokens: 1, cacheReadTokens: 0, cacheWriteTokens: 0, longCacheWriteTokens: 0, outputTokens: 2 }
const success: TurnOutcome = { subtype: 'success', result: 'done', turnCount: 1, usage }

/** An agent on a harness whose turns are a function, and all that it emitted. */
class Bench implements Disposable {
  readonly folder = mkdtempSync(join(tmpdir(), 'atoll-agent-unit-'))
  readonly events: AgentEvent[] = []
  readonly turns: TurnInput[] = []
  readonly cwd = join(this.folder, 'app')
  opened = 0
  agent: Agent
  readonly #run: Run

  constructor(run: Run) {
    this.#run = run
    this.agent = this.restart()
  }

  restart(): Agent {
    const harness: Harness = {
      name: 'fake',
      version: '1',
      open: () => {
        this.opened += 1
        return Promise.resolve({
          sessionId: 'h-1',
          tools: ['bash'],
          model: 'demo',
          run: (turn, emit, signal) => {
            this.turns.push(turn)
            return this.#run(turn, emit, signal)
          },
          close: () => Promise.resolve(),
        })
      },
    }
    this.agent = new Agent(harness, { url: 'http://gateway', token: 't' }, (event) => this.events.push(event))
    this.configure({ cwd: this.cwd, stateDir: this.folder })
    return this.agent
  }

  configure(fields: object): void {
    const model = { provider: 'demo', id: 'demo' }
    this.send({ type: 'configure', sessionId: 's', harness: 'fake', model, ...fields })
  }

  send(command: object): void {
    const parsed = parseAgentCommand(JSON.stringify(command))
    assert.ok(parsed.ok)
    this.agent.handle(parsed.value)
  }

  message(messageId: string): void {
    this.send({ type: 'message', messageId, content: `content of ${messageId}` })
  }

  async until(type: AgentEvent['type'], count = 1): Promise<void> {
    while (this.events.filter((event) => event.type === type).length < count) await new Promise(setImmediate)
  }

  types(): string[] {
    return this.events.map((event) => (event.type === 'result' ? `result ${event.subtype}` : event.type))
  }

  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true })
  }
}

test('agent: a result reports cached tokens, and its cost by their rates', async () => {
  const used = {
    inputTokens: 1000,
    cacheReadTokens: 700,
    cacheWriteTokens: 200,
    longCacheWriteTokens: 50,
    outputTokens: 10,
  }
  using bench = new Bench(() => Promise.resolve({ ...success, usage: used, costUsd: 7 }))
  const reported: unknown[] = []
  const known = { inputPerMillion: 3, outputPerMillion: 15, cacheReadPerMillion: 0.3, cacheWritePerMillion: 3.75 }
  for (const price of [known, undefined]) {
    bench.configure({ cwd: bench.cwd, stateDir: bench.folder, price })
    bench.message(`m${reported.length}`)
    await bench.until('turn_complete', reported.length + 1)
    const event = bench.events.findLast(({ type }) => type === 'result')
    assert.ok(event?.type === 'result')
    assert.deepEqual(event.usage, {
      input_tokens: 1000,
      cache_read_input_tokens: 700,
      cache_creation_input_tokens: 200,
      output_tokens: 10,
    })
    reported.push(event.total_cost_usd)
  }
  assert.deepEqual(reported, [0.0015225, 7])
})

test('agent: messages run one after another, each with one result and one turn_complete', async () => {
  let running = 0
  using bench = new Bench(async () => {
    running += 1
    assert.equal(running, 1)
    await new Promise(setImmediate)
    running -= 1
    return success
  })
  bench.message('m1')
  bench.message('m2')
  bench.message('m2')
  bench.message('m1')
  await bench.until('turn_complete', 2)
  const turn = ['turn_started', 'result success', 'turn_complete']
  // The repeat of m1 came while it ran or waited; the one of m2 while it waited.
  assert.deepEqual(bench.types().slice(0, 4), ['configured', ...turn])
  assert.equal(bench.turns.length, 2)
  bench.message('m1')
  await bench.until('turn_complete', 3)
  assert.deepEqual(bench.events.at(-1), { type: 'turn_complete', message_id: 'm1', session_id: 'h-1' })
  assert.equal(bench.turns.length, 2)
})

test('agent: a harness that throws or leaves an unhandled error ends its turn, and the next turn gets a new session', async () => {
  const never = new Promise<TurnOutcome>(() => {})
  const runs: Run[] = [
    () => Promise.reject(new Error('boom')),
    (_turn, emit) => {
      setImmediate(() => {
        bench.agent.crash(new Error('stray'))
        emit({ type: 'error', message: 'late', code: 'late', fatal: false })
        setImmediate(() => emit({ type: 'error', message: 'late', code: 'late', fatal: false }))
      })
      return never
    },
    () => Promise.resolve(success),
  ]
  using bench = new Bench((turn, emit, signal) => runs.shift()!(turn, emit, signal))
  for (const id of ['m1', 'm2', 'm3']) bench.message(id)
  await bench.until('turn_complete', 3)
  const failed = ['turn_started', 'error', 'result error_during_execution', 'turn_complete']
  assert.deepEqual(bench.types(), [
    'configured',
    ...failed,
    ...failed,
    'turn_started',
    'result success',
    'turn_complete',
  ])
  assert.deepEqual(
    bench.events.flatMap((event) => (event.type === 'error' ? [event.message] : [])),
    ['boom', 'stray'],
  )
  assert.equal(bench.opened, 3)
})

test('agent: an interrupt reaches only the turn that it names', async () => {
  using bench = new Bench(
    (_turn, _emit, signal) =>
      new Promise((resolve) => {
        signal.addEventListener('abort', () => resolve({ ...success, subtype: 'interrupted' }))
      }),
  )
  bench.send({ type: 'interrupt' })
  bench.message('m1')
  await bench.until('turn_started')
  bench.message('m1')
  bench.send({ type: 'interrupt', messageId: 'other' })
  await new Promise(setImmediate)
  assert.deepEqual(bench.types(), ['configured', 'turn_started', 'turn_started'])
  bench.send({ type: 'interrupt', messageId: 'm1' })
  await bench.until('turn_complete')
  assert.deepEqual(bench.types().slice(3), ['result interrupted', 'turn_complete'])
})

test('agent: an interrupt of a queued message ends its turn at the start', async () => {
  using bench = new Bench((_turn, _emit, signal) =>
    Promise.resolve({ ...success, subtype: signal.aborted ? 'interrupted' : 'success' }),
  )
  // `configure` is not done yet.
  bench.message('m1')
  bench.message('m2')
  bench.send({ type: 'interrupt' })
  await bench.until('turn_complete', 2)
  assert.deepEqual(
    bench.events.flatMap((event) => (event.type === 'result' ? [event.subtype] : [])),
    ['interrupted', 'success'],
  )
})

test('agent: a message after a failed configure ends with its reason, and works after a successful one', async () => {
  using bench = new Bench(() => Promise.resolve(success))
  await bench.until('configured')
  bench.configure({ cwd: '/dev/null/x' })
  bench.message('m1')
  await bench.until('turn_complete')
  const types = bench.types().slice(1)
  assert.deepEqual(types, ['error', 'turn_started', 'error', 'result error_during_execution', 'turn_complete'])
  bench.configure({ cwd: bench.folder, stateDir: join(bench.folder, 'full') })
  await bench.until('configured', 2)
  bench.message('m1')
  await bench.until('turn_complete', 2)
  assert.equal(bench.types().at(-2), 'result success')
})

test('agent: a turn of a dead process runs again as resumed', async () => {
  using bench = new Bench((turn) => (turn.resumed ? Promise.resolve(success) : new Promise(() => {})))
  bench.message('m1')
  await bench.until('turn_started')
  bench.restart()
  bench.message('m1')
  await bench.until('turn_complete')
  assert.deepEqual(
    bench.turns.map((turn) => turn.resumed),
    [false, true],
  )
})

test('agent: changed files are reported at the end of the turn, oldest first, unless a tool has reported them', async () => {
  const write = (path: string) => {
    mkdirSync(join(bench.cwd, path, '..'), { recursive: true })
    writeFileSync(join(bench.cwd, path), path)
  }
  using bench = new Bench((_turn, emit) => {
    for (const path of ['reported.html', 'a/b/deep.ts', '.env', 'old.txt', 'moved-away.txt', 'server.log']) write(path)
    for (const folder of ['node_modules/x', 'a/.git', 'dist', 'a/__pycache__']) write(`${folder}/file`)
    renameSync(join(bench.cwd, 'moved-away.txt'), join(bench.cwd, 'moved.txt'))
    utimesSync(join(bench.cwd, 'a/b/deep.ts'), 0, 0)
    symlinkSync('/etc', join(bench.cwd, 'link'))
    emit({ type: 'artifact', path: join(bench.cwd, 'reported.html'), summary: 'Created' })
    return Promise.resolve(success)
  })
  await bench.until('configured')
  for (const path of ['old.txt', 'untouched.txt']) write(path)
  // The clock of file systems moves on in steps.
  while (!isOlderThanNow(join(bench.cwd, 'untouched.txt'))) await new Promise(setImmediate)
  bench.message('m1')
  await bench.until('turn_complete')
  const artifacts = bench.events.flatMap((event) => (event.type === 'artifact' ? [event] : []))
  assert.deepEqual(artifacts.shift(), { type: 'artifact', path: join(bench.cwd, 'reported.html'), summary: 'Created' })
  assert.ok(artifacts.every(({ summary }) => summary === 'Created or changed'))
  const paths = artifacts.map(({ path }) => relative(bench.cwd, path))
  assert.deepEqual(paths.toSorted(), ['.env', 'a/b/deep.ts', 'moved.txt', 'old.txt'])
  const changes = artifacts.map(({ path }) => statSync(path).ctimeMs)
  assert.deepEqual(
    changes,
    changes.toSorted((a, b) => a - b),
  )
  assert.deepEqual(bench.types().slice(-3), ['artifact', 'result success', 'turn_complete'])
})

test('agent: changed files of a killed process are reported by the next process', async () => {
  using bench = new Bench((turn) => {
    if (turn.resumed) return Promise.resolve(success)
    writeFileSync(join(bench.cwd, 'before-the-kill.txt'), '')
    return new Promise(() => {})
  })
  bench.message('m1')
  await bench.until('turn_started')
  bench.restart()
  bench.message('m1')
  await bench.until('turn_complete')
  assert.ok(bench.events.some((event) => event.type === 'artifact' && event.path.endsWith('before-the-kill.txt')))
})

test('agent: a turn reports the newest 200 files, and ends also when its folder is gone', async () => {
  using bench = new Bench((turn) => {
    if (turn.content.endsWith('m2')) rmSync(bench.cwd, { recursive: true })
    else for (let index = 0; index < 300; index++) writeFileSync(join(bench.cwd, `${index}.txt`), '')
    return Promise.resolve(success)
  })
  bench.message('m1')
  await bench.until('turn_complete')
  assert.equal(bench.types().filter((type) => type === 'artifact').length, 200)
  bench.message('m2')
  await bench.until('turn_complete', 2)
  assert.deepEqual(bench.types().slice(-3), ['turn_started', 'result success', 'turn_complete'])
})

test('agent: messages beyond the bound of the queue are refused', async () => {
  using bench = new Bench(() => new Promise(() => {}))
  await bench.until('configured')
  for (let index = 0; index < 30; index++) bench.message(`m${index}`)
  const busy = bench.events.filter((event) => event.type === 'error' && event.code === 'busy')
  assert.ok(busy.length > 0 && busy.length < 30)
})

test('turn journal: it survives a torn last line', () => {
  const folder = mkdtempSync(join(tmpdir(), 'atoll-journal-'))
  try {
    const journal = new TurnJournal(folder)
    journal.write({ messageId: 'm1', state: 'started', sessionId: 's' })
    journal.write({ messageId: 'm1', state: 'finished', sessionId: 's' })
    journal.write({ messageId: 'm2', state: 'started', sessionId: 's' })
    journal.close()
    appendFileSync(join(folder, 'turns.jsonl'), '{"messageId":"m2","state":"fin')
    const again = new TurnJournal(folder)
    assert.deepEqual(
      ['m1', 'm2', 'm3'].map((id) => again.state(id)),
      ['finished', 'started', 'new'],
    )
    again.write({ messageId: 'm2', state: 'finished', sessionId: 's' })
    again.close()
    const last = new TurnJournal(folder)
    assert.equal(last.state('m2'), 'finished')
    last.close()
    assert.equal(readFileSync(join(folder, 'turns.jsonl'), 'utf8').split('\n').length, 6)
  } finally {
    rmSync(folder, { recursive: true })
  }
})

test('output: an event that is too large for a line is cut, not lost', () => {
  const content = [
    { type: 'tool_use' as const, id: 'c', name: 'write', input: { content: 'ü'.repeat(agentEventBytesMax) } },
  ]
  const line = fittingLine({ type: 'assistant', message: { role: 'assistant', content }, session_id: 's' })
  assert.ok(line.length < 20_000)
  assert.match(line, /^\{"type":"error".*assistant was too large and is cut.*\n.*"name":"write".*characters cut.*\n$/)
  const many = { many: Array.from({ length: 300 }, () => 'x'.repeat(16_000)) }
  const event: AgentEvent = {
    type: 'assistant',
    message: { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'w', input: many }] },
    session_id: 's',
  }
  assert.match(fittingLine(event), /^\{"type":"error".*too large/)
})

/** Whether a file that is made now gets a later time than that one has. */
function isOlderThanNow(path: string): boolean {
  const probe = `${path}.probe`
  writeFileSync(probe, '')
  const { ctimeMs } = statSync(probe)
  rmSync(probe)
  return ctimeMs > statSync(path).ctimeMs
}
