/**
 * Starts `main.ts`. Plain JavaScript: Node must know the compile cache that setup made (scripts/setup/agent.sh) before it compiles
 * anything. The cache is only read here.
 */
import { existsSync } from 'node:fs'
import { enableCompileCache } from 'node:module'
import { join } from 'node:path'

const compileCache = join(import.meta.dirname, '../../compile-cache')
if (existsSync(compileCache)) enableCompileCache({ directory: compileCache, portable: true })
await import(join(import.meta.dirname, 'main.ts'))
