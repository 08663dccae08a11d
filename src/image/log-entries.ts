import type { LogEntry } from '../events/index.ts'
import { defined } from '../lib/defined.ts'
import type { Image } from './image.ts'

type State = Pick<Image, 'status' | 'isPublic'>

/** What the log says of a change of an image: `before` is undefined for a new record. */
export function imageEntries(before: State | undefined, after: Image): LogEntry[] {
  const of = ofImage(after)
  const entries: LogEntry[] = before === undefined ? [{ ...of, type: 'image.created' }] : []
  if (before?.status !== after.status && after.status === 'ready') entries.push({ ...of, type: 'image.ready' })
  if (before?.status !== after.status && after.status === 'failed') {
    const data = { ...of.data, ...defined({ message: after.failure?.message }) }
    entries.push({ ...of, type: 'image.failed', data })
  }
  if ((before?.isPublic ?? false) === after.isPublic) return entries
  return [...entries, { ...of, type: after.isPublic ? 'image.published' : 'image.unpublished' }]
}

export function imageDeleted(image: Image): LogEntry {
  return { ...ofImage(image), type: 'image.deleted' }
}

function ofImage({ id, name, contentHash }: Image) {
  return { subject: id, data: { contentHash, ...defined({ name }) } }
}
