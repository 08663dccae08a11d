/** Writes `openapi.json` from the route table: `npm run openapi`. */
import { writeFile } from 'node:fs/promises'
import { openApiFile, openApiText } from './openapi.ts'

await writeFile(openApiFile, openApiText())
