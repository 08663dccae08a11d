import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { open, readdir, readFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import { sha256 } from '../../src/lib/secret.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { valuesOf } from '../support/database.ts'
import { liveProcesses } from '../support/host-processes.ts'

const run = promisify(execFile)
const chunkBytes = 4 * 1024 * 1024

/** Live processes of a sandbox, by the control groups that the host sees them in. */
export async function processesOf(sandboxId: string): Promise<number[]> {
  return (await liveProcesses()).filter(({ groups }) => groups.includes(sandboxId)).map(({ pid }) => pid)
}

/** Those of the texts that the memory of any of these processes holds, as they are or in base64. */
export async function heldInMemory(pids: number[], texts: string[]): Promise<string[]> {
  const held = new Set<string>()
  for (const pid of pids) {
    const maps = await readFile(`/proc/${pid}/maps`, 'utf8')
    await using memory = await open(`/proc/${pid}/mem`)
    for (const line of maps.split('\n')) {
      const [, from = '', to = '', readable] = /^([0-9a-f]+)-([0-9a-f]+) (r)/.exec(line) ?? []
      if (!readable || /\[(?:vvar|vsyscall|vdso)/.test(line)) continue
      await searchRange(memory, Number.parseInt(from, 16), Number.parseInt(to, 16), texts, held)
    }
  }
  return texts.filter((text) => held.has(text))
}

/** The hash of a session's gateway token, from the private database of its server. */
export async function gatewayTokenHash(dataDir: string, sessionId: string): Promise<string> {
  const { databaseDir } = new HostNames(dataDir)
  const url = `postgres:///atoll?host=${databaseDir}&user=atoll`
  const [hash = ''] = await valuesOf(url, 'select gateway_token_hash from sessions where id = $1', [sessionId])
  return String(hash)
}

/**
 * The token of that hash, from the memory of a session's agent: no environment and no file has it. (The guest may have that of an earlier agent in
 * memory that it has freed.)
 */
export async function tokenInMemory(sandboxId: string, hash: string): Promise<string> {
  const whole = /(?<![\w-])[\w-]{43}(?![\w-])/g
  for (const pid of await processesOf(sandboxId)) {
    if (!(await readFile(`/proc/${pid}/cmdline`, 'utf8')).includes('agent/start.mjs')) continue
    const maps = await readFile(`/proc/${pid}/maps`, 'utf8')
    await using memory = await open(`/proc/${pid}/mem`)
    for (const line of maps.split('\n')) {
      const [, from = '', to = ''] = /^([0-9a-f]+)-([0-9a-f]+) rw/.exec(line) ?? []
      const end = Number.parseInt(to, 16)
      for (let at = Number.parseInt(from, 16); at < end; at += chunkBytes) {
        const { buffer, bytesRead } = await memory
          .read(Buffer.alloc(Math.min(chunkBytes, end - at)), { position: at })
          .catch(() => ({ buffer: Buffer.alloc(0), bytesRead: 0 }))
        const text = buffer.toString('latin1', 0, bytesRead)
        for (const [word] of text.matchAll(whole)) if (sha256(word) === hash) return word
      }
    }
  }
  throw new Error('no process holds the token')
}

/** What grep names for these words. It says 1 when it finds nothing, and 2 when a file goes while it looks. */
export async function filesWith(...words: string[]): Promise<string> {
  try {
    return (await run('grep', ['-rlaF', ...words])).stdout
  } catch (error) {
    const { code, stdout = '', stderr = '' } = error as { code?: unknown; stdout?: string; stderr?: string }
    const complaints = stderr.split('\n').filter((line) => line !== '' && !line.endsWith('No such file or directory'))
    if (code === 1 || (code === 2 && stderr !== '' && complaints.length === 0)) return stdout
    throw error
  }
}

/** Those of the texts that any file of any sandbox, layer or saved memory of this server holds. */
export async function heldOnDisk(dataDir: string, texts: string[]): Promise<string[]> {
  const { poolDir } = new HostNames(dataDir)
  const held: string[] = []
  for (const text of texts) {
    for (const form of formsOf(text)) {
      if ((await filesWith('-e', form, poolDir)) !== '') held.push(text)
    }
  }
  return [...new Set(held)]
}

/** What the host holds of this server's sandboxes, but for the server itself: one line each, to compare. */
export async function heldOnHost(dataDir: string): Promise<string[]> {
  const { hash, cgroupRoot, poolDir, sandboxesDir } = new HostNames(dataDir)
  const folders = [
    sandboxesDir,
    ...['sandboxes', 'layers', 'memory/checkpoints', 'memory/runs', 'memory/saved'].map((name) => `${poolDir}/${name}`),
  ]
  const [mounts, links, groups, entries] = await Promise.all([
    readFile('/proc/self/mountinfo', 'utf8'),
    readdir('/sys/class/net'),
    // The database has a group beside it, whose connections come and go.
    processesOf(`${cgroupRoot}/`),
    Promise.all(folders.map(async (folder) => (await readdir(folder)).map((name) => `${folder}/${name}`))),
  ])
  return [
    ...mounts.split('\n').flatMap((line) => (line.includes(sandboxesDir) ? [`mount ${line.split(' ')[4]}`] : [])),
    ...links.filter((link) => link.startsWith(`atl${hash}`) && link !== `atl${hash}`).map((link) => `link ${link}`),
    ...groups.map((pid) => `process ${pid}`),
    ...entries.flat(),
  ].toSorted()
}

/** The same at rest: once links of sandboxes that are gone have gone too. */
export async function heldAtRest(dataDir: string): Promise<string[]> {
  const { sandboxesDir } = new HostNames(dataDir)
  return await eventually(async () => {
    const held = await heldOnHost(dataDir)
    const links = held.filter((line) => line.startsWith('link '))
    assert.equal(links.length, (await readdir(sandboxesDir)).length)
    return held
  })
}

/** Waits until the host holds this again: links of sandboxes that are gone go in the background. */
export async function holdsAgain(dataDir: string, held: readonly string[], message?: string): Promise<void> {
  await eventually(async () => assert.deepEqual(await heldOnHost(dataDir), held, message))
}

/** Control groups of a sandbox, in any hierarchy. */
export async function groupsOf(sandboxId: string): Promise<string[]> {
  // Another group that goes while it looks makes it exit with 1; what it has found is told all the same.
  const search = run('find', ['/sys/fs/cgroup', '-type', 'd', '-name', sandboxId])
  const { stdout } = await search.catch((error: { stdout: string }) => error)
  return stdout.split('\n').filter((line) => line !== '')
}

async function searchRange(
  memory: Awaited<ReturnType<typeof open>>,
  from: number,
  to: number,
  texts: string[],
  held: Set<string>,
): Promise<void> {
  const overlap = Math.max(...texts.flatMap(formsOf).map((form) => form.length))
  for (let at = from; at < to; at += chunkBytes - overlap) {
    const chunk = Buffer.alloc(Math.min(chunkBytes, to - at))
    // Memory that nobody has touched behind the end of a mapped file cannot be read.
    const { bytesRead } = await memory.read(chunk, 0, chunk.length, at).catch(() => ({ bytesRead: 0 }))
    for (const text of texts) {
      if (formsOf(text).some((form) => chunk.subarray(0, bytesRead).includes(form))) held.add(text)
    }
  }
}

function formsOf(text: string): string[] {
  return [text, Buffer.from(text).toString('base64').replace(/=+$/, '').slice(0, -1)]
}
