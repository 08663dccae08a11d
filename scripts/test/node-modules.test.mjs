import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'

const setupDir = join(import.meta.dirname, '../setup')

// What an npm before 11 leaves: the package of Node for this architecture, without the link to its program.
const oldNpm = `#!/bin/sh
mkdir -p node_modules/.bin node_modules/node-linux-${process.arch}/bin
echo '{}' >node_modules/.package-lock.json
printf '#!/bin/sh\\necho v24.0.0\\n' >node_modules/node-linux-${process.arch}/bin/node
chmod +x node_modules/node-linux-${process.arch}/bin/node
echo "npm $*" >>calls
`

test('setup has a Node in node_modules with an npm that does not link it, and installs once', async () => {
  const dir = await mkdtemp('/var/tmp/atoll-node-modules-')
  try {
    await mkdir(join(dir, 'bin'))
    await writeFile(join(dir, 'bin/npm'), oldNpm)
    await chmod(join(dir, 'bin/npm'), 0o755)
    await writeFile(join(dir, 'package-lock.json'), '{}')
    const script = `set -euo pipefail
      source ${setupDir}/images.sh
      source ${setupDir}/node-modules.sh
      say() { :; }
      install_node_modules
      install_node_modules
      node_modules/.bin/node --version
      cat calls`
    const env = { PATH: `${join(dir, 'bin')}:${process.env['PATH']}` }
    const { stdout } = await promisify(execFile)('bash', ['--norc', '-c', script], { cwd: dir, env })
    assert.deepEqual(stdout.trim().split('\n').slice(-2), ['v24.0.0', 'npm ci --no-audit --no-fund'])
  } finally {
    await rm(dir, { recursive: true })
  }
})
