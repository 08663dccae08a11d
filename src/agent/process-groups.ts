import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { z } from 'zod'
import { statOf } from './proc.ts'

/** A process is identified by its id and its start in clock ticks since boot, because ids are reused. */
const processSchema = z.object({ pid: z.int().min(2), start: z.string().min(1) })
const recordSchema = z.object({ owner: processSchema, leader: processSchema })

/** Records a process group that the next process kills if this one is killed. Returns a function that deletes the record. */
export function recordGroup(pid: number | undefined): () => void {
  const start = pid === undefined ? undefined : startOf(pid)
  const ownStart = startOf(process.pid)
  if (pid === undefined || start === undefined || ownStart === undefined) return () => {}
  const record = { owner: { pid: process.pid, start: ownStart }, leader: { pid, start } }
  try {
    const file = join(folder(), `${process.pid}-${pid}.json`)
    writeFileSync(file, JSON.stringify(record), { mode: 0o600 })
    return () => rmSync(file, { force: true })
  } catch (error) {
    // A full disk, or a temporary folder that the model's commands have broken, must not stop the command.
    console.error(error)
    return () => {}
  }
}

/** Kills the groups of dead owners. Groups of living owners stay, and so does a process that has reused a recorded id. */
export function killOrphanGroups(): void {
  let names: string[]
  try {
    names = readdirSync(folder())
  } catch (error) {
    console.error(error)
    return
  }
  for (const name of names) {
    const file = join(folder(), name)
    try {
      const { owner, leader } = recordSchema.parse(JSON.parse(readFileSync(file, 'utf8')))
      if (startOf(owner.pid) === owner.start) continue
      if (startOf(leader.pid) === leader.start) process.kill(-leader.pid, 'SIGKILL')
    } catch (error) {
      console.error(error)
    }
    rmSync(file, { force: true })
  }
}

/** Kills the process group of a leader. */
export function killGroup(pid: number | undefined): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // It has ended already.
  }
}

/** The process groups of all that live below the leader of a group, without its own: those of its commands. */
export function groupsBelow(leader: number | undefined): Set<number> {
  const tree = leader === undefined ? [] : processTree(leader)
  const groups = tree.flatMap((pid) => statOf(pid)?.[2] ?? []).map(Number)
  return new Set(groups.filter((group) => group !== leader))
}

/** A process and those below it in its own group: a program without its commands, which lead groups of their own. */
export function programProcesses(leader: number): number[] {
  const group = statOf(leader)?.[2]
  if (group === undefined) return []
  return processTree(leader).filter((pid) => statOf(pid)?.[2] === group)
}

/** A process and all that live below it. */
export function processTree(root: number): number[] {
  const pids = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
  const parents = new Map(pids.map((pid) => [pid, Number(statOf(pid)?.[1])]))
  const tree = new Set([root])
  for (const pid of tree) for (const [child, parent] of parents) if (parent === pid) tree.add(child)
  return [...tree]
}

function folder(): string {
  const path = join(tmpdir(), 'atoll-agent', 'groups')
  mkdirSync(path, { recursive: true })
  return path
}

/** Field 22 of proc_pid_stat(5): the start of a process in clock ticks since boot. */
function startOf(pid: number): string | undefined {
  return statOf(pid)?.[19]
}
