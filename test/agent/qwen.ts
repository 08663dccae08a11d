import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const version = '0.24.4'

/** A real agent from npm, installed once into the machine's temporary folder; returns its command. */
export async function qwenCommand(): Promise<string> {
  const folder = join(tmpdir(), `atoll-test-qwen-code-${version}`)
  if (!existsSync(folder)) {
    const fresh = mkdtempSync(`${folder}-`)
    writeFileSync(join(fresh, 'package.json'), '{"private":true}')
    // Its optional packages are native, for clipboards and microphones.
    const options = ['--ignore-scripts', '--omit=optional', '--no-audit', '--no-fund', '--save-exact']
    await promisify(execFile)('npm', ['install', ...options, `@qwen-code/qwen-code@${version}`], { cwd: fresh })
    mkdirSync(join(fresh, 'node_modules'), { recursive: true })
    try {
      renameSync(fresh, folder)
    } catch {
      // Another test was faster.
      rmSync(fresh, { recursive: true, force: true })
    }
  }
  return `${process.execPath} ${join(folder, 'node_modules/@qwen-code/qwen-code/cli-entry.js')} --acp`
}
