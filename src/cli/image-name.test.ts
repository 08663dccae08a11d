import assert from 'node:assert/strict'
import { test } from 'node:test'
import { defaultName } from './image-name.ts'

test('image add: the name is that of the repository with its tag', () => {
  const names: Record<string, string> = {
    'docker.io/library/python:3.12': 'python-3.12',
    'docker.io/library/alpine': 'alpine',
    'localhost:5000/team/tools:latest': 'tools',
    'ghcr.io/team/tools:1@sha256:ab': 'tools-1',
  }
  for (const [reference, name] of Object.entries(names)) assert.equal(defaultName(reference), name)
})
