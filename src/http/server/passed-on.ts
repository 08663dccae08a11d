import type { IncomingMessage } from 'node:http'

/** What proxies add to a request of somebody else. */
const marks = ['x-forwarded-for', 'x-forwarded-host', 'forwarded', 'via']

/** Whether a proxy passed the request on: what is for this machine alone does not exist for it. */
export function isPassedOn({ headers }: Pick<IncomingMessage, 'headers'>): boolean {
  return marks.some((name) => headers[name] !== undefined)
}
