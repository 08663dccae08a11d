import { client } from '../../../account/client.ts'
import { nameOfPlace, type Place } from './place.ts'

/** The attributes of a link that saves a file. The browser sends the cookie with it, and makes a safe name of any. */
export function downloadOf(sandboxId: string, { path, pathBase64 }: Place): { href: string; download: string } {
  const query = pathBase64 === undefined ? { path } : { pathBase64 }
  const { pathname, search } = client.address(`/api/sandboxes/${encodeURIComponent(sandboxId)}/files`, query)
  return { href: pathname + search, download: nameOfPlace({ path }) }
}
