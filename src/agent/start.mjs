/**
 * Starts `main.ts`. Plain JavaScript, so that nothing is compiled before Node knows where setup has put what it has compiled
 * already (scripts/setup/agent.sh); that is only read here.
 */
import { existsSync } from 'node:fs'
import { enableCompileCache } from 'node:module'
import { join } from 'node:path'

const compileCache = join(import.meta.dirname, '../../compile-cache')
if (existsSync(compileCache)) enableCompileCache({ directory: compileCache, portable: true })
await import(join(import.meta.dirname, 'main.ts'))
