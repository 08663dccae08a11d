import { readFileSync } from 'node:fs'
import { openApi } from './openapi.ts'
import type { OpenApi } from './openapi.ts'
import { routes } from '../routes/index.ts'

/** The committed document, for readers and client generators; a test fails when it is stale. */
export const openApiFile = new URL('../../../openapi.json', import.meta.url)

const packageFile = new URL('../../../package.json', import.meta.url)

export function openApiDocument(): OpenApi {
  const { version } = JSON.parse(readFileSync(packageFile, 'utf8')) as { version: string }
  return openApi(routes, version)
}

export function openApiText(): string {
  return `${JSON.stringify(openApiDocument(), null, 2)}\n`
}
