/** A file, folder or link of one side. */
export interface Entry {
  kind: 'file' | 'folder' | 'link'
  size: number
  /** Of its last change, whole seconds, which both sides can have. */
  seconds: number
  isExecutable: boolean
  /** Where a link leads. */
  target: string
  /** Of its last change as its own side has it. Absent in a copy that the other side is known to have been given. */
  stamp?: string
}

/** All of one side by its path, a string of bytes. */
export type Snapshot = ReadonlyMap<string, Entry>

/** `push`: this machine wins, `pull`: the sandbox wins, `both`: each gives what it changes, and of a path that both have changed this machine's wins. */
export type Direction = 'push' | 'pull' | 'both'

/** What a round does. Paths are in an order in which folders come before what they hold. */
export interface Plan {
  send: string[]
  receive: string[]
  removeThere: string[]
  removeHere: string[]
}

export interface Sides {
  here: Snapshot
  there: Snapshot
}

/** Whether two sides agree about a path. */
export function isSame(one: Entry | undefined, other: Entry | undefined): boolean {
  if (one === undefined || other === undefined || one.kind !== other.kind) return one === other
  if (one.kind === 'folder') return true
  if (one.kind === 'link') return one.target === other.target
  return one.size === other.size && one.seconds === other.seconds && one.isExecutable === other.isExecutable
}

interface FirstRound {
  direction: Direction
  removes?: boolean
}

/** The first round. Nothing is removed unless `removes` is set, and then what the winning side lacks. */
export function firstPlan({ here, there }: Sides, { direction, removes = false }: FirstRound): Plan {
  const differs = (path: string) => !isSame(here.get(path), there.get(path))
  const onlyIn = (one: Snapshot, other: Snapshot) => [...one.keys()].filter((path) => !other.has(path))
  const send = direction === 'pull' ? [] : [...here.keys()].filter(differs)
  const receive = direction === 'push' ? [] : [...there.keys()].filter(differs)
  return ordered({
    send,
    receive: direction === 'both' ? receive.filter((path) => !here.has(path)) : receive,
    removeThere: removes && direction === 'push' ? onlyIn(there, here) : [],
    removeHere: removes && direction === 'pull' ? onlyIn(here, there) : [],
  })
}

/** What has changed since `known`, in the direction. A change wins over a removal, so that nothing is lost that was just written. */
export function nextPlan(known: Sides, now: Sides, direction: Direction): Plan {
  const here = changes(known.here, now.here)
  const there = changes(known.there, now.there)
  const isSpared = (path: string, changed: Iterable<string>) =>
    [...changed].some((other) => other === path || other.startsWith(`${path}/`))
  switch (direction) {
    case 'push':
      return ordered({ send: [...here.changed], receive: [], removeThere: here.removed, removeHere: [] })
    case 'pull':
      return ordered({ send: [], receive: [...there.changed], removeThere: [], removeHere: there.removed })
    case 'both':
      return ordered({
        send: [...here.changed],
        receive: [...there.changed].filter((path) => !here.changed.has(path)),
        removeThere: here.removed.filter((path) => !isSpared(path, there.changed)),
        removeHere: there.removed.filter((path) => !isSpared(path, here.changed)),
      })
  }
}

/** What both sides are known to have after a plan was carried out. */
export function knownAfter(now: Sides, plan: Plan): Sides {
  const here = new Map(now.here)
  const there = new Map(now.there)
  give(plan.send, now.here, there)
  give(plan.receive, now.there, here)
  for (const path of plan.removeThere) there.delete(path)
  for (const path of plan.removeHere) here.delete(path)
  return { here, there }
}

export function isEmpty({ send, receive, removeThere, removeHere }: Plan): boolean {
  return send.length + receive.length + removeThere.length + removeHere.length === 0
}

function give(paths: readonly string[], from: Snapshot, to: Map<string, Entry>): void {
  for (const path of paths) {
    const { stamp: _, ...entry } = from.get(path)!
    to.set(path, entry)
  }
}

function changes(known: Snapshot, now: Snapshot): { changed: Set<string>; removed: string[] } {
  const changed = new Set<string>()
  for (const [path, entry] of now) {
    const before = known.get(path)
    const isKnown =
      before?.stamp === undefined ? isSame(before, entry) : isSame(before, entry) && isUntouched(before, entry)
    if (!isKnown) changed.add(path)
  }
  return { changed, removed: [...known.keys()].filter((path) => !now.has(path)) }
}

/** A folder counts as changed by its own existence alone: what it holds has paths of its own. */
function isUntouched(before: Entry, { kind, stamp }: Entry): boolean {
  return kind === 'folder' || before.stamp === stamp
}

function ordered(plan: Plan): Plan {
  return {
    send: plan.send.toSorted(),
    receive: plan.receive.toSorted(),
    removeThere: plan.removeThere.toSorted(),
    removeHere: plan.removeHere.toSorted(),
  }
}
