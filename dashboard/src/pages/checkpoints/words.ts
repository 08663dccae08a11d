import type { CheckpointInfo, ListedCheckpointInfo } from 'atoll-sdk'

export const owners = ['client', 'image', 'session', 'wake'] as const satisfies ListedCheckpointInfo['owner'][]
export const origins = ['client', 'image', 'fork', 'wake', 'turn'] as const satisfies CheckpointInfo['origin'][]

export const ownerWords: Record<ListedCheckpointInfo['owner'], string> = {
  client: 'you',
  image: 'an image',
  session: 'a session',
  wake: 'you, since a wake without memory',
}

export const originWords: Record<CheckpointInfo['origin'], string> = {
  client: 'made by you',
  image: 'of an image',
  fork: 'of the fork of a session',
  wake: 'kept by a wake without memory',
  turn: 'of the turn of a session',
}

/** What it keeps, in the length of a badge. */
export const kindWords: Record<CheckpointInfo['kind'], string> = { full: 'memory', disk_only: 'disk' }

const uses = [
  ['sandboxes', 'sandbox', 'sandboxes'],
  ['sessions', 'session', 'sessions'],
  ['images', 'image', 'images'],
  ['checkpoints', 'checkpoint', 'checkpoints'],
] as const

/** `2 sandboxes, 1 session`; empty where nothing makes use of it. */
export function usesText({ dependents }: Pick<ListedCheckpointInfo, 'dependents'>): string {
  return uses
    .filter(([field]) => dependents[field] > 0)
    .map(([field, one, many]) => `${dependents[field]} ${dependents[field] === 1 ? one : many}`)
    .join(', ')
}

/** It goes with its session, and no request of a client deletes it. */
export function isOfTurn({ origin }: { origin?: CheckpointInfo['origin'] }): boolean {
  return origin === 'turn'
}

/** Only a checkpoint that clients keep has an expiry that they may set. */
export function mayExpire({ owner }: Pick<ListedCheckpointInfo, 'owner'>): boolean {
  return owner === 'client' || owner === 'wake'
}
