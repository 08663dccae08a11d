import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import type { FileService } from '../sandbox/index.ts'
import { detectFramework, PreviewWatch } from './project.ts'

async function detect(files: Record<string, string>): Promise<string | undefined> {
  const service = {
    list: async () => Object.entries(files).map(([name, text]) => ({ name, isDir: false, size: text.length })),
    read: async (_org: string, _sandbox: string, path: string) => ({
      body: Readable.from([Buffer.from(files[path.slice('/app/'.length)]!)]),
    }),
  }
  return await detectFramework({ files: service as unknown as FileService, orgId: 'o', sandboxId: 's', cwd: '/app' })
}

const manifest = (...names: string[]) =>
  JSON.stringify({ dependencies: Object.fromEntries(names.map((name) => [name, '1'])) })

const cases: [files: Record<string, string>, framework: string][] = [
  [{ 'package.json': manifest('next', 'react') }, 'nextjs'],
  [{ 'package.json': manifest('react', 'vite') }, 'react'],
  [{ 'package.json': manifest('vite'), 'index.html': '' }, 'vite'],
  [{ 'package.json': manifest('svelte', 'vite') }, 'svelte'],
  [{ 'package.json': manifest('vue', 'vite') }, 'vue'],
  [{ 'package.json': manifest('astro', 'react') }, 'astro'],
  [{ 'package.json': manifest('express') }, 'express'],
  [{ 'package.json': 'not json', 'index.html': '' }, 'static'],
  [{ 'package.json': 'null' }, ''],
  [{ 'package.json': '[]' }, ''],
  [{ 'requirements.txt': 'uvicorn\nfastapi==0.1\n' }, 'fastapi'],
  [{ 'requirements.txt': 'flask-login\n' }, ''],
  [{ 'pyproject.toml': 'dependencies = ["flask>=3"]' }, 'flask'],
  [{ 'main.py': 'import os\nfrom flask import Flask\n' }, 'flask'],
  [{ 'main.py': '# import fastapi later\n', 'index.html': '' }, 'static'],
  [{ 'main.py': 'if web:\r\n\timport \tfastapi as f\r\n' }, 'fastapi'],
  [{ 'main.py': 'import\nflask\n' }, ''],
  [{ 'index.html': '' }, 'static'],
  [{ 'notes.txt': '' }, ''],
  [{}, ''],
]
for (const [files, framework] of cases) {
  test(`${JSON.stringify(files).slice(0, 80)} is ${framework || 'nothing known'}`, async () => {
    assert.equal(await detect(files), framework)
  })
}

test('a sandbox that does not answer leaves the framework as it was', async () => {
  const files = { list: () => Promise.reject(new Error('gone')) } as unknown as FileService
  assert.equal(await detectFramework({ files, orgId: 'o', sandboxId: 's', cwd: '/app' }), undefined)
})

test('sources of newlines and blanks, as many and as long as are looked at, hold nothing up', async () => {
  const hostile = ['\n', ' ', '\t\n', 'import ', 'import\t\n'].flatMap((part) =>
    Array.from({ length: 4 }, () => part.repeat(256 * 1024).slice(0, 256 * 1024)),
  )
  const sources = Object.fromEntries(hostile.map((text, index) => [`${index}.py`, text]))
  assert.equal(await detect({ ...sources, 'requirements.txt': '\n'.repeat(256 * 1024), 'index.html': '' }), 'static')
})

test('preview: a server that takes long to listen is seen, and looked for no more', async () => {
  const settled = Promise.withResolvers<void>()
  let looks = 0
  const watch = new PreviewWatch(1, async () => {
    looks += 1
    if (looks === 18) settled.resolve()
    return looks === 18
  })
  // Its timer alone would not keep the process alive.
  const alive = setInterval(() => {}, 1000)
  watch.watch()
  await settled.promise
  await watch.lookNow()
  clearInterval(alive)
  watch.stop()
  assert.equal(looks, 18)
})
