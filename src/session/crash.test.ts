import assert from 'node:assert/strict'
import { test } from 'node:test'
import { surviveCrash } from './testing/crash.ts'

for (const mode of ['before', 'after'] as const) {
  test(`a server that dies ${mode} any of its calls loses nothing and repeats nothing`, async () => {
    let at = 1
    while (await surviveCrash(at, mode)) at += 1
    // The story has at least a creation, a boot, commits and acknowledgements.
    assert.ok(at > 30, `only ${at} calls`)
  })
}
