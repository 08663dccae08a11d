import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { AtollError, ConnectionError, makeError, UnexpectedAnswerError } from '../../sdk/src/index.ts'
import { CliError, exitCodeOf, exitCodeOfError, exitCodes, OwnFailure, UsageError } from './exit-codes.ts'

test('exit codes: docs/use/cli.md has the same table', async () => {
  const page = await readFile(join(import.meta.dirname, '../../docs/use/cli.md'), 'utf8')
  const rows = page.matchAll(/^\| (\d+) \| [^|]+ \|([^|]*)\|$/gm).toArray()
  const documented = new Map(rows.map(([, code, errors = '']) => [Number(code), errors.match(/[a-z_]+(?=`)/g) ?? []]))
  assert.deepEqual([...documented.keys()], Object.values(exitCodes))
  for (const [code, names] of documented) {
    const expected = Object.entries(exitCodeOfError).flatMap(([name, of]) => (of === code ? [name] : []))
    assert.deepEqual(names.toSorted(), expected.toSorted(), `errors of exit code ${code}`)
  }
})

test('exit codes: an error ends with that of its code, its status or its kind', () => {
  assert.equal(exitCodeOf(makeError('sandbox_stopped', 'it is stopped')), 6)
  assert.equal(exitCodeOf(new AtollError('no session', { status: 404 })), 5)
  assert.equal(exitCodeOf(new ConnectionError('refused')), 3)
  assert.equal(exitCodeOf(new UnexpectedAnswerError('a page', { status: 404 })), 3)
  assert.equal(exitCodeOf(new UsageError('no path')), 2)
  assert.equal(exitCodeOf(new CliError('no such process', { exitCode: 5 })), 5)
  assert.equal(exitCodeOf(new OwnFailure(makeError('not_found', 'no sandbox'))), 125)
  assert.equal(exitCodeOf(new Error('a bug')), 1)
})
