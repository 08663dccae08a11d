/** Writes `openapi.json` from the route table: `npm run openapi`. */
import { writeFile } from 'node:fs/promises'
import { openApiFile, openApiText } from '../server/openapi.ts'
import { routes } from './index.ts'

await writeFile(openApiFile, openApiText(routes))
