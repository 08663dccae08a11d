import { defined } from '../../lib/defined.ts'
import type { CutSubvolume } from '../../runtime/index.ts'
import type { Manifest, Part, Stream } from './manifest.ts'

/** A restore receives all streams below one, and a damaged one costs all above it. */
const depthMax = 64
/** Another whole stream is written when the streams since the last whole one have this many bytes more than it. */
const addedBytesMin = 64 * 1024 * 1024

/** The state of a backup under way: which stream each new one can build on. */
export class StreamPlan {
  readonly #subvolumes: readonly CutSubvolume[]
  readonly #last: Manifest | undefined
  /** Streams in the folder of the backup whose snapshots are in the pool. */
  readonly #usable: Map<string, Stream>

  constructor(subvolumes: readonly CutSubvolume[], kept: readonly string[], last: Manifest | undefined) {
    this.#last = last
    const known = kept.flatMap((id) => (last?.streams[id] === undefined ? [] : [[id, last.streams[id]] as const]))
    this.#usable = new Map(known)
    this.#subvolumes = subvolumes.toSorted((one, other) => ageOf(one) - ageOf(other))
  }

  /** Subvolumes that must be copied: frozen ones first, the oldest before the others, since each may build on earlier ones. */
  get missing(): CutSubvolume[] {
    return this.#subvolumes.filter(({ isNew }) => isNew)
  }

  /** The id of the stream on which that of a subvolume builds. Undefined: its stream is whole. */
  parentOf(subvolume: CutSubvolume): string | undefined {
    const former = this.#formerOf(subvolume)
    if (former !== undefined && this.#canGrow(former)) return former
    const before = this.#subvolumes.slice(0, this.#subvolumes.indexOf(subvolume))
    return before.findLast((other) => areRelated(subvolume, other) && this.#isShallow(other.id))?.id
  }

  /** Notes that a stream has been written. */
  add(subvolume: CutSubvolume, part: Part, parent: string | undefined): void {
    const below = parent === undefined ? undefined : this.#usable.get(parent)
    const depth = below === undefined ? 0 : below.depth + 1
    const continues = parent !== undefined && parent === this.#formerOf(subvolume)
    const sizes =
      continues && below !== undefined
        ? { chainBytes: below.chainBytes + part.bytes, wholeBytes: below.wholeBytes }
        : { chainBytes: 0, wholeBytes: part.bytes }
    this.#usable.set(subvolume.id, { ...part, depth, ...sizes, ...defined({ parent }) })
  }

  /** The manifest's entries of the subvolumes in the backup, with every stream that they build on. */
  result(): Pick<Manifest, 'streams' | 'subvolumes'> {
    const result: Pick<Manifest, 'streams' | 'subvolumes'> = { streams: {}, subvolumes: {} }
    const known = (id: string) => this.#usable.get(id) ?? this.#last?.streams[id]
    for (const { path, id, uuid, generation, isReadOnly, limitBytes } of this.#subvolumes) {
      if (known(id) === undefined) continue
      result.subvolumes[path] = { id, uuid, generation, isReadOnly, ...defined({ limitBytes }) }
      for (let next: string | undefined = id; next !== undefined && result.streams[next] === undefined;) {
        const stream = known(next)
        if (stream === undefined) throw new Error(`the stream ${next} is unknown`)
        result.streams[next] = stream
        next = stream.parent
      }
    }
    return result
  }

  /** The stream of this subvolume in the last backup. */
  #formerOf({ path, uuid }: CutSubvolume): string | undefined {
    const former = this.#last?.subvolumes[path]
    return former?.uuid === uuid && this.#usable.has(former.id) ? former.id : undefined
  }

  #canGrow(id: string): boolean {
    const { chainBytes = 0, wholeBytes = 0 } = this.#usable.get(id) ?? {}
    return this.#isShallow(id) && chainBytes <= wholeBytes + addedBytesMin
  }

  #isShallow(id: string): boolean {
    return (this.#usable.get(id)?.depth ?? depthMax) < depthMax
  }
}

/** A read-only subvolume has the age of its creation; a writable one counts as of now. */
function ageOf({ isReadOnly, createdIn }: CutSubvolume): number {
  return isReadOnly ? createdIn : Number.MAX_SAFE_INTEGER
}

/** Whether one was made of the other, or both of the same. */
function areRelated(one: CutSubvolume, other: CutSubvolume): boolean {
  if (one.parentUuid !== undefined && (one.parentUuid === other.uuid || one.parentUuid === other.parentUuid))
    return true
  return other.parentUuid === one.uuid
}

/** The ids of streams, each after the one that it builds on. */
export function receiveOrder(streams: Manifest['streams']): string[] {
  return Object.keys(streams).toSorted((one, other) => (streams[one]?.depth ?? 0) - (streams[other]?.depth ?? 0))
}
