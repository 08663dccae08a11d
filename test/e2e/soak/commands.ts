import { setTimeout as sleep } from 'node:timers/promises'
import type { SandboxModel } from './sandbox.ts'
import { Excuses } from './calls.ts'
import type { Client } from './client.ts'
import { parseSaid, programCommand, programPort } from './program.ts'

const startMsMax = 60_000

/** Not `mv`, which takes files of the same number for the same file: in a fork a new one may have that of an older one. */
const writeProgram = `
import os, sys
_, name, value = sys.argv
os.makedirs("/data", exist_ok=True)
with open(f"/data/{name}.new", "w") as file: print(value, file=file)
os.rename(f"/data/{name}.new", f"/data/{name}")
`

interface RunResult {
  exitCode: number
  stdout: string
  stderr: string
}

/** Runs a command that must succeed; undefined when something has cut it off. */
export async function run(
  client: Client,
  sandbox: SandboxModel,
  cmd: string,
  args: string[],
  mayFail = false,
): Promise<RunResult | undefined> {
  const excuses = new Excuses(client.world, sandbox)
  const wasEnded = sandbox.program.ends.watch()
  const answer = await client.ask(sandbox, 'POST', '/exec/run', { body: { cmd, args, timeout: 20 } })
  if (answer?.status !== 200) return undefined
  const result = answer.body as RunResult
  if (result.exitCode === 0 || mayFail) return result
  if (!wasEnded() && sandbox.isUsable) await excuses.report(`${cmd} ${args.join(' ')} ended with ${answer.text}`)
  return undefined
}

/** A sandbox answers for itself, with its own variables. */
export async function checkIdentity(client: Client, sandbox: SandboxModel): Promise<void> {
  const result = await run(client, sandbox, 'sh', ['-c', 'echo "$BOX $(hostname)"'])
  if (result === undefined || result.stdout === `${sandbox.mark} ${sandbox.id}\n`) return
  client.world.violated(`${sandbox.id} is ${sandbox.mark}, but says ${result.stdout}`, sandbox)
}

export async function writeFile(client: Client, sandbox: SandboxModel): Promise<void> {
  const name = client.file
  const value = client.world.number()
  const byCommand = client.random.next() < 0.3
  const ended = sandbox.files.write(name, value)
  const done = byCommand
    ? (await run(client, sandbox, 'python3', ['-c', writeProgram, name, String(value)])) !== undefined
    : (await client.ask(sandbox, 'PUT', `/files?path=/data/${name}`, { raw: Buffer.from(`${value}\n`) }))?.status ===
      204
  ended(done ? 'done' : 'unknown')
  if (done || !byCommand) return
  // It may still run, and write later than what comes next.
  sandbox.files.abandon(name)
  client.nextFile()
}

export async function readFile(client: Client, sandbox: SandboxModel, name = anyFile(client, sandbox)): Promise<void> {
  const check = sandbox.files.read(name)
  const answer = await client.ask(sandbox, 'GET', `/files?path=/data/${name}`, { allow: ['not_found'] })
  if (answer?.status !== 200 && answer?.status !== 404) return
  const fault = check(answer.status === 404 ? 0 : Number(answer.text))
  if (fault !== undefined) client.world.violated(`${sandbox.id}: ${fault}`, sandbox)
}

/** Asks the program that counts in memory, as a browser would or from inside. Where none can be, one is started. */
export async function checkProgram(client: Client, sandbox: SandboxModel): Promise<void> {
  const asked = sandbox.program.ask()
  const text = client.random.next() < 0.7 ? await askByPreview(client, sandbox) : await askInside(client, sandbox)
  asked.ended()
  if (text === undefined) return
  const said = parseSaid(text)
  // A deletion ends it too, and then there is nothing to start.
  if (said === undefined && !sandbox.isUsable) return
  const fault = said === undefined ? asked.nothingListens() : asked.said(said)
  if (fault !== undefined) client.world.violated(`${sandbox.id}: ${fault} (${text.slice(0, 200)})`, sandbox)
  if (said === undefined && sandbox.program.mayBeGone) await startProgram(client, sandbox)
}

/** Empty when nothing listens. */
async function askByPreview(client: Client, sandbox: SandboxModel): Promise<string | undefined> {
  const host = `${sandbox.id}-p${programPort}.preview.localhost`
  const answer = await client.call(sandbox, 'GET', `/by-${client.name}`, { host, allow: ['nothing_listening'] })
  if (answer?.status === 200) return answer.text
  return answer?.code === 'nothing_listening' ? '' : undefined
}

async function askInside(client: Client, sandbox: SandboxModel): Promise<string | undefined> {
  const script = `exec 3<> /dev/tcp/127.0.0.1/${programPort} && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3`
  const result = await run(client, sandbox, 'bash', ['-c', script], true)
  if (result === undefined) return undefined
  return result.exitCode === 0 || result.stderr.includes('refused') ? result.stdout : undefined
}

async function startProgram(client: Client, sandbox: SandboxModel): Promise<void> {
  const instance = `program-${client.world.number()}`
  const how = client.random.next() < 0.3 ? 'session' : 'detached'
  const excuses = new Excuses(client.world, sandbox)
  const wasEnded = sandbox.program.ends.watch()
  const ended = sandbox.program.start(instance)
  const body = programCommand(instance, how)
  const answer = await client.ask(sandbox, 'POST', how === 'session' ? '/exec' : '/exec/run', { body })
  if (answer !== undefined && answer.status < 300) {
    const fault = await listens(client, sandbox, () => excuses.forCut || wasEnded())
    if (fault !== undefined) await excuses.report(`${sandbox.id}: ${instance}: ${fault}`)
  }
  ended()
}

/** Waits until the program answers; says what is wrong, also when it does not. */
async function listens(client: Client, sandbox: SandboxModel, isExcused: () => boolean): Promise<string | undefined> {
  const deadline = Date.now() + startMsMax
  while (Date.now() < deadline && client.world.violations.length === 0) {
    const asked = sandbox.program.ask()
    const text = await askByPreview(client, sandbox)
    asked.ended()
    const said = text === undefined ? undefined : parseSaid(text)
    if (said !== undefined) return asked.said(said)
    if (isExcused()) return undefined
    await sleep(50)
  }
  return client.world.violations.length > 0 ? undefined : 'did not begin to listen'
}

function anyFile(client: Client, sandbox: SandboxModel): string {
  const { names } = sandbox.files
  return names[client.random.between(0, Math.max(0, names.length - 1))] ?? client.file
}
