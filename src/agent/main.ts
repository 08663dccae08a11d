/**
 * The program inside a sandbox: `node start.mjs [harness]`. It reads commands from standard input and writes events to
 * standard output, one JSON object per line, as `protocol/agent.ts` defines. Standard error is for people.
 */
import { agentEnvironment, parseAgentCommand } from '../protocol/agent.ts'
import { LineSplitter, type SplitLine } from '../protocol/line-splitter.ts'
import { Agent } from './agent.ts'
import { loadHarness } from './harness.ts'
import { killOrphanGroups } from './process-groups.ts'
import { concealSecret, takeStandardOutput } from './output.ts'
import { takeFromEnvironment } from './own-environment.ts'

const emit = takeStandardOutput()

const gateway = {
  url: process.env[agentEnvironment.gatewayUrl] ?? '',
  // The model's commands do not need the token, and must not inherit or read it.
  token: takeFromEnvironment(agentEnvironment.gatewayToken),
}
// A command can still read the token from the memory of this process, and print it.
if (gateway.token !== '') concealSecret(gateway.token)

const harnessName = process.argv[2] ?? 'pi'
const harness = await loadHarness(harnessName)

if (!harness || gateway.url === '' || gateway.token === '') {
  const message = harness
    ? `${agentEnvironment.gatewayUrl} and ${agentEnvironment.gatewayToken} must be set.`
    : `There is no harness ${harnessName}.`
  emit({ type: 'error', message, code: harness ? 'agent_error' : 'unknown_harness', fatal: true })
  process.exit(1)
}

killOrphanGroups()
const agent = new Agent(harness, gateway, emit)

for (const fault of ['uncaughtException', 'unhandledRejection']) {
  process.on(fault, (error: unknown) => {
    console.error(error)
    agent.crash(error)
  })
}
// The reader of the events has left for good.
process.stdout.on('error', () => process.exit(1))
process.on('SIGTERM', stop)
// The server sends SIGINT when an interrupted turn does not end.
process.on('SIGINT', () => agent.handle({ type: 'interrupt' }))
process.stdin.on('end', stop)

const splitter = new LineSplitter()
process.stdin.on('data', (chunk: Buffer) => {
  for (const line of splitter.push(chunk)) handle(line)
})
agent.ready()

function handle(line: SplitLine): void {
  const parsed = line.type === 'line' ? parseAgentCommand(line.text) : undefined
  if (!parsed) agent.error('invalid_command', 'The line is too long.')
  else if (!parsed.ok) agent.error('invalid_command', parsed.reason)
  else if (parsed.value.type === 'shutdown') stop()
  else agent.handle(parsed.value)
}

/** How long a turn may take to end after it was interrupted. */
const stopMs = 10_000

function stop(): void {
  setTimeout(() => process.exit(1), stopMs).unref()
  agent.close().then(
    () => process.exit(0),
    (error: unknown) => {
      console.error(error)
      process.exit(1)
    },
  )
}
