import assert from 'node:assert/strict'
import { test } from 'node:test'
import { UsageError } from './exit-codes.ts'
import { assertImageName, defaultName } from './image-name.ts'

test('image add: the name is that of the repository with its tag', () => {
  const names: Record<string, string> = {
    'docker.io/library/python:3.12': 'python-3.12',
    'docker.io/library/alpine': 'alpine',
    'localhost:5000/team/tools:latest': 'tools',
    'ghcr.io/team/tools:1@sha256:ab': 'tools-1',
  }
  for (const [reference, name] of Object.entries(names)) assert.equal(defaultName(reference), name)
})

test('atoll image build: a name that cannot be is refused with what was meant', () => {
  for (const name of ['tools', 'Tools:3', 'a.b-c_d:latest']) assertImageName(name)
  const hints: Record<string, RegExp> = {
    '.': /it goes before the folder/,
    '../app': /it goes before the folder/,
    '/srv/app': /it goes before the folder/,
    'ghcr.io/me/tools:1': /no registry or organisation in front, as in "atoll image build tools:1"/,
    'tools:': /it is 1 to 128 letters/,
  }
  for (const [name, message] of Object.entries(hints))
    assert.throws(
      () => assertImageName(name),
      (error) => error instanceof UsageError && message.test(error.message),
      name,
    )
})
