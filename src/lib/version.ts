import { readFileSync } from 'node:fs'

const packageFile = new URL('../../package.json', import.meta.url)

/** The version of Atoll. */
export function ownVersion(): string {
  return (JSON.parse(readFileSync(packageFile, 'utf8')) as { version: string }).version
}
